//! Queued jobs that must not be claimed, although they are due: those whose rows cannot be read,
//! and those that have expired. They must not stand in the way of others, so a claim that meets one
//! moves it out of the queue. None is lost: housekeeping gives expired jobs up, and a job returns
//! to the queue when its row has been repaired, or when the clock has been set back behind its
//! expiry. Meanwhile it counts as deferred.

use windlass_core::State;

use crate::error::Result;
use crate::queue;
use crate::row;
use crate::settle;
use crate::tx::Tx;

/// Jobs that one pass looks at again.
const RETURNED_MAX: i64 = 1000;

/// Withholds queued jobs of a type that are in no queue and have no lease.
pub(crate) async fn add(tx: &Tx<'_>, type_id: i32, ids: &[i64]) -> Result<()> {
    if !ids.is_empty() {
        let put = "INSERT INTO withheld (id, type_id) SELECT id, $1 FROM unnest($2::int8[]) AS id
                   ON CONFLICT (id) DO NOTHING";
        tx.execute(put, &[&type_id, &ids]).await?;
    }
    Ok(())
}

const LEASES_EXPIRED: &str = "
    SELECT l.id, l.type_id FROM lease l
      LEFT JOIN sysid s ON s.sysid = l.owner AND s.boot = l.boot
     WHERE coalesce(l.expires_at, s.expires_at, l.started_at) <= $1
     ORDER BY l.id LIMIT $2";

/// Frees the places of damaged jobs that a dead owner holds: they cannot be settled, and would
/// count as running for ever.
pub(crate) async fn free_damaged(tx: &mut Tx<'_>) -> Result<()> {
    for found in tx.query(LEASES_EXPIRED, &[&tx.now.ms(), &RETURNED_MAX]).await? {
        let (id, type_id) = (found.try_get(0)?, found.try_get(1)?);
        if row::unless_damaged(id, row::find(tx, id).await)?.is_none() {
            settle::drop_lease(tx, id, type_id).await?;
            add(tx, type_id, &[id]).await?;
        }
    }
    Ok(())
}

/// Returns jobs to the queue that may be claimed again. They were due before.
pub(crate) async fn put_back(tx: &mut Tx<'_>) -> Result<()> {
    let all = "SELECT id FROM withheld ORDER BY id LIMIT $1";
    for withheld in tx.query(all, &[&RETURNED_MAX]).await? {
        let id: i64 = withheld.try_get(0)?;
        let Some(found) = row::unless_damaged(id, row::find(tx, id).await)? else { continue };
        let is_expired = |at| at <= tx.now;
        if found.as_ref().is_some_and(|stored| stored.job.expires_at.is_some_and(is_expired)) {
            continue;
        }
        let removed = tx.execute("DELETE FROM withheld WHERE id = $1", &[&id]).await?;
        if let Some(stored) = found.filter(|stored| stored.job.state == State::Queued)
            && removed > 0
        {
            queue::add(tx, queue::key(&stored), true).await?;
        }
    }
    Ok(())
}
