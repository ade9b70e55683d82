//! Jobs that have just entered the store: the log, the scheduler and the dispatcher hear of them.

use std::collections::HashMap;
use std::sync::Arc;

use windlass_core::store::Inserted;
use windlass_core::{JobId, Timestamp, TypeKey};
use windlass_journal::{KeyNote, Record};

use crate::event;
use crate::shared::Shared;

/// What is left to tell of a job after the store has taken it.
pub(crate) struct Arrival {
    id: JobId,
    key: TypeKey,
    run_at: Timestamp,
    note: Option<Arc<KeyNote>>,
}

impl Arrival {
    pub(crate) fn of(record: &Record) -> Arrival {
        let (job, note) = (&record.job, record.note.clone());
        Arrival { id: job.id, key: job.key.clone(), run_at: job.run_at, note }
    }
}

/// Logs new jobs, and tells the scheduler which of them may run now and when the next one may.
pub(crate) fn announce(shared: &Shared, jobs: Vec<Arrival>, inserted: &[Inserted]) {
    let now = shared.now();
    let mut ready: HashMap<TypeKey, u64> = HashMap::new();
    let mut due: Option<Timestamp> = None;
    for (job, how) in jobs.into_iter().zip(inserted) {
        match how {
            Inserted::Duplicate | Inserted::Held(_) => {}
            Inserted::Repeated => repeated(shared, &job),
            Inserted::New => {
                event::entered(job.id, &job.key);
                if job.run_at <= now {
                    *ready.entry(job.key).or_default() += 1;
                } else {
                    due = Some(due.map_or(job.run_at, |due| due.min(job.run_at)));
                }
            }
        }
    }
    shared.announce(ready);
    due.into_iter().for_each(|at| shared.announce_due(at));
}

/// It entered as cancelled. Further repeats of its add are answered by the store, with the ids of
/// the add that was first.
fn repeated(shared: &Shared, job: &Arrival) {
    event::repeated(job.id, &job.key);
    if let Some(note) = &job.note {
        shared.idempotencies.forget(&job.key.tenant, &note.key.key);
    }
    shared.job_waiters.wake(&job.id);
}
