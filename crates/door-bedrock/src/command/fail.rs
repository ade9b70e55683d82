//! `FailJob`: the job has failed, and is kept for inspection.

use windlass_core::edit::{Decision, Edit, FamilyView, Put, Target};
use windlass_core::job::Ended;
use windlass_core::{Job, State, Status, Timestamp};

use crate::execute::Reply;
use crate::wire::Request;

use super::value::{self, filled};
use super::{Bedrock, Refusal, data, done, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let id = value::job_id(request)?;
    let data = filled(request, "data").map(str::to_owned);
    let fail = move |_, seen: &FamilyView, now| decision(data.as_deref(), seen, now);
    door.decide(vec![Target::Job(id)], fail).await?;
    done()
}

pub(super) fn decision(
    data: Option<&str>,
    seen: &FamilyView,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    let whole = view::found(seen)?;
    if !whole.job.is_out() {
        return Err((405, "Can only fail RUNNING or RUNQUEUED jobs").into());
    }
    let mut job = failed(&whole.job, now);
    if let Some(data) = data {
        job.extra.hidden = data::is_mocked(data);
    }
    // Only an operator removes it.
    let put = Put { job, payload: data.map(data::bytes), purge_at: None };
    Ok(Decision { edits: vec![Edit::Put(Box::new(put))], id: None })
}

/// The job when it has failed for good.
pub(super) fn failed(job: &Job, now: Timestamp) -> Job {
    let mut failed = Job {
        state: State::Failed,
        lease: None,
        finished_at: Some(now),
        last: Some(Ended::from(Status::FAILED)),
        ..job.clone()
    };
    failed.extra.lent = false;
    failed
}
