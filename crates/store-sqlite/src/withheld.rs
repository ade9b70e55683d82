//! Queued jobs that must not be claimed, although they are due: those whose rows cannot be read,
//! and those that have expired. They must not stand in the way of others, so a claim that meets one
//! moves it out of the queue. None is lost: housekeeping gives expired jobs up, and a job returns
//! to the queue when its row has been repaired, or when the clock has been set back behind its
//! expiry. Meanwhile it counts as deferred.

use crate::change;
use crate::error::Result;
use crate::queue;
use crate::read;
use crate::row;
use crate::settle;
use crate::tx::{Counter, Tx};
use windlass_core::State;

/// Jobs that one pass looks at again.
const RETURNED_MAX: usize = 1000;

const ALL: &str = "SELECT id FROM withheld ORDER BY id LIMIT ?1";

/// Withholds a queued job that is in no queue and has no lease.
pub(crate) fn add(tx: &mut Tx<'_>, type_id: i64, id: i64) -> Result<()> {
    let put = "INSERT INTO withheld (id, type_id) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
    let added = tx.conn.prepare_cached(put)?.execute([id, type_id])?;
    tx.count(type_id, Counter::Deferred, added as i64);
    Ok(())
}

/// Forgets a job that was withheld, if it was.
pub(crate) fn remove(tx: &mut Tx<'_>, id: i64) -> Result<()> {
    let mut remove =
        tx.conn.prepare_cached("DELETE FROM withheld WHERE id = ?1 RETURNING type_id")?;
    let mut rows = remove.query([id])?;
    if let Some(row) = rows.next()? {
        tx.count(row.get(0)?, Counter::Deferred, -1);
    }
    Ok(())
}

/// Frees the places of damaged jobs that a dead owner holds: they cannot be settled, and would
/// count as running for ever.
pub(crate) fn free_damaged(tx: &mut Tx<'_>) -> Result<()> {
    for id in read::expired_leases(tx.conn, tx.now, RETURNED_MAX)? {
        if row::unless_damaged(id, row::find(tx.conn, id))?.is_some() {
            continue;
        }
        let mut find = tx.conn.prepare_cached("SELECT type_id FROM lease WHERE id = ?1")?;
        let type_id = find.query_row([id], |row| row.get(0))?;
        settle::drop_lease(tx, id, type_id)?;
        add(tx, type_id, id)?;
    }
    Ok(())
}

/// Returns jobs to the queue that may be claimed again. They were due before.
pub(crate) fn put_back(tx: &mut Tx<'_>) -> Result<()> {
    for id in change::ids(tx.conn, ALL, [RETURNED_MAX as i64])? {
        let Some(found) = row::unless_damaged(id, row::find(tx.conn, id))? else { continue };
        let is_expired = |at| at <= tx.now;
        if found.as_ref().is_some_and(|stored| stored.job.expires_at.is_some_and(is_expired)) {
            continue;
        }
        remove(tx, id)?;
        if let Some(stored) = found.filter(|stored| stored.job.state == State::Queued) {
            queue::add(tx, change::queue_key(&stored), true)?;
        }
    }
    Ok(())
}
