//! Jobs start and end.

use std::collections::HashMap;

use async_trait::async_trait;
use windlass_core::launch::Output;

use super::super::fit;
use super::super::session::{Fault, Session, Value};
use super::super::{End, TableError, Unwritten};
use super::{Locked, SqlTable, Transaction, TxContext};

/// Ends that differ only in their ids share a statement if their output is this short.
const ALIKE_BYTES_MAX: usize = 1024;

/// Maximum number of ids in such a statement. Lists are padded to a power of two, so that there are
/// few distinct statements for the database to cache.
const ALIKE_MAX: usize = 64;

pub(super) struct Start<'a> {
    pub ids: &'a [u64],
    pub now: i64,
}

#[async_trait]
impl Transaction for Start<'_> {
    type Done = Vec<u64>;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Vec<u64>, Fault> {
        let (_, ours) = context.lock_ours(session, self.ids.to_vec()).await?;
        let now = self.now;
        let set = format!("status = 'running', result = 'ok', time_started = {now}");
        context.update(session, &ours, &set).await?;
        Ok(ours)
    }
}

impl SqlTable {
    /// All in one transaction; if the database refuses that, one by one, and then without output: a
    /// row that cannot be written would stay `running` forever.
    pub(super) async fn finish_all(&self, ends: &[End]) -> Result<Vec<Unwritten>, TableError> {
        match self.transact(&Finish { ends }).await {
            Err(TableError::Refused(_)) => {}
            done => return done,
        }
        let mut unwritten = Vec::new();
        for end in ends {
            match self.finish_one(end).await {
                Ok(some) => unwritten.extend(some),
                Err(TableError::Refused(reason)) => {
                    unwritten.push(Unwritten::Refused(end.id, reason))
                }
                Err(away) => return Err(away),
            }
        }
        Ok(unwritten)
    }

    async fn finish_one(&self, end: &End) -> Result<Vec<Unwritten>, TableError> {
        let reason = match self.transact(&Finish { ends: std::slice::from_ref(end) }).await {
            Err(TableError::Refused(reason)) => reason,
            done => return done,
        };
        let why = format!("[the output could not be stored: {reason}]");
        let note = end.note.as_ref().map_or(why.clone(), |note| format!("{note}\n{why}"));
        let (stdout, stderr) = (Output::default(), Output::default());
        let bare = End { stdout, stderr, note: Some(note), ..end.clone() };
        self.transact(&Finish { ends: &[bare] }).await
    }
}

struct Finish<'a> {
    ends: &'a [End],
}

/// The values that an end writes, except the id.
#[derive(PartialEq, Eq, Hash)]
struct RowValues {
    ok: bool,
    finished_at: i64,
    code: Option<i64>,
    signal: Option<String>,
    stderr: String,
    stdout: String,
}

#[async_trait]
impl Transaction for Finish<'_> {
    type Done = Vec<Unwritten>;

    async fn carry_out(
        &self,
        context: &TxContext<'_>,
        session: &mut dyn Session,
    ) -> Result<Vec<Unwritten>, Fault> {
        let ids = self.ends.iter().map(|end| end.id).collect();
        let (locked, ours) = context.lock_ours(session, ids).await?;
        let is_ours = |end: &&End| ours.binary_search(&end.id).is_ok();
        let mut alike: HashMap<RowValues, Vec<u64>> = HashMap::new();
        for end in self.ends.iter().filter(is_ours) {
            let written = written(context, end);
            if written.stdout.len() + written.stderr.len() > ALIKE_BYTES_MAX {
                write(context, session, written, &[end.id]).await?;
            } else {
                alike.entry(written).or_default().push(end.id);
            }
        }
        for (written, ids) in alike {
            write(context, session, written, &ids).await?;
        }
        context.unmark(session, &ours).await?;
        let lost = self.ends.iter().filter(|end| !is_ours(end) && !was_written(end, &locked));
        Ok(lost.map(|end| Unwritten::Lost(end.id)).collect())
    }
}

/// Whether an earlier attempt with a lost confirmation has written it.
fn was_written(end: &End, locked: &[Locked]) -> bool {
    locked.iter().any(|row| {
        let finished_at = u64::try_from(end.finished_at).ok();
        row.id == end.id && row.status == "done" && row.finished_at == finished_at
    })
}

fn written(context: &TxContext<'_>, end: &End) -> RowValues {
    let limits = context.limits;
    let (stdout, stderr) = fit::outputs(limits, &end.stdout, &end.stderr, end.note.as_deref());
    RowValues {
        ok: end.ok,
        finished_at: end.finished_at,
        code: fit::code(limits, end.code),
        signal: end.signal.as_ref().map(|signal| fit::name(&limits.signal, signal)),
        stderr,
        stdout,
    }
}

async fn write(
    context: &TxContext<'_>,
    session: &mut dyn Session,
    written: RowValues,
    ids: &[u64],
) -> Result<(), Fault> {
    let result = if written.ok { "ok" } else { "fail" };
    let values = [
        Value::Int(written.finished_at),
        Value::from(written.code),
        Value::from(written.signal),
        Value::Text(written.stderr),
        Value::Text(written.stdout),
    ];
    let set = format!(
        "status = 'done', result = '{result}', time_finished = ?, return_code = ?, sig = ?, \
         stderr = ?, stdout = ?"
    );
    for ids in ids.chunks(ALIKE_MAX) {
        let placeholders = ids.len().next_power_of_two();
        let last = ids.last().copied().unwrap_or_default();
        let ids = ids.iter().copied().chain(std::iter::repeat(last)).take(placeholders);
        let ids = ids.map(Value::from);
        let sql = context.names.update_by_placeholders(placeholders, &set);
        session.run(&sql, values.iter().cloned().chain(ids).collect()).await?;
    }
    Ok(())
}
