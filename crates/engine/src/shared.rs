//! What all parts of one engine share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use windlass_core::job::Token;
use windlass_core::store::{self, JournalId, SysidGrant};
use windlass_core::{JobId, Runner, Store, Sysid, Timestamp, TypeKey};
use windlass_journal::Journal;

use crate::accept::idempotency::Idempotencies;
use crate::ask::waiter::Waiters;
use crate::claim::cursor::Cursors;
use crate::claim::token::Tokens;
use crate::claim::waitlist::Waitlist;
use crate::dispatch::catalogue::Catalogue;
use crate::dispatch::running::RunningTable;
use crate::house::clock::DaemonClock;
use crate::house::contact::Contact;
use crate::house::health::Health;
use crate::house::keep::Kept;
use crate::lock::lock;
use crate::metrics::Metrics;
use crate::options::{Options, Parts};
use crate::schedule::{Scheduler, Slots};
use crate::settle::{Room, SETTLE_QUEUE_MAX, SettleItem};

/// How long a claim waits for jobs that were just added to reach the store.
pub(crate) const FRESH_CLAIM: Duration = Duration::from_millis(500);
/// … a read, before it looks into the journal.
pub(crate) const FRESH_READ: Duration = Duration::from_millis(50);
/// … a change, which is refused after that.
pub(crate) const FRESH_CHANGE: Duration = Duration::from_secs(5);

pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub runner: Arc<dyn Runner>,
    pub clock: DaemonClock,
    pub journal: Journal,
    pub options: Options,
    pub metrics: Arc<Metrics>,
    pub health: Arc<Health>,
    pub grant: SysidGrant,
    pub tokens: Tokens,
    pub contact: Contact,
    /// Stands for the data directory: see `JournalId`.
    place: u64,
    pub started_at: Timestamp,

    pub catalogue: Catalogue,
    pub idempotencies: Idempotencies,
    pub running: RunningTable,
    /// Requests that wait for a job to change.
    pub job_waiters: Waiters<JobId>,
    /// Workers that wait for jobs.
    pub waitlist: Waitlist,
    /// Where claims with very many types go on.
    pub cursors: Cursors,
    /// Leases that are to last for ever.
    pub kept: Kept,
    /// Somebody got less than there is, because of the limit of a type: the end of a job is a
    /// reason to look at the store.
    pub room_wanted: AtomicBool,
    pub settle_queue: mpsc::Sender<SettleItem>,
    pub settle_room: Room,
    scheduler: Mutex<Scheduler>,
    rng: Mutex<fastrand::Rng>,

    /// Wakes the dispatcher: something may run, or a slot is free.
    pub dispatch_wake: Arc<Notify>,
    /// The dispatcher's next pass begins with a look at the store.
    pub look_wanted: AtomicBool,
    pub picking: AtomicBool,
    /// The earliest moment at which a job that is deferred comes due, as far as we know.
    pub next_due: watch::Sender<Option<Timestamp>>,
    /// How far our own journal is in the store.
    pub ingested: watch::Sender<Option<JobId>>,
    /// Told when somebody waits for that.
    pub ingest_wanted: Notify,
    /// Not older than anything that our journal still had to ingest when the engine started.
    pub backlog_newest: Option<JobId>,
    /// The last id that was answered to an add through the journal.
    appended: AtomicI64,
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
        let (settle_queue, settlements) = mpsc::channel(SETTLE_QUEUE_MAX);
        let shared = Shared {
            started_at: parts.clock.now(),
            store: parts.store,
            runner: parts.runner,
            appended: AtomicI64::new(backlog_newest.or(position).map_or(0, JobId::get)),
            backlog_newest,
            journal,
            health: Arc::new(Health::new(metrics.clone())),
            metrics,
            tokens: Tokens::new(grant.boot),
            contact: Contact::new(options.lease, grant.sysid, parts.clock.steady()),
            clock: DaemonClock::new(parts.clock),
            grant,
            place,
            catalogue: Catalogue::default(),
            idempotencies: Idempotencies::default(),
            running: RunningTable::default(),
            job_waiters: Waiters::default(),
            waitlist: Waitlist::default(),
            cursors: Cursors::default(),
            kept: Kept::default(),
            room_wanted: AtomicBool::new(false),
            settle_queue,
            settle_room: Room::new(),
            scheduler: Mutex::new(Scheduler::new(options.fairness, slots, only)),
            rng: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            dispatch_wake: Arc::default(),
            look_wanted: AtomicBool::new(true),
            picking: AtomicBool::new(true),
            next_due: watch::Sender::new(None),
            ingested: watch::Sender::new(position),
            ingest_wanted: Notify::new(),
            options,
        };
        (Arc::new(shared), settlements)
    }

    /// A token for one claim.
    pub(crate) async fn token(&self) -> Result<Token, store::Error> {
        self.tokens.next(self.store.as_ref()).await
    }

    /// The store's time, as far as we know it.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The name under which the store knows the journal of a daemon on our data directory.
    pub(crate) fn journal_id(&self, sysid: Sysid) -> JournalId {
        JournalId::new(self.place, sysid)
    }

    pub(crate) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        lock(&self.scheduler)
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, fastrand::Rng> {
        lock(&self.rng)
    }

    /// A random share of a delay, so that retries do not come all at once.
    pub(crate) fn jitter(&self) -> f64 {
        self.rng().f64()
    }

    /// Jobs of these types may run now: tells the scheduler, the dispatcher and waiting workers.
    pub(crate) fn announce(&self, ready: impl IntoIterator<Item = (TypeKey, u64)>) {
        let ready: Vec<(TypeKey, u64)> = ready.into_iter().collect();
        if ready.is_empty() {
            return;
        }
        let mut known = true;
        let mut startable = Vec::with_capacity(ready.len());
        {
            let mut scheduler = self.scheduler();
            for (key, jobs) in &ready {
                known &= scheduler.note(key, *jobs);
                if !scheduler.rests(key) {
                    startable.push((key, *jobs));
                }
            }
        }
        if !known {
            self.look_wanted.store(true, Ordering::SeqCst);
        }
        self.waitlist.wake(startable);
        self.dispatch_wake.notify_one();
    }

    /// A job of this type runs no more: where a limit kept others back, there may be room for one.
    pub(crate) fn announce_room(&self, key: &TypeKey) {
        let settings = self.scheduler().settings(key);
        if settings.is_some_and(|settings| settings.concurrency.is_some()) {
            self.look();
        }
        self.announce_any_room();
    }

    /// A job of some type runs no more.
    pub(crate) fn announce_any_room(&self) {
        if self.room_wanted.load(Ordering::SeqCst) {
            // Those who wait do not look again before there is room in their own type.
            self.room_wanted.store(!self.waitlist.is_empty(), Ordering::SeqCst);
            self.look();
        }
    }

    /// A job comes due at `at`: the dispatcher must look at the store then.
    pub(crate) fn announce_due(&self, at: Timestamp) {
        let earlier = self.next_due.send_if_modified(|due| {
            let earlier = due.is_none_or(|due| at < due);
            if earlier {
                *due = Some(at);
            }
            earlier
        });
        if earlier {
            self.dispatch_wake.notify_one();
        }
    }

    /// Makes the dispatcher look at the store at once.
    pub(crate) fn look(&self) {
        self.look_wanted.store(true, Ordering::SeqCst);
        self.dispatch_wake.notify_one();
    }

    pub(crate) fn note_appended(&self, id: JobId) {
        self.appended.fetch_max(id.get(), Ordering::SeqCst);
    }

    /// Waits until the store has every job up to `id` that this daemon accepted; false when that
    /// takes longer than `patience`.
    pub(crate) async fn ingested_up_to(&self, id: JobId, patience: Duration) -> bool {
        let target = id.get().min(self.appended.load(Ordering::SeqCst));
        let mut ingested = self.ingested.subscribe();
        let is_there = |at: &Option<JobId>| at.map_or(0, JobId::get) >= target;
        if is_there(&ingested.borrow()) {
            return true;
        }
        self.ingest_wanted.notify_one();
        let arrived = ingested.wait_for(is_there);
        tokio::time::timeout(patience, arrived).await.is_ok_and(|seen| seen.is_ok())
    }

    /// The newest id that was answered, for waits that mean "everything until now".
    pub(crate) fn appended(&self) -> Option<JobId> {
        JobId::new(self.appended.load(Ordering::SeqCst))
    }

    pub(crate) fn fail(&self, why: String) {
        self.health.fail(why);
    }
}
