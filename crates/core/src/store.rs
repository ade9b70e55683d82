//! The seam to the shared repository of jobs. Verbs of the domain, batches in and batches out;
//! every call is one atomic change or one consistent read.
//!
//! A store decides nothing: verdicts, delays and times come from the caller, and `state::next` says
//! which changes are allowed. A call that a job's state does not allow changes nothing and says so
//! in its answer. What a store can do beyond the contract it declares in `Capabilities`.
//!
//! Tenants are separate: where a call names a tenant, jobs of others do not exist for it.

use async_trait::async_trait;
use bytes::Bytes;

use crate::edit::{Ask, Decided, Take, Took};
use crate::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use crate::id::{JobId, Sysid};
use crate::job::{Boot, Ended, Job, NewJob, Payload, Priority, Progress, Token};
use crate::log::Log;
use crate::name::{Tenant, TypeKey};
use crate::outcome::Json;
use crate::retry::Verdict;
use crate::sql::{SqlAnswer, SqlAsk};
use crate::state::State;
use crate::time::Timestamp;

#[async_trait]
pub trait Store: Send + Sync + 'static {
    fn capabilities(&self) -> Capabilities;

    // ---- daemons -------------------------------------------------------------------------

    /// Takes the wanted sysid, or a free one, until `until`. Every success returns a boot number
    /// larger than all before it, and is durable. Taken or none free: `Error::Conflict`.
    /// Prefers numbers that were never used or that have been free the longest.
    async fn sysid_reserve(&self, reserve: SysidReserve) -> Result<SysidGrant, Error>;

    /// Prolongs the lease, also one that has run out if nobody else took the number, and notes the
    /// newest id that the daemon has made. `Error::Conflict` when the number is another's now.
    async fn sysid_renew(&self, renew: SysidRenew) -> Result<(), Error>;

    /// Frees the number at once. Harmless when it is another's by now.
    async fn sysid_release(&self, sysid: Sysid, boot: Boot) -> Result<(), Error>;

    /// Every sysid whose lease is later than `now`.
    async fn sysid_list(&self, now: Timestamp) -> Result<Vec<Sysid>, Error>;

    /// The newest job id that this store knows of, whoever made it, ended and purged ones included
    /// as far as their daemon noted them.
    async fn id_newest(&self) -> Result<Option<JobId>, Error>;

    // ---- insert --------------------------------------------------------------------------

    /// Adds jobs, in order, with the idempotency keys and the journal mark that belong to them.
    /// A job whose id is there already is a `Duplicate` and changes nothing. A job whose `unique`
    /// key is held by one of its type that has not ended is `Held` and is not added.
    /// The mark only moves forward. Types come into being by themselves.
    async fn job_insert(&self, insert: Insert) -> Result<Vec<Inserted>, Error>;

    /// The last id of this journal that has been inserted.
    async fn journal_position(&self, journal: JournalId) -> Result<Option<JobId>, Error>;

    /// Keeps one piece of a large payload before its job is inserted; a repeated call replaces it.
    async fn payload_put(&self, id: JobId, index: u32, piece: Bytes) -> Result<(), Error>;

    /// What an earlier add with this key was answered, unless it is older than its time.
    async fn idempotency_get(
        &self,
        tenant: &Tenant,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<IdempotencyRecord>, Error>;

    // ---- run -----------------------------------------------------------------------------

    /// Types with jobs that may run now (due, not leased, not suspended, not mocked), with their
    /// numbers, and when the next deferred job of any type comes due. Order is of no meaning.
    async fn type_waiting(&self, now: Timestamp) -> Result<Waiting, Error>;

    /// Takes due jobs under new leases: for each pick up to `limit`, most urgent first, then due
    /// the longest (among those of one millisecond by `Extra::tie`), then the oldest id; with a
    /// `floor`, its first job is the first of the most urgent priority that is not above the
    /// floor. Attempt and token grow. Suspended types and mocked jobs are passed over. A job goes
    /// to one caller only. Payloads come along unless they are in pieces.
    async fn job_claim(&self, claim: Claim) -> Result<Vec<Claimed>, Error>;

    /// Prolongs leases, also expired ones that nobody has broken. Answers with the ones that are
    /// lost: another token, not running, or not of that tenant.
    async fn job_renew(
        &self,
        leases: Vec<LeaseRef>,
        until: Timestamp,
    ) -> Result<Vec<LeaseRef>, Error>;

    /// Carries out verdicts on running jobs; an answer for each, in order. A stale one changes
    /// nothing, and no job follows it. What ends, here and with the calls below, moves its parent
    /// and its children as `family` says.
    async fn job_settle(
        &self,
        settlements: Vec<Settlement>,
        durability: Durability,
    ) -> Result<Vec<Settled>, Error>;

    /// Notes how far a running job has come; shown by `job_get` until its next claim or rerun.
    async fn job_progress(&self, lease: LeaseRef, progress: Progress) -> Result<Settled, Error>;

    /// Running jobs whose lease has run out at `now`, at most `limit`, oldest expiry first.
    /// Changes nothing: the caller settles them with `only_if_expired_at`.
    async fn lease_expired(&self, now: Timestamp, limit: usize) -> Result<Vec<Job>, Error>;

    // ---- change from outside (all durable when they return) --------------------------------

    /// Cancels a job that has not ended; a running one loses its lease.
    async fn job_cancel(&self, end: EndRequest) -> Result<Changed, Error>;

    /// Queues an ended job again, as if it were new: attempt 0, due now, no expiry. Its old result
    /// goes, its logs stay. `Changed::Held` if its unique key is held by another.
    async fn job_rerun(&self, tenant: &Tenant, id: JobId, now: Timestamp)
    -> Result<Changed, Error>;

    /// `job_rerun` for the oldest ended jobs of one type and state; how many were queued.
    async fn job_requeue(&self, requeue: Requeue) -> Result<u64, Error>;

    /// Removes a job and all that belongs to it, unless it runs.
    async fn job_delete(&self, tenant: &Tenant, id: JobId) -> Result<Changed, Error>;

    // ---- decisions (see `edit`) ----------------------------------------------------------

    /// Shows jobs with their families to a decision and carries out its edits: all or nothing.
    async fn job_decide(&self, ask: Ask) -> Result<Decided, Error>;

    /// Hands out due jobs by name; the decision says what each becomes. Not synced.
    async fn job_take(&self, take: Take) -> Result<Took, Error>;

    /// Answers a question in SQL, if `Capabilities::sql`; otherwise `Error::Conflict`.
    async fn query(&self, ask: SqlAsk) -> Result<SqlAnswer, Error>;

    // ---- housekeeping --------------------------------------------------------------------

    /// Ends jobs that waited past their limit as `failed`, with this status and log line; at most
    /// `limit`. Answers with the jobs as they are now.
    async fn job_give_up(&self, give_up: GiveUp) -> Result<Vec<Job>, Error>;

    /// Removes ended jobs whose time to be kept is over, and outdated idempotency keys; at most
    /// `limit` jobs. How many jobs went.
    async fn job_purge(&self, now: Timestamp, limit: usize) -> Result<u64, Error>;

    // ---- read ----------------------------------------------------------------------------

    async fn job_get(&self, tenant: &Tenant, id: JobId) -> Result<Option<Job>, Error>;

    /// Result data of the newest attempt that had any.
    async fn job_result(&self, tenant: &Tenant, id: JobId) -> Result<Option<Json>, Error>;

    /// The kept attempts' logs, oldest first; `None` when there is no such job.
    async fn job_log(&self, tenant: &Tenant, id: JobId) -> Result<Option<Vec<AttemptLog>>, Error>;

    async fn job_payload(&self, tenant: &Tenant, id: JobId) -> Result<Option<Payload>, Error>;

    /// Piece number `index` of a large payload; `None` behind the last.
    async fn payload_piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, Error>;

    /// Newest first.
    async fn job_list(&self, list: List) -> Result<Page, Error>;

    /// Numbers of every type that has ever had a job, a handler or settings; of one tenant or all.
    async fn type_stats(&self, tenant: Option<&Tenant>) -> Result<Vec<TypeStats>, Error>;

    // ---- handlers and types (writes durable when they return) --------------------------------

    /// Puts a new version in force. Older ones stay, the newest `HANDLER_VERSIONS_MAX`.
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// The version in force, or the one asked for (also after the handler was deleted).
    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error>;

    /// The versions in force, by type name.
    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error>;

    /// Leaves the type without a handler; false when it had none.
    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error>;

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error>;

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error>;

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error>;

    // ---- the store itself ------------------------------------------------------------------

    /// Everything that was answered before is durable when this returns.
    async fn flush(&self) -> Result<(), Error>;

    /// Whether the store answers.
    async fn ping(&self) -> Result<(), Error>;

    /// Returns when another daemon may have changed what waits. Only with `Capabilities::wakes`;
    /// without it, this never returns.
    async fn changed(&self);

    /// Finishes what is under way and lets go of the store. Later calls are `Unavailable`.
    async fn close(&self);
}

/// What a store can do beyond the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// For people and logs, such as `sqlite`.
    pub name: &'static str,
    /// `changed` tells of other daemons' work, so that nobody needs to poll.
    pub wakes: bool,
    /// Several daemons may use it at once.
    pub shared: bool,
    /// It answers questions in SQL.
    pub sql: bool,
    /// The largest payload that it takes inline.
    pub payload_inline_bytes_max: usize,
}

/// Cut by what the caller does about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Say no to whoever asked.
    #[error("{0}")]
    Conflict(String),
    /// Try again later.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Stop; somebody must look at it.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A defect of ours or of the store's driver.
    #[error("the store failed: {0}")]
    Internal(String),
}

/// What an answer promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// On disk when the call returns.
    Synced,
    /// Survives the end of the process, and a power cut only after the next synced change.
    Relaxed,
}

#[derive(Debug, Clone)]
pub struct SysidReserve {
    pub wanted: Option<Sysid>,
    pub now: Timestamp,
    pub until: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SysidGrant {
    pub sysid: Sysid,
    pub boot: Boot,
}

#[derive(Debug, Clone)]
pub struct SysidRenew {
    pub grant: SysidGrant,
    pub until: Timestamp,
    pub id_newest: Option<JobId>,
}

#[derive(Debug, Clone)]
pub struct Insert {
    /// At most `BATCH_JOBS_MAX`.
    pub jobs: Vec<NewJob>,
    pub keys: Vec<IdempotencyRecord>,
    pub mark: Option<JournalMark>,
    pub durability: Durability,
}

/// How far a journal has been inserted; kept in the same transaction as the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalMark {
    pub journal: JournalId,
    pub position: JobId,
}

/// Names one journal of all that a store ever sees: the data directory that it lies in, and the
/// daemon that wrote it. The sysid alone would not do: a dead daemon's number goes to another one,
/// perhaps on another machine, while its journal still waits to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JournalId(pub i64);

impl JournalId {
    /// `place` is a random number that belongs to the data directory.
    pub fn new(place: u64, sysid: Sysid) -> JournalId {
        const PLACE_BITS: u32 = 50;
        let place = (place & ((1 << PLACE_BITS) - 1)) as i64;
        JournalId((place << 12) | i64::from(sysid.get()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    New,
    Duplicate,
    /// The id of the job that holds the unique key.
    Held(JobId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub tenant: Tenant,
    pub key: String,
    /// Digest of type and body: the same key with another one is a conflict.
    pub fingerprint: u64,
    pub ids: Vec<JobId>,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Waiting {
    pub types: Vec<WaitingType>,
    pub next_due_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct WaitingType {
    pub key: TypeKey,
    pub ready: u64,
    /// The handler version in force.
    pub handler: Option<HandlerId>,
    pub settings: TypeSettings,
}

#[derive(Debug, Clone)]
pub struct Claim {
    pub picks: Vec<Pick>,
    pub owner: Sysid,
    pub boot: Boot,
    pub now: Timestamp,
    pub until: Timestamp,
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
}

/// Who says that a job is his.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRef {
    pub tenant: Tenant,
    pub id: JobId,
    pub token: Token,
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

/// An ending from outside.
#[derive(Debug, Clone)]
pub struct EndRequest {
    pub tenant: Tenant,
    pub id: JobId,
    pub now: Timestamp,
    pub purge_at: Timestamp,
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
    pub now: Timestamp,
}

#[derive(Debug, Clone)]
pub struct GiveUp {
    pub which: Overdue,
    pub ended: Ended,
    pub log: Log,
    pub now: Timestamp,
    pub purge_at: Timestamp,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub enum Overdue {
    /// Queued and paused jobs whose `expires_at` is not after `now`.
    Expired,
    /// Queued jobs of this type that were first due at this time or before, if the type has no
    /// handler and nobody has claimed any of it since.
    Unhandled { key: TypeKey, due_until: Timestamp },
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
    pub name: Option<crate::name::TypeName>,
    pub state: Option<State>,
    /// Only ids below this one.
    pub before: Option<JobId>,
    /// 1 to `PAGE_JOBS_MAX`.
    pub limit: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub jobs: Vec<Job>,
    /// Where the next page begins (as `before`). A page may be short or empty and still have a
    /// next one: a store looks at a bounded number of jobs for each page.
    pub next: Option<JobId>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TypeStats {
    pub key: TypeKey,
    pub handler: bool,
    pub suspended: bool,
    pub ready: u64,
    /// Mocked jobs are among them, also those whose time has come.
    pub deferred: u64,
    pub running: u64,
    pub paused: u64,
    pub finished: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// When the job that has been ready the longest came due.
    pub oldest_ready_at: Option<Timestamp>,
}
