//! Renews and returns rows, and takes those of dead workers.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use windlass_core::launch::Output;

use super::super::fit;
use super::super::session::{Fault, Session, Value};
use super::super::{Interrupted, Origin, Recovered, Row};
use super::{IDS_AT_ONCE_MAX, Locked, Transaction, TxContext, ids_of};

/// Resets a row to its state before the start.
const NOT_STARTED: &str = "result = NULL, time_started = 0";

pub(super) struct HandBack<'a> {
    pub rows: &'a [Row],
}

#[async_trait]
impl Transaction for HandBack<'_> {
    type Done = ();

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<(), Fault> {
        let mut ids = ids_of(self.rows);
        ids.sort_unstable();
        let mut accepted = context.lock_rows(session, &ids, true).await?;
        accepted.retain(|row| row.status == "accepted");
        let accepted = accepted.iter().map(|row| row.id).collect();
        let ours = context.ours(session, accepted).await?;
        let is_ours = |row: &&Row| ours.binary_search(&row.id).is_ok();
        context.put_back(session, self.rows.iter().filter(is_ours)).await?;
        context.unmark(session, &ours).await
    }
}

pub(super) struct Renew<'a> {
    pub ids: &'a [u64],
    pub lease: Duration,
}

#[async_trait]
impl Transaction for Renew<'_> {
    type Done = Vec<u64>;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Vec<u64>, Fault> {
        let mut ids = self.ids.to_vec();
        ids.sort_unstable();
        for ids in ids.chunks(IDS_AT_ONCE_MAX).filter(|_| context.marks) {
            let sql = context.names.renew(ids, context.owner, self.lease);
            session.run(&sql, Vec::new()).await?;
        }
        let ours = context.ours(session, ids.clone()).await?;
        ids.retain(|id| ours.binary_search(id).is_err());
        Ok(ids)
    }
}

pub(super) struct Recover<'a> {
    pub held: &'a [u64],
    pub interrupted: Interrupted,
    pub now: i64,
    pub reason: &'a str,
}

#[async_trait]
impl Transaction for Recover<'_> {
    type Done = Recovered;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Recovered, Fault> {
        let mut recovered = Recovered::default();
        if !context.marks {
            return Ok(recovered);
        }
        let run_out = session.rows(&context.names.run_out(IDS_AT_ONCE_MAX), Vec::new()).await?;
        recovered.more = run_out.len() == IDS_AT_ONCE_MAX;
        let ids: Vec<u64> = run_out.iter().filter_map(|row| self.not_held(context, row)).collect();
        if ids.is_empty() {
            return Ok(Recovered::default());
        }
        let locked = context.lock_rows(session, &ids, false).await?;
        let there = session.rows(&context.names.existing(&ids), Vec::new()).await?;
        let there: Vec<u64> = ids_in(&there);
        let marks = session.rows(&context.names.lock_run_out(&ids), Vec::new()).await?;
        let marks: HashMap<u64, Origin> = marks.iter().filter_map(|row| mark(row)).collect();

        let (mut over, mut again) = (Vec::new(), Vec::new());
        over.extend(marks.keys().filter(|id| !there.contains(id)));
        for row in locked {
            let Some(origin) = marks.get(&row.id) else { continue };
            over.push(row.id);
            self.sort_in(row, *origin, &mut recovered, &mut again);
        }
        self.write(context, session, &recovered, &again).await?;
        over.sort_unstable();
        context.unmark(session, &over).await?;
        Ok(recovered)
    }
}

impl Recover<'_> {
    fn not_held(&self, context: &TxContext<'_>, row: &[Value]) -> Option<u64> {
        let (id, boot) = (row.first()?.id()?, row.get(1)?.id()?);
        let held = boot == context.owner.boot && self.held.contains(&id);
        (!held).then_some(id)
    }

    /// `again` receives those that had been started.
    fn sort_in(
        &self,
        row: Locked,
        origin: Origin,
        recovered: &mut Recovered,
        again: &mut Vec<u64>,
    ) {
        let Locked { id, status, target, .. } = row;
        match (status.as_str(), self.interrupted) {
            ("accepted", _) => recovered.back.push(Row { id, target, origin }),
            ("running", Interrupted::Fail) => recovered.failed.push(id),
            ("running", Interrupted::Retry) => {
                again.push(id);
                recovered.back.push(Row { id, target, origin });
            }
            _ => {}
        }
    }

    async fn write(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
        recovered: &Recovered,
        again: &[u64],
    ) -> Result<(), Fault> {
        context.put_back(session, recovered.back.iter()).await?;
        context.update(session, again, NOT_STARTED).await?;
        let nothing = Output::default();
        let (_, stderr) = fit::outputs(context.limits, &nothing, &nothing, Some(self.reason));
        let set = format!(
            "status = 'done', result = 'fail', time_finished = {}, return_code = NULL, \
             sig = NULL, stderr = ?",
            self.now
        );
        for id in &recovered.failed {
            let sql = context.names.update(&[*id], &set);
            session.run(&sql, vec![Value::Text(stderr.clone())]).await?;
        }
        Ok(())
    }
}

fn mark(row: &[Value]) -> Option<(u64, Origin)> {
    Some((row.first()?.id()?, Origin::read(&row.get(1)?.text())))
}

fn ids_in(rows: &[Vec<Value>]) -> Vec<u64> {
    rows.iter().filter_map(|row| row.first().and_then(Value::id)).collect()
}
