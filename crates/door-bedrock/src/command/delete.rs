//! `DeleteJob`: removes a job that is not running.

use windlass_core::State;
use windlass_core::edit::{Decision, Edit, FamilyView, Target};
use windlass_core::family;

use crate::execute::Reply;
use crate::wire::Request;

use super::{Bedrock, Refusal, done, value, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let id = value::job_id(request)?;
    door.decide(vec![Target::Job(id)], |_, seen, _| decision(seen)).await?;
    done()
}

pub(super) fn decision(seen: &FamilyView) -> Result<Decision, Refusal> {
    let job = &view::found(seen)?.job;
    match job.state {
        State::Running => return Err((405, "Can't delete a RUNNING job").into()),
        State::Paused => {
            return Err((405, "Can't delete a parent jobs with children running").into());
        }
        _ => {}
    }
    let mut edits = vec![Edit::Delete(job.id)];
    // Otherwise its parent would wait for a child that no longer exists.
    if let Some(parent) = &seen.parent {
        edits.extend(family::after_child(&parent.job, seen.siblings));
    }
    Ok(Decision { edits, id: None })
}
