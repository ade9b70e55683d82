//! Runs a batch to its end, whatever happens: a panic of the runner or of our own code costs the
//! attempts at fault, and frees the slot.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;

use windlass_core::runner::{Assignment, Batch, Pieces, Stop};
use windlass_core::sync::panic_text;
use windlass_core::{AttemptId, Handler, JobId, Log, Payload, Status};

use crate::claim::reserve::Slot;
use crate::dispatch::report::BatchReports;
use crate::dispatch::running::RunningJob;
use crate::secret;
use crate::settle::queue::SettleItem;
use crate::settle::verdict::{self, Cause, Rules};
use crate::shared::Shared;

/// Runs jobs of one handler to their end, then frees the slot.
pub(super) async fn run(
    shared: Arc<Shared>,
    handler: Arc<Handler>,
    slot: Slot,
    jobs: Vec<(RunningJob, Payload)>,
) {
    let attempts: Vec<RunningJob> = jobs.iter().map(|(job, _)| job.clone()).collect();
    let run = run_batch(shared.clone(), handler, slot, jobs);
    // A panic here is a bug of ours; the jobs must not hang because of it.
    if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
        shared.health.service_failed("batch", panic_text(&*panic));
        fail_left(&shared, attempts).await;
    }
}

async fn run_batch(
    shared: Arc<Shared>,
    handler: Arc<Handler>,
    slot: Slot,
    jobs: Vec<(RunningJob, Payload)>,
) {
    let key = handler.key.clone();
    let mut left: Vec<AttemptId> = jobs.iter().map(|(job, _)| job.attempt_id()).collect();
    let reports = Arc::new(BatchReports::new(shared.clone(), key.clone(), left.iter().copied()));
    let secrets = match secret::open(&shared, &handler).await {
        Ok(secrets) => secrets,
        Err(why) => return reports.without_secrets(left, &why).await,
    };
    let jobs = jobs.into_iter().map(|(running, payload)| assignment(running, payload)).collect();
    let batch = Batch { handler, jobs, secrets, pieces: Arc::new(StorePieces(shared.clone())) };
    // A panic is a bug in the runner; the jobs must not hang because of it.
    let ran = AssertUnwindSafe(shared.runner.run(batch, reports.clone())).catch_unwind().await;
    left.retain(|attempt| reports.is_open(*attempt));
    if ran.is_err() {
        tracing::error!(r#type = %key, jobs = left.len(), "the runner panicked");
        reports.after_panic(left).await;
    } else {
        for attempt in left {
            tracing::error!(id = %attempt.job, "the runner did not report on a job; releasing it");
            reports.hand_back(attempt).await;
        }
    }
    drop(slot);
}

fn assignment(running: RunningJob, payload: Payload) -> Assignment {
    Assignment {
        id: running.attempt_id(),
        timeout: running.policy.timeout_of(&running.job),
        job: running.job,
        payload,
        live: running.live,
    }
}

/// Our own code panicked: the attempts that have no verdict yet have failed.
async fn fail_left(shared: &Shared, attempts: Vec<RunningJob>) {
    let runs = |job: &RunningJob| shared.running.contains(job.attempt_id());
    let left: Vec<RunningJob> = attempts.into_iter().filter(runs).collect();
    for job in left {
        shared.runner.stop(job.attempt_id(), Stop::LeaseLost);
        // The store refuses it if it already has the attempt's real end.
        let log = Log::of_note("the daemon panicked while it ran the job; its log says where");
        let (log_own, rules) = (log.len(), Rules::now(shared, &job.policy));
        let cause = Cause::Ended(Status::ERROR);
        let settlement = verdict::end(&job.job, job.lease(), cause, log, &rules);
        shared.settle.send(SettleItem::new(job, settlement, log_own, Duration::ZERO)).await;
    }
}

/// Reads large payloads from the store, piece by piece.
struct StorePieces(Arc<Shared>);

#[async_trait]
impl Pieces for StorePieces {
    async fn piece(&self, id: JobId, index: u32) -> Result<Option<Bytes>, String> {
        self.0.store.payload_piece(id, index).await.map_err(|error| error.to_string())
    }
}
