//! Jobs that have just entered the store: the log, the scheduler and the dispatcher hear of them.

use std::collections::HashMap;

use windlass_core::store::Inserted;
use windlass_core::{JobId, NewJob, Timestamp, TypeKey};

use crate::event;
use crate::shared::Shared;

/// What is left to tell of jobs after the store has taken them.
pub(crate) struct Arrival {
    id: JobId,
    key: TypeKey,
    run_at: Timestamp,
    paused: bool,
}

pub(crate) fn arrivals(jobs: &[NewJob]) -> Vec<Arrival> {
    let arrival = |job: &NewJob| Arrival {
        id: job.id,
        key: job.key.clone(),
        run_at: job.run_at,
        paused: job.paused,
    };
    jobs.iter().map(arrival).collect()
}

/// Logs new jobs, and tells the scheduler which of them may run now and when the next one may.
pub(crate) fn announce_inserted(shared: &Shared, jobs: Vec<Arrival>, inserted: &[Inserted]) {
    let now = shared.now();
    let mut ready: HashMap<TypeKey, u64> = HashMap::new();
    let mut due: Option<Timestamp> = None;
    for (job, _) in jobs.into_iter().zip(inserted).filter(|(_, how)| **how == Inserted::New) {
        event::entered(job.id, &job.key);
        if job.paused {
            continue;
        }
        if job.run_at <= now {
            *ready.entry(job.key).or_default() += 1;
        } else {
            due = Some(due.map_or(job.run_at, |due| due.min(job.run_at)));
        }
    }
    shared.announce(ready);
    due.into_iter().for_each(|at| shared.announce_due(at));
}
