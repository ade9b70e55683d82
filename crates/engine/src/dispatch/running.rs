//! The attempts that run in this daemon, from their claim until their settlement is stored.
//!
//! Several attempts of one job may be here at once: one that lost its lease and has not ended yet,
//! and the next one. Each is identified by its claim, so that a report on one does not reach
//! another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use windlass_core::job::Token;
use windlass_core::log::Live;
use windlass_core::runner::Stop;
use windlass_core::store::LeaseRef;
use windlass_core::sync::lock;
use windlass_core::{AttemptId, Job, JobId};

use crate::dispatch::policy::Policy;

/// A claimed job.
#[derive(Debug, Clone)]
pub(crate) struct RunningJob {
    pub job: Arc<Job>,
    pub token: Token,
    pub policy: Arc<Policy>,
    /// Its output so far.
    pub live: Arc<Live>,
    /// Another owner has the job now: the end of this attempt does not count.
    pub lost: bool,
    pub started: bool,
}

impl RunningJob {
    /// A job that was just claimed under this token and has not started.
    pub(crate) fn new(job: Job, token: Token, policy: Arc<Policy>) -> RunningJob {
        let (job, live) = (Arc::new(job), Arc::default());
        RunningJob { job, token, policy, live, lost: false, started: false }
    }

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
    /// Sorted, so that the attempts of one job are adjacent.
    attempts: Mutex<BTreeMap<AttemptId, RunningJob>>,
    /// Notified when the last one leaves.
    emptied: Notify,
}

impl RunningTable {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<AttemptId, RunningJob>> {
        lock(&self.attempts)
    }

    pub(crate) fn insert(&self, job: RunningJob) {
        self.lock().insert(job.attempt_id(), job);
    }

    pub(crate) fn get(&self, attempt: AttemptId) -> Option<RunningJob> {
        self.lock().get(&attempt).cloned()
    }

    /// All attempts of a job.
    pub(crate) fn of_job(&self, id: JobId) -> Vec<RunningJob> {
        let attempt = |token| AttemptId { job: id, token: Token(token) };
        let attempts = self.lock();
        attempts.range(attempt(i64::MIN)..=attempt(i64::MAX)).map(|(_, job)| job.clone()).collect()
    }

    pub(crate) fn set_started(&self, attempt: AttemptId) -> Option<RunningJob> {
        let mut attempts = self.lock();
        let job = attempts.get_mut(&attempt)?;
        job.started = true;
        Some(job.clone())
    }

    pub(crate) fn set_lost(&self, attempt: AttemptId) {
        if let Some(job) = self.lock().get_mut(&attempt) {
            job.lost = true;
        }
    }

    pub(crate) fn contains(&self, attempt: AttemptId) -> bool {
        self.lock().contains_key(&attempt)
    }

    pub(crate) fn remove(&self, attempt: AttemptId) {
        let mut attempts = self.lock();
        attempts.remove(&attempt);
        if attempts.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Returns when the table is empty.
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
        self.lock().keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Attempts of jobs that have expired.
    pub(crate) fn expired(&self, now: windlass_core::Timestamp) -> Vec<(AttemptId, Stop)> {
        let due = |job: &RunningJob| job.job.expires_at.is_some_and(|at| at <= now);
        let attempts = self.lock();
        let expired = attempts.iter().filter(|(_, job)| due(job));
        expired.map(|(attempt, _)| (*attempt, Stop::Expired)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use windlass_core::{NewJob, Payload, Timestamp, TypeKey, TypeSettings};

    use super::*;
    use crate::options::Options;

    pub(crate) fn attempt(job: i64, token: i64) -> RunningJob {
        let (id, key) = (JobId::new(job).unwrap(), TypeKey::new("acme", "t").unwrap());
        let new = NewJob::new(id, key, Payload::Inline(Bytes::new()), Timestamp(0));
        let policy = Policy::of(None, &TypeSettings::default(), &Options::new("".into()));
        RunningJob::new(Job::running(new, 1, Timestamp(0)), Token(token), Arc::new(policy))
    }

    #[test]
    fn what_happens_to_one_attempt_does_not_reach_another_of_the_same_job() {
        let table = RunningTable::default();
        let (old, new, other) = (attempt(1, 1), attempt(1, 2), attempt(2, 1));
        for attempt in [&old, &new, &other] {
            table.insert(attempt.clone());
        }
        let of_job = |id: JobId| table.of_job(id).iter().map(RunningJob::attempt_id).collect();
        let attempts: Vec<AttemptId> = of_job(new.job.id);
        assert_eq!(attempts, [old.attempt_id(), new.attempt_id()]);
        table.set_lost(old.attempt_id());
        assert!(table.get(old.attempt_id()).unwrap().lost);
        table.set_started(old.attempt_id());
        assert!(!table.get(new.attempt_id()).unwrap().started);
        table.remove(old.attempt_id());
        assert!(table.get(old.attempt_id()).is_none());
        assert!(table.get(new.attempt_id()).is_some_and(|new| !new.lost));
    }
}
