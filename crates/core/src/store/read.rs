//! Reads of jobs and types.

use async_trait::async_trait;
use bytes::Bytes;

use super::Error;
use crate::edit::FullJob;
use crate::handler::{HandlerId, TypeSettings};
use crate::id::JobId;
use crate::job::{Job, Payload};
use crate::log::Log;
use crate::name::{Tenant, TypeKey, TypeName};
use crate::outcome::Json;
use crate::state::State;
use crate::time::Timestamp;

#[async_trait]
pub trait Reads: Send + Sync {
    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error>;

    /// The job without its progress, and what its type says about the end of its attempts.
    async fn job_typed(&self, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>, Error>;

    /// The job with its payload, which is in one buffer if it has at most `WHOLE_BYTES_MAX`.
    async fn job_full(&self, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>, Error>;

    /// Result data of the latest attempt that had any.
    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error>;

    /// The logs that are kept, oldest attempt first; `None` when there is no such job.
    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error>;

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error>;

    /// Piece number `index` of a large payload; `None` after the last.
    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error>;

    /// Newest first.
    async fn job_list(&self, list: List) -> Result<Page, Error>;

    /// Counts of every type of a tenant that has ever had a job, a handler or settings. Without a
    /// tenant, only types that have one of these now or are suspended: others cost nothing.
    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct TypedJob {
    pub job: Job,
    pub settings: TypeSettings,
    /// The handler version in force.
    pub handler: Option<HandlerId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptLog {
    pub attempt: u32,
    pub ended_at: Timestamp,
    pub log: Log,
}

#[derive(Debug, Clone)]
pub struct List {
    pub tenant: Tenant,
    pub name: Option<TypeName>,
    pub state: Option<State>,
    /// Only ids below this one.
    pub before: Option<JobId>,
    /// 1 to `PAGE_JOBS_MAX`.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub jobs: Vec<Job>,
    /// Where the next page begins (as `before`). A short or empty page may have a next one: a store
    /// looks at a bounded number of jobs for each page.
    pub next: Option<JobId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TypeStats {
    pub key: TypeKey,
    pub handler: bool,
    pub suspended: bool,
    /// Whether it has settings of its own.
    pub settings: bool,
    pub ready: u64,
    /// Includes hidden jobs, even those that are due, and expired ones (see `waiting`).
    pub deferred: u64,
    pub running: u64,
    pub paused: u64,
    pub finished: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// When the job that has been ready the longest came due.
    pub oldest_ready_at: Option<Timestamp>,
}

impl TypeStats {
    /// Whether it has no jobs and no handler and is not suspended.
    pub fn is_empty(&self) -> bool {
        let TypeStats { ready, deferred, running, paused, finished, failed, cancelled, .. } = self;
        let jobs = [ready, deferred, running, paused, finished, failed, cancelled];
        !self.handler && !self.suspended && jobs.into_iter().all(|jobs| *jobs == 0)
    }
}
