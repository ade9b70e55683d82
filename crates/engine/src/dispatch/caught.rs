//! Caught: catches a panic in our own code around a batch. The slot is freed, and the attempts of
//! the batch have failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use windlass_core::runner::Stop;
use windlass_core::sync::panic_text;
use windlass_core::{Handler, Log, Payload, Status};

use crate::claim::reserve::Slot;
use crate::dispatch::batch;
use crate::dispatch::running::RunningJob;
use crate::settle::queue::SettleItem;
use crate::settle::verdict::{self, Cause, Rules};
use crate::shared::Shared;

/// Runs a batch to its end, even if that is a panic.
pub(super) async fn run(
    shared: Arc<Shared>,
    handler: Arc<Handler>,
    slot: Slot,
    jobs: Vec<(RunningJob, Payload)>,
) {
    let mut left: Vec<RunningJob> = jobs.iter().map(|(job, _)| job.clone()).collect();
    let run = batch::run(shared.clone(), handler, slot, jobs);
    let Err(panic) = AssertUnwindSafe(run).catch_unwind().await else { return };
    shared.health.service_failed("batch", panic_text(&*panic));
    left.retain(|job| shared.running.contains(job.attempt_id()));
    for job in left {
        shared.runner.stop(job.attempt_id(), Stop::LeaseLost);
        // The store refuses it if it already has the attempt's real end.
        let log = Log::of_note("the daemon panicked while it ran the job; its log says where");
        let (log_own, rules) = (log.len(), Rules::now(&shared, &job.policy));
        let cause = Cause::Ended(Status::ERROR);
        let settlement = verdict::end(&job.job, job.lease(), cause, log, &rules);
        shared.settle.send(SettleItem::new(job, settlement, log_own, Duration::ZERO)).await;
    }
}
