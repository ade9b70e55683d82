//! Jobs that have just entered the store are logged and announced.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use windlass_core::store::{Inserted, Overdue};
use windlass_core::{JobId, Timestamp, TypeKey};
use windlass_journal::{KeyNote, Record};

use crate::accept::pieces;
use crate::event;
use crate::house::reap;
use crate::shared::Shared;

/// What is needed of a job to announce it, after it has been moved into the store.
pub(crate) struct Arrival {
    id: JobId,
    key: TypeKey,
    run_at: Timestamp,
    created_at: Timestamp,
    note: Option<Arc<KeyNote>>,
    /// Set if the job can never run.
    pub lost: Option<Lost>,
}

/// A payload that cannot be read.
pub(crate) struct Lost {
    pub file: PathBuf,
    pub error: String,
}

impl Arrival {
    pub(crate) fn of(record: &Record) -> Arrival {
        let (job, note) = (&record.job, record.note.clone());
        let (id, key, run_at, created_at) = (job.id, job.key.clone(), job.run_at, job.created_at);
        Arrival { id, key, run_at, created_at, note, lost: None }
    }

    fn forget_key(&self, shared: &Shared) {
        if let Some(note) = &self.note {
            shared.idempotencies.forget(&self.key.tenant, &note.key.key);
        }
    }

    /// Ends a job whose payload is lost.
    pub(crate) async fn give_up(&self, shared: &Shared, lost: &Lost) {
        let (tenant, id) = (self.key.tenant.clone(), self.id);
        let (Lost { file, error }, retention) = (lost, shared.options.retention);
        tracing::error!(%id, file = %file.display(), error, "a payload is lost; its job fails");
        pieces::set_aside(&shared.disk, file).await;
        let why = format!("its payload cannot be read: {error}");
        let which = Overdue::Lost { tenant, id };
        if let Err(error) = reap::give_up(shared, which, &why, retention).await {
            // It is expired as well, so the reaper will find it.
            tracing::warn!(%id, %error, "a job whose payload is lost is given up later");
        }
    }
}

/// Logs new jobs, and announces which of them may run now and when the next one comes due.
pub(crate) fn announce(shared: &Shared, jobs: &[Arrival], inserted: &[Inserted]) {
    let now = shared.now();
    let mut ready: Vec<(TypeKey, u64)> = Vec::new();
    let mut places: HashMap<&TypeKey, usize> = HashMap::new();
    let mut due: Option<Timestamp> = None;
    for (job, how) in jobs.iter().zip(inserted) {
        match how {
            Inserted::Duplicate | Inserted::Held(_) => {}
            Inserted::Repeated => repeated(shared, job),
            Inserted::New => {
                event::entered(job.id, &job.key);
                if job.lost.is_some() {
                    continue;
                }
                // As the store decides it, also if the clock was set back after the add.
                if job.run_at <= now.max(job.created_at) {
                    let place = *places.entry(&job.key).or_insert(ready.len());
                    if place == ready.len() {
                        ready.push((job.key.clone(), 0));
                    }
                    ready[place].1 += 1;
                } else {
                    due = Some(due.map_or(job.run_at, |due| due.min(job.run_at)));
                }
            }
        }
    }
    shared.ready.announce(ready);
    due.into_iter().for_each(|at| shared.ready.announce_due(at));
}

/// The store took jobs up to `position`, and its answer was lost: what became of each job is not
/// known. So the dispatcher looks at the store, and repeated adds are answered by the store.
pub(crate) fn announce_unknown(shared: &Shared, jobs: &[Arrival], position: JobId) {
    for job in jobs.iter().filter(|job| job.id <= position) {
        job.forget_key(shared);
        shared.job_waiters.wake(&job.id);
    }
    shared.ready.look();
}

/// The job entered as cancelled. The store answers further repeats of its add, with the ids of the
/// first add.
fn repeated(shared: &Shared, job: &Arrival) {
    event::repeated(job.id, &job.key);
    job.forget_key(shared);
    shared.job_waiters.wake(&job.id);
}
