//! Jobs whose rows cannot be read. A damaged job must not stop others, so a claim that meets one
//! sets it aside. It is not lost: housekeeping tries again from time to time, and a job whose row
//! has been repaired returns to the queue. Meanwhile it counts as deferred.

use crate::change;
use crate::error::Result;
use crate::queue;
use crate::read;
use crate::row;
use crate::settle;
use crate::tx::{Counter, Tx};
use windlass_core::State;

/// Jobs that one pass tries again.
const RETRIED_MAX: usize = 1000;

const ALL: &str = "SELECT id FROM damaged ORDER BY id LIMIT ?1";

/// Sets a queued job aside that is in no queue and has no lease.
pub(crate) fn set_aside(tx: &mut Tx<'_>, type_id: i64, id: i64) -> Result<()> {
    let put = "INSERT INTO damaged (id, type_id) VALUES (?1, ?2) ON CONFLICT (id) DO NOTHING";
    let added = tx.conn.prepare_cached(put)?.execute([id, type_id])?;
    tx.count(type_id, Counter::Deferred, added as i64);
    Ok(())
}

/// Forgets a job that was set aside, if it was.
pub(crate) fn remove(tx: &mut Tx<'_>, id: i64) -> Result<()> {
    let mut remove =
        tx.conn.prepare_cached("DELETE FROM damaged WHERE id = ?1 RETURNING type_id")?;
    let mut rows = remove.query([id])?;
    if let Some(row) = rows.next()? {
        tx.count(row.get(0)?, Counter::Deferred, -1);
    }
    Ok(())
}

/// Tries all that were set aside again. Frees the places of damaged jobs that a dead owner holds:
/// they cannot be settled, and would count as running for ever.
pub(crate) fn retry(tx: &mut Tx<'_>) -> Result<()> {
    for id in read::expired_leases(tx.conn, tx.now, RETRIED_MAX)? {
        if row::unless_damaged(id, row::find(tx.conn, id))?.is_some() {
            continue;
        }
        let mut find = tx.conn.prepare_cached("SELECT type_id FROM lease WHERE id = ?1")?;
        let type_id = find.query_row([id], |row| row.get(0))?;
        settle::drop_lease(tx, id, type_id)?;
        set_aside(tx, type_id, id)?;
    }
    for id in change::ids(tx.conn, ALL, [RETRIED_MAX as i64])? {
        let Some(found) = row::unless_damaged(id, row::find(tx.conn, id))? else { continue };
        remove(tx, id)?;
        if let Some(stored) = found.filter(|stored| stored.job.state == State::Queued) {
            let key = change::queue_key(&stored);
            queue::add(tx, key, key.run_at <= tx.now)?;
        }
    }
    Ok(())
}
