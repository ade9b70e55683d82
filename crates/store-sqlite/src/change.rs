//! Changes by clients: cancel, rerun, requeue, delete.

use rusqlite::{Connection, Params, params};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::name::Tenant;
use windlass_core::state::{self, Event};
use windlass_core::store::{Changed, EndRequest, Requeue};
use windlass_core::{Job, JobId, State};

use crate::aside;
use crate::error::Result;
use crate::extra;
use crate::family;
use crate::insert;
use crate::queue::{self, QueueKey};
use crate::row::{self, Stored, part};
use crate::settle::{self, End};
use crate::tx::{Counter, Tx};

pub(crate) fn job_cancel(tx: &mut Tx<'_>, request: &EndRequest) -> Result<Changed> {
    let Some(stored) = row::find_of(tx.conn, &request.tenant, request.id)? else {
        return Ok(Changed::NotFound);
    };
    let Some(state) = state::next(stored.job.state, Event::Cancel) else {
        return Ok(Changed::Refused(stored.job.state));
    };
    leave(tx, &stored)?;
    let now = tx.now;
    settle::end(
        tx,
        &End {
            id: request.id.get(),
            type_id: stored.type_id,
            state,
            attempt: stored.job.attempt,
            token: stored.token,
            started_at: stored.job.started_at,
            finished_at: now,
            purge_at: now + request.keep,
            ended: None,
            parts: stored.parts,
            unique: stored.job.unique.as_deref(),
        },
    )?;
    Ok(Changed::Done(Box::new(stored.job)))
}

pub(crate) fn job_rerun(tx: &mut Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Changed> {
    match row::find_of(tx.conn, tenant, id)? {
        None => Ok(Changed::NotFound),
        Some(stored) => rerun(tx, stored),
    }
}

const RERUN: &str = "
    UPDATE job
       SET state = ?2, run_at = ?3, due_at = ?3, attempt = 0, started_at = NULL,
           finished_at = NULL, expires_at = NULL, last_code = NULL, last_status = NULL,
           purge_at = NULL, parts = ?4
     WHERE id = ?1";

fn rerun(tx: &mut Tx<'_>, stored: Stored) -> Result<Changed> {
    let now = tx.now;
    let Stored { job, type_id, parts, .. } = &stored;
    let id = job.id.get();
    let Some(state) = state::next(job.state, Event::Rerun) else {
        return Ok(Changed::Refused(job.state));
    };
    if let Some(unique) = &job.unique {
        if let Some(holder) = insert::holder(tx.conn, *type_id, unique)? {
            return Ok(Changed::Held(holder));
        }
        insert::hold(tx.conn, *type_id, unique, id)?;
    }
    let gone = parts & (part::RESULT | part::PROGRESS);
    remove_parts(tx.conn, id, gone)?;
    let parts = extra::retimed(tx.conn, id, parts & !gone)?;
    let mut update = tx.conn.prepare_cached(RERUN)?;
    update.execute(params![id, row::state_number(state), now.ms(), parts])?;
    aside::set_state(tx.conn, id, parts, state)?;
    tx.count(*type_id, Counter::of_state(job.state), -1);
    queue::add(tx, QueueKey { run_at: now, tie: 0, ..queue_key(&stored) }, true)?;
    Ok(Changed::Done(Box::new(stored.job)))
}

/// Jobs that one requeue looks at, including those that it skips because their unique key is held.
const REQUEUE_LOOK_MAX: usize = 2 * BATCH_JOBS_MAX;

pub(crate) const OLDEST: &str = "
    SELECT id FROM job WHERE type_id = ?1 AND state = ?2 ORDER BY id LIMIT ?3";

pub(crate) fn job_requeue(tx: &mut Tx<'_>, requeue: &Requeue) -> Result<u64> {
    let Some(type_id) = tx.types.find(tx.conn, &requeue.key)? else { return Ok(0) };
    if !requeue.state.is_ended() {
        return Ok(0);
    }
    let state = row::state_number(requeue.state);
    let ids = ids(tx.conn, OLDEST, [type_id, state, REQUEUE_LOOK_MAX as i64])?;
    let mut queued = 0;
    for id in ids {
        if queued >= requeue.limit as u64 {
            break;
        }
        let Some(stored) = row::find_undamaged(tx.conn, id)? else { continue };
        queued += u64::from(matches!(rerun(tx, stored)?, Changed::Done(_)));
    }
    Ok(queued)
}

pub(crate) fn job_delete(tx: &mut Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Changed> {
    let Some(stored) = row::find_of(tx.conn, tenant, id)? else { return Ok(Changed::NotFound) };
    if state::next(stored.job.state, Event::Delete).is_none() {
        return Ok(Changed::Refused(stored.job.state));
    }
    erase(tx, &stored)?;
    family::after_removal(tx, &stored.job)?;
    Ok(Changed::Done(Box::new(stored.job)))
}

/// Removes a job in any state, without effects on its family.
pub(crate) fn erase(tx: &mut Tx<'_>, stored: &Stored) -> Result<()> {
    leave(tx, stored)?;
    if let Some(unique) = held(&stored.job) {
        insert::free(tx.conn, stored.type_id, unique, stored.job.id.get())?;
    }
    remove(tx.conn, stored.job.id.get(), stored.parts)
}

/// The unique key that a job holds, if any.
pub(crate) fn held(job: &Job) -> Option<&str> {
    job.unique.as_deref().filter(|_| !job.state.is_ended())
}

/// Removes a job from its queue or lease, and from its counter.
pub(crate) fn leave(tx: &mut Tx<'_>, stored: &Stored) -> Result<()> {
    match stored.job.state {
        State::Queued => queue::remove(tx, queue_key(stored)),
        State::Running => settle::drop_lease(tx, stored.job.id.get(), stored.type_id),
        state => {
            tx.count(stored.type_id, Counter::of_state(state), -1);
            Ok(())
        }
    }
}

/// The key of a queued job.
pub(crate) fn queue_key(stored: &Stored) -> QueueKey {
    let Job { id, priority, run_at, .. } = stored.job;
    let (rank, tie) = (row::rank(priority, stored.parts), stored.job.extra.tie());
    QueueKey { type_id: stored.type_id, rank, run_at, tie, id: id.get() }
}

/// Deletes a job's row and everything that belongs to it.
pub(crate) fn remove(conn: &Connection, id: i64, parts: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM job WHERE id = ?1")?.execute([id])?;
    remove_parts(conn, id, parts)
}

pub(crate) fn remove_parts(conn: &Connection, id: i64, parts: i64) -> Result<()> {
    let tables = [
        (part::PAYLOAD, "DELETE FROM payload WHERE id = ?1"),
        (part::RESULT, "DELETE FROM result WHERE id = ?1"),
        (part::LOG, "DELETE FROM log WHERE id = ?1"),
        (part::PROGRESS, "DELETE FROM progress WHERE id = ?1"),
        (part::EXTRA, "DELETE FROM extra WHERE id = ?1"),
    ];
    for (part, sql) in tables {
        if parts & part != 0 {
            conn.prepare_cached(sql)?.execute([id])?;
        }
    }
    if parts & part::PIECES != 0 {
        insert::remove_pieces(conn, id)?;
    }
    aside::remove(conn, id, parts)
}

/// The ids that a statement finds.
pub(crate) fn ids(conn: &Connection, sql: &str, params: impl Params) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(sql)?;
    let ids = statement.query_map(params, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(ids)
}
