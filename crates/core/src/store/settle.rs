//! Attempts report how far they are, and how they ended.

use async_trait::async_trait;

use super::{Durability, Error, LeaseRef};
use crate::job::{Ended, NewJob, Progress};
use crate::log::Log;
use crate::outcome::Json;
use crate::retry::Verdict;
use crate::time::Timestamp;

#[async_trait]
pub trait Settles: Send + Sync {
    /// Carries out verdicts on running jobs; an answer for each, in order. A stale one changes
    /// nothing, and no job follows it. What ends, here and with the calls below, moves its parent
    /// and its children as `family` says.
    async fn job_settle(
        &self,
        settlements: Vec<Settlement>,
        durability: Durability,
    ) -> Result<Vec<Settled>, Error>;

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
    pub now: Timestamp,
    pub data: Option<Json>,
    /// The newest word of the attempt on how far it came, if the store may not have it yet.
    pub progress: Option<Progress>,
    /// Becomes the log of this attempt; nothing is kept when empty.
    pub log: Log,
    /// Enters the store in the same change, so that neither is there without the other. Its id is
    /// new, and its payload is inline even if it is too large for that: the store splits it.
    pub follow: Option<NewJob>,
    /// When an ended job is removed.
    pub purge_at: Timestamp,
    /// Refuse unless the lease ran out at this time or before: breaks dead leases only.
    pub only_if_expired_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// Its attempt is over, and its children come first: it waits for them, and whatever was to
    /// follow it waits too.
    Paused,
    /// The lease is not (any more) the caller's; nothing changed.
    Stale,
}
