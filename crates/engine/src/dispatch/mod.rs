//! Dispatch: while there are free slots, pick a type, claim a small batch, and hand it to the
//! runner.
//!
//! ```text
//!   pass: look if due ─► pick ─► claim ─► start ─► run ─► report ─► settle
//! ```
//! | module | what it does |
//! |---|---|
//! | `look` | looks at the store for types with jobs, wakes workers that wait for them |
//! | `start` | finds the handler and the policy of a claimed batch, and spawns its run |
//! | `run` | runs a batch to its end |
//! | `report` | the runner's reports become verdicts |
//! | `progress` | progress reports on their way to the store |
//! | `running` | the attempts that run in this daemon |
//! | `policy` | how a job is treated: retries, time limit, retention |
//! | `catalogue` | handlers by version |
//!
//! Wake-ups instead of polling: adds and ended jobs of this daemon wake it at once. It learns of
//! other daemons' work from the store's notifications, or by polling at growing intervals.

pub(crate) mod catalogue;
mod look;
pub(crate) mod policy;
mod progress;
mod report;
mod run;
pub(crate) mod running;
mod start;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use windlass_core::HandlerId;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{self, Hold};

use crate::claim;
use crate::claim::reserve::Reservation;
use crate::error::Error;
use crate::house::service::{Failed, Next, Service};
use crate::shared::Shared;
use look::Look;

/// Batches in one claim.
const PICKS_MAX: usize = 64;
/// Inline payloads of one claim, except for the last job: they are in memory together.
const PAYLOAD_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The pause after a failed claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    look: Look,
    /// The batches that run.
    batches: TaskTracker,
}

#[async_trait]
impl Service for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    /// The scheduler may count jobs as claimed that the panic kept from being claimed.
    async fn recover(&mut self) -> Result<(), Error> {
        self.shared.ready.look();
        Ok(())
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        self.look.if_due().await;
        self.look.wake_rested();
        let wanted = self.pick();
        let mut next = Next::Now;
        if wanted.is_empty() {
            next = Next::After(self.look.pause());
        } else if let Err(error) = self.claim_and_start(wanted).await {
            return Err(Failed::new(format!("cannot claim jobs: {error}"), CLAIM_PAUSE));
        }
        match &self.look.blind {
            None => Ok(next),
            Some(why) => Err(Failed::new(why, next.pause())),
        }
    }
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>, batches: TaskTracker) -> Dispatch {
        let look = Look::new(shared.clone());
        Dispatch { shared, look, batches }
    }

    /// Picks types for the free slots and reserves their jobs.
    fn pick(&self) -> Vec<Reservation> {
        let shared = &self.shared;
        let mut reservations = Vec::new();
        if !shared.picking.load(Ordering::SeqCst) {
            return reservations;
        }
        let warm = shared.runner.warm().into_iter().collect();
        let now = shared.clock.steady();
        let mut scheduler = shared.ready.scheduler();
        let mut rng = shared.rng();
        let mut left = BATCH_JOBS_MAX as u32;
        while reservations.len() < PICKS_MAX && left > 0 {
            let Some((mut pick, handler)) = scheduler.select(&warm, &mut rng, now) else { break };
            pick.limit = pick.limit.min(self.batch_max(handler)).min(left);
            let reservation = Reservation::batch(shared, &mut scheduler, pick, handler);
            left -= reservation.jobs();
            reservations.push(reservation);
        }
        reservations
    }

    /// The first batch of an unknown handler is one job, which loads the handler.
    fn batch_max(&self, handler: HandlerId) -> u32 {
        let known = self.shared.catalogue.known(handler);
        known.map_or(1, |handler| self.shared.runner.batch_max(&handler).max(1))
    }

    async fn claim_and_start(&self, reservations: Vec<Reservation>) -> Result<(), store::Error> {
        let shared = &self.shared;
        let hold = Hold::Beat(shared.daemon.grant.boot);
        // The guard keeps the claim under way until all claimed jobs are in the running table.
        let (filled, _under_way) =
            claim::claim(shared, reservations, hold, PAYLOAD_BYTES_MAX).await?;
        for (jobs, slot) in filled {
            if let Some(slot) = slot {
                start::start(shared, &self.batches, slot, jobs).await;
            }
        }
        Ok(())
    }
}
