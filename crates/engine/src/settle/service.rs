//! The service that stores settlements in batches.
//!
//! If the store cannot take a batch because something is wrong with one of its jobs, the
//! settlements are stored one by one. Those that fail alone are parked, shown (`house::health`),
//! and retried from time to time; the others are not affected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::store::{self, Durability, SettleAnswer, Settled};

use crate::accept::direct;
use crate::follow_up::{announce_settled, conclude};
use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

use super::queue::{Batch, EndedAttempt, Pending, SETTLE_BATCH_MAX, SettleItem};

/// Settlements that may be parked, and their bytes unless a single one has more; beyond that, the
/// whole queue waits.
const PARKED_MAX: usize = 1000;
const PARKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often parked settlements are retried.
const PARKED_PAUSE: Duration = Duration::from_secs(5);
/// Pauses while the store is not available.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Settle {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<SettleItem>,
    stop: CancellationToken,
    pending: Pending,
    /// Each of these makes a batch of its own, before the others.
    alone: VecDeque<SettleItem>,
    /// On its way to the store; retried until the store takes it.
    batch: Option<Batch>,
    /// Settlements that the store cannot take, each with the reason.
    parked: Vec<(SettleItem, String)>,
    /// When parked settlements are retried.
    parked_until: Instant,
    /// The parked settlements differ from those that are shown.
    parked_changed: bool,
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
            pending: Pending::default(),
            alone: VecDeque::new(),
            batch: None,
            parked: Vec::new(),
            parked_until: Instant::now(),
            parked_changed: false,
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
        }
    }

    /// Waits until there is something to do; false when the service stops.
    async fn something_to_do(&mut self) -> bool {
        if self.batch.is_none() && self.alone.is_empty() && self.pending.is_empty() {
            let retry = tokio::time::sleep_until(self.parked_until);
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                item = self.queue.recv() => self.pending.extend(item),
                () = retry, if !self.parked.is_empty() => {}
            }
        }
        let room = SETTLE_BATCH_MAX.saturating_sub(self.pending.len());
        self.pending.extend(std::iter::from_fn(|| self.queue.try_recv().ok()).take(room));
        true
    }

    fn next_batch(&mut self) -> Option<&Batch> {
        if self.batch.is_none() && !self.parked.is_empty() && Instant::now() >= self.parked_until {
            self.parked_until = Instant::now() + PARKED_PAUSE;
            self.parked_changed = true;
            self.alone.extend(self.parked.drain(..).map(|(item, _)| item));
        }
        if self.batch.is_none() {
            self.batch = self.alone.pop_front().map(|item| Batch::of([item]));
        }
        if self.batch.is_none() {
            self.batch = self.pending.next_batch();
        }
        self.batch.as_ref()
    }

    /// The store failed at the batch as a whole. Splits a batch and parks a single settlement;
    /// false when the only way is to try again.
    fn set_aside(&mut self, error: &store::Error) -> bool {
        if matches!(error, store::Error::Unavailable(_)) || self.parked_is_full() {
            return false;
        }
        let Some(batch) = self.batch.take() else { return false };
        if batch.attempts.len() > 1 {
            self.alone.extend(batch.into_items());
            return true;
        }
        for mut item in batch.into_items() {
            item.attempt.leave_queue();
            let id = item.attempt.running.job.id;
            tracing::error!(%id, %error, "the store rejected a result; it will be retried");
            if self.parked.is_empty() {
                self.parked_until = Instant::now() + PARKED_PAUSE;
            }
            self.parked.push((item, error.to_string()));
            self.parked_changed = true;
        }
        true
    }

    fn parked_is_full(&self) -> bool {
        let bytes: usize = self.parked.iter().map(|(item, _)| item.bytes()).sum();
        self.parked.len() >= PARKED_MAX || bytes >= PARKED_BYTES_MAX
    }

    /// Shows the parked settlements once all that were due have been tried.
    fn show_parked(&mut self) {
        if !self.alone.is_empty() || !std::mem::take(&mut self.parked_changed) {
            return;
        }
        let parked =
            self.parked.iter().map(|(item, why)| (item.attempt.running.job.id, why.clone()));
        self.shared.health.set_parked(parked.collect());
    }

    /// The store has answered the batch.
    fn settled(&mut self, answer: SettleAnswer) {
        let Some(Batch { settlements, attempts }) = self.batch.take() else { return };
        let shared = &self.shared;
        let mut over = Vec::with_capacity(attempts.len());
        for ((settlement, attempt), answer) in settlements.iter().zip(attempts).zip(answer.settled)
        {
            match answer {
                Settled::Unfit { parent, unfit } => {
                    let why = direct::unfit_parent(parent, unfit);
                    self.pending.push(attempt.refused(shared, settlement, &why));
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
        let Some(batch) = self.next_batch() else { return Ok(Next::Now) };
        let settlements = batch.settlements.clone();
        let waiting = settlements.len();
        // A power cut may undo this and run the jobs again; it never loses a job.
        match self.shared.store.job_settle(settlements, Durability::Relaxed).await {
            Ok(answer) => self.settled(answer),
            Err(error) if self.set_aside(&error) => {}
            Err(error) => {
                let why = format!("{waiting} results are waiting for the store: {error}");
                return Err(Failed::new(why, self.backoff.pause()));
            }
        }
        self.show_parked();
        self.backoff.reset();
        Ok(Next::Now)
    }
}
