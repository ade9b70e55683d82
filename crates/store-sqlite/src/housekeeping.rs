//! Gives up jobs that waited too long, and deletes ended ones after their retention.

use rusqlite::{Connection, OptionalExtension};
use windlass_core::limit::{BATCH_JOBS_MAX, ORPHAN_PIECES_AGE};
use windlass_core::name::TypeKey;
use windlass_core::state::{self, Event};
use windlass_core::store::{GiveUp, Overdue};
use windlass_core::time::Timestamp;
use windlass_core::{Extra, Job, State};

use crate::change;
use crate::error::{Failure, Result};
use crate::family;
use crate::insert;
use crate::row::{self, Stored, part};
use crate::settle::{self, End, LogEntry};
use crate::tx::{Counter, Tx};
use crate::withheld;

/// Queued jobs that one search for unhandled jobs looks at.
const LOOK_MAX: usize = BATCH_JOBS_MAX;
/// Outdated idempotency keys that one purge deletes.
const KEYS_PURGED_MAX: i64 = 10_000;
/// Pieces without a job that one purge deletes.
const PIECES_PURGED_MAX: usize = 100;

/// Running jobs are in this index too, and are skipped: they are few.
pub(crate) const EXPIRED: &str = "
    SELECT j.id FROM job j
     WHERE j.expires_at IS NOT NULL AND j.state < 3 AND j.expires_at <= ?1
       AND NOT EXISTS (SELECT 1 FROM lease l WHERE l.id = j.id)
     ORDER BY j.expires_at LIMIT ?2";
pub(crate) const QUEUED_OLDEST: &str = "
    SELECT id, due_at FROM job WHERE type_id = ?1 AND state = 0 AND id > ?2 ORDER BY id LIMIT ?3";
pub(crate) const OUTDATED: &str = "
    SELECT id FROM job
     WHERE purge_at IS NOT NULL AND purge_at <= ?1 ORDER BY purge_at LIMIT ?2";

pub(crate) fn job_give_up(tx: &mut Tx<'_>, give_up: &GiveUp) -> Result<Vec<Job>> {
    let (limit, now) = (give_up.limit.min(BATCH_JOBS_MAX), tx.now);
    let ids = match &give_up.which {
        Overdue::Expired => change::ids(tx.conn, EXPIRED, [now.ms(), limit as i64])?,
        Overdue::Lost { tenant, id } => {
            let found = row::find_of(tx.conn, tenant, *id)?;
            found.map(|stored| stored.job.id.get()).into_iter().collect()
        }
        Overdue::Unhandled { key, due_for } => unhandled(tx, key, now - *due_for, limit)?,
    };
    let mut given_up = Vec::with_capacity(ids.len());
    for id in ids {
        let Some(stored) = row::find_undamaged(tx.conn, id)? else { continue };
        let Some(state) = state::next(stored.job.state, Event::GiveUp) else { continue };
        given_up.push(end(tx, stored, state, give_up)?);
    }
    Ok(given_up)
}

/// The overdue jobs of a type without a handler or worker, oldest id first. A search stops after
/// `LOOK_MAX` jobs, and the next one continues from there.
fn unhandled(
    tx: &mut Tx<'_>,
    key: &TypeKey,
    due_until: Timestamp,
    limit: usize,
) -> Result<Vec<i64>> {
    let Some(type_id) = tx.types.find(tx.conn, key)? else { return Ok(Vec::new()) };
    tx.apply_counts()?;
    let unattended = "
        SELECT 1 FROM type
         WHERE id = ?1 AND handler_id IS NULL AND (claimed_at IS NULL OR claimed_at < ?2)";
    let mut unattended = tx.conn.prepare_cached(unattended)?;
    if !unattended.exists([type_id, due_until.ms()])? {
        return Ok(Vec::new());
    }
    let from = tx.types.searched_to(type_id);
    let mut oldest = tx.conn.prepare_cached(QUEUED_OLDEST)?;
    let mut rows = oldest.query([type_id, from, LOOK_MAX as i64])?;
    let mut running = tx.conn.prepare_cached("SELECT 1 FROM lease WHERE id = ?1")?;
    let (mut ids, mut looked, mut last) = (Vec::new(), 0, 0);
    while let Some(row) = rows.next()? {
        if ids.len() == limit {
            break;
        }
        (last, looked) = (row.get(0)?, looked + 1);
        // The time of a damaged row cannot be read.
        let is_due = row.get::<_, i64>(1).is_ok_and(|due_at| due_at <= due_until.ms());
        if is_due && !running.exists([last])? {
            ids.push(last);
        }
    }
    tx.types.set_searched_to(type_id, (looked == LOOK_MAX).then_some(last));
    Ok(ids)
}

fn end(tx: &mut Tx<'_>, stored: Stored, state: State, give_up: &GiveUp) -> Result<Job> {
    change::leave(tx, &stored)?;
    let now = tx.now;
    let Stored { job, type_id, token, parts } = stored;
    let log = LogEntry { attempt: job.attempt, ended_at: now, log: &give_up.log };
    let parts = log.put(tx.conn, job.id.get(), parts)?;
    settle::end(
        tx,
        &End {
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
        },
    )?;
    let extra = Extra { lent: false, ..job.extra.clone() };
    Ok(Job { state, last: Some(give_up.ended), finished_at: Some(now), extra, ..job })
}

pub(crate) fn job_purge(tx: &mut Tx<'_>, limit: usize) -> Result<u64> {
    let (conn, now) = (tx.conn, tx.now);
    let ids = change::ids(conn, OUTDATED, [now.ms(), limit.min(BATCH_JOBS_MAX) as i64])?;
    for id in &ids {
        match row::unless_damaged(*id, Outdated::read(conn, *id))? {
            Some(outdated) => outdated.remove(tx)?,
            // Its time is over all the same. Which counter it was in cannot be known.
            None => change::remove(conn, *id, part::ALL)?,
        }
    }
    purge_keys(tx, now)?;
    purge_pieces(tx.conn, now)?;
    withheld::free_damaged(tx)?;
    withheld::put_back(tx)?;
    Ok(ids.len() as u64)
}

/// An ended job that is to be removed.
struct Outdated {
    id: i64,
    type_id: i64,
    state: State,
    parts: i64,
    /// If it has a parent or children.
    kin: Option<Job>,
}

impl Outdated {
    fn read(conn: &Connection, id: i64) -> Result<Outdated> {
        let mut find =
            conn.prepare_cached("SELECT type_id, state, parts FROM job WHERE id = ?1")?;
        let mut rows = find.query([id])?;
        let missing = || Failure::corrupt(format!("job {id} has no row"));
        let row = rows.next()?.ok_or_else(missing)?;
        let (type_id, state, parts) = (row.get(0)?, row::ended_state(row.get(1)?)?, row.get(2)?);
        let has_kin = parts & (part::FAMILY | part::CHILD) != 0;
        let kin = if has_kin { row::find(conn, id)?.map(|stored| stored.job) } else { None };
        Ok(Outdated { id, type_id, state, parts, kin })
    }

    fn remove(self, tx: &mut Tx<'_>) -> Result<()> {
        change::remove(tx.conn, self.id, self.parts)?;
        tx.count(self.type_id, Counter::of_state(self.state), -1);
        self.kin.map_or(Ok(()), |job| family::after_removal(tx, &job))
    }
}

pub(crate) const ORPHANED: &str = "
    SELECT id FROM piece_waiting WHERE put_at <= ?1 ORDER BY put_at LIMIT ?2";

/// Deletes pieces whose job never arrived, because the daemon that put them died first.
fn purge_pieces(conn: &Connection, now: Timestamp) -> Result<()> {
    let put_until = now - ORPHAN_PIECES_AGE;
    let remove = "
        DELETE FROM piece WHERE rowid IN (SELECT rowid FROM piece WHERE id = ?1 LIMIT ?2)";
    let mut remove = conn.prepare_cached(remove)?;
    let mut room = PIECES_PURGED_MAX;
    for id in change::ids(conn, ORPHANED, [put_until.ms(), PIECES_PURGED_MAX as i64])? {
        // If the pieces were put again after their job arrived, they belong to it.
        if !insert::exists(conn, id)? {
            room -= remove.execute([id, room as i64])?;
        }
        if room == 0 {
            // The next purge deletes the rest of this payload, if there is any.
            return Ok(());
        }
        insert::forget_waiting_pieces(conn, id)?;
    }
    Ok(())
}

fn purge_keys(tx: &Tx<'_>, now: Timestamp) -> Result<()> {
    let newest_outdated = "
        SELECT max(expires_at) FROM (
            SELECT expires_at FROM idempotency
             WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)";
    let mut newest_outdated = tx.conn.prepare_cached(newest_outdated)?;
    let until: Option<i64> = newest_outdated
        .query_row([now.ms(), KEYS_PURGED_MAX], |row| row.get(0))
        .optional()?
        .flatten();
    if let Some(until) = until {
        let purge = "DELETE FROM idempotency WHERE expires_at <= ?1";
        tx.conn.prepare_cached(purge)?.execute([until])?;
    }
    Ok(())
}
