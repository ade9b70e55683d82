//! Accepts rows: waiting ones, and those that a client names.

use std::time::Duration;

use async_trait::async_trait;

use super::super::session::{Fault, Session, Value};
use super::super::{Fetched, Manual, Origin, Row};
use super::{Locked, Transaction, TxContext, ids_of};

/// Targets that one statement looks up.
const TARGETS_AT_ONCE_MAX: usize = 50;

/// How many pages of candidates a fetch reads while other workers take them.
const PAGES_MAX: usize = 8;

pub(super) struct Fetch<'a> {
    pub targets: &'a [String],
    pub limit: usize,
    pub lease: Duration,
}

#[async_trait]
impl Transaction for Fetch<'_> {
    type Done = Fetched;

    /// Candidates are read without locks and then locked by their ids: a search that locks would
    /// lock more than it takes, and others would find nothing.
    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Fetched, Fault> {
        let mut fetched = Fetched::default();
        let mut after = 0;
        for _ in 0..PAGES_MAX {
            let left = self.limit - fetched.rows.len() - fetched.ignored.len();
            let candidates = self.candidates(context, session, after, left).await?;
            let Some(last) = candidates.last() else { break };
            after = *last;
            let locked = context.lock_rows(session, &candidates, false).await?;
            let taken = fetched.rows.len() + fetched.ignored.len();
            locked.into_iter().for_each(|row| self.take(row, &mut fetched));
            let missed = fetched.rows.len() + fetched.ignored.len() - taken < candidates.len();
            fetched.more |= missed;
            if !missed {
                fetched.more |= candidates.len() == left;
                break;
            }
        }
        let ids = ids_of(&fetched.rows);
        context.update(session, &ids, "status = 'accepted'").await?;
        context.mark(session, &ids, Origin::Waiting, self.lease).await?;
        context.update(session, &fetched.ignored, "status = 'ignored'").await?;
        Ok(fetched)
    }

    fn accepted(&self, done: &Fetched) -> Vec<Row> {
        done.rows.clone()
    }
}

impl Fetch<'_> {
    async fn candidates(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
        after: u64,
        limit: usize,
    ) -> Result<Vec<u64>, Fault> {
        let mut ids: Vec<u64> = Vec::new();
        if limit == 0 {
            return Ok(ids);
        }
        let column_limits = &context.limits.target;
        let targets = self.targets.iter().filter(|target| column_limits.can_have(target));
        for targets in targets.collect::<Vec<_>>().chunks(TARGETS_AT_ONCE_MAX) {
            let value = |target: &&String| [Value::Text((*target).clone()), Value::from(after)];
            let values = targets.iter().flat_map(value).collect();
            let sql = context.names.waiting(targets.len(), limit);
            let rows = session.rows(&sql, values).await?;
            ids.extend(rows.iter().filter_map(|row| row.first().and_then(Value::id)));
        }
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }

    fn take(&self, row: Locked, fetched: &mut Fetched) {
        if row.status != "waiting" {
            return;
        }
        if self.targets.contains(&row.target) {
            fetched.rows.push(Row { id: row.id, target: row.target, origin: Origin::Waiting });
        } else {
            fetched.ignored.push(row.id);
        }
    }
}

pub(super) struct AcceptManual<'a> {
    pub ids: &'a [u64],
    pub targets: &'a [String],
    pub lease: Duration,
}

#[async_trait]
impl Transaction for AcceptManual<'_> {
    type Done = Vec<Manual>;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Vec<Manual>, Fault> {
        let mut ids = self.ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        let mut locked = context.lock_rows(session, &ids, true).await?;
        locked.sort_unstable_by_key(|row| row.id);
        let mut ignored = Vec::new();
        let answers: Vec<Manual> = self.ids.iter().map(|id| self.answer(*id, &locked)).collect();
        for answer in &answers {
            if let Manual::WrongStatus { id, .. } | Manual::UnknownTarget { id, .. } = answer {
                ignored.push(*id);
            }
        }
        let ids = ids_of(&self.accepted(&answers));
        context.update(session, &ids, "status = 'accepted'").await?;
        context.mark(session, &ids, Origin::Manual, self.lease).await?;
        context.update(session, &ignored, "status = 'ignored'").await?;
        Ok(answers)
    }

    fn accepted(&self, done: &Vec<Manual>) -> Vec<Row> {
        let accepted = done.iter().filter_map(|answer| match answer {
            Manual::Accepted(row) => Some(row.clone()),
            _ => None,
        });
        accepted.collect()
    }
}

impl AcceptManual<'_> {
    fn answer(&self, id: u64, locked: &[Locked]) -> Manual {
        let Ok(at) = locked.binary_search_by_key(&id, |row| row.id) else {
            return Manual::Missing(id);
        };
        let Locked { status, target, .. } = &locked[at];
        if status != "manual" {
            Manual::WrongStatus { id, status: status.clone() }
        } else if !self.targets.contains(target) {
            Manual::UnknownTarget { id, target: target.clone() }
        } else {
            Manual::Accepted(Row { id, target: target.clone(), origin: Origin::Manual })
        }
    }
}
