//! The tables of queued jobs: those in `ready` may run now, and those in `deferred` wait for their
//! time. A queued job without a lease is in exactly one of them, unless it is `withheld`.
//!
//! Claims take jobs out of `ready`, and promotions move them there, without the lock on the job's
//! row: they skip rows of the queue that others have locked, and never wait. Every other
//! transaction has locked the job. If it does not find it in the queue where its row says it is, a
//! claim or a promotion was faster, and the whole transaction runs again (`Failure::Moved`).

use windlass_core::Job;
use windlass_core::time::Timestamp;

use crate::error::{Failure, Result};
use crate::row::{self, HIDDEN_RANK, Stored};
use crate::tx::{Place, Tx, values};

/// Deferred jobs that become ready in one transaction. Bounds how long it takes if very many jobs
/// come due at once.
const PROMOTE_JOBS_MAX: i64 = 5_000;

/// Stands for `deferred` in the table `front`, where others have the id of a type.
const DEFERRED: i32 = -1;

/// The key of a queued job in the tables of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueKey {
    pub(crate) type_id: i32,
    /// At least `HIDDEN_RANK` for hidden jobs.
    pub(crate) rank: i32,
    pub(crate) run_at: Timestamp,
    /// The order among jobs with the same time; see `Extra::tie`.
    pub(crate) tie: i64,
    pub(crate) id: i64,
}

impl QueueKey {
    /// Its place among jobs of the same rank.
    pub(crate) fn place(&self) -> Place {
        (self.run_at.ms(), self.tie, self.id)
    }
}

/// The key of a queued job.
pub(crate) fn key(stored: &Stored) -> QueueKey {
    let Job { id, priority, run_at, .. } = stored.job;
    let (rank, tie) = (row::rank(priority, stored.parts), stored.job.extra.tie());
    QueueKey { type_id: stored.type_id, rank, run_at, tie, id: id.get() }
}

/// Keys as the parameters of a statement.
#[derive(Default)]
struct Columns {
    types: Vec<i32>,
    ranks: Vec<i32>,
    times: Vec<i64>,
    ties: Vec<i64>,
    ids: Vec<i64>,
}

impl Columns {
    fn push(&mut self, key: QueueKey) {
        self.types.push(key.type_id);
        self.ranks.push(key.rank);
        self.times.push(key.run_at.ms());
        self.ties.push(key.tie);
        self.ids.push(key.id);
    }

    /// Adds these keys; the answer is waited for at the end.
    async fn add(self, tx: &mut Tx<'_>, sql: &'static str) -> Result<()> {
        let Columns { types, ranks, times, ties, ids } = self;
        if ids.is_empty() {
            return Ok(());
        }
        tx.later(sql, values![types, ranks, times, ties, ids]).await
    }

    async fn execute(&self, tx: &Tx<'_>, sql: &'static str) -> Result<u64> {
        let Columns { types, ranks, times, ties, ids } = self;
        if ids.is_empty() {
            return Ok(0);
        }
        tx.execute(sql, &[types, ranks, times, ties, ids]).await
    }
}

const ADD_READY: &str = "
    INSERT INTO ready (type_id, rank, run_at, tie, id)
    SELECT * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[])";
const ADD_DEFERRED: &str = "
    INSERT INTO deferred (type_id, rank, run_at, tie, id)
    SELECT * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[])";

/// Adds a queued job to its table.
pub(crate) async fn add(tx: &mut Tx<'_>, key: QueueKey, due: bool) -> Result<()> {
    add_all(tx, [(key, due)]).await
}

/// Adds queued jobs to their tables; each with whether it is due.
pub(crate) async fn add_all(
    tx: &mut Tx<'_>,
    keys: impl IntoIterator<Item = (QueueKey, bool)>,
) -> Result<()> {
    let (mut ready, mut deferred) = (Columns::default(), Columns::default());
    for (key, due) in keys {
        if due {
            ready.push(key);
            // Claims do not see hidden jobs.
            if key.rank < HIDDEN_RANK {
                tx.made_ready(key);
            }
        } else {
            deferred.push(key);
            tx.added(as_deferred(key.run_at, key.id));
        }
    }
    ready.add(tx, ADD_READY).await?;
    deferred.add(tx, ADD_DEFERRED).await
}

/// The place of a deferred job, in the form of `front`.
fn as_deferred(run_at: Timestamp, id: i64) -> QueueKey {
    QueueKey { type_id: DEFERRED, rank: 0, run_at, tie: 0, id }
}

const REMOVE: &str = "
    WITH k AS (
        SELECT * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[], $5::int8[])
                   AS k (type_id, rank, run_at, tie, id)
    ), from_ready AS (
        DELETE FROM ready r USING k
         WHERE r.type_id = k.type_id AND r.rank = k.rank AND r.run_at = k.run_at AND r.tie = k.tie
           AND r.id = k.id
        RETURNING 1
    ), from_deferred AS (
        DELETE FROM deferred d USING k WHERE d.run_at = k.run_at AND d.id = k.id RETURNING 1
    ), from_withheld AS (
        DELETE FROM withheld w USING k WHERE w.id = k.id RETURNING 1
    )
    SELECT 1 FROM from_ready UNION ALL SELECT 1 FROM from_deferred UNION ALL
    SELECT 1 FROM from_withheld";

/// Removes a queued job, which is locked, from whichever table it is in.
pub(crate) async fn remove(tx: &Tx<'_>, key: QueueKey) -> Result<()> {
    remove_all(tx, &[key]).await
}

pub(crate) async fn remove_all(tx: &Tx<'_>, keys: &[QueueKey]) -> Result<()> {
    let mut columns = Columns::default();
    keys.iter().for_each(|key| columns.push(*key));
    match columns.execute(tx, REMOVE).await? == keys.len() as u64 {
        true => Ok(()),
        false => Err(Failure::Moved),
    }
}

const NEXT_DUE: &str = "
    SELECT first.run_at
      FROM segments(-1) s
     CROSS JOIN LATERAL (
           SELECT d.run_at FROM deferred d WHERE (d.run_at, d.id) >= (s.run_at, s.id)
            ORDER BY d.run_at, d.id LIMIT 1) AS first
     WHERE s.until = 10000";

/// When the next deferred job comes due.
pub(crate) async fn next_due_at(tx: &Tx<'_>) -> Result<Option<Timestamp>> {
    let row = tx.query_opt(NEXT_DUE, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?.map(Timestamp))
}

/// Whether a deferred job is due.
pub(crate) async fn is_any_due(tx: &Tx<'_>) -> Result<bool> {
    Ok(next_due_at(tx).await?.is_some_and(|at| at <= tx.now))
}

/// Makes due jobs ready, if there are any. Returns whether there may be more.
pub(crate) async fn promote_if_due(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(is_any_due(tx).await? && promote(tx).await?)
}

const PROMOTE: &str = include_str!("../sql/promote.sql");

/// Makes due jobs ready, those that have been due the longest first, at most `PROMOTE_JOBS_MAX`.
/// Returns whether there may be more.
pub(crate) async fn promote(tx: &mut Tx<'_>) -> Result<bool> {
    let now = tx.now;
    let rows = tx.query(PROMOTE, &[&now.ms(), &PROMOTE_JOBS_MAX]).await?;
    let (mut promoted, mut last) = (0, None);
    for row in &rows {
        let (type_id, rank) = (row.try_get(0)?, row.try_get(1)?);
        promoted += row.try_get::<_, i64>(4)?;
        last = last.max(Some(Timestamp(row.try_get(3)?)));
        if rank < HIDDEN_RANK {
            let run_at = Timestamp(row.try_get(2)?);
            tx.made_ready(QueueKey { type_id, rank, run_at, tie: i64::MIN, id: i64::MIN });
        }
    }
    if let Some(last) = last {
        tx.passed_many(as_deferred(last, i64::MIN), promoted as u64);
    }
    Ok(promoted == PROMOTE_JOBS_MAX)
}
