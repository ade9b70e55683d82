//! A runner that does nothing: every job starts and ends well at once, as in a context that is warm
//! and has nothing to do. What is left is what Windlass itself costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::mpsc;

use windlass_core::runner::{Batch, Report, Reports, Stop};
use windlass_core::{Handler, HandlerId, HandlerSpec, Invalid, JobId, Log, Runner, Status};

/// Jobs in one batch.
pub(crate) const BATCH_JOBS: u32 = 100;

/// Starts that may wait for whoever listens; nobody is slowed down beyond it.
const STARTS_MAX: usize = 1024;

pub(crate) struct NoopRunner {
    pub(crate) ended: AtomicU64,
    pub(crate) batches: AtomicU64,
    starts: Option<mpsc::Sender<Start>>,
}

/// When a job began to run.
pub(crate) struct Start {
    pub(crate) id: JobId,
    pub(crate) at: Instant,
}

impl NoopRunner {
    pub(crate) fn new() -> NoopRunner {
        NoopRunner { ended: AtomicU64::new(0), batches: AtomicU64::new(0), starts: None }
    }

    /// One that tells of every start.
    pub(crate) fn telling() -> (NoopRunner, mpsc::Receiver<Start>) {
        let (sender, starts) = mpsc::channel(STARTS_MAX);
        (NoopRunner { starts: Some(sender), ..NoopRunner::new() }, starts)
    }
}

#[async_trait]
impl Runner for NoopRunner {
    fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
        Ok(())
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        BATCH_JOBS
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        for assignment in batch.jobs {
            let id = assignment.job.id;
            if let Some(starts) = &self.starts {
                // A measurement that nobody takes is not needed.
                let _ = starts.try_send(Start { id, at: Instant::now() });
            }
            reports.started(id).await;
            reports.ended(id, done()).await;
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn stop(&self, _: JobId, _: Stop) {}

    fn warm(&self) -> Vec<HandlerId> {
        Vec::new()
    }

    async fn close(&self) {}
}

fn done() -> Report {
    Report {
        status: Status::OK,
        stopped: None,
        data: None,
        log: Log::new(),
        emitted: Vec::new(),
        run_time: Duration::ZERO,
    }
}
