//! Gives up jobs that waited too long, and deletes ended ones after their retention.

use windlass_core::limit::{BATCH_JOBS_MAX, ORPHAN_PIECES_AGE};
use windlass_core::name::TypeKey;
use windlass_core::state::{self, Event};
use windlass_core::store::{GiveUp, Overdue};
use windlass_core::time::Timestamp;
use windlass_core::{Extra, Job, State};

use crate::attempt::{self, LogEntry};
use crate::change;
use crate::error::Result;
use crate::family;
use crate::row::{self, Stored, part};
use crate::settle::{self, End};
use crate::tx::Tx;
use crate::withheld;

/// Outdated idempotency keys that one purge deletes.
const KEYS_PURGED_MAX: i64 = 10_000;
/// Pieces without a job that one purge deletes.
const PIECES_PURGED_MAX: i64 = 100;

/// Running jobs are in this index too, and are skipped: they are few. Jobs that others have locked
/// are left to them, as several daemons look for the same jobs.
const EXPIRED: &str = "
    SELECT j.id FROM job j
     WHERE j.expires_at IS NOT NULL AND j.state < 3 AND j.expires_at <= $1
       AND NOT EXISTS (SELECT FROM lease l WHERE l.id = j.id)
     ORDER BY j.expires_at LIMIT $2 FOR NO KEY UPDATE OF j SKIP LOCKED";
/// The overdue jobs of a type that nobody attends to, oldest id first.
const UNHANDLED: &str = "
    SELECT j.id FROM type t JOIN job j ON j.type_id = t.id
     WHERE t.id = $1 AND t.handler_id IS NULL AND (t.claimed_at IS NULL OR t.claimed_at < $2)
       AND j.state = 0 AND j.due_at <= $2
       AND NOT EXISTS (SELECT FROM lease l WHERE l.id = j.id)
     ORDER BY j.id LIMIT $3 FOR NO KEY UPDATE OF j SKIP LOCKED";

pub(crate) async fn job_give_up(tx: &mut Tx<'_>, give_up: &GiveUp) -> Result<Vec<Job>> {
    let (limit, now) = (give_up.limit.min(BATCH_JOBS_MAX) as i64, tx.now);
    let ids = match &give_up.which {
        Overdue::Expired => tx.ids(EXPIRED, &[&now.ms(), &limit]).await?,
        Overdue::Lost { tenant, id } => {
            let found = row::find_of(tx, tenant, *id).await?;
            found.map(|stored| stored.job.id.get()).into_iter().collect()
        }
        Overdue::Unhandled { key, due_for } => unhandled(tx, key, now - *due_for, limit).await?,
    };
    let mut given_up = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(stored) = row::find_undamaged(tx, id).await? else { continue };
        let Some(state) = state::next(stored.job.state, Event::GiveUp) else { continue };
        given_up.push(end(tx, stored, state, give_up).await?);
    }
    Ok(given_up)
}

async fn unhandled(
    tx: &mut Tx<'_>,
    key: &TypeKey,
    due_until: Timestamp,
    limit: i64,
) -> Result<Vec<i64>> {
    let Some(type_id) = tx.type_id(key).await? else { return Ok(Vec::new()) };
    tx.ids(UNHANDLED, &[&type_id, &due_until.ms(), &limit]).await
}

async fn end(tx: &mut Tx<'_>, stored: Stored, state: State, give_up: &GiveUp) -> Result<Job> {
    change::leave(tx, &stored).await?;
    let now = tx.now;
    let Stored { job, type_id, token, mut parts } = stored;
    if !give_up.log.is_empty() {
        let (id, attempt, log) = (job.id.get(), job.attempt, &give_up.log);
        attempt::put_logs(tx, &[LogEntry { id, attempt, ended_at: now, log, parts }]).await?;
        parts |= part::LOG;
    }
    let end = End {
        id: job.id.get(),
        type_id,
        state,
        attempt: job.attempt,
        token,
        started_at: job.started_at,
        finished_at: now,
        purge_at: now + give_up.keep,
        ended: Some(give_up.ended),
        parts,
        unique: job.unique.as_deref(),
        parent: job.parent,
    };
    settle::end(tx, &end).await?;
    let extra = Extra { lent: false, ..job.extra.clone() };
    Ok(Job { state, last: Some(give_up.ended), finished_at: Some(now), extra, ..job })
}

/// Locked in the order of their ids, as everywhere; those that others have locked are left for the
/// next purge.
const OUTDATED: &str = "
    SELECT id, parts, parent_id IS NOT NULL OR parts & 32 <> 0 FROM job
     WHERE id IN (SELECT id FROM job
                   WHERE purge_at IS NOT NULL AND purge_at <= $1 ORDER BY purge_at LIMIT $2)
       AND purge_at <= $1
     ORDER BY id FOR UPDATE SKIP LOCKED";

pub(crate) async fn job_purge(tx: &mut Tx<'_>, limit: usize) -> Result<u64> {
    let now = tx.now;
    let limit = limit.min(BATCH_JOBS_MAX) as i64;
    let (mut outdated, mut kin) = (Vec::new(), Vec::new());
    for found in tx.query(OUTDATED, &[&now.ms(), &limit]).await? {
        let (id, mut parts): (i64, i32) = (found.try_get(0)?, found.try_get(1)?);
        if found.try_get(2)? {
            match row::unless_damaged(id, row::find(tx, id).await)? {
                Some(stored) => kin.extend(stored.map(|stored| stored.job)),
                // Its time is over all the same.
                None => parts = part::ALL,
            }
        }
        outdated.push((id, parts));
    }
    change::remove(tx, &outdated).await?;
    for job in &kin {
        family::after_removal(tx, job).await?;
    }
    purge_keys(tx).await?;
    purge_pieces(tx).await?;
    withheld::free_damaged(tx).await?;
    withheld::put_back(tx).await?;
    Ok(outdated.len() as u64)
}

async fn purge_keys(tx: &Tx<'_>) -> Result<()> {
    let purge = "
        DELETE FROM idempotency
         WHERE (tenant, key) IN (SELECT tenant, key FROM idempotency
                                  WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
                                    FOR UPDATE SKIP LOCKED)";
    tx.execute(purge, &[&tx.now.ms(), &KEYS_PURGED_MAX]).await?;
    Ok(())
}

const ORPHANED: &str = "
    SELECT id FROM piece_waiting WHERE put_at <= $1 ORDER BY put_at LIMIT $2
       FOR UPDATE SKIP LOCKED";
/// If the pieces were put again after their job arrived, they belong to it.
const REMOVE_ORPHANS: &str = "
    DELETE FROM piece
     WHERE (id, position) IN (SELECT id, position FROM piece
                               WHERE id = $1 AND NOT EXISTS (SELECT FROM job WHERE job.id = $1)
                               LIMIT $2)";

/// Deletes pieces whose job never arrived, because the daemon that put them died first.
async fn purge_pieces(tx: &Tx<'_>) -> Result<()> {
    let put_until = tx.now - ORPHAN_PIECES_AGE;
    let mut room = PIECES_PURGED_MAX;
    for id in tx.ids(ORPHANED, &[&put_until.ms(), &PIECES_PURGED_MAX]).await? {
        room -= tx.execute(REMOVE_ORPHANS, &[&id, &room]).await? as i64;
        if room == 0 {
            // The next purge deletes the rest of this payload, if there is any.
            return Ok(());
        }
        tx.execute("DELETE FROM piece_waiting WHERE id = $1", &[&id]).await?;
    }
    Ok(())
}
