//! Changes from outside an attempt, and housekeeping. What a client asked for is durable when the
//! call returns.

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

    /// Queues an ended job again, as if it were new: attempt 0, due now, no expiry. Its old result
    /// goes, its logs stay. `Changed::Held` if its unique key is held by another.
    async fn job_rerun(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error>;

    /// `job_rerun` for the oldest ended jobs of one type and state; how many were queued.
    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error>;

    /// Removes a job and all that belongs to it, unless it runs.
    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error>;

    /// Ends jobs that waited past their limit as `failed`, with this status and log line; at most
    /// `limit`. Answers with the jobs as they are now.
    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error>;

    /// Removes ended jobs whose time to be kept is over, and outdated idempotency keys; at most
    /// `limit` jobs. How many jobs went. Pieces of payloads go, a bounded number at a time, whose
    /// job has not come for `ORPHAN_PIECES_AGE`.
    async fn job_purge(&self, limit: usize) -> Result<u64, Error>;
}

/// An ending from outside.
#[derive(Debug, Clone)]
pub struct EndRequest {
    pub tenant: Tenant,
    pub id: JobId,
    /// How long the ended job is kept.
    pub keep: Duration,
}

/// What became of a request to change one job.
#[derive(Debug, Clone, PartialEq)]
pub enum Changed {
    /// Done; the job as it was before.
    Done(Box<Job>),
    /// Its state does not allow it.
    Refused(State),
    /// Its unique key is held by this other job.
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
    /// How long the ended jobs are kept.
    pub keep: Duration,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub enum Overdue {
    /// Queued and paused jobs whose `expires_at` has come.
    Expired,
    /// This job, if it is queued or paused: what it needs to run is lost.
    Lost { tenant: Tenant, id: JobId },
    /// Queued jobs of this type that were first due so long ago, if the type has no handler and
    /// nobody has claimed any of it since.
    Unhandled { key: TypeKey, due_for: Duration },
}
