//! What native changes of a job do to its parent and children, by core's rules.

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

/// Finds one row of each state by the index. The row of a running child says `queued`.
const STATES: &str = "
    SELECT s.state FROM unnest('{0,2,3,4,5}'::int2[]) AS s (state)
     WHERE EXISTS (SELECT FROM job
                    WHERE parent_id = $1 AND state = s.state AND id IS DISTINCT FROM $2)";

/// The states of a parent's children, except one of them.
pub(crate) async fn children(
    tx: &Tx<'_>,
    parent: JobId,
    except: Option<JobId>,
) -> Result<Children> {
    let mut children = Children::default();
    for found in tx.query(STATES, &[&parent.get(), &except.map(JobId::get)]).await? {
        children.note(row::state(found.try_get(0)?)?);
    }
    Ok(children)
}

/// The parent of a job, if it exists. A change of a family with a damaged member fails as a whole:
/// what one of them has to do for another would be lost otherwise.
pub(crate) async fn parent(tx: &Tx<'_>, job: &Job) -> Result<Option<Stored>> {
    match job.parent {
        None => Ok(None),
        Some(parent) => row::find_of(tx, &job.key.tenant, parent).await,
    }
}

const NOTE_ENDED: &str = "
    UPDATE job SET parts = $2, last_code = coalesce($3, last_code),
                   last_status = coalesce($4, last_status)
     WHERE id = $1";

/// Pauses a job whose attempt ended well, and which still has its lease; its paused children become
/// queued.
pub(crate) async fn pause(tx: &mut Tx<'_>, by: &Settlement, parts: i32) -> Result<()> {
    let id = by.lease.id.get();
    let code = by.ended.map(|ended| row::code_number(ended.code));
    let status = by.ended.map(|ended| ended.status.get() as i16);
    tx.execute(NOTE_ENDED, &[&id, &parts, &code, &status]).await?;
    let Some(stored) = row::find(tx, id).await? else { return Ok(()) };
    let children = children(tx, stored.job.id, None).await?;
    let edits = family::wait_for_children(&stored.job, children);
    carry_out(tx, edits.unwrap_or_default()).await
}

/// After this job has ended.
pub(crate) async fn after_end(tx: &mut Tx<'_>, id: i64, purge_at: Timestamp) -> Result<()> {
    let Some(Stored { job, .. }) = row::find(tx, id).await? else { return Ok(()) };
    let (parent, siblings) = waiting(tx, &job).await?;
    let edits = family::after_end(&job, parent.as_ref(), siblings, purge_at);
    carry_out(tx, edits).await
}

/// After this job was removed.
pub(crate) async fn after_removal(tx: &mut Tx<'_>, job: &Job) -> Result<()> {
    let (parent, siblings) = waiting(tx, job).await?;
    let purge_at = tx.now + ORPHAN_RETENTION;
    carry_out(tx, family::after_removal(job, parent.as_ref(), siblings, purge_at)).await
}

/// The parent of a job, and its other children.
async fn waiting(tx: &Tx<'_>, job: &Job) -> Result<(Option<Job>, Children)> {
    let Some(parent) = parent(tx, job).await? else { return Ok((None, Children::default())) };
    let siblings = children(tx, parent.job.id, Some(job.id)).await?;
    Ok((Some(parent.job), siblings))
}

async fn carry_out(tx: &mut Tx<'_>, edits: Vec<Edit>) -> Result<()> {
    let mut moved = MovedJobs::default();
    for edit in &edits {
        edit::carry_out(tx, edit, &mut moved).await?;
    }
    Ok(())
}
