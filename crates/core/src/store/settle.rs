//! Attempts report how far they are, and how they ended.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Durability, Error, LeaseRef};
use crate::edit::MovedJobs;
use crate::family::Unfit;
use crate::id::JobId;
use crate::job::{Ended, NewJob, Progress};
use crate::log::Log;
use crate::outcome::Json;
use crate::retry::Verdict;

#[async_trait]
pub trait Settles: Send + Sync {
    /// Carries out verdicts on running jobs, in order, each with the jobs that enter with it. One
    /// that is stale, or refused for an unfit parent, changes nothing, and nothing enters with it.
    /// What ends, here and with the calls below, moves its parent and its children as `family`
    /// says. A batch is shared, so that a caller who has to try again copies nothing.
    async fn job_settle(
        &self,
        settlements: Arc<[Settlement]>,
        durability: Durability,
    ) -> Result<SettleAnswer, Error>;

    /// Notes how far running jobs have come; shown by `job_get` until the next claim or rerun. An
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
    /// The newest word of the attempt on how far it came, if the store may not have it yet.
    pub progress: Option<Progress>,
    /// Becomes the log of this attempt; nothing is kept when empty.
    pub log: Log,
    /// Jobs that the attempt asked for: they enter in this order, just before the verdict, also
    /// when it pauses the job. One whose id is there already, or whose `unique` key is held, does
    /// not enter. One that names a parent begins as `family::begin` says of that parent as it is
    /// before the settlement, when its own job still runs; a parent that is unfit refuses the
    /// settlement. Payloads are inline even if they are too large for that: the store splits them.
    pub adds: Vec<NewJob>,
    /// The job that follows this one: enters last, and not while the job is paused. Otherwise as
    /// one of `adds` that has no parent and no key.
    pub follow: Option<NewJob>,
    /// How long an ended job is kept.
    pub keep: Duration,
    /// Refuse unless the lease has run out: breaks dead leases only.
    pub only_if_expired: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SettleAnswer {
    /// One for each settlement, in order.
    pub settled: Vec<Settled>,
    /// The jobs that entered, and which of them are ready or come due; of what else moved it does
    /// not tell.
    pub moved: MovedJobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// Its attempt is over, and its children come first: it waits for them, and whatever was to
    /// follow it waits too.
    Paused,
    /// The lease is not (any more) the caller's; nothing changed.
    Stale,
    /// One of `adds` names a parent that cannot have it; nothing changed, and the lease is still
    /// the caller's.
    Unfit {
        parent: JobId,
        unfit: Unfit,
    },
}
