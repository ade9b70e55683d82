//! `GetJob` and `GetJobs`: hand out due jobs. With `Connection: wait`, the reply comes as soon as
//! there is a job.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use windlass_bedrock_rules::date_text::{due_at, seconds_text, set_next_run};
use windlass_core::calendar::{Civil, Modifiers};
use windlass_core::edit::{
    Claimant, FullJob, Names, Put, Take, TakeAnswer, TakeDecide, TakeDecision, TakenJob,
};
use windlass_core::limit::{BATCH_JOBS_MAX, WHOLE_BYTES_MAX};
use windlass_core::repeat::{Bases, Repeat};
use windlass_core::store::LeaseRef;
use windlass_core::{Job, JobId, Lease, Payload, Priority, State, Timestamp, TypeName};
use windlass_engine::{PayloadBefore, Taken};

use crate::execute::{Call, HOLD_INTERVAL, HandedOut, Reply};
use crate::number::leading_integer;
use crate::wire::json::{Object, array};
use crate::wire::{Request, Response};

use super::fail::failed;
use super::requeue::set_due_since_created;
use super::value::{self, filled};
use super::{Bedrock, Refusal, crash, data, view};

/// How often a job is handed out without a report before it fails.
const LENT_MAX: i64 = 10;
/// Lease of a job until its reply has been delivered. After that, the worker keeps the job until it
/// reports. The short lease ensures that a daemon's death in between leaves no job running forever.
const DELIVERY_LEASE: Duration = Duration::from_secs(60);
const _: () = assert!(2 * HOLD_INTERVAL.as_secs() < DELIVERY_LEASE.as_secs());
/// Names with this prefix are manual jobs: how often they are handed out is not counted.
const MANUAL: &str = "manual";

pub(super) async fn get_job(
    door: &Bedrock,
    request: &Request,
    call: Call,
) -> Result<Reply, Refusal> {
    let names = value::names(request)?;
    if request.header("numResults").is_some() {
        return Err((402, "Cannot use numResults with GetJob; try GetJobs").into());
    }
    let took = take(door, request, &call, names, 1).await?;
    let job = took.given.first().map(object).unwrap_or_default();
    Ok(reply(Response::json(job), took))
}

pub(super) async fn get_jobs(
    door: &Bedrock,
    request: &Request,
    call: Call,
) -> Result<Reply, Refusal> {
    let names = value::names(request)?;
    let results = filled(request, "numResults").ok_or((402, "Missing numResults"))?;
    let limit = leading_integer(results).clamp(1, BATCH_JOBS_MAX as i64);
    let took = take(door, request, &call, names, limit as u32).await?;
    let jobs = array(took.given.iter().map(|taken| object(taken).compose()));
    Ok(reply(Response::json(Object::new().raw("jobs", jobs)), took))
}

fn reply(response: Response, took: TakeAnswer) -> Reply {
    Reply { response, handed_out: took.given.into_iter().map(handed_out).collect() }
}

/// If the reply is not delivered, the take is undone. As in Bedrock, a job of this door is then due
/// since it was created; one that was added over HTTP has no text for its time, and keeps it.
pub(super) fn handed_out(taken: TakenJob) -> HandedOut {
    let TakenJob { before, job: after, payload, .. } = taken;
    let mut before = before.job;
    if before.extra.run_at_text.is_some() || before.extra.door_text.is_some() {
        set_due_since_created(&mut before);
    }
    HandedOut { taken: Taken { before, after }, counted: payload.is_some() }
}

/// The reply is still being written: no other worker gets the jobs while their client reads slowly.
pub(super) async fn hold(door: &Bedrock, handed_out: &[HandedOut]) {
    if let Err(error) = door.engine.renew_all(leases(handed_out), DELIVERY_LEASE).await {
        tracing::warn!(%error, "cannot hold jobs whose reply is being written");
    }
}

/// The reply was delivered: the worker keeps these jobs until it reports.
pub(super) async fn delivered(door: &Bedrock, handed_out: Vec<HandedOut>) {
    door.engine.keep(leases(&handed_out)).await;
}

fn leases(handed_out: &[HandedOut]) -> Vec<LeaseRef> {
    handed_out.iter().filter_map(|job| LeaseRef::of(&job.taken.after)).collect()
}

/// The reply was not delivered: undoes the take, also of jobs that were handed out for the last
/// time.
pub(super) async fn undelivered(door: &Bedrock, handed_out: Vec<HandedOut>) {
    let count = handed_out.len();
    let (taken, counted): (Vec<Taken>, Vec<bool>) =
        handed_out.into_iter().map(|job| (job.taken, job.counted)).unzip();
    let payload: PayloadBefore = Arc::new(move |index, now| {
        let text = data::text(now).filter(|_| counted[index])?;
        data::without_one_retry(text).map(data::bytes)
    });
    match door.engine.untake(taken, payload).await {
        Ok(()) => tracing::info!(jobs = count, "took back jobs whose reply was not delivered"),
        Err(error) => tracing::warn!(jobs = count, %error, "undelivered jobs come back later"),
    }
}

async fn take(
    door: &Bedrock,
    request: &Request,
    call: &Call,
    names: &str,
    limit: u32,
) -> Result<TakeAnswer, Refusal> {
    let priority: Option<Priority> = value::job_priority(request)?;
    let waits = request.connection_is("wait") && !call.gone.is_cancelled();
    let wait = call.until.saturating_duration_since(Instant::now());
    // Read once: a decision that is repeated must decide the same.
    let crashed = door.crashed.list();
    let decide: TakeDecide = Arc::new(move |whole, claimant, now| {
        let name = whole.job.key.name.as_str();
        hand_out(whole, crash::matches(&crashed, name), claimant, now)
    });
    let take = Take {
        priority,
        hidden: ["mockRequest", "getMockedJobs"].iter().any(|name| request.header(name).is_some()),
        payload_bytes_max: WHOLE_BYTES_MAX,
        ..Take::new(door.tenant.clone(), parse_names(names), limit, decide)
    };
    let wait = if waits { wait } else { Duration::ZERO };
    // If the worker disconnects or the door closes while it waits, it gets nothing, and the engine
    // hands back what it has just taken.
    let took = tokio::select! {
        took = door.engine.take(take, wait) => took?,
        () = call.gone.cancelled(), if waits => TakeAnswer::default(),
    };
    // If all that were found were given up, the reply is empty, not 404.
    if took.given.is_empty() && took.kept == 0 {
        return Err((404, "No job found").into());
    }
    Ok(took)
}

/// One name is a pattern, several are names.
fn parse_names(names: &str) -> Names {
    let several: Vec<&str> = value::list(names).collect();
    if several.len() > 1 {
        return Names::AnyOf(several.iter().filter_map(|name| TypeName::new(name).ok()).collect());
    }
    Names::Glob(names.to_owned())
}

fn object(taken: &TakenJob) -> Object {
    let mut job = view::handed_out(&taken.before);
    if let Some(parent) = taken.before.job.parent {
        let parent_data = taken.parent.as_ref().map(|parent| data::shown(&parent.payload));
        job = job
            .number("parentJobID", parent.get())
            .text("parentData", &parent_data.unwrap_or_default());
    }
    if !taken.finished.is_empty() || !taken.cancelled.is_empty() {
        job = job
            .raw("finishedChildJobs", children(&taken.finished))
            .raw("cancelledChildJobs", children(&taken.cancelled));
    }
    job
}

fn children(children: &[(JobId, Payload)]) -> String {
    let child = |(id, payload): &(JobId, Payload)| {
        Object::new().text("data", &data::shown(payload)).number("jobID", id.get()).compose()
    };
    array(children.iter().map(child))
}

/// Decides what happens to a job that is about to be handed out.
pub(super) fn hand_out(
    whole: &FullJob,
    crashed: bool,
    claimant: Claimant,
    now: Timestamp,
) -> TakeDecision {
    if crashed {
        return give_up(&whole.job, now, false);
    }
    let mut job = Job {
        started_at: Some(now),
        attempt: whole.job.attempt.saturating_add(1),
        ..whole.job.clone()
    };
    let Some(retry_after) = whole.job.extra.door_text.as_deref() else {
        let Claimant { owner, token } = claimant;
        let expires_at = now + DELIVERY_LEASE;
        job.state = State::Running;
        job.lease = Some(Lease { owner, token, expires_at, on_beat: false });
        job.extra.lent = false;
        return TakeDecision { put: Put { job, payload: None, purge_at: None }, give: true };
    };
    let text = data::shown(&whole.payload);
    let count = data::retry_count(&text);
    if count >= LENT_MAX {
        return give_up(&whole.job, now, false);
    }
    // As in Bedrock: the worker gets the job for the last time, and it counts as failed.
    let Some(again_at) = again_at(&whole.job, retry_after, now) else {
        return give_up(&job, now, true);
    };
    let next_run = seconds_text(again_at);
    job.run_at = due_at(&next_run);
    set_next_run(&mut job.extra, &next_run, job.run_at);
    job.extra.lent = true;
    let counted = (!whole.job.key.name.as_str().starts_with(MANUAL))
        .then(|| data::bytes(counted(&whole.job, &text, count + 1)));
    TakeDecision { put: Put { job, payload: counted, purge_at: None }, give: true }
}

/// When a lent job is handed out again: after its `retryAfter`, or when it repeats.
fn again_at(job: &Job, retry_after: &str, now: Timestamp) -> Option<Timestamp> {
    // As in SQLite, this is exactly one modifier; a list of them is not a date.
    let modifiers =
        Modifiers::parse("retryAfter", retry_after).ok().filter(|list| list.len() == 1)?;
    let again_at = modifiers.apply(Civil::from_timestamp(now))?.timestamp();
    let Some(repeat) = &job.extra.repeat else { return Some(again_at) };
    let bases = Bases { scheduled: view::scheduled(job), started: Some(now), now };
    Some(again_at.min(Repeat::parse(repeat).ok()?.next(&bases)?))
}

fn counted(job: &Job, text: &str, count: i64) -> String {
    let text = data::with_retry_count(text, count);
    let scheduled = job.extra.repeat.as_ref().is_some_and(|repeat| repeat.contains("SCHEDULED"));
    if scheduled { data::with_original_next_run(&text, &view::next_run(job)) } else { text }
}

fn give_up(job: &Job, now: Timestamp, give: bool) -> TakeDecision {
    TakeDecision { put: Put { job: failed(job, now), payload: None, purge_at: None }, give }
}

#[cfg(test)]
mod tests {
    use windlass_core::job::Token;
    use windlass_core::{Extra, NewJob, Sysid, TypeKey};

    use super::*;

    const CREATED: Timestamp = Timestamp(1_800_000_000_000);
    const DUE: Timestamp = Timestamp(1_800_090_000_000);

    /// A job with a delay of more than a day, before it is handed out and after that.
    fn handed(name: &str, extra: Extra) -> (Job, HandedOut) {
        let key = TypeKey::new("default", name).unwrap();
        let payload = Payload::Inline(r#"{"a":1}"#.into());
        let new = NewJob::new(JobId::new(1).unwrap(), key, payload.clone(), CREATED);
        let job = Job::queued(NewJob { run_at: DUE, extra, ..new });
        let before = FullJob { job: job.clone(), payload, retention: None };
        let claimant = Claimant { owner: Sysid::FIRST, token: Token(1) };
        let Put { job: after, payload, .. } = hand_out(&before, false, claimant, DUE).put;
        let (parent, finished, cancelled) = (None, Vec::new(), Vec::new());
        (job, handed_out(TakenJob { before, job: after, payload, parent, finished, cancelled }))
    }

    #[test]
    fn an_undelivered_job_of_http_becomes_what_it_was() {
        let (job, out) = handed("t", Extra::default());
        assert_eq!(out.taken.before, job);
        assert!(!out.counted && out.taken.after.attempt == 1);
    }

    #[test]
    fn an_undelivered_job_of_this_door_is_due_since_it_was_created_and_no_older() {
        let mut timed = Extra::default();
        set_next_run(&mut timed, &seconds_text(DUE), DUE);
        let lent = Extra { door_text: Some("+1 HOUR".into()), ..Extra::default() };
        for (extra, counted) in [(timed, false), (lent, true)] {
            let (job, out) = handed("t", extra);
            let back = &out.taken.before;
            assert_eq!(view::next_run(back), seconds_text(CREATED));
            assert_eq!((back.run_at, back.due_at), (CREATED, job.due_at));
            assert_eq!((back.state, back.attempt, back.started_at), (State::Queued, 0, None));
            assert_eq!(out.counted, counted);
        }
    }

    #[test]
    fn only_what_was_counted_is_taken_back() {
        let retried = |after: &str| Extra { door_text: Some(after.into()), ..Extra::default() };
        let counted = |name, extra| handed(name, extra).1.counted;
        assert!(counted("t", retried("+1 HOUR")));
        assert!(!counted("manual/t", retried("+1 HOUR")));
        assert!(!counted("t", retried("+1 DAY, +1 HOUR")), "for the last time");
    }
}
