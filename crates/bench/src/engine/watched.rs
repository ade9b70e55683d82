//! A runner that is watched at its work: how many batches and jobs it ran, and when each job was
//! handed to it and started. What it does is another runner's business.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::mpsc;

use windlass_core::runner::{Batch, Report, Reports, Stop};
use windlass_core::{
    AttemptId, Handler, HandlerId, HandlerSpec, Invalid, JobId, Runner, Status, TypeKey,
};

/// Starts that may wait for whoever listens; nobody is slowed down beyond it.
const STARTS_MAX: usize = 1024;

pub(crate) struct Watched {
    inner: Box<dyn Runner>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    batches: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    starts: Option<mpsc::Sender<Start>>,
}

/// When a job was handed to the runner, and when it started.
pub(crate) struct Start {
    pub(crate) id: JobId,
    pub(crate) handed_at: Instant,
    pub(crate) at: Instant,
}

impl Watched {
    pub(crate) fn new(inner: Box<dyn Runner>) -> Watched {
        Watched { inner, seen: Arc::default() }
    }

    /// One that tells of every start.
    pub(crate) fn telling(inner: Box<dyn Runner>) -> (Watched, mpsc::Receiver<Start>) {
        let (sender, starts) = mpsc::channel(STARTS_MAX);
        let seen = Seen { starts: Some(sender), ..Seen::default() };
        (Watched { inner, seen: Arc::new(seen) }, starts)
    }

    pub(crate) fn batches(&self) -> u64 {
        self.seen.batches.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> u64 {
        self.seen.ended.load(Ordering::Relaxed)
    }

    /// Jobs that ended in another way than they should have.
    pub(crate) fn failed(&self) -> u64 {
        self.seen.failed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Runner for Watched {
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid> {
        self.inner.check(spec)
    }

    async fn compile(&self, key: &TypeKey, spec: &HandlerSpec) -> Result<(), Invalid> {
        self.inner.compile(key, spec).await
    }

    fn prepare(&self, handler: Arc<Handler>) {
        self.inner.prepare(handler);
    }

    fn batch_max(&self, handler: &Handler) -> u32 {
        self.inner.batch_max(handler)
    }

    fn batches_max(&self, handler: &Handler) -> Option<u32> {
        self.inner.batches_max(handler)
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        self.seen.batches.fetch_add(1, Ordering::Relaxed);
        let (seen, handed_at) = (Arc::clone(&self.seen), Instant::now());
        self.inner.run(batch, Arc::new(Listener { inner: reports, seen, handed_at })).await;
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        self.inner.stop(attempt, why);
    }

    fn warm(&self) -> Vec<HandlerId> {
        self.inner.warm()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// Hears the reports on one batch and passes them on.
struct Listener {
    inner: Arc<dyn Reports>,
    seen: Arc<Seen>,
    handed_at: Instant,
}

#[async_trait]
impl Reports for Listener {
    async fn started(&self, attempt: AttemptId) {
        if let Some(starts) = &self.seen.starts {
            let start = Start { id: attempt.job, handed_at: self.handed_at, at: Instant::now() };
            // A measurement that nobody takes is not needed.
            let _ = starts.try_send(start);
        }
        self.inner.started(attempt).await;
    }

    async fn progress(&self, attempt: AttemptId, percent: f64, message: String) {
        self.inner.progress(attempt, percent, message).await;
    }

    async fn ended(&self, attempt: AttemptId, report: Report) {
        let failed = report.status != Status::OK;
        self.seen.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.seen.ended.fetch_add(1, Ordering::Relaxed);
        self.inner.ended(attempt, report).await;
    }

    async fn returned(&self, attempt: AttemptId) {
        self.inner.returned(attempt).await;
    }
}
