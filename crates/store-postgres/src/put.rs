//! Replaces a job by what an edit says: rewrites its row, and moves it between the queue, the
//! leases and the ended jobs.

use bytes::Bytes;
use tokio_postgres::types::ToSql;
use windlass_core::edit::{MovedJobs, Put};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Lease, Payload, State, TypeName};

use crate::change;
use crate::edit;
use crate::enter;
use crate::error::{Failure, Result};
use crate::extra;
use crate::lease;
use crate::queue;
use crate::row::{self, Stored, part};
use crate::tx::Tx;
use crate::unique;

/// Applies the edit; returns the job after it.
pub(crate) async fn put(
    tx: &mut Tx<'_>,
    stored: &Stored,
    change: &Put,
    moved: &mut MovedJobs,
) -> Result<Job> {
    let now = tx.now;
    let id = stored.job.id;
    let job = change.tidied(&stored.job, now)?;
    let token = job.lease.map(|lease| lease.token);
    if token.is_some() && token < stored.token {
        return Err(Failure::LargerToken(id));
    }
    let type_id = tx.ensure_type(&job.key).await?;
    hold(tx, stored, &job, type_id).await?;
    if job.parent != stored.job.parent
        && let Some(parent) = job.parent
    {
        enter::mark_parent(tx, job.key.tenant.as_str(), parent.get()).await?;
    }
    extra::write(tx, id.get(), &job.extra, stored.parts).await?;
    let family = if job.children { part::FAMILY } else { 0 };
    let kept = part::PIECES | part::RESULT | part::LOG | part::PROGRESS;
    let mut parts = (stored.parts & kept) | extra::parts(&job.extra) | family;
    if let Some(payload) = &change.payload {
        parts = put_payload(tx, id, payload.clone(), parts).await?;
    }
    let purge_at = change.purge_at.filter(|_| job.state.is_ended());
    let after = Stored { job, type_id, token: token.or(stored.token), parts };
    shift(tx, stored, &after).await?;
    tx.went(stored.type_id, stored.job.state);
    tx.came(after.type_id, after.job.state);
    write(tx, &after, purge_at).await?;
    moved.note_changed(&stored.job, &after.job, now);
    Ok(after.job)
}

/// Frees the unique key that the job held, and takes its new one.
async fn hold(tx: &Tx<'_>, before: &Stored, after: &Job, type_id: i32) -> Result<()> {
    let held = unique::held(&before.job).map(|key| (before.type_id, key));
    let wanted = unique::held(after).map(|key| (type_id, key));
    if held == wanted {
        return Ok(());
    }
    if let Some((type_id, key)) = wanted
        && let Some(holder) = unique::hold(tx, type_id, key, before.job.id).await?
    {
        return Err(edit::held_by(holder));
    }
    if let Some((type_id, key)) = held {
        unique::free(tx, type_id, key, before.job.id).await?;
    }
    Ok(())
}

/// Replaces the payload; returns the job's new parts.
async fn put_payload(tx: &Tx<'_>, id: JobId, payload: Bytes, parts: i32) -> Result<i32> {
    change::remove_parts(tx, &[(id.get(), parts & part::PIECES)]).await?;
    let (payload, pieces) = Payload::Inline(payload).split();
    enter::put_pieces(tx, id, &pieces).await?;
    let set = "UPDATE job SET payload = $2 WHERE id = $1";
    tx.execute(set, &[&id.get(), &enter::inline(&payload)]).await?;
    let pieces = if payload.is_in_pieces() { part::PIECES } else { 0 };
    Ok((parts & !part::PIECES) | pieces)
}

/// Moves a job from its old queue or lease to its new one.
async fn shift(tx: &mut Tx<'_>, before: &Stored, after: &Stored) -> Result<()> {
    match (before.job.lease, after.job.lease) {
        (Some(_), Some(lease)) => replace_lease(tx, before, after, lease).await,
        (_, lease) => {
            change::leave(tx, before).await?;
            match lease {
                Some(lease) => {
                    lease::add_all(tx, &lease, None, [(&after.job, after.type_id)].into_iter())
                        .await
                }
                None if after.job.state == State::Queued => {
                    queue::add(tx, queue::key(after), after.job.run_at <= tx.now).await
                }
                None => Ok(()),
            }
        }
    }
}

/// The lease of the same owner stays on the same beat.
const REPLACE_LEASE: &str = "
    UPDATE lease
       SET type_id = $2, token = $4, expires_at = $5, attempt = $6, started_at = $7, owner = $3,
           boot = CASE WHEN owner = $3 THEN boot
                       ELSE coalesce((SELECT boot FROM sysid WHERE sysid = $3), 0) END
     WHERE id = $1";

async fn replace_lease(
    tx: &mut Tx<'_>,
    before: &Stored,
    after: &Stored,
    lease: Lease,
) -> Result<()> {
    let Stored { job, type_id, .. } = after;
    let (owner, token) = (i32::from(lease.owner.get()), lease.token.0);
    let expires_at = (!lease.on_beat).then_some(lease.expires_at.ms());
    let (attempt, started_at) = (job.attempt as i32, job.started_at.unwrap_or(tx.now).ms());
    let values: [&(dyn ToSql + Sync); 7] =
        [&job.id.get(), type_id, &owner, &token, &expires_at, &attempt, &started_at];
    if tx.execute(REPLACE_LEASE, &values).await? == 0 {
        return Err(Failure::Moved);
    }
    if before.type_id != after.type_id {
        tx.freed(before.type_id);
    }
    Ok(())
}

/// The lease of a running job (`$22`) has its start; the row keeps the one before it, which a
/// release restores.
const WRITE: &str = "
    UPDATE job
       SET type_id = $2, state = $3, priority = $4, run_at = $5, due_at = $6, attempt = $7,
           created_at = $8, started_at = CASE WHEN $22 THEN started_at ELSE $9 END,
           finished_at = $10, expires_at = $11, timeout_ms = $12, token = $13, last_code = $14,
           last_status = $15, purge_at = $16, parts = $17, payload_bytes = $18, unique_key = $19,
           then_name = $20, parent_id = $21
     WHERE id = $1";

async fn write(tx: &Tx<'_>, stored: &Stored, purge_at: Option<Timestamp>) -> Result<()> {
    let Stored { job, type_id, token, parts } = stored;
    // A row never says running: its lease does.
    let runs = job.state == State::Running;
    let state = if runs { State::Queued } else { job.state };
    let values: [&(dyn ToSql + Sync); 22] = [
        &job.id.get(),
        type_id,
        &row::state_number(state),
        &(job.priority.get() as i16),
        &job.run_at.ms(),
        &job.due_at.ms(),
        &(job.attempt as i32),
        &job.created_at.ms(),
        &job.started_at.map(Timestamp::ms),
        &job.finished_at.map(Timestamp::ms),
        &job.expires_at.map(Timestamp::ms),
        &job.timeout.map(row::duration_ms),
        &token.map(|token| token.0),
        &job.last.map(|ended| row::code_number(ended.code)),
        &job.last.map(|ended| ended.status.get() as i16),
        &purge_at.map(Timestamp::ms),
        parts,
        &(job.payload_bytes as i64),
        &job.unique.as_deref().map(str::as_bytes),
        &job.then.as_ref().map(TypeName::as_str),
        &job.parent.map(JobId::get),
        &runs,
    ];
    tx.execute(WRITE, &values).await?;
    Ok(())
}
