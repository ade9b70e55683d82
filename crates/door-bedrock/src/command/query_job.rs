//! `QueryJob`: returns one job.

use windlass_core::edit::FullJob;

use crate::execute::Reply;
use crate::wire::{Request, Response};

use super::{Bedrock, Refusal, value, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let id = value::job_id(request)?;
    let whole = door.engine.full_job(&door.tenant, id).await?;
    let there = |whole: &FullJob| view::exists(&whole.job);
    let whole = whole.filter(there).ok_or((404, "No job with this jobID"))?;
    Ok(Response::json(view::queried(&whole)).into())
}
