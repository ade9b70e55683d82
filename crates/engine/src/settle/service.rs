//! The service that stores settlements in batches (`outbox`), and shows those that the store cannot
//! take (`house::health`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::store::{Durability, SettleAnswer, Settled};

use crate::accept::direct;
use crate::follow_up::{announce_settled, conclude};
use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

use super::outbox::Outbox;
use super::queue::{Batch, EndedAttempt, SETTLE_BATCH_MAX, SettleItem};

/// Pauses while the store is not available.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Settle {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<SettleItem>,
    stop: CancellationToken,
    outbox: Outbox,
    backoff: Backoff,
}

impl Settle {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: mpsc::Receiver<SettleItem>,
        stop: CancellationToken,
    ) -> Settle {
        Settle {
            shared,
            queue,
            stop,
            outbox: Outbox::default(),
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
        }
    }

    /// Waits until there is something to do; false when the service stops.
    async fn something_to_do(&mut self) -> bool {
        if self.outbox.is_idle() {
            let retry_at = self.outbox.retry_at();
            let retry = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                item = self.queue.recv() => self.outbox.pending.extend(item),
                () = retry, if retry_at.is_some() => {}
            }
        }
        let room = SETTLE_BATCH_MAX.saturating_sub(self.outbox.pending.len());
        let queued = std::iter::from_fn(|| self.queue.try_recv().ok());
        self.outbox.pending.extend(queued.take(room));
        true
    }

    /// The store has answered the batch.
    fn settled(&mut self, answer: SettleAnswer) {
        let Some(Batch { settlements, attempts }) = self.outbox.answered() else { return };
        let shared = &self.shared;
        let mut over = Vec::with_capacity(attempts.len());
        for ((settlement, attempt), answer) in settlements.iter().zip(attempts).zip(answer.settled)
        {
            match answer {
                Settled::Unfit { parent, unfit } => {
                    let why = direct::unfit_parent(parent, unfit);
                    self.outbox.pending.push(attempt.refused(shared, settlement, &why));
                }
                answer => {
                    shared.running.remove(attempt.running.attempt_id());
                    over.push((settlement, attempt, answer));
                }
            }
        }
        for (settlement, EndedAttempt { running, run_time, .. }, answer) in over {
            conclude(shared, &running.job, settlement, answer, run_time);
        }
        announce_settled(shared, &answer.moved);
    }
}

#[async_trait]
impl Service for Settle {
    fn name(&self) -> &'static str {
        "settle"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        if !self.something_to_do().await {
            return Ok(Next::OnWake);
        }
        let Some(batch) = self.outbox.next_batch(Instant::now()) else { return Ok(Next::Now) };
        let settlements = batch.settlements.clone();
        let waiting = settlements.len();
        // A power cut may undo this and run the jobs again; it never loses a job.
        match self.shared.store.job_settle(settlements, Durability::Relaxed).await {
            Ok(answer) => self.settled(answer),
            Err(error) if self.outbox.set_aside(&error, Instant::now()) => {}
            Err(error) => {
                let why = format!("{waiting} results are waiting for the store: {error}");
                return Err(Failed::new(why, self.backoff.pause()));
            }
        }
        if let Some(parked) = self.outbox.parked_now() {
            self.shared.health.set_parked(parked);
        }
        self.backoff.reset();
        Ok(Next::Now)
    }
}
