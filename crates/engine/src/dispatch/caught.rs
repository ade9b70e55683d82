//! Caught: a batch whose own code panics. Its slot is free all the same, and the attempts of its
//! jobs have failed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use windlass_core::runner::Stop;
use windlass_core::store::Settlement;
use windlass_core::sync::panic_text;
use windlass_core::{Handler, Log, Payload, Status, retry};

use crate::claim::reserve::Slot;
use crate::dispatch::batch;
use crate::dispatch::running::RunningJob;
use crate::settle::{self, SettleItem};
use crate::shared::Shared;

/// Runs a batch to its end, whatever that is.
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
        let settlement = failed(&shared, &job);
        let said = settlement.log.len();
        shared.settle.send(SettleItem::new(job, settlement, said, Duration::ZERO)).await;
    }
}

/// The attempt ended in a defect of ours. Refused where its true end is in the store already.
fn failed(shared: &Shared, running: &RunningJob) -> Settlement {
    let now = shared.now();
    let (job, policy) = (&running.job, &running.policy);
    let (verdict, exhausted) =
        retry::after_attempt(job, Status::ERROR, &policy.retry, now, shared.jitter());
    let mut log = Log::of_note("the daemon panicked while it ran the job; its log says where");
    exhausted.iter().for_each(|why| log.note(why.as_str()));
    settle::note_repeat(&mut log, verdict);
    Settlement {
        verdict,
        ended: Some(Status::ERROR.into()),
        log,
        keep: policy.retention,
        ..settle::release(running.lease(), None)
    }
}
