//! Changes by clients, and housekeeping. A client's change is durable when the call returns.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::id::JobId;
use crate::job::{Ended, Job};
use crate::log::Log;
use crate::name::{Tenant, TypeKey};
use crate::state::State;

#[async_trait]
pub trait Changes: Send + Sync {
    /// Cancels a job that has not ended; a running one loses its lease.
    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error>;

    /// Queues an ended job again as if it were new: attempt 0, due now, no expiry. Its result is
    /// removed, its logs stay. `Changed::Held` if another job holds its unique key.
    async fn job_rerun(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error>;

    /// `job_rerun` for the oldest ended jobs of one type and state; returns how many were queued.
    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error>;

    /// Removes a job with all its data, unless it runs.
    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error>;

    /// Ends jobs that waited too long as `failed`, with this status and log line; at most `limit`.
    /// Returns the jobs as they are now.
    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error>;

    /// Removes ended jobs after their retention, at most `limit`, and expired idempotency keys.
    /// Returns how many jobs were removed. Also removes a bounded number of payload pieces that
    /// have had no job for `ORPHAN_PIECES_AGE`.
    async fn job_purge(&self, limit: usize) -> Result<u64, Error>;
}

/// A client's request to end a job.
#[derive(Debug, Clone)]
pub struct EndRequest {
    pub tenant: Tenant,
    pub id: JobId,
    /// The retention of the ended job.
    pub keep: Duration,
}

/// The answer to a request to change one job.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// Done; the job as it was before.
    Done(Box<Job>),
    /// The job's state does not allow it.
    Refused(State),
    /// This other job holds its unique key.
    Held(JobId),
    NotFound,
}

#[derive(Debug, Clone)]
pub struct Requeue {
    pub key: TypeKey,
    /// An ended one.
    pub state: State,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct GiveUp {
    pub which: Overdue,
    pub ended: Ended,
    pub log: Log,
    /// The retention of the ended jobs.
    pub keep: Duration,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub enum Overdue {
    /// Queued and paused jobs whose `expires_at` has passed.
    Expired,
    /// This job, if it is queued or paused: what it needs to run is lost.
    Lost { tenant: Tenant, id: JobId },
    /// Queued jobs of this type that first came due this long ago, if the type has no handler and
    /// none of its jobs have been claimed since.
    Unhandled { key: TypeKey, due_for: Duration },
}
