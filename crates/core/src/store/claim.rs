//! Claims and leases.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::handler::HandlerId;
use crate::id::{JobId, Sysid};
use crate::job::{AttemptId, Boot, Job, Payload, Priority, Token};
use crate::name::{Tenant, TypeKey};
use crate::rate::Spent;
use crate::time::Timestamp;

#[async_trait]
pub trait Claims: Send + Sync {
    /// Claims due jobs under new leases: for each pick up to `limit`, most urgent first, then due
    /// the longest (within one millisecond by `Extra::tie`), then by id. With a `floor`, the first
    /// job is the first of the most urgent priority that is not above the floor. The attempt grows
    /// by one, and the token is the claim's. Suspended types and hidden jobs are skipped. So are
    /// jobs whose `expires_at` is not after the store's time: `Changes::job_give_up` ends them. No
    /// more jobs of a type are claimed than its `concurrency` allows to run, and its `rate` to
    /// start now (`rate::Spent`), on all daemons together. A job goes to one caller only. Payloads
    /// are included unless they are in pieces; a claim ends with the job whose payload brings them
    /// to `payload_bytes_max` together. A store that makes very many due jobs ready, or skips very
    /// many expired ones, step by step chooses among those that it has come to, and returns nothing
    /// only when none of the picks has a job to claim now. `Error::Conflict`, and nothing is
    /// claimed, if the claim is on the beat of a number that is not (or no longer) the caller's, or
    /// if a job had a larger token before: the tokens of a job only grow. `Error::Unavailable` if
    /// that number has run out and was not renewed yet: other daemons may break leases on it.
    async fn job_claim(&self, claim: Claim) -> Result<ClaimAnswer, Error>;

    /// Renews leases, even expired ones that have not been broken, and gives them an expiry of
    /// their own. Returns those that are lost: another token, not running, or not of that tenant.
    async fn job_renew(&self, renew: Renew) -> Result<Vec<LeaseRef>, Error>;

    /// The leases on this daemon's beat, sorted by job id, after `after`, at most `limit`. A daemon
    /// compares them with what it runs, and so finds a claim whose answer was lost.
    async fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error>;

    /// The leases of the claims with these tokens, sorted by job id, at most `limit`: what is left
    /// of claims for workers that never got their jobs.
    async fn lease_claimed(&self, tokens: Vec<Token>, limit: usize)
    -> Result<Vec<LeaseRef>, Error>;

    /// Running jobs whose lease has expired, at most `limit`, oldest expiry first. Changes nothing:
    /// the caller settles them with `only_if_expired`.
    async fn lease_expired(&self, limit: usize) -> Result<Vec<Job>, Error>;
}

#[derive(Debug, Clone)]
pub struct Claim {
    pub picks: Vec<Pick>,
    pub owner: Sysid,
    /// Never used for another claim. A token with a new boot number is larger than all before it.
    pub token: Token,
    pub hold: Hold,
    pub payload_bytes_max: u64,
}

/// How long a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// As long as the owner's number of this boot: the daemon runs the jobs itself, and its beat
    /// renews all leases at once.
    Beat(Boot),
    /// For this long, unless it is renewed: an outside worker has the jobs.
    For(Duration),
}

#[derive(Debug, Clone)]
pub struct Renew {
    pub leases: Vec<LeaseRef>,
    /// For this long from now on; for ever if `None`.
    pub hold: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Pick {
    pub key: TypeKey,
    pub limit: u32,
    /// Gives less urgent jobs their turn: see `Claims::job_claim`.
    pub floor: Option<Priority>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClaimAnswer {
    pub jobs: Vec<Claimed>,
    /// Types of the picks that may start no job after this claim, because of their `rate`.
    pub rests: Vec<Rest>,
}

/// A type that has used up its `rate`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rest {
    pub key: TypeKey,
    pub rate: f64,
    /// The time until it is worth another claim.
    pub time: Duration,
}

impl Rest {
    /// After a claim that started so many of its jobs. `None` if another one may start now.
    pub fn of(
        key: &TypeKey,
        (rate, spent): (f64, Spent),
        started: u32,
        now: Timestamp,
    ) -> Option<Rest> {
        let time = spent.rest(started, rate, now)?;
        Some(Rest { key: key.clone(), rate, time })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Running, with its lease.
    pub job: Job,
    pub payload: Payload,
    /// The handler version in force at this moment.
    pub handler: Option<HandlerId>,
    /// An estimate of how many more jobs of the type a claim would get: a number of the pick,
    /// repeated in each of its jobs.
    pub left: u64,
}

/// Identifies a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRef {
    pub tenant: Tenant,
    pub id: JobId,
    pub token: Token,
}

impl LeaseRef {
    /// The lease of a running job.
    pub fn of(job: &Job) -> Option<LeaseRef> {
        let token = job.lease?.token;
        Some(LeaseRef { tenant: job.key.tenant.clone(), id: job.id, token })
    }

    pub fn attempt_id(&self) -> AttemptId {
        AttemptId { job: self.id, token: self.token }
    }
}
