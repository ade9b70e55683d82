//! Settlements and progress of attempts.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Durability, Error, LeaseRef};
use crate::edit::MovedJobs;
use crate::family::Unfit;
use crate::id::JobId;
use crate::job::{Ended, NewJob, Progress};
use crate::log::Log;
use crate::outcome::{Code, Json};
use crate::retry::Verdict;
use crate::state::Ending;

#[async_trait]
pub trait Settles: Send + Sync {
    /// Carries out verdicts on running jobs, in order, each with the jobs that enter with it. A
    /// settlement that is stale, or refused for an unfit parent, changes nothing, and no jobs enter
    /// with it. The end of a job changes its parent and its children as `family` says. A batch is
    /// shared, so that a retry copies nothing.
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error>;

    /// Records the progress of running jobs; shown by `job_get` until the next claim or rerun. One
    /// answer for each, in order.
    async fn job_progress(
        &self,
        progress: Vec<(LeaseRef, Progress)>,
    ) -> Result<Vec<Settled>, Error>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    pub lease: LeaseRef,
    pub verdict: Verdict,
    /// How the attempt ended; `None` for a release.
    pub ended: Option<Ended>,
    pub data: Option<Json>,
    /// The latest progress of the attempt, if the store may not have it yet.
    pub progress: Option<Progress>,
    /// The log of this attempt; an empty one is not kept.
    pub log: Log,
    /// Jobs that the attempt emitted. They enter in this order, just before the verdict, even if
    /// that pauses the job. A job whose id exists, or whose `unique` key is held, does not enter. A
    /// job with a parent begins as `family::begin` says for the parent's state before the
    /// settlement; an unfit parent refuses the settlement. Payloads are inline even if they are too
    /// large for that: the store splits them.
    pub adds: Vec<NewJob>,
    /// The job that follows this one: enters last, and not while this job is paused. It has no
    /// parent and no key.
    pub follow: Option<NewJob>,
    /// The retention of an ended job.
    pub keep: Duration,
    /// Refuse unless the lease has expired: breaks dead leases only.
    pub only_if_expired: bool,
}

impl Settlement {
    /// A job whose attempt ended well waits for its children; one that repeats after a failure
    /// leaves them paused, as one that fails does.
    pub fn ended_well(&self) -> bool {
        match self.verdict {
            Verdict::End(ending) => ending == Ending::Finished,
            Verdict::Repeat { .. } => self.ended.is_some_and(|ended| ended.code == Code::Ok),
            Verdict::Again { .. } | Verdict::Release { .. } => false,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettleAnswer {
    /// One for each settlement, in order.
    pub settled: Vec<Settled>,
    /// The jobs that entered, and which of them are ready or come due. Other changes are not
    /// included.
    pub moved: MovedJobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The attempt is over, and the job waits for its children; the job that follows waits too.
    Paused,
    /// The lease is not (or no longer) the caller's; nothing changed.
    Stale,
    /// One of `adds` names an unfit parent; nothing changed, and the caller still holds the lease.
    Unfit {
        parent: JobId,
        unfit: Unfit,
    },
}
