//! How far this daemon's adds have been ingested. A claim waits briefly until the store has
//! everything that was answered before; a read or a change of jobs, until it has these.

use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use windlass_core::{JobId, Tenant};

use crate::error::Error;
use crate::shared::Shared;

/// How long a claim waits for the ingest of recent adds.
pub(crate) const FRESH_CLAIM: Duration = Duration::from_millis(500);
/// The same for a read, which then looks into the journal.
pub(crate) const FRESH_READ: Duration = Duration::from_millis(50);
/// The same for a change, which is then refused.
const FRESH_CHANGE: Duration = Duration::from_secs(5);

pub(crate) struct Freshness {
    /// The store's position in our own journal; 0 before the first job. It may go back.
    ingested: AtomicI64,
    /// Notified when that has moved.
    moved: Notify,
    /// Notified when a caller waits for ingest.
    pub wanted: Notify,
    /// Notified when the store may be another one than before, so that ingest compares positions.
    pub doubted: Notify,
    /// No id in the journal's backlog at the start of the engine was larger; `None` if there was
    /// no backlog.
    pub backlog_newest: Option<JobId>,
    /// The last id of an answered add through the journal.
    appended: AtomicI64,
}

impl Freshness {
    /// `position` is the store's position in the journal.
    pub(crate) fn new(position: Option<JobId>, backlog_newest: Option<JobId>) -> Freshness {
        Freshness {
            ingested: AtomicI64::new(position.map_or(0, JobId::get)),
            moved: Notify::new(),
            wanted: Notify::new(),
            doubted: Notify::new(),
            backlog_newest,
            appended: AtomicI64::new(backlog_newest.or(position).map_or(0, JobId::get)),
        }
    }

    /// An add through the journal is about to be answered with this id.
    pub(crate) fn note_appended(&self, id: JobId) {
        self.appended.fetch_max(id.get(), Ordering::SeqCst);
    }

    pub(crate) fn note_ingested(&self, position: Option<JobId>) {
        self.ingested.store(position.map_or(0, JobId::get), Ordering::SeqCst);
        self.moved.notify_waiters();
    }

    /// Waits until the store has every job up to `id` that this daemon accepted; false after
    /// `patience`.
    pub(crate) async fn up_to(&self, id: JobId, patience: Duration) -> bool {
        let target = self.target(id);
        let is_there = || self.ingested.load(Ordering::SeqCst) >= target;
        if is_there() {
            return true;
        }
        self.wanted.notify_one();
        let arrived = async {
            loop {
                let mut moved = pin!(self.moved.notified());
                moved.as_mut().enable();
                if is_there() {
                    return;
                }
                moved.await;
            }
        };
        tokio::time::timeout(patience, arrived).await.is_ok()
    }

    /// The same for everything answered until now.
    pub(crate) async fn all(&self, patience: Duration) -> bool {
        match self.newest() {
            Some(newest) => self.up_to(newest, patience).await,
            None => true,
        }
    }

    /// Waits until the store has every job up to `id` that this daemon accepted, for changes that
    /// depend on all of them.
    pub(crate) async fn require(&self, id: JobId) -> Result<(), Error> {
        if self.up_to(id, FRESH_CHANGE).await {
            return Ok(());
        }
        Err(Error::Unavailable("the store is not accepting jobs right now; try again later".into()))
    }

    /// The newest answered id.
    pub(crate) fn newest(&self) -> Option<JobId> {
        JobId::new(self.appended.load(Ordering::SeqCst))
    }

    /// The position at which the store has every job up to `id` that was answered until now.
    fn target(&self, id: JobId) -> i64 {
        id.get().min(self.appended.load(Ordering::SeqCst))
    }

    /// Whether the store has every job up to `id` that was answered until now.
    fn has(&self, id: JobId) -> bool {
        self.ingested.load(Ordering::SeqCst) >= self.target(id)
    }
}

/// Waits until the store has these jobs, because jobs are changed only there. For jobs that it has
/// already, however new their ids are, others in the journal do not matter: their families are in
/// the store too, because a job with a parent never goes into the journal, and a job cannot get
/// children while it is there.
pub(crate) async fn in_store(shared: &Shared, tenant: &Tenant, ids: &[JobId]) -> Result<(), Error> {
    let newer = || ids.iter().copied().filter(|id| !shared.fresh.has(*id));
    let Some(newest) = newer().max() else { return Ok(()) };
    let found = async {
        for id in newer() {
            if !matches!(shared.store.job_get(tenant, id).await, Ok(Some(_))) {
                // Not there, or the store does not say: only ingest can tell.
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = found => Ok(()),
        required = shared.fresh.require(newest) => required,
    }
}
