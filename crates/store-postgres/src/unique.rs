//! Unique keys of jobs that have not ended, for changes of single jobs; new jobs take theirs in
//! `enter`.

use windlass_core::{Job, JobId};

use crate::error::{Failure, Result};
use crate::row;
use crate::tx::Tx;

const HOLD: &str = "
    INSERT INTO unique_key (type_id, key, id) VALUES ($1, $2, $3)
    ON CONFLICT (type_id, key) DO NOTHING";

/// Takes a key for a job; returns the job that holds it, if another one does.
pub(crate) async fn hold(tx: &Tx<'_>, type_id: i32, key: &str, id: JobId) -> Result<Option<JobId>> {
    if tx.execute(HOLD, &[&type_id, &key.as_bytes(), &id.get()]).await? > 0 {
        return Ok(None);
    }
    let find = "SELECT id FROM unique_key WHERE type_id = $1 AND key = $2";
    let holder = tx.query_opt(find, &[&type_id, &key.as_bytes()]).await?;
    // Its holder may have freed it between the two statements.
    let holder = row::job_id(holder.ok_or(Failure::Moved)?.try_get(0)?)?;
    Ok((holder != id).then_some(holder))
}

pub(crate) async fn free(tx: &Tx<'_>, type_id: i32, key: &str, id: JobId) -> Result<()> {
    let free = "DELETE FROM unique_key WHERE type_id = $1 AND key = $2 AND id = $3";
    tx.execute(free, &[&type_id, &key.as_bytes(), &id.get()]).await?;
    Ok(())
}

/// The key that a job holds, if any.
pub(crate) fn held(job: &Job) -> Option<&str> {
    job.unique.as_deref().filter(|_| !job.state.is_ended())
}
