//! `RequeueJobs`: returns jobs to the queue, regardless of their state.

use std::collections::BTreeSet;

use windlass_bedrock_rules::date_text::{due_at, seconds_text, set_next_run};
use windlass_bedrock_rules::merge::is_object;
use windlass_core::edit::{Decision, Edit, FamilyView, FullJob, Put, Target};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::{Job, JobId, State, Timestamp, TypeName};

use crate::execute::Reply;
use crate::wire::Request;

use super::value::{self, filled};
use super::{Bedrock, Refusal, data, done, view};

pub(super) async fn run(door: &Bedrock, request: &Request) -> Result<Reply, Refusal> {
    let ids = value::list(request.header("jobIDs").unwrap_or_default());
    // Duplicate ids count once.
    let ids: BTreeSet<JobId> = ids.filter_map(|id| JobId::new(id.parse().ok()?)).collect();
    let targets: Vec<Target> = ids.into_iter().map(Target::Job).collect();
    let name = filled(request, "name").map(value::type_name).transpose()?;
    let decrement = value::test(request, "decrementFailures");
    if targets.len() > BATCH_JOBS_MAX {
        return Err((402, "Malformed jobIDs").into());
    }
    if targets.is_empty() {
        return done();
    }
    let requeue =
        move |_, seen: &FamilyView, now| Ok(decision(seen, name.as_ref(), decrement, now));
    door.decide(targets, requeue).await?;
    done()
}

pub(super) fn decision(
    seen: &FamilyView,
    name: Option<&TypeName>,
    decrement: bool,
    now: Timestamp,
) -> Decision {
    let there = seen.job.as_ref().filter(|whole| view::exists(&whole.job));
    let Some(whole) = there else { return Decision::default() };
    let put = requeued(whole, name, decrement, now);
    Decision { edits: vec![Edit::Put(Box::new(put))], id: None }
}

fn requeued(whole: &FullJob, name: Option<&TypeName>, decrement: bool, now: Timestamp) -> Put {
    let mut job = whole.job.clone();
    job.state = State::Queued;
    job.lease = None;
    job.finished_at = None;
    set_due_since_created(&mut job);
    // However old the job is, it is due from now on.
    job.due_at = job.run_at.max(now);
    job.extra.lent = false;
    if let Some(name) = name {
        job.key.name = name.clone();
    }
    let text = data::text(&whole.payload).filter(|text| decrement && is_object(text));
    let payload = text.map(|text| data::bytes(data::with_retry_count_decremented(text)));
    Put { job, payload, purge_at: None }
}

/// Bedrock's `nextRun` of a job that is requeued.
pub(super) fn set_due_since_created(job: &mut Job) {
    let text = seconds_text(job.created_at);
    job.run_at = due_at(&text);
    set_next_run(&mut job.extra, &text, job.run_at);
}

#[cfg(test)]
mod tests {
    use windlass_core::{NewJob, Payload, TypeKey};

    use super::*;

    /// The age limits of retries and of jobs without a handler count from there.
    #[test]
    fn a_requeued_job_is_due_since_it_was_created_but_no_older_than_new() {
        let key = TypeKey::new("default", "t").unwrap();
        let payload = Payload::Inline("{}".into());
        let (created_at, now) = (Timestamp(1000), Timestamp(1_800_000_000_000));
        let new = NewJob::new(JobId::new(1).unwrap(), key, payload.clone(), created_at);
        let whole = FullJob { job: Job::running(new, 3, now), payload, retention: None };
        let put = requeued(&whole, None, false, now);
        assert_eq!((put.job.run_at, put.job.due_at), (created_at, now));
    }
}
