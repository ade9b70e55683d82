//! Replaces a job by what an edit says: rewrites its row, and moves it between the queue, the
//! leases and the ended jobs.

use bytes::Bytes;
use rusqlite::{Connection, params};
use windlass_core::edit::{MovedJobs, Put};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Payload, State, TypeName};

use crate::aside::Aside;
use crate::change;
use crate::claim;
use crate::edit;
use crate::error::{Failure, Result};
use crate::extra;
use crate::insert::{self, PayloadPlace};
use crate::queue;
use crate::row::{self, Stored, part};
use crate::tx::{Counter, Tx};

/// Applies the edit; returns the job after it.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    stored: &Stored,
    change: &Put,
    moved: &mut MovedJobs,
) -> Result<Job> {
    let (conn, now) = (tx.conn, tx.now);
    let id = stored.job.id;
    let job = change.tidied(&stored.job, now)?;
    let token = job.lease.map(|lease| lease.token);
    if token.is_some() && token < stored.token {
        return Err(Failure::LargerToken(id));
    }
    let type_id = tx.types.ensure(conn, &job.key)?;
    hold(conn, stored, &job, type_id)?;
    change::leave(tx, stored)?;
    if job.parent != stored.job.parent
        && let Some(parent) = job.parent
    {
        insert::mark_parent(tx, &job.key.tenant, parent)?;
    }
    extra::write(conn, id.get(), &job.extra, stored.parts)?;
    let family = if job.children { part::FAMILY } else { 0 };
    let child = if job.parent.is_some() { part::CHILD } else { 0 };
    let kept = part::PAYLOAD | part::PIECES | part::RESULT | part::LOG | part::PROGRESS;
    let mut parts = (stored.parts & kept) | extra::parts(&job.extra) | family | child;
    if let Some(payload) = &change.payload {
        parts = put_payload(conn, id, payload.clone(), parts)?;
    }
    let purge_at = change.purge_at.filter(|_| job.state.is_ended());
    let after = Stored { job, type_id, token: token.or(stored.token), parts };
    write(conn, &after, stored.parts, purge_at)?;
    arrive(tx, &after, now)?;
    moved.note_changed(&stored.job, &after.job, now);
    Ok(after.job)
}

/// Frees the unique key that the job held, and takes its new one.
fn hold(conn: &Connection, before: &Stored, after: &Job, type_id: i64) -> Result<()> {
    let held = change::held(&before.job).map(|unique| (before.type_id, unique));
    let wanted = change::held(after).map(|unique| (type_id, unique));
    if held == wanted {
        return Ok(());
    }
    if let Some((type_id, unique)) = wanted
        && let Some(holder) = insert::holder(conn, type_id, unique)?
    {
        return Err(edit::held_by(holder));
    }
    if let Some((type_id, unique)) = held {
        insert::free(conn, type_id, unique, before.job.id.get())?;
    }
    if let Some((type_id, unique)) = wanted {
        insert::hold(conn, type_id, unique, after.id.get())?;
    }
    Ok(())
}

/// Replaces the payload; returns the job's new parts.
fn put_payload(conn: &Connection, id: JobId, payload: Bytes, parts: i64) -> Result<i64> {
    let places = part::PAYLOAD | part::PIECES;
    change::remove_parts(conn, id.get(), parts & places)?;
    let (payload, pieces) = Payload::Inline(payload).split();
    let PayloadPlace { part, in_row, beside } = PayloadPlace::of(&payload);
    insert::put_pieces(conn, id, &pieces)?;
    insert::put_beside(conn, id.get(), beside)?;
    let set = "UPDATE job SET payload = ?2 WHERE id = ?1";
    conn.prepare_cached(set)?.execute(params![id.get(), in_row.map(Bytes::as_ref)])?;
    Ok((parts & !places) | part)
}

/// The lease of a running job (`?22`) has its start; the row keeps the one before it, which a
/// release restores.
const WRITE: &str = "
    UPDATE job
       SET type_id = ?2, state = ?3, priority = ?4, run_at = ?5, due_at = ?6, attempt = ?7,
           created_at = ?8, started_at = iif(?22, started_at, ?9), finished_at = ?10,
           expires_at = ?11, timeout_ms = ?12, token = ?13, last_code = ?14, last_status = ?15,
           purge_at = ?16, parts = ?17, payload_bytes = ?18, unique_key = ?19, then_name = ?20,
           parent_id = ?21
     WHERE id = ?1";

fn write(
    conn: &Connection,
    stored: &Stored,
    parts_before: i64,
    purge_at: Option<Timestamp>,
) -> Result<()> {
    let Stored { job, type_id, token, parts } = stored;
    // A row never says running: its lease does.
    let runs = job.state == State::Running;
    let state = if runs { State::Queued } else { job.state };
    let (id, type_id, parts) = (job.id.get(), *type_id, *parts);
    Aside { id, type_id, state, parent: job.parent, parts }.write(conn, parts_before)?;
    conn.prepare_cached(WRITE)?.execute(params![
        id,
        type_id,
        row::state_number(state),
        job.priority.get(),
        job.run_at.ms(),
        job.due_at.ms(),
        job.attempt,
        job.created_at.ms(),
        job.started_at.map(Timestamp::ms),
        job.finished_at.map(Timestamp::ms),
        job.expires_at.map(Timestamp::ms),
        job.timeout.map(row::duration_ms),
        token.map(|token| token.0),
        job.last.map(|ended| row::code_number(ended.code)),
        job.last.map(|ended| ended.status.get()),
        purge_at.map(Timestamp::ms),
        parts,
        job.payload_bytes as i64,
        job.unique,
        job.then.as_ref().map(TypeName::as_str),
        job.parent.map(JobId::get),
        runs,
    ])?;
    Ok(())
}

/// Adds a job that has left its old place to its new queue or lease, and to its counter.
fn arrive(tx: &mut Tx<'_>, stored: &Stored, now: Timestamp) -> Result<()> {
    let Stored { job, type_id, .. } = stored;
    let (id, type_id) = (job.id.get(), *type_id);
    match (job.state, job.lease) {
        (State::Queued, _) => queue::add(tx, change::queue_key(stored), job.run_at <= now),
        (State::Running, Some(lease)) => {
            let started_at = job.started_at.unwrap_or(now);
            claim::add_lease(tx.conn, id, type_id, &lease, job.attempt, started_at)?;
            tx.count(type_id, Counter::Running, 1);
            Ok(())
        }
        (state, _) => {
            tx.count(type_id, Counter::of_state(state), 1);
            Ok(())
        }
    }
}
