//! A runner that does nothing: every job starts and succeeds at once, as in a warm context without
//! work. What remains is the cost of Windlass itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::runner::{Batch, Report, Reports, Stop};
use windlass_core::{AttemptId, Handler, HandlerId, HandlerSpec, Invalid, Log, Runner, Status};

/// Jobs in one batch.
pub(crate) const BATCH_JOBS: u32 = 100;

pub(crate) struct NoopRunner;

#[async_trait]
impl Runner for NoopRunner {
    fn check(&self, _: &HandlerSpec) -> Result<(), Invalid> {
        Ok(())
    }

    fn batch_max(&self, _: &Handler) -> u32 {
        BATCH_JOBS
    }

    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        for assignment in batch.jobs {
            let id = assignment.id;
            reports.started(id).await;
            reports.ended(id, done()).await;
        }
    }

    fn stop(&self, _: AttemptId, _: Stop) {}

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
