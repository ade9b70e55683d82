//! What doors say to the engine and hear from it.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::add::AddOptions;
use windlass_core::job::Job;
use windlass_core::log::Newest;
use windlass_core::outcome::{Json, Status};
pub use windlass_core::store::IdempotencyKey;
use windlass_core::store::LeaseRef;
use windlass_core::{JobId, Sysid, Tenant, Timestamp};
pub use windlass_journal::AddPayload;

/// One job of an add.
#[derive(Debug, Clone)]
pub struct AddJob {
    pub payload: AddPayload,
    pub options: AddOptions,
}

/// The log of an attempt that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLog {
    pub attempt: u32,
    pub started_at: Option<Timestamp>,
    pub newest: Newest,
}

/// Digest over the parts of a request, the same in every version of Windlass (FNV-1a, 64 bits).
#[derive(Debug, Clone)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    pub fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub fn finish(self) -> u64 {
        self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// One id a job, in order. For a job whose unique key is held, the holder's id.
    pub ids: Vec<JobId>,
    /// The ids are those of an earlier add with the same idempotency key; nothing was added.
    pub repeated: bool,
}

/// A job with its result data.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    pub job: Job,
    pub result: Option<Json>,
}

/// A pulling worker's wish.
#[derive(Debug, Clone)]
pub struct PullClaim {
    pub tenant: Tenant,
    /// Patterns of type names.
    pub types: Vec<String>,
    /// 1 to `PULL_JOBS_MAX`.
    pub limit: u32,
    pub lease: Duration,
    /// How long to wait when nothing is there.
    pub wait: Duration,
}

/// How a pulled job ended, in the worker's words.
#[derive(Debug, Clone)]
pub struct PullFinish {
    pub lease: LeaseRef,
    pub status: Status,
    pub data: Option<Json>,
}

/// What `GET /v1/status` and `windlass status` show.
#[derive(Debug, Clone)]
pub struct DaemonStatus {
    pub sysid: Sysid,
    pub started_at: Timestamp,
    pub now: Timestamp,
    pub store: &'static str,
    pub picking: bool,
    pub running: u64,
    pub journal: JournalStatus,
    /// Services that panicked lately.
    pub services: Vec<FailedService>,
    /// Services that have not been able to do their work for long.
    pub services_failing: Vec<FailingService>,
    pub results_parked: Vec<ParkedResult>,
    pub journals_left: Vec<LeftJournal>,
    /// Numbers of each tenant; empty when the store does not answer.
    pub tenants: BTreeMap<Tenant, TenantCounts>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantCounts {
    pub types: u64,
    pub ready: u64,
    pub deferred: u64,
    pub running: u64,
    pub paused: u64,
    pub finished: u64,
    pub failed: u64,
    pub cancelled: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalStatus {
    /// Accepted jobs that are not in the store yet.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest: Duration,
    pub bytes: u64,
}

/// A service of the daemon that panicked lately; it has been started again since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedService {
    pub name: &'static str,
    pub failures: usize,
}

/// A service of the daemon whose passes fail, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingService {
    pub name: &'static str,
    pub failing_for: Duration,
    /// What the newest pass said.
    pub why: String,
}

/// The end of a job that the store cannot take, because something is wrong with that job there. It
/// is tried again from time to time; others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedResult {
    pub id: JobId,
    pub why: String,
}

/// A journal of a dead daemon that cannot be taken over: jobs that it has do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftJournal {
    /// `None`: the directory of all journals cannot be listed.
    pub sysid: Option<Sysid>,
    pub why: String,
}

/// Whether the daemon accepts, whether the store answers, and what else is not in order. `Err`
/// carries the reason.
#[derive(Debug, Clone)]
pub struct Readiness {
    pub journal: Result<(), String>,
    pub store: Result<(), String>,
    /// Services of the daemon that panicked lately or have failed for long, and results that the
    /// store cannot take.
    pub services: Result<(), String>,
    /// Journals of dead daemons that cannot be taken over.
    pub takeover: Result<(), String>,
}
