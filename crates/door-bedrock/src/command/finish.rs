//! `FinishJob`: the job waits for its children, repeats, or ends. An ended child is kept until its
//! parent has seen it; any other job no longer exists for this door, and is kept for its retention.
//! At its end, and at that of each round, the job that follows it is added.

use std::time::Duration;

use windlass_bedrock_rules::date_text::{seconds_text, set_next_run};
use windlass_core::edit::{Decision, Edit, FamilyView, Put, Target};
use windlass_core::family;
use windlass_core::job::Ended;
use windlass_core::{JobId, Json, State, Status, Timestamp};

use crate::execute::Reply;
use crate::wire::Request;

use super::report::{Report, Reported};
use super::{Bedrock, Refusal, done};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let report = Report::new(request)?;
    let (target, retention) = (Target::Job(report.id), door.engine.retention());
    // Most jobs have no follower, and end even if there are no ids now.
    let next = door.engine.make_id().ok();
    let finish = move |_, seen: &FamilyView, now| decision(&report, seen, now, retention, next);
    door.decide(vec![target], finish).await?;
    done()
}

pub(super) fn decision(
    report: &Report,
    seen: &FamilyView,
    now: Timestamp,
    retention: Duration,
    next: Option<JobId>,
) -> Result<Decision, Refusal> {
    let mut reported = report.on(seen, now, retention)?;
    reported.put.job.last = Some(Ended::from(Status::OK));
    let mut edits = reported.detach_children();
    if let Some(waiting) = family::wait_for_children(&reported.put.job, seen.children) {
        edits.extend(with_payload(waiting, reported.put));
    } else {
        edits.extend(follower(&reported, report, next)?);
        match reported.repeats {
            true => edits.push(Edit::Put(Box::new(reported.repeated()))),
            false => edits.extend(ended(reported)?),
        }
    }
    Ok(Decision { edits, id: None })
}

/// The job that follows. Its payload is the data that was reported, because Bedrock has no results.
fn follower(
    reported: &Reported<'_>,
    report: &Report,
    next: Option<JobId>,
) -> Result<Option<Edit>, Refusal> {
    let job = &reported.put.job;
    let Some(name) = job.followed_by(Status::OK).cloned() else { return Ok(None) };
    let next = next.ok_or((503, "No id for the job that follows"))?;
    let data = report.data().and_then(|text| Json::parse(text.to_owned()).ok());
    let follower = job.follow(name, next, data.as_ref(), reported.now);
    Ok(Some(Edit::Insert(Box::new(follower))))
}

/// A job that waits for its children keeps the data from its worker, and gets its new time in the
/// protocol's format.
fn with_payload(mut edits: Vec<Edit>, reported: Put) -> Vec<Edit> {
    for edit in &mut edits {
        if let Edit::Put(put) = edit {
            put.payload.clone_from(&reported.payload);
            let run_at = put.job.run_at;
            set_next_run(&mut put.job.extra, &seconds_text(run_at), run_at);
        }
    }
    edits
}

fn ended(reported: Reported<'_>) -> Result<Vec<Edit>, Refusal> {
    let Reported { seen, is_child, mut put, purge_at, now, .. } = reported;
    put.job.state = State::Finished;
    put.job.finished_at = Some(now);
    if is_child {
        // Kept without a limit, until its parent has seen it.
        put.purge_at = None;
        let mut edits = vec![Edit::Put(Box::new(put))];
        if let Some(parent) = &seen.parent {
            edits.extend(family::after_child(&parent.job, seen.siblings));
        }
        return Ok(edits);
    }
    if seen.children.failed {
        return Err((405, "Failed to delete a job with outstanding children").into());
    }
    // If its parent no longer exists, it is not a child.
    put.job.parent = None;
    put.purge_at = Some(purge_at);
    Ok(vec![Edit::Put(Box::new(put))])
}
