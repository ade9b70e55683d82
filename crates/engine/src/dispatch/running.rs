//! The jobs that run in this daemon, from their claim until their settlement is in the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use windlass_core::job::Token;
use windlass_core::log::Live;
use windlass_core::runner::Stop;
use windlass_core::store::LeaseRef;
use windlass_core::{AttemptId, Job, JobId};

use crate::dispatch::policy::Policy;
use crate::lock::lock;

/// One claimed job.
#[derive(Debug, Clone)]
pub(crate) struct RunningJob {
    pub job: Arc<Job>,
    pub token: Token,
    pub policy: Arc<Policy>,
    /// What it has written so far.
    pub live: Arc<Live>,
    /// Somebody else has it by now: its end is not ours to tell.
    pub lost: bool,
    pub started: bool,
}

impl RunningJob {
    pub(crate) fn attempt_id(&self) -> AttemptId {
        AttemptId { job: self.job.id, token: self.token }
    }

    pub(crate) fn lease(&self) -> LeaseRef {
        let tenant = self.job.key.tenant.clone();
        LeaseRef { tenant, id: self.job.id, token: self.token }
    }
}

#[derive(Default)]
pub(crate) struct RunningTable {
    jobs: Mutex<HashMap<JobId, RunningJob>>,
    /// Told when the last job leaves.
    emptied: Notify,
}

impl RunningTable {
    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, RunningJob>> {
        lock(&self.jobs)
    }

    pub(crate) fn insert(&self, job: RunningJob) {
        self.jobs().insert(job.job.id, job);
    }

    pub(crate) fn get(&self, id: JobId) -> Option<RunningJob> {
        self.jobs().get(&id).cloned()
    }

    pub(crate) fn set_started(&self, id: JobId) -> Option<RunningJob> {
        let mut jobs = self.jobs();
        let job = jobs.get_mut(&id)?;
        job.started = true;
        Some(job.clone())
    }

    pub(crate) fn set_lost(&self, attempt: AttemptId) {
        if let Some(job) =
            self.jobs().get_mut(&attempt.job).filter(|job| job.token == attempt.token)
        {
            job.lost = true;
        }
    }

    pub(crate) fn contains(&self, attempt: AttemptId) -> bool {
        self.jobs().get(&attempt.job).is_some_and(|job| job.token == attempt.token)
    }

    pub(crate) fn remove(&self, id: JobId) -> Option<RunningJob> {
        let mut jobs = self.jobs();
        let removed = jobs.remove(&id);
        if jobs.is_empty() {
            self.emptied.notify_waiters();
        }
        removed
    }

    /// Returns when no job is left.
    pub(crate) async fn empty(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.len() == 0 {
                return;
            }
            emptied.await;
        }
    }

    pub(crate) fn attempts(&self) -> Vec<AttemptId> {
        self.jobs().values().map(RunningJob::attempt_id).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs().len()
    }

    /// Running jobs whose time to give up has come.
    pub(crate) fn expired(&self, now: windlass_core::Timestamp) -> Vec<(AttemptId, Stop)> {
        let due = |job: &RunningJob| job.job.expires_at.is_some_and(|at| at <= now);
        let jobs = self.jobs();
        jobs.values().filter(|job| due(job)).map(|job| (job.attempt_id(), Stop::Expired)).collect()
    }
}
