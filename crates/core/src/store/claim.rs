//! Waiting jobs are taken under leases.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::handler::HandlerId;
use crate::id::{JobId, Sysid};
use crate::job::{AttemptId, Boot, Job, Payload, Priority, Token};
use crate::name::{Tenant, TypeKey};

#[async_trait]
pub trait Claims: Send + Sync {
    /// Takes due jobs under new leases: for each pick up to `limit`, most urgent first, then due
    /// the longest (among those of one millisecond by `Extra::tie`), then the oldest id; with a
    /// `floor`, its first job is the first of the most urgent priority that is not above the
    /// floor. The attempt grows, and the token is the claim's. Suspended types and hidden jobs are
    /// passed over. A type with a `concurrency` gives no more than leaves so many of its jobs
    /// running, on any daemon. A job goes to one caller only. Payloads come along unless they
    /// are in pieces. A store that makes very many due jobs ready step by step chooses among those
    /// that are ready, and answers with nothing only when none of the picks has a job that is due.
    /// `Error::Conflict`, and nothing is taken, for a claim on the beat of a number that is not
    /// (any more) the caller's, and where a job had a larger token before: tokens of one job grow.
    async fn job_claim(&self, claim: Claim) -> Result<Vec<Claimed>, Error>;

    /// Prolongs leases, also expired ones that nobody has broken, and gives them an expiry of
    /// their own. Answers with the ones that are lost: another token, not running, or not of that
    /// tenant.
    async fn job_renew(&self, renew: Renew) -> Result<Vec<LeaseRef>, Error>;

    /// The leases that last as long as this daemon's number, in the order of job ids,
    /// behind `after`, at most `limit`. A daemon compares them with what it runs: a claim whose
    /// answer was lost is found here and nowhere else.
    async fn lease_mine(
        &self,
        owner: Sysid,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<LeaseRef>, Error>;

    /// Running jobs whose lease has run out, at most `limit`, oldest expiry first. Changes nothing:
    /// the caller settles them with `only_if_expired`.
    async fn lease_expired(&self, limit: usize) -> Result<Vec<Job>, Error>;
}

#[derive(Debug, Clone)]
pub struct Claim {
    pub picks: Vec<Pick>,
    pub owner: Sysid,
    /// Never used for another claim. One with a new boot number is larger than all before it.
    pub token: Token,
    pub hold: Hold,
}

/// How long a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// As long as the owner's number of this boot: the daemon runs the jobs itself, and its beat
    /// renews them all at once.
    Beat(Boot),
    /// So long, unless it is renewed: an outside worker has the jobs.
    For(Duration),
}

#[derive(Debug, Clone)]
pub struct Renew {
    pub leases: Vec<LeaseRef>,
    /// How long from now on; `None` is for ever.
    pub hold: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct Pick {
    pub key: TypeKey,
    pub limit: u32,
    /// Gives less urgent jobs their turn: see `Store::job_claim`.
    pub floor: Option<Priority>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// Running, with its lease.
    pub job: Job,
    pub payload: Payload,
    /// The handler version in force at this moment.
    pub handler: Option<HandlerId>,
    /// About how many more jobs of the type a claim would get after this pick.
    pub left: u64,
}

/// Names a lease, as its holder does.
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
