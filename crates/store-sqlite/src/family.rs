//! What native changes of a job do to its parent and children, by core's rules.

use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::edit::{Children, Edit, MovedJobs};
use windlass_core::family;
use windlass_core::limit::ORPHAN_RETENTION;
use windlass_core::store::Settlement;
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId};

use crate::edit;
use crate::error::Result;
use crate::row::{self, Stored};
use crate::tx::Tx;

pub(crate) const NEXT_STATE: &str = "
    SELECT state FROM aside
     WHERE parent_id = ?1 AND state > ?2 AND id <> ?3 ORDER BY state LIMIT 1";

pub(crate) const HAS_CHILDREN: &str = "SELECT 1 FROM aside WHERE parent_id = ?1";

pub(crate) fn has_children(conn: &Connection, id: JobId) -> Result<bool> {
    Ok(conn.prepare_cached(HAS_CHILDREN)?.exists([id.get()])?)
}

/// The states of a parent's children, except one of them.
pub(crate) fn children(
    conn: &Connection,
    parent: JobId,
    except: Option<JobId>,
) -> Result<Children> {
    let mut next = conn.prepare_cached(NEXT_STATE)?;
    let (except, mut state) = (except.map_or(0, JobId::get), -1);
    let mut children = Children::default();
    // Bounded: one step per state. The row of a running child says `queued`.
    while let Some(found) =
        next.query_row([parent.get(), state, except], |row| row.get(0)).optional()?
    {
        state = found;
        children.note(row::state(state)?);
    }
    Ok(children)
}

/// The parent of a job, if it exists. A change of a family with a damaged member fails as a whole:
/// what one of them has to do for another would be lost otherwise.
pub(crate) fn parent(conn: &Connection, job: &Job) -> Result<Option<Stored>> {
    match job.parent {
        None => Ok(None),
        Some(parent) => row::find_of(conn, &job.key.tenant, parent),
    }
}

/// Pauses a job whose attempt ended well, and which still has its lease; its paused children become
/// queued.
pub(crate) fn pause(tx: &mut Tx<'_>, by: &Settlement, parts: i64) -> Result<()> {
    let id = by.lease.id.get();
    let note = "
        UPDATE job SET parts = ?2, last_code = coalesce(?3, last_code),
                       last_status = coalesce(?4, last_status)
         WHERE id = ?1";
    let (code, status) = by.ended.map(|e| (row::code_number(e.code), e.status.get())).unzip();
    tx.conn.prepare_cached(note)?.execute(params![id, parts, code, status])?;
    let Some(stored) = row::find(tx.conn, id)? else { return Ok(()) };
    let children = children(tx.conn, stored.job.id, None)?;
    let edits = family::wait_for_children(&stored.job, children);
    carry_out(tx, edits.unwrap_or_default())
}

/// After this job has ended.
pub(crate) fn after_end(tx: &mut Tx<'_>, id: i64, purge_at: Timestamp) -> Result<()> {
    let Some(Stored { job, .. }) = row::find(tx.conn, id)? else { return Ok(()) };
    let (parent, siblings) = waiting(tx.conn, &job)?;
    let edits = family::after_end(&job, parent.as_ref(), siblings, purge_at);
    carry_out(tx, edits)
}

/// After this job was removed.
pub(crate) fn after_removal(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let (parent, siblings) = waiting(tx.conn, job)?;
    let purge_at = tx.now + ORPHAN_RETENTION;
    carry_out(tx, family::after_removal(job, parent.as_ref(), siblings, purge_at))
}

/// The parent of a job, and its other children.
fn waiting(conn: &Connection, job: &Job) -> Result<(Option<Job>, Children)> {
    let Some(parent) = parent(conn, job)? else { return Ok((None, Children::default())) };
    let siblings = children(conn, parent.job.id, Some(job.id))?;
    Ok((Some(parent.job), siblings))
}

fn carry_out(tx: &mut Tx<'_>, edits: Vec<Edit>) -> Result<()> {
    let mut moved = MovedJobs::default();
    edits.iter().try_for_each(|edit| edit::carry_out(tx, edit, &mut moved))
}
