//! How far this daemon's adds have been ingested. A claim, a read or a change waits briefly until
//! the store has everything that was answered before.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use windlass_core::JobId;

use crate::error::Error;

/// How long a claim waits for the ingest of recent adds.
pub(crate) const FRESH_CLAIM: Duration = Duration::from_millis(500);
/// The same for a read, which then looks into the journal.
pub(crate) const FRESH_READ: Duration = Duration::from_millis(50);
/// The same for a change, which is then refused.
const FRESH_CHANGE: Duration = Duration::from_secs(5);

pub(crate) struct Freshness {
    /// The store's position in our own journal.
    ingested: watch::Sender<Option<JobId>>,
    /// Notified when a caller waits for ingest.
    pub wanted: Notify,
    /// The newest id in the journal's backlog when the engine started.
    pub backlog_newest: Option<JobId>,
    /// The last id of an answered add through the journal.
    appended: AtomicI64,
}

impl Freshness {
    /// `position` is the store's position in the journal, `backlog_newest` the newest id that the
    /// store does not have.
    pub(crate) fn new(position: Option<JobId>, backlog_newest: Option<JobId>) -> Freshness {
        Freshness {
            ingested: watch::Sender::new(position),
            wanted: Notify::new(),
            backlog_newest,
            appended: AtomicI64::new(backlog_newest.or(position).map_or(0, JobId::get)),
        }
    }

    /// An add through the journal is about to be answered with this id.
    pub(crate) fn note_appended(&self, id: JobId) {
        self.appended.fetch_max(id.get(), Ordering::SeqCst);
    }

    pub(crate) fn note_ingested(&self, position: Option<JobId>) {
        self.ingested.send_replace(position);
    }

    /// Waits until the store has every job up to `id` that this daemon accepted; false after
    /// `patience`.
    pub(crate) async fn up_to(&self, id: JobId, patience: Duration) -> bool {
        let target = id.get().min(self.appended.load(Ordering::SeqCst));
        let mut ingested = self.ingested.subscribe();
        let is_there = |at: &Option<JobId>| at.map_or(0, JobId::get) >= target;
        if is_there(&ingested.borrow()) {
            return true;
        }
        self.wanted.notify_one();
        let arrived = ingested.wait_for(is_there);
        tokio::time::timeout(patience, arrived).await.is_ok_and(|seen| seen.is_ok())
    }

    /// The same for everything answered until now.
    pub(crate) async fn all(&self, patience: Duration) -> bool {
        match self.newest() {
            Some(newest) => self.up_to(newest, patience).await,
            None => true,
        }
    }

    /// Waits until the store has this job, because jobs are changed only there.
    pub(crate) async fn require(&self, id: JobId) -> Result<(), Error> {
        if self.up_to(id, FRESH_CHANGE).await {
            return Ok(());
        }
        Err(Error::Unavailable("the store does not take jobs now; try again later".into()))
    }

    /// The newest answered id.
    pub(crate) fn newest(&self) -> Option<JobId> {
        JobId::new(self.appended.load(Ordering::SeqCst))
    }
}
