//! `CancelJob`: cancels a child job.

use windlass_core::edit::{Decision, Edit, FamilyView, Put, Target};
use windlass_core::family;
use windlass_core::{Job, State, Timestamp};

use crate::execute::Reply;
use crate::wire::Request;

use super::{Bedrock, Refusal, done, value, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    // With anything after the verb, Bedrock accepts the command and does nothing.
    if !request.method_line().eq_ignore_ascii_case("CancelJob") {
        return done();
    }
    let id = value::job_id(request)?;
    door.decide(vec![Target::Job(id)], |_, seen, now| decision(seen, now)).await?;
    done()
}

pub(super) fn decision(seen: &FamilyView, now: Timestamp) -> Result<Decision, Refusal> {
    let job = &view::found(seen)?.job;
    if seen.children.any() {
        return Err((404, "Invalid jobID - Cannot cancel a job with children").into());
    }
    if job.parent.is_none() {
        return Err((404, "Invalid jobID - Cannot cancel a job without a parent").into());
    }
    if matches!(job.state, State::Running | State::Finished | State::Paused) {
        return Ok(Decision::default());
    }
    let mut cancelled = Job { state: State::Cancelled, finished_at: Some(now), ..job.clone() };
    cancelled.extra.lent = false;
    let put = Put { job: cancelled, payload: None, purge_at: None };
    let mut edits = vec![Edit::Put(Box::new(put))];
    // Paused siblings do not keep the parent waiting here.
    if let Some(parent) = seen.parent.as_ref().filter(|_| !seen.siblings.active) {
        edits.extend(family::resume(&parent.job));
    }
    Ok(Decision { edits, id: None })
}
