//! The tables of queued jobs: those in `ready` may run now, those in `ready_hidden` too, but only
//! takes that ask for hidden jobs get them, and those in `deferred` wait for their time. A queued
//! job without a lease is in exactly one of them, unless it is `withheld`.

use rusqlite::{Connection, OptionalExtension};
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::row::HIDDEN_RANK;
use crate::tx::{Counter, Tx};
use crate::withheld;

/// Deferred jobs that become ready in one transaction. Bounds how long other operations wait if
/// very many jobs come due at once.
const PROMOTE_JOBS_MAX: usize = 5_000;

/// The key of a queued job in the tables of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueKey {
    pub(crate) type_id: i64,
    /// At least `HIDDEN_RANK` for hidden jobs.
    pub(crate) rank: i64,
    pub(crate) run_at: Timestamp,
    /// The order among jobs with the same time; see `Extra::tie`.
    pub(crate) tie: i64,
    pub(crate) id: i64,
}

const ADD_READY: &str =
    "INSERT INTO ready (type_id, rank, run_at, tie, id) VALUES (?1, ?2, ?3, ?4, ?5)";
const ADD_READY_HIDDEN: &str =
    "INSERT INTO ready_hidden (type_id, rank, run_at, tie, id) VALUES (?1, ?2, ?3, ?4, ?5)";
const ADD_DEFERRED: &str =
    "INSERT INTO deferred (run_at, id, type_id, rank, tie) VALUES (?1, ?2, ?3, ?4, ?5)";

pub(crate) const DUE: &str = "
    SELECT run_at, id, type_id, rank, tie FROM deferred
     WHERE run_at <= ?1 ORDER BY run_at, id";
pub(crate) const REMOVE_DUE: &str = "DELETE FROM deferred WHERE (run_at, id) <= (?1, ?2)";

/// Adds a queued job to its table.
pub(crate) fn add(tx: &mut Tx<'_>, key: QueueKey, due: bool) -> Result<()> {
    let QueueKey { type_id, rank, run_at, tie, id } = key;
    if due && rank >= HIDDEN_RANK {
        let mut add = tx.conn.prepare_cached(ADD_READY_HIDDEN)?;
        add.execute([type_id, rank - HIDDEN_RANK, run_at.ms(), tie, id])?;
        tx.count_hidden(type_id, 1);
    } else if due {
        let mut add = tx.conn.prepare_cached(ADD_READY)?;
        add.execute([type_id, rank, run_at.ms(), tie, id])?;
        tx.count(type_id, Counter::Ready, 1);
    } else {
        let mut add = tx.conn.prepare_cached(ADD_DEFERRED)?;
        add.execute([run_at.ms(), id, type_id, rank, tie])?;
        tx.count(type_id, Counter::Deferred, 1);
    }
    Ok(())
}

pub(crate) const REMOVE_READY: &str = "
    DELETE FROM ready
     WHERE type_id = ?1 AND rank = ?2 AND run_at = ?3 AND tie = ?4 AND id = ?5";
const REMOVE_READY_HIDDEN: &str = "
    DELETE FROM ready_hidden
     WHERE type_id = ?1 AND rank = ?2 AND run_at = ?3 AND tie = ?4 AND id = ?5";

/// Removes a queued job from whichever table it is in.
pub(crate) fn remove(tx: &mut Tx<'_>, key: QueueKey) -> Result<()> {
    let QueueKey { type_id, rank, run_at, tie, id } = key;
    let hidden_rank = rank.checked_sub(HIDDEN_RANK).filter(|rank| *rank >= 0);
    let table = if hidden_rank.is_some() { REMOVE_READY_HIDDEN } else { REMOVE_READY };
    let rank = hidden_rank.unwrap_or(rank);
    let removed = tx.conn.prepare_cached(table)?.execute([type_id, rank, run_at.ms(), tie, id])?;
    if removed > 0 {
        match hidden_rank {
            Some(_) => tx.count_hidden(type_id, -1),
            None => tx.count(type_id, Counter::Ready, -1),
        }
        return Ok(());
    }
    let from_deferred = "DELETE FROM deferred WHERE run_at = ?1 AND id = ?2";
    if tx.conn.prepare_cached(from_deferred)?.execute([run_at.ms(), id])? > 0 {
        tx.count(type_id, Counter::Deferred, -1);
        return Ok(());
    }
    withheld::remove(tx, id)
}

/// Removes a ready job whose row is damaged, so that its key is not known. Walks the whole queue of
/// its type.
pub(crate) fn remove_damaged(tx: &mut Tx<'_>, type_id: i64, id: i64) -> Result<()> {
    let removed = |table| {
        tx.conn
            .execute(&format!("DELETE FROM {table} WHERE type_id = ?1 AND id = ?2"), [type_id, id])
    };
    let (ready, hidden) = (removed("ready")?, removed("ready_hidden")?);
    tx.count(type_id, Counter::Ready, -(ready as i64));
    tx.count_hidden(type_id, -(hidden as i64));
    Ok(())
}

/// When the next deferred job comes due.
pub(crate) fn next_due_at(conn: &Connection) -> Result<Option<Timestamp>> {
    let mut first =
        conn.prepare_cached("SELECT run_at FROM deferred ORDER BY run_at, id LIMIT 1")?;
    Ok(first.query_row([], |row| row.get(0)).optional()?.map(Timestamp))
}

/// Makes due jobs ready, those that have been due the longest first: at most `PROMOTE_JOBS_MAX` in
/// one transaction, over all of its operations. Returns whether there are more. The writer promotes
/// those while it is idle; an operation that needs them now is repeated in another transaction.
///
/// The time of a transaction stands still, and its operations defer only jobs that come due later,
/// so all but the first of them need not look.
pub(crate) fn promote(tx: &mut Tx<'_>) -> Result<bool> {
    let now = tx.now;
    tx.none_due = tx.none_due || next_due_at(tx.conn)?.is_none_or(|at| at > now);
    if tx.none_due {
        return Ok(false);
    }
    let room = PROMOTE_JOBS_MAX - tx.promoted;
    tx.promoted += promote_some(tx, now, room)?;
    let more = tx.promoted == PROMOTE_JOBS_MAX && next_due_at(tx.conn)?.is_some_and(|at| at <= now);
    tx.due_left |= more;
    Ok(more)
}

fn promote_some(tx: &mut Tx<'_>, now: Timestamp, limit: usize) -> Result<usize> {
    let conn = tx.conn;
    let mut due = conn.prepare_cached(DUE)?;
    let keys = due
        .query_map([now.ms()], |row| {
            let (run_at, id) = (Timestamp(row.get(0)?), row.get(1)?);
            Ok(QueueKey { type_id: row.get(2)?, rank: row.get(3)?, run_at, tie: row.get(4)?, id })
        })?
        .take(limit)
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let Some(last) = keys.last() else { return Ok(0) };
    conn.prepare_cached(REMOVE_DUE)?.execute([last.run_at.ms(), last.id])?;
    for key in &keys {
        add(tx, *key, true)?;
        tx.count(key.type_id, Counter::Deferred, -1);
    }
    Ok(keys.len())
}
