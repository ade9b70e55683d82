//! `RequeueJobs`: returns jobs to the queue, regardless of their state; also used for jobs whose
//! reply did not reach the worker.

use std::collections::BTreeSet;

use windlass_bedrock_rules::date_text::{due_at, seconds_text, set_next_run};
use windlass_bedrock_rules::merge::is_object;
use windlass_core::edit::{Decision, Edit, FamilyView, FullJob, Put, Target};
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::{JobId, State, TypeName};

use crate::execute::{HandedOut, Reply};
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
    let requeue = move |_, seen: &FamilyView, _| Ok(decision(seen, name.as_ref(), decrement));
    door.decide(targets, requeue).await?;
    done()
}

pub(super) fn decision(seen: &FamilyView, name: Option<&TypeName>, decrement: bool) -> Decision {
    let there = seen.job.as_ref().filter(|whole| view::exists(&whole.job));
    there.map(|whole| put(requeued(whole, name, decrement))).unwrap_or_default()
}

/// Takes back jobs that no worker received, also those that were handed out for the last time: a
/// requeue of each, and its attempt does not count. A job that another attempt has, or none, is
/// left alone.
pub(super) async fn undelivered(door: &Bedrock, handed_out: Vec<HandedOut>) {
    let targets = handed_out.iter().map(|job| Target::Job(job.id)).collect();
    let count = handed_out.len();
    let take_back = move |index: usize, seen: &FamilyView, _| {
        let same = |whole: &&FullJob| {
            let (now, then) = (&whole.job, &handed_out[index]);
            (now.state, now.extra.lent) == (then.state, then.extra.lent)
                && now.started_at == then.started_at
                && now.lease.map(|lease| lease.token) == then.lease.map(|lease| lease.token)
        };
        let Some(whole) = seen.job.as_ref().filter(same) else { return Ok(Decision::default()) };
        let mut back = requeued(whole, None, true);
        back.job.attempt = back.job.attempt.saturating_sub(1);
        Ok(put(back))
    };
    match door.decide(targets, take_back).await {
        Ok(_) => tracing::info!(jobs = count, "requeued jobs whose reply could not be delivered"),
        Err(refusal) => {
            tracing::warn!(jobs = count, reason = %refusal.0, "cannot requeue undelivered jobs");
        }
    }
}

fn requeued(whole: &FullJob, name: Option<&TypeName>, decrement: bool) -> Put {
    let mut job = whole.job.clone();
    let text = seconds_text(job.created_at);
    job.state = State::Queued;
    job.lease = None;
    job.finished_at = None;
    job.run_at = due_at(&text);
    job.due_at = job.run_at;
    set_next_run(&mut job.extra, &text, job.run_at);
    job.extra.lent = false;
    if let Some(name) = name {
        job.key.name = name.clone();
    }
    let text = data::text(&whole.payload).filter(|text| decrement && is_object(text));
    let payload = text.map(|text| data::bytes(data::with_retry_count_decremented(text)));
    Put { job, payload, purge_at: None }
}

fn put(put: Put) -> Decision {
    Decision { edits: vec![Edit::Put(Box::new(put))], id: None }
}
