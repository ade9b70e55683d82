//! State shared by all parts of an engine.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;

use windlass_core::secret::SealKeys;
use windlass_core::store::SysidGrant;
use windlass_core::sync::lock;
use windlass_core::{JobId, Runner, Store, Timestamp};
use windlass_journal::{Disk, Journal};

use crate::accept::idempotency::Idempotencies;
use crate::ask::waiter::Waiters;
use crate::audit::AuditLog;
use crate::claim::cursor::Cursors;
use crate::claim::room::ClaimRoom;
use crate::daemon::Daemon;
use crate::detach::Room;
use crate::dispatch::catalogue::Catalogue;
use crate::dispatch::running::RunningTable;
use crate::house::clock::DaemonClock;
use crate::house::health::Health;
use crate::house::keep::KeepQueue;
use crate::ingest::freshness::Freshness;
use crate::key::KeyTable;
use crate::metrics::Metrics;
use crate::options::{Options, Parts};
use crate::ready::ReadySignals;
use crate::schedule::{Scheduler, Slots};
use crate::settle::queue::{SettleItem, SettleQueue};
use crate::tenant::TenantsSeen;

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub runner: Arc<dyn Runner>,
    pub clock: Arc<DaemonClock>,
    pub journal: Journal,
    pub disk: Arc<dyn Disk>,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub daemon: Daemon,
    pub fresh: Freshness,
    pub ready: ReadySignals,
    pub settle: SettleQueue,
    pub catalogue: Catalogue,
    pub idempotencies: Idempotencies,
    pub keys: KeyTable,
    pub tenants_seen: TenantsSeen,
    pub audit: AuditLog,
    /// The keys of secrets, outside of the store.
    pub seal_keys: Arc<dyn SealKeys>,
    pub rooms: Rooms,
    pub running: RunningTable,
    /// Requests waiting for a job to change.
    pub job_waiters: Waiters<JobId>,
    /// Where the next claim with very many types continues.
    pub cursors: Cursors,
    /// Leases to be kept for ever.
    pub keep_queue: KeepQueue,
    rng: Mutex<fastrand::Rng>,

    /// Whether the dispatcher picks jobs.
    pub picking: AtomicBool,
}

/// Bounds of memory that the limit on connections does not cover.
#[derive(Default)]
pub(crate) struct Rooms {
    /// For adds with a key, which do not wait long for the store.
    pub keyed: Room,
    /// For other changes, which last as long as the store takes.
    pub change: Room,
    /// For claims and takes while they look for jobs, not while they wait for them.
    pub look: Room,
    /// For the payloads that claims and takes bring.
    pub claim: ClaimRoom,
}

impl Shared {
    pub(crate) fn new(
        parts: Parts,
        journal: Journal,
        grant: SysidGrant,
        place: u64,
        position: Option<JobId>,
        options: Options,
        metrics: Arc<Metrics>,
    ) -> (Arc<Shared>, mpsc::Receiver<SettleItem>) {
        let slots = Slots {
            shared: options.slots,
            reserved: options.slots_reserved,
            tenant_min: options.tenant_slots_min,
        };
        let only = options.tenants.clone().map(|only| only.into_iter().collect::<HashSet<_>>());
        let backlog = journal.stats().unread_records > 0;
        let backlog_newest = journal.id_newest().filter(|_| backlog);
        let (settle, settlements) = SettleQueue::new();
        let scheduler = Scheduler::new(options.fairness, slots, only);
        let shared = Shared {
            daemon: Daemon::new(grant, place, options.lease, parts.clock.as_ref()),
            fresh: Freshness::new(position, backlog_newest),
            ready: ReadySignals::new(scheduler),
            settle,
            store: parts.store,
            runner: parts.runner,
            journal,
            disk: parts.disk,
            health: Arc::new(Health::new(metrics.clone(), parts.clock.clone())),
            metrics,
            clock: Arc::new(DaemonClock::new(parts.clock)),
            catalogue: Catalogue::new(options.maxima.clone()),
            idempotencies: Idempotencies::default(),
            keys: KeyTable::default(),
            tenants_seen: TenantsSeen::default(),
            audit: AuditLog::new(grant.boot),
            seal_keys: parts.seal_keys,
            rooms: Rooms::default(),
            running: RunningTable::default(),
            job_waiters: Waiters::default(),
            cursors: Cursors::default(),
            keep_queue: KeepQueue::default(),
            rng: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            picking: AtomicBool::new(true),
            options,
        };
        (Arc::new(shared), settlements)
    }

    /// Our estimate of the store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        lock(&self.rng)
    }

    /// A random number from 0 to 1 that spreads retries over time.
    pub(crate) fn jitter(&self) -> f64 {
        self.rng().f64()
    }
}
