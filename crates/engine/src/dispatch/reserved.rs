//! What a batch takes from the scheduler before it runs, and how that comes back.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use windlass_core::runner::Stop;
use windlass_core::store::Settlement;
use windlass_core::{Handler, HandlerId, Log, Payload, Status, TypeKey, retry};

use crate::dispatch::batch;
use crate::dispatch::running::RunningJob;
use crate::house::service::panic_text;
use crate::settle::{self, SettleItem};
use crate::shared::Shared;

/// A slot, and room for some jobs of one type, that the scheduler counts as running. Dropped, it
/// gives both back, so that nothing stays reserved after an error or a panic.
pub(super) struct Reserved {
    pub shared: Arc<Shared>,
    pub key: TypeKey,
    /// The version of the handler that the batch was picked for.
    pub handler: HandlerId,
    pub jobs: u32,
    /// There is nothing to give back any more.
    pub over: bool,
}

impl Reserved {
    /// Gives back the room beyond so many jobs.
    pub(super) fn shrink(&mut self, jobs: u32) {
        let unused = self.jobs.saturating_sub(jobs);
        self.jobs -= unused;
        self.shared.scheduler().jobs_stopped(&self.key, u64::from(unused));
    }

    /// Runs a batch, which gives back the slot, and the room for each job, as they end. If it
    /// panics instead, they are given back here, and the attempts of its jobs have failed.
    pub(super) async fn run(mut self, handler: Arc<Handler>, jobs: Vec<(RunningJob, Payload)>) {
        let shared = self.shared.clone();
        let mut left: Vec<RunningJob> = jobs.iter().map(|(job, _)| job.clone()).collect();
        let run = batch::run(shared.clone(), handler, self.handler, jobs);
        let Err(panic) = AssertUnwindSafe(run).catch_unwind().await else {
            self.over = true;
            return;
        };
        shared.health.service_failed("batch", panic_text(&*panic));
        left.retain(|job| shared.running.contains(job.attempt_id()));
        // One whose end is on its way to the store was counted before. That is put right when no
        // job of the type runs; one that is never counted would take its room for ever.
        self.jobs = left.len() as u32;
        drop(self);
        shared.dispatch_wake.notify_one();
        for job in left {
            shared.runner.stop(job.attempt_id(), Stop::LeaseLost);
            let settlement = failed(&shared, &job);
            let room = &shared.settle_room;
            let item = SettleItem::new(room, job.job, settlement, Duration::ZERO).await;
            if shared.settle_queue.send(item).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut scheduler = self.shared.scheduler();
        scheduler.jobs_stopped(&self.key, u64::from(self.jobs));
        scheduler.batch_stopped(&self.key, self.handler);
    }
}

/// The attempt ended in a defect of ours. Refused where its true end is in the store already.
fn failed(shared: &Shared, running: &RunningJob) -> Settlement {
    let now = shared.now();
    let (job, policy) = (&running.job, &running.policy);
    let (verdict, exhausted) =
        retry::after_attempt(job, Status::ERROR, &policy.retry, now, shared.luck());
    let mut log = Log::of_note("the daemon panicked while it ran the job; its log says where");
    exhausted.iter().for_each(|why| log.note(why.as_str()));
    settle::note_repeat(&mut log, verdict);
    Settlement {
        verdict,
        ended: Some(Status::ERROR.into()),
        log,
        purge_at: policy.purge_at(now),
        ..settle::release(running.lease(), now, now)
    }
}
