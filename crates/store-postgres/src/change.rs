//! Changes by clients: cancel, rerun, requeue, delete.

use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::name::Tenant;
use windlass_core::state::{self, Event};
use windlass_core::store::{Changed, EndRequest, Requeue};
use windlass_core::{JobId, State};

use crate::enter;
use crate::error::Result;
use crate::extra;
use crate::family;
use crate::queue::{self, QueueKey};
use crate::row::{self, Stored, part};
use crate::settle::{self, End};
use crate::tx::Tx;
use crate::unique;

pub(crate) async fn job_cancel(tx: &mut Tx<'_>, request: &EndRequest) -> Result<Changed> {
    let Some(stored) = row::find_of(tx, &request.tenant, request.id).await? else {
        return Ok(Changed::NotFound);
    };
    let Some(state) = state::next(stored.job.state, Event::Cancel) else {
        return Ok(Changed::Refused(stored.job.state));
    };
    leave(tx, &stored).await?;
    let now = tx.now;
    let end = End {
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
        parent: stored.job.parent,
    };
    settle::end(tx, &end).await?;
    Ok(Changed::Done(Box::new(stored.job)))
}

pub(crate) async fn job_rerun(tx: &mut Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Changed> {
    match row::find_of(tx, tenant, id).await? {
        None => Ok(Changed::NotFound),
        Some(stored) => rerun(tx, stored).await,
    }
}

const RERUN: &str = "
    UPDATE job
       SET state = $2, run_at = $3, due_at = $3, attempt = 0, started_at = NULL,
           finished_at = NULL, expires_at = NULL, last_code = NULL, last_status = NULL,
           purge_at = NULL, parts = $4
     WHERE id = $1";

async fn rerun(tx: &mut Tx<'_>, stored: Stored) -> Result<Changed> {
    let now = tx.now;
    let Stored { job, type_id, parts, .. } = &stored;
    let id = job.id.get();
    let Some(state) = state::next(job.state, Event::Rerun) else {
        return Ok(Changed::Refused(job.state));
    };
    if let Some(key) = &job.unique
        && let Some(holder) = unique::hold(tx, *type_id, key, job.id).await?
    {
        return Ok(Changed::Held(holder));
    }
    let gone = parts & (part::RESULT | part::PROGRESS);
    remove_parts(tx, &[(id, gone)]).await?;
    let parts = extra::retimed(tx, id, parts & !gone).await?;
    tx.went(*type_id, job.state);
    tx.execute(RERUN, &[&id, &row::state_number(state), &now.ms(), &parts]).await?;
    queue::add(tx, QueueKey { run_at: now, tie: 0, ..queue::key(&stored) }, true).await?;
    Ok(Changed::Done(Box::new(stored.job)))
}

/// Jobs that one requeue looks at, including those that it skips because their unique key is held.
const REQUEUE_LOOK_MAX: i64 = 2 * BATCH_JOBS_MAX as i64;

const OLDEST: &str = "
    SELECT id FROM job WHERE type_id = $1 AND state = $2 ORDER BY id LIMIT $3";

pub(crate) async fn job_requeue(tx: &mut Tx<'_>, requeue: &Requeue) -> Result<u64> {
    let Some(type_id) = tx.type_id(&requeue.key).await? else { return Ok(0) };
    if !requeue.state.is_ended() {
        return Ok(0);
    }
    let state = row::state_number(requeue.state);
    let mut queued = 0;
    for id in tx.ids(OLDEST, &[&type_id, &state, &REQUEUE_LOOK_MAX]).await? {
        if queued >= requeue.limit as u64 {
            break;
        }
        let Some(stored) = row::find_undamaged(tx, id).await? else { continue };
        // Another transaction may have been faster.
        if stored.job.state == requeue.state && stored.type_id == type_id {
            queued += u64::from(matches!(rerun(tx, stored).await?, Changed::Done(_)));
        }
    }
    Ok(queued)
}

pub(crate) async fn job_delete(tx: &mut Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Changed> {
    let Some(stored) = row::find_of(tx, tenant, id).await? else { return Ok(Changed::NotFound) };
    if state::next(stored.job.state, Event::Delete).is_none() {
        return Ok(Changed::Refused(stored.job.state));
    }
    erase(tx, &stored).await?;
    family::after_removal(tx, &stored.job).await?;
    Ok(Changed::Done(Box::new(stored.job)))
}

/// Removes a job in any state, without effects on its family.
pub(crate) async fn erase(tx: &mut Tx<'_>, stored: &Stored) -> Result<()> {
    leave(tx, stored).await?;
    if let Some(key) = unique::held(&stored.job) {
        unique::free(tx, stored.type_id, key, stored.job.id).await?;
    }
    remove(tx, &[(stored.job.id.get(), stored.parts)]).await
}

/// Removes a job from its queue or lease.
pub(crate) async fn leave(tx: &mut Tx<'_>, stored: &Stored) -> Result<()> {
    match stored.job.state {
        State::Queued => queue::remove(tx, queue::key(stored)).await,
        State::Running => settle::drop_lease(tx, stored.job.id.get(), stored.type_id).await,
        State::Paused | State::Finished | State::Failed | State::Cancelled => Ok(()),
    }
}

/// Deletes the rows of jobs, each with its parts, and everything that belongs to them.
pub(crate) async fn remove(tx: &mut Tx<'_>, jobs: &[(i64, i32)]) -> Result<()> {
    let ids: Vec<i64> = jobs.iter().map(|(id, _)| *id).collect();
    let remove = "DELETE FROM job WHERE id = ANY ($1) RETURNING type_id, state";
    for removed in tx.query(remove, &[&ids]).await? {
        // A state that cannot be read was not counted.
        if let Ok(state) = row::state(removed.try_get(1)?) {
            tx.went(removed.try_get(0)?, state);
        }
    }
    remove_parts(tx, jobs).await
}

/// Deletes what jobs have in other tables.
pub(crate) async fn remove_parts(tx: &Tx<'_>, jobs: &[(i64, i32)]) -> Result<()> {
    let with = |part: i32| -> Vec<i64> {
        jobs.iter().filter(|(_, parts)| parts & part != 0).map(|(id, _)| *id).collect()
    };
    let tables = [
        (part::RESULT, "DELETE FROM result WHERE id = ANY ($1)"),
        (part::LOG, "DELETE FROM log WHERE id = ANY ($1)"),
        (part::PROGRESS, "DELETE FROM progress WHERE id = ANY ($1)"),
        (part::EXTRA, "DELETE FROM extra WHERE id = ANY ($1)"),
    ];
    for (part, sql) in tables {
        let ids = with(part);
        if !ids.is_empty() {
            tx.execute(sql, &[&ids]).await?;
        }
    }
    enter::remove_pieces(tx, &with(part::PIECES)).await
}
