//! What follows a stored verdict: log lines, metrics, and announcements to waiting requests, the
//! scheduler and the dispatcher.

use std::collections::HashMap;
use std::time::Duration;

use windlass_core::edit::MovedJobs;
use windlass_core::retry::Verdict;
use windlass_core::store::{Settled, Settlement};
use windlass_core::{Job, State, TypeKey};

use crate::ask::decide;
use crate::event;
use crate::shared::Shared;

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
    let paused = answer == Settled::Paused;
    match (settlement.ended, settlement.verdict) {
        (Some(ended), verdict) => {
            let again = matches!(verdict, Verdict::Again { .. });
            shared.metrics.ended(&job.key, ended.code, again);
            let what = if paused { State::Paused.as_str() } else { what_next(verdict) };
            event::ended(job, ended, run, what);
        }
        (None, _) => event::returned(job, "released"),
    }
    shared.ready.announce_room(&job.key);
    if paused || is_in_family(job) {
        shared.ready.look();
    }
    if paused {
        return;
    }
    let now = shared.now();
    let run_at = match settlement.verdict {
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

/// Counts and announces jobs that entered with settlements.
pub(crate) fn announce_entered(shared: &Shared, moved: &MovedJobs) {
    let mut numbers: HashMap<&TypeKey, u64> = HashMap::new();
    for (_, key) in &moved.entered {
        *numbers.entry(key).or_default() += 1;
    }
    numbers.into_iter().for_each(|(key, jobs)| shared.metrics.followed(key, jobs));
    decide::announce(shared, moved);
}

/// Whether a change of this job may have changed others; only the store knows which.
pub(crate) fn is_in_family(job: &Job) -> bool {
    job.children || job.parent.is_some()
}

fn what_next(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End(ending) => ending.state().as_str(),
        Verdict::Again { .. } => "again",
        Verdict::Release { .. } => "released",
        Verdict::Repeat { .. } => "repeats",
    }
}
