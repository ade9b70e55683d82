//! Follow: a job that ends well and names a type is followed by a job of that type, which gets its
//! result. The store takes both in one change, so that there is exactly one for each such end.

use windlass_core::{Job, Json, NewJob, Status};

use crate::error::{Error, storage_error};
use crate::shared::Shared;

/// The job that follows `job` if its attempt ended with this status and this result.
pub(crate) fn job(
    shared: &Shared,
    job: &Job,
    status: Status,
    data: Option<&Json>,
) -> Result<Option<NewJob>, Error> {
    let Some(name) = job.followed_by(status) else { return Ok(None) };
    let id = shared.journal.make_id().map_err(storage_error)?;
    Ok(Some(job.follow(name.clone(), id, data, shared.now())))
}
