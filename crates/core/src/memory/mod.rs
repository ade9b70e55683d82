//! The reference store: everything in one map behind one lock, gone when it is dropped. It is the
//! plainest implementation of the contract, and every other store is compared with it, so it is
//! written to be obviously right, not fast. Tests of the engine run on it too.
//!
//! Where the contract leaves a choice, this store does the following.
//! - A rerun forgets `started_at` and how the last attempt ended; tokens go on growing.
//! - "Oldest" among ended jobs means the smallest id.

mod audit;
mod change;
mod clock;
mod contract;
mod daemon;
mod edit;
mod family;
mod fault;
mod handler;
mod insert;
mod key;
mod read;
mod run;
mod secret;
mod sysid;
mod take;
mod tenant;
mod undo;
mod waiting;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use bytes::Bytes;

use crate::audit::{AuditCursor, AuditEntry};
use crate::handler::{Handler, HandlerId, TypeSettings};
use crate::id::{JobId, Sysid};
use crate::job::{Boot, Job, Payload, Progress, Token};
use crate::key::KeyId;
use crate::name::{Tenant, TypeKey};
use crate::outcome::Json;
use crate::rate::Spent;
use crate::secret::SecretName;
use crate::store::{
    AttemptLog, Error, IdempotencyRecord, JournalId, KeyRevision, Revision, TenantRevision,
};
use crate::sync::lock;
use crate::time::{Clock, Moment, SystemClock, Timestamp};

use undo::Open;

/// A store that lives as long as the process. Share it in an `Arc` to stand for several daemons.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    faults: Mutex<fault::Faults>,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new(Arc::new(SystemClock))
    }
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        let now = Moment::now(clock.as_ref());
        let state = State { now: now.wall, offset: now.offset(), ..State::default() };
        MemoryStore { clock, state: Mutex::new(state), faults: Mutex::default() }
    }

    /// A test aid: while a store is not available, every call returns `Error::Unavailable`.
    pub fn set_available(&self, available: bool) {
        self.locked().away = !available;
    }

    /// A test aid: the next `times` inserts panic, like a bug in a store.
    pub fn set_panics(&self, times: usize) {
        self.locked().panics = times;
    }

    /// A test aid: while looks are held, a look for changes does not return.
    pub fn hold_looks(&self, held: bool) {
        let mut state = self.locked();
        state.looks_held = held;
        state.held.drain(..).for_each(Waker::wake);
    }

    /// A test aid: how many looks for changes are held.
    pub fn looks_waiting(&self) -> usize {
        self.locked().held.len()
    }

    /// A test aid: how often types were searched by name.
    pub fn named_looks(&self) -> u64 {
        self.locked().named_looks
    }

    /// A test aid: how often it was asked which types have no handler.
    pub fn handlers_asked(&self) -> u64 {
        self.locked().handlers_asked
    }

    /// A test aid: while they are held, a read of the counts of all types does not return.
    pub fn hold_stats(&self, held: bool) {
        let mut state = self.locked();
        state.stats_held = held;
        state.held.drain(..).for_each(Waker::wake);
    }

    /// A test aid: while they are held, adds are carried out, and their answers do not return.
    pub fn hold_add_answers(&self, held: bool) {
        let mut state = self.locked();
        state.add_answers_held = held;
        state.held.drain(..).for_each(Waker::wake);
    }

    /// A test aid: while they are held, beats do not return.
    pub fn hold_beats(&self, held: bool) {
        let mut state = self.locked();
        state.beats_held = held;
        state.held.drain(..).for_each(Waker::wake);
    }

    /// A test aid: how many types looks have reported so far.
    pub fn types_reported(&self) -> u64 {
        self.locked().reported
    }

    /// Waits while calls of this kind are held.
    async fn released(&self, is_held: fn(&State) -> bool) {
        std::future::poll_fn(|ctx| {
            let mut state = self.locked();
            if !is_held(&state) {
                return Poll::Ready(());
            }
            state.held.push(ctx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        // A panic under the lock can only come from a failed test, whose report matters more.
        lock(&self.state)
    }

    /// The state for one call, at the store's time.
    fn open(&self) -> Result<Open<'_>, Error> {
        let mut state = self.locked();
        match (state.closed, state.away) {
            (true, _) => Err(Error::Unavailable("it is closed".into())),
            (_, true) => Err(Error::Unavailable("it is switched off".into())),
            _ => {
                state.tick(Moment::now(self.clock.as_ref()));
                Ok(Open::new(state))
            }
        }
    }
}

#[derive(Debug, Clone, Default)]
struct State {
    jobs: BTreeMap<JobId, Row>,
    types: BTreeMap<TypeKey, TypeRow>,
    pieces: BTreeMap<(JobId, u32), Bytes>,
    /// When pieces without a job were put.
    pieces_waiting: BTreeMap<JobId, Timestamp>,
    keys: BTreeMap<(Tenant, String), IdempotencyRecord>,
    api_keys: BTreeMap<KeyId, key::KeyRow>,
    key_revision: KeyRevision,
    audit: BTreeMap<AuditCursor, AuditEntry>,
    secrets: BTreeMap<(Tenant, SecretName), secret::SecretRow>,
    tenants: BTreeMap<Tenant, tenant::TenantRow>,
    tenant_revision: TenantRevision,
    marks: BTreeMap<JournalId, JobId>,
    sysids: BTreeMap<Sysid, sysid::SysidRow>,
    daemons: BTreeMap<JournalId, daemon::DaemonRow>,
    boot_newest: Boot,
    /// The newest revision.
    revision: i64,
    /// The number of types reported by looks.
    reported: u64,
    /// The time of the current call, and how far the wall clock is ahead of the steady one.
    now: Timestamp,
    offset: i64,
    away: bool,
    /// How many more inserts panic.
    panics: usize,
    closed: bool,
    forgets: bool,
    /// The state after the last synced change, in a store that can undo the others.
    synced: Option<Box<State>>,
    looks_held: bool,
    stats_held: bool,
    add_answers_held: bool,
    beats_held: bool,
    held: Vec<Waker>,
    named_looks: u64,
    handlers_asked: u64,
}

/// One job with all its data, except the pieces of its payload.
#[derive(Debug, Clone)]
struct Row {
    job: Job,
    payload: Payload,
    /// The progress of the latest attempt; `job.progress` itself is always empty here, as in a
    /// list.
    progress: Option<Progress>,
    /// The token of the latest claim; stays after the lease has ended.
    token_newest: Option<Token>,
    /// Of a running job: the start that it had before, which a release restores.
    started_before: Option<Timestamp>,
    result: Option<Json>,
    logs: Vec<AttemptLog>,
    /// Only an ended job has it.
    purge_at: Option<Timestamp>,
    /// It came due while it was queued; stays set when the clock is set back.
    due: bool,
}

/// One type; exists for ever from its first write on.
#[derive(Debug, Clone, Default)]
struct TypeRow {
    /// In order of their writes.
    versions: Vec<Handler>,
    in_force: Option<HandlerId>,
    settings: TypeSettings,
    has_settings: bool,
    suspended: bool,
    claimed_at: Option<Timestamp>,
    spent: Spent,
    revision: Revision,
}

impl State {
    fn type_row(&mut self, key: &TypeKey) -> &mut TypeRow {
        self.types.entry(key.clone()).or_default()
    }

    /// The job, if it exists and belongs to this tenant.
    fn row(&self, tenant: &Tenant, id: JobId) -> Option<&Row> {
        self.jobs.get(&id).filter(|row| row.job.key.tenant == *tenant)
    }

    fn row_mut(&mut self, tenant: &Tenant, id: JobId) -> Option<&mut Row> {
        self.jobs.get_mut(&id).filter(|row| row.job.key.tenant == *tenant)
    }

    /// The job that has not ended and holds this unique key of this type.
    fn unique_holder(&self, key: &TypeKey, unique: &str) -> Option<JobId> {
        let holds = |job: &Job| {
            !job.state.is_ended() && job.key == *key && job.unique.as_deref() == Some(unique)
        };
        self.jobs.values().map(|row| &row.job).find(|job| holds(job)).map(|job| job.id)
    }

    fn remove(&mut self, id: JobId) {
        if let Some(row) = self.jobs.remove(&id)
            && self.types.contains_key(&row.job.key)
        {
            self.touch(&row.job.key);
        }
        self.pieces.retain(|(owner, _), _| *owner != id);
    }
}

#[cfg(test)]
mod tests;
