//! Observes another runner: how many batches and jobs it ran, and when it received and started each
//! job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::mpsc;

use windlass_core::runner::{Batch, NotCompiled, Report, Reports, Stop};
use windlass_core::secret::OpenSecrets;
use windlass_core::{
    AttemptId, Handler, HandlerId, HandlerSpec, Invalid, JobId, Runner, Status, TypeKey,
};

/// Starts that may wait for the receiver; beyond that they are dropped, so that the runner is never
/// slowed down.
const STARTS_MAX: usize = 1024;

pub(crate) struct Watched {
    inner: Box<dyn Runner>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
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
        Watched { inner, counters: Arc::default() }
    }

    /// Also sends every start to a channel.
    pub(crate) fn reporting_starts(inner: Box<dyn Runner>) -> (Watched, mpsc::Receiver<Start>) {
        let (sender, starts) = mpsc::channel(STARTS_MAX);
        let counters = Counters { starts: Some(sender), ..Counters::default() };
        (Watched { inner, counters: Arc::new(counters) }, starts)
    }

    pub(crate) fn batches(&self) -> u64 {
        self.counters.batches.load(Ordering::Relaxed)
    }

    pub(crate) fn ended(&self) -> u64 {
        self.counters.ended.load(Ordering::Relaxed)
    }

    /// Jobs that did not end as expected.
    pub(crate) fn failed(&self) -> u64 {
        self.counters.failed.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Runner for Watched {
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid> {
        self.inner.check(spec)
    }

    async fn compile(&self, key: &TypeKey, spec: &HandlerSpec) -> Result<(), NotCompiled> {
        self.inner.compile(key, spec).await
    }

    fn prepare(&self, handler: Arc<Handler>, secrets: Arc<OpenSecrets>) {
        self.inner.prepare(handler, secrets);
    }

    fn batch_max(&self, handler: &Handler) -> u32 {
        self.inner.batch_max(handler)
    }

    fn batches_max(&self, handler: &Handler) -> Option<u32> {
        self.inner.batches_max(handler)
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        let (counters, handed_at) = (Arc::clone(&self.counters), Instant::now());
        self.inner.run(batch, Arc::new(Listener { inner: reports, counters, handed_at })).await;
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

/// Records the reports on one batch and passes them on.
struct Listener {
    inner: Arc<dyn Reports>,
    counters: Arc<Counters>,
    handed_at: Instant,
}

#[async_trait]
impl Reports for Listener {
    async fn started(&self, attempt: AttemptId) {
        if let Some(starts) = &self.counters.starts {
            let start = Start { id: attempt.job, handed_at: self.handed_at, at: Instant::now() };
            // The receiver may have stopped measuring.
            let _ = starts.try_send(start);
        }
        self.inner.started(attempt).await;
    }

    async fn progress(&self, attempt: AttemptId, percent: f64, message: String) {
        self.inner.progress(attempt, percent, message).await;
    }

    async fn ended(&self, attempt: AttemptId, report: Report) {
        let failed = report.status != Status::OK;
        self.counters.failed.fetch_add(u64::from(failed), Ordering::Relaxed);
        self.counters.ended.fetch_add(1, Ordering::Relaxed);
        self.inner.ended(attempt, report).await;
    }

    async fn returned(&self, attempt: AttemptId) {
        self.inner.returned(attempt).await;
    }
}
