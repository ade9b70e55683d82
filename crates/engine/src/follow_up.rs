//! What follows a change of the store: log lines, metrics, stopped attempts, and announcements to
//! waiting requests, the scheduler, the dispatcher and waiting workers. Whatever part of the engine
//! made the change, its effects are handled here (those of ingest in `ingest::arrival`, and
//! of jobs that are handed back in `claim::pull`, `claim::untake` and `house::beat`).

use std::collections::HashMap;
use std::time::Duration;

use windlass_core::edit::MovedJobs;
use windlass_core::job::Ended;
use windlass_core::retry::Verdict;
use windlass_core::runner::Stop;
use windlass_core::store::{Settled, Settlement};
use windlass_core::{Job, State, TypeKey};

use crate::event;
use crate::shared::Shared;

/// Logs what moved, stops attempts that lost their lease, and announces the rest.
pub(crate) fn announce(shared: &Shared, moved: &MovedJobs) {
    moved.entered.iter().for_each(|(id, key)| event::entered(*id, key));
    moved.back.iter().for_each(|(before, after)| came_back(shared, before, after));
    for attempt in &moved.stopped {
        shared.running.set_lost(*attempt);
        shared.runner.stop(*attempt, Stop::LeaseLost);
        shared.job_waiters.wake(&attempt.job);
    }
    moved.touched.iter().for_each(|id| shared.job_waiters.wake(id));
    shared.ready.announce(moved.ready.iter().map(|(key, jobs)| (key.clone(), *jobs)));
    moved.due.into_iter().for_each(|at| shared.ready.announce_due(at));
    moved.back.iter().for_each(|(before, _)| shared.ready.announce_room(&before.key));
    if !moved.stopped.is_empty() {
        shared.ready.announce_any_room();
    }
}

/// Like `announce`, and counts jobs that entered for a client that waited this long.
pub(crate) fn announce_added(shared: &Shared, moved: &MovedJobs, took: Duration) {
    for (key, jobs) in entered_by_type(moved) {
        shared.metrics.accepted(key, jobs, took);
    }
    announce(shared, moved);
}

/// Like `announce`, and counts jobs that entered with settlements.
pub(crate) fn announce_settled(shared: &Shared, moved: &MovedJobs) {
    for (key, jobs) in entered_by_type(moved) {
        shared.metrics.followed(key, jobs);
    }
    announce(shared, moved);
}

fn entered_by_type(moved: &MovedJobs) -> HashMap<&TypeKey, usize> {
    let mut numbers: HashMap<&TypeKey, usize> = HashMap::new();
    for (_, key) in &moved.entered {
        *numbers.entry(key).or_default() += 1;
    }
    numbers
}

/// Outside workers have got these jobs.
pub(crate) fn pulled<'a>(shared: &Shared, jobs: impl Iterator<Item = &'a Job>) {
    for job in jobs {
        shared.metrics.pulled(&job.key);
        event::started(job);
        // A door may hand out a job for the last time.
        if let Some(ended) = job.last.filter(|_| job.state.is_ended()) {
            note_end(shared, job, ended, false, Duration::ZERO, job.state.as_str());
        }
    }
}

/// Logs and announces a verdict that the store has answered.
pub(crate) fn conclude(
    shared: &Shared,
    job: &Job,
    settlement: &Settlement,
    answer: Settled,
    run: Duration,
) {
    shared.job_waiters.wake(&job.id);
    if answer == Settled::Stale {
        event::returned(job, "lease lost");
        return;
    }
    let (paused, verdict) = (answer == Settled::Paused, settlement.verdict);
    let again = matches!(verdict, Verdict::Again { .. });
    let what = if paused { State::Paused.as_str() } else { what_next(verdict) };
    match settlement.ended {
        Some(ended) => note_end(shared, job, ended, again, run, what),
        None => event::returned(job, "released"),
    }
    shared.ready.announce_room(&job.key);
    if paused {
        shared.ready.look();
        return;
    }
    look_for_family(shared, job);
    let now = shared.now();
    let run_at = match verdict {
        Verdict::End(_) => return,
        Verdict::Again { after } => now + after,
        Verdict::Release { after } => now + after.unwrap_or_default(),
        Verdict::Repeat { run_at } => run_at,
    };
    if run_at <= now {
        shared.ready.announce([(job.key.clone(), 1)]);
    } else {
        shared.ready.announce_due(run_at);
    }
}

fn what_next(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End(ending) => ending.state().as_str(),
        Verdict::Again { .. } => "again",
        Verdict::Release { .. } => "released",
        Verdict::Repeat { .. } => "repeats",
    }
}

/// A worker's attempt is over: the job ended, waits for its children, repeats, or returned to the
/// queue.
fn came_back(shared: &Shared, before: &Job, after: &Job) {
    let over = after.state.is_ended() || after.state == State::Paused || after.attempt == 0;
    let held = note_held(shared, before);
    match after.last.filter(|_| over) {
        Some(ended) => {
            let repeats = after.state == State::Queued && after.extra.repeat.is_some();
            let what = if repeats { "repeats" } else { after.state.as_str() };
            note_end(shared, before, ended, false, held, what);
        }
        None => event::returned(before, after.state.as_str()),
    }
}

/// Logs and counts the end of an attempt.
fn note_end(
    shared: &Shared,
    job: &Job,
    ended: Ended,
    again: bool,
    run: Duration,
    what: &'static str,
) {
    shared.metrics.ended(&job.key, ended.code, again);
    event::ended(job, ended, run, what);
}

/// A client cancelled a job, and its attempts have been stopped.
pub(crate) fn cancelled(shared: &Shared, before: &Job) {
    if before.lease.is_some_and(|lease| !lease.on_beat) {
        note_held(shared, before);
        event::returned(before, "cancelled");
    }
    shared.job_waiters.wake(&before.id);
    shared.ready.announce_room(&before.key);
    look_for_family(shared, before);
}

/// A client removed a job.
pub(crate) fn removed(shared: &Shared, before: &Job) {
    shared.job_waiters.wake(&before.id);
    look_for_family(shared, before);
}

/// A client requested ended jobs of a type again.
pub(crate) fn rerun(shared: &Shared, key: &TypeKey, jobs: u64) {
    if jobs > 0 {
        shared.ready.announce([(key.clone(), jobs)]);
    }
}

/// Counts how long an outside worker has held a job, and returns it.
pub(crate) fn note_held(shared: &Shared, job: &Job) -> Duration {
    let now = shared.now();
    let held = now.since(job.started_at.unwrap_or(now));
    shared.metrics.held(held);
    held
}

/// Logs waiting jobs that ended as failed, and wakes requests that wait for them.
pub(crate) fn given_up(shared: &Shared, jobs: &[Job], ended: Ended) {
    for job in jobs {
        note_end(shared, job, ended, false, Duration::ZERO, State::Failed.as_str());
        shared.job_waiters.wake(&job.id);
    }
    if jobs.iter().any(is_in_family) {
        shared.ready.look();
    }
}

/// After a change of a job, its parent or its children may run.
fn look_for_family(shared: &Shared, job: &Job) {
    if is_in_family(job) {
        shared.ready.look();
    }
}

/// Whether a change of this job may have changed others; only the store knows which.
fn is_in_family(job: &Job) -> bool {
    job.children || job.parent.is_some()
}
