//! Requests of doors to the engine, and its answers.

use std::collections::BTreeMap;
use std::time::Duration;

use windlass_core::add::AddOptions;
use windlass_core::audit::{Act, Reason, Subject};
use windlass_core::job::Job;
use windlass_core::key::{KeyId, Role};
use windlass_core::log::Newest;
use windlass_core::outcome::{Json, Status};
use windlass_core::secret::{SealKeyId, SecretInfo, SecretName, Unsealed};
pub use windlass_core::store::IdempotencyKey;
use windlass_core::store::{DaemonRecord, JournalId, LeaseRef};
use windlass_core::{JobId, Sysid, Tenant, Timestamp, TypeName};
pub use windlass_journal::AddPayload;

/// One job of an add.
#[derive(Debug, Clone)]
pub struct AddJob {
    pub payload: AddPayload,
    pub options: AddOptions,
}

/// Whose key a request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub id: KeyId,
    pub role: Role,
    /// `None`: all tenants.
    pub tenant: Option<Tenant>,
}

/// Why a key is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRefusal {
    /// There is no such key, or its secret is wrong.
    Unknown,
    Expired(Caller),
    Revoked(Caller),
}

/// How an audited change ended.
#[derive(Debug, Clone)]
pub struct Ended {
    pub status: u16,
    /// Why it was refused, where that is one of the reasons of the audit.
    pub reason: Option<Reason>,
    /// What was not known when it began.
    pub about: Subject,
}

/// A request that was refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub act: Act,
    /// How it was answered, if it was.
    pub status: Option<u16>,
    pub reason: Reason,
}

/// A secret, and the types whose handlers name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretUse {
    pub info: SecretInfo,
    pub handlers: Vec<TypeName>,
}

/// The keys of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretStatus {
    /// The one that is in force.
    pub key: SealKeyId,
    /// More than one if a rekey was interrupted.
    pub keys: usize,
}

/// What a rekey did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// The new key.
    pub key: SealKeyId,
    pub resealed: u64,
    pub unreadable: Vec<UnreadableSecret>,
}

/// A secret that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableSecret {
    pub tenant: Tenant,
    pub name: SecretName,
    pub why: Unsealed,
}

/// The log of a running attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveLog {
    pub attempt: u32,
    pub started_at: Option<Timestamp>,
    pub newest: Newest,
}

/// A digest of the parts of a request, the same in every version of Windlass (FNV-1a, 64 bits).
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
    /// One id per job, in order. For a job whose unique key is held, the holder's id.
    pub ids: Vec<JobId>,
    /// True when nothing was added: the ids are those of an earlier add with the same idempotency
    /// key.
    pub repeated: bool,
}

/// A job with its result data.
#[derive(Debug, Clone, PartialEq)]
pub struct JobView {
    pub job: Job,
    pub result: Option<Json>,
}

/// A worker's request for jobs.
#[derive(Debug, Clone)]
pub struct PullClaim {
    pub tenant: Tenant,
    /// Patterns of type names.
    pub types: Vec<String>,
    /// Within `PULL_JOBS`.
    pub limit: u32,
    pub lease: Duration,
    /// How long to wait when there are no jobs.
    pub wait: Duration,
}

/// A worker's report on how its job ended.
#[derive(Debug, Clone)]
pub struct PullFinish {
    pub lease: LeaseRef,
    pub status: Status,
    pub data: Option<Json>,
}

/// The content of `GET /v1/status` and `windlass status`.
#[derive(Debug, Clone)]
pub struct DaemonStatus {
    pub sysid: Sysid,
    pub started_at: Timestamp,
    pub now: Timestamp,
    pub store: &'static str,
    pub picking: bool,
    pub running: u64,
    pub journal: JournalStatus,
    /// Services that panicked recently.
    pub services: Vec<FailedService>,
    /// Services whose passes have failed for a long time.
    pub services_failing: Vec<FailingService>,
    pub results_parked: Vec<ParkedResult>,
    pub journals_left: Vec<LeftJournal>,
    /// Layers of isolation that handlers lack: a sentence for each.
    pub layers_missing: Vec<String>,
    /// `None` when the store does not answer.
    pub daemons: Option<DaemonCounts>,
    /// Counts of each tenant; empty when the store does not answer.
    pub tenants: BTreeMap<Tenant, TenantCounts>,
}

/// Daemons of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonsPage {
    pub daemons: Vec<DaemonRecord>,
    /// Where the next page begins.
    pub next: Option<JournalId>,
    /// The store's time.
    pub now: Timestamp,
}

/// How many daemons the queue has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaemonCounts {
    pub alive: u64,
    pub gone: u64,
    /// Known jobs in journals of daemons that are gone.
    pub jobs_left: u64,
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

/// A service that panicked recently; it has been restarted since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedService {
    pub name: &'static str,
    pub failures: usize,
}

/// A service whose passes keep failing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingService {
    pub name: &'static str,
    pub failing_for: Duration,
    /// The error of the latest pass.
    pub why: String,
}

/// A result that the store cannot take because something is wrong with that job in the store. It is
/// retried from time to time; other jobs are not affected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedResult {
    pub id: JobId,
    pub why: String,
}

/// A dead daemon's journal that cannot be taken over: its jobs do not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftJournal {
    /// `None`: the directory of all journals cannot be listed.
    pub sysid: Option<Sysid>,
    pub why: String,
}

/// Whether the daemon accepts jobs, whether the store answers, and what else is wrong. `Err` has
/// the reason.
#[derive(Debug, Clone)]
pub struct Readiness {
    pub journal: Result<(), String>,
    pub store: Result<(), String>,
    /// Services that panicked recently or have failed for a long time, and results that the store
    /// cannot take.
    pub services: Result<(), String>,
    /// Dead daemons' journals that cannot be taken over.
    pub takeover: Result<(), String>,
}
