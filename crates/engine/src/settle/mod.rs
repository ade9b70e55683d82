//! Settle: verdicts on ended attempts go into the store in batches, and everybody who cares hears
//! of it. A job stays in the running table, and its lease is renewed, until its verdict is stored.

pub(crate) mod follow;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use windlass_core::retry::Verdict;
use windlass_core::store::{Durability, LeaseRef, Settled, Settlement};
use windlass_core::time::format_time;
use windlass_core::{Job, Log, State, Timestamp};

use crate::event;
use crate::house::service::{Backoff, Next, Service};
use crate::shared::Shared;

/// Ended attempts that may wait for the store; beyond that, runners wait.
pub(crate) const SETTLE_QUEUE_MAX: usize = 10_000;
/// Results, logs and payloads of followers that may wait for the store; beyond that, runners wait.
const SETTLE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Verdicts in one transaction.
const SETTLE_BATCH_MAX: usize = 1000;
/// Pauses while the store does not take anything.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// A verdict on a job that ran in this daemon.
pub(crate) struct SettleItem {
    pub job: Arc<Job>,
    pub settlement: Settlement,
    pub run: Duration,
    /// Held until the store has it.
    _room: Option<OwnedSemaphorePermit>,
}

/// The memory that verdicts may take while they wait for the store.
pub(crate) struct Room(Arc<Semaphore>);

impl Room {
    pub(crate) fn new() -> Room {
        Room(Arc::new(Semaphore::new(SETTLE_BYTES_MAX)))
    }
}

impl SettleItem {
    /// Waits until there is room for what the settlement carries.
    pub(crate) async fn new(
        room: &Room,
        job: Arc<Job>,
        settlement: Settlement,
        run: Duration,
    ) -> SettleItem {
        let bytes = u32::try_from(bytes_of(&settlement)).unwrap_or(u32::MAX);
        let bytes = bytes.min(SETTLE_BYTES_MAX as u32);
        // Nobody closes it, so that there is room sooner or later.
        let _room = Arc::clone(&room.0).acquire_many_owned(bytes).await.ok();
        SettleItem { job, settlement, run, _room }
    }
}

fn bytes_of(settlement: &Settlement) -> u64 {
    let data = settlement.data.as_ref().map_or(0, |data| data.as_str().len() as u64);
    let follow = settlement.follow.as_ref().map_or(0, |follow| follow.payload.len());
    data + follow + settlement.log.len() as u64
}

pub(crate) struct Settle {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<SettleItem>,
    stop: CancellationToken,
    /// Taken from the queue, not in the store yet.
    taken: Vec<SettleItem>,
    backoff: Backoff,
}

impl Settle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<SettleItem>,
        stop: CancellationToken,
    ) -> Settle {
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        Settle { shared, queue, stop, taken: Vec::new(), backoff }
    }
}

#[async_trait]
impl Service for Settle {
    fn name(&self) -> &'static str {
        "settle"
    }

    async fn pass(&mut self) -> Next {
        if self.taken.is_empty() {
            tokio::select! {
                () = self.stop.cancelled() => return Next::OnWake,
                _ = self.queue.recv_many(&mut self.taken, SETTLE_BATCH_MAX) => {}
            }
        }
        let settlements = self.taken.iter().map(|item| item.settlement.clone()).collect();
        // A power cut may undo this and run the jobs again; it never loses one.
        match self.shared.store.job_settle(settlements, Durability::Relaxed).await {
            Ok(answers) => {
                for (item, answer) in self.taken.drain(..).zip(answers) {
                    self.shared.running.remove(item.settlement.lease.attempt_id());
                    conclude(&self.shared, &item.job, &item.settlement, answer, item.run);
                }
                self.backoff.reset();
                Next::Now
            }
            Err(error) => {
                let pause = self.backoff.pause();
                tracing::warn!(%error, waiting = self.taken.len(), "results wait for the store");
                Next::After(pause)
            }
        }
    }
}

/// After a verdict was stored (or refused): the log, the numbers, whoever waits, the scheduler.
pub(crate) fn conclude(
    shared: &Shared,
    job: &Job,
    settlement: &Settlement,
    answer: Settled,
    run: Duration,
) {
    shared.job_waiters.wake(&job.id);
    if answer == Settled::Stale {
        event::returned(job, "lease lost");
        return;
    }
    let paused = answer == Settled::Paused;
    match (settlement.ended, settlement.verdict) {
        (Some(ended), verdict) => {
            let again = matches!(verdict, Verdict::Again { .. });
            shared.metrics.ended(&job.key, ended.code, again);
            let what = if paused { State::Paused.as_str() } else { what_next(verdict) };
            event::ended(job, ended, run, what);
        }
        (None, _) => event::returned(job, "released"),
    }
    shared.announce_room(&job.key);
    if paused || is_in_family(job) {
        shared.look();
    }
    if paused {
        return;
    }
    settlement.follow.iter().for_each(|next| follow::entered(shared, next));
    if let Verdict::Again { run_at } | Verdict::Release { run_at } | Verdict::Repeat { run_at } =
        settlement.verdict
    {
        if run_at <= shared.now() {
            shared.announce([(job.key.clone(), 1)]);
        } else {
            shared.announce_due(run_at);
        }
    }
}

/// Whether others may have moved with this job; only the store knows which.
pub(crate) fn is_in_family(job: &Job) -> bool {
    job.children || job.parent.is_some()
}

/// A release: the attempt does not count, and leaves no log.
pub(crate) fn release(lease: LeaseRef, run_at: Timestamp, now: Timestamp) -> Settlement {
    Settlement {
        lease,
        verdict: Verdict::Release { run_at },
        ended: None,
        now,
        data: None,
        progress: None,
        log: Log::new(),
        follow: None,
        purge_at: now,
        only_if_expired_at: None,
    }
}

/// A job that repeats says when, in the log of its attempt.
pub(crate) fn note_repeat(log: &mut Log, verdict: Verdict) {
    if let Verdict::Repeat { run_at } = verdict {
        log.note(&format!("repeats at {}", format_time(run_at)));
    }
}

fn what_next(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::End(ending) => ending.state().as_str(),
        Verdict::Again { .. } => "again",
        Verdict::Release { .. } => "released",
        Verdict::Repeat { .. } => "repeats",
    }
}
