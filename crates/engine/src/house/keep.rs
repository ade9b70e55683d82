//! Keep: leases of workers that never renew them. They are taken for a short time; once a worker
//! has received its job, they are made permanent, many in one change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{self, LeaseRef, Renew};
use windlass_core::sync::lock;

use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

/// How long leases are collected after the first one.
const GATHER: Duration = Duration::from_millis(50);
/// Leases that may wait; beyond that, the caller writes its leases itself.
const WAITING_MAX: usize = 100_000;
/// Pauses while the store is not available.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Leases that wait for the store.
#[derive(Default)]
pub(crate) struct KeepQueue {
    waiting: Mutex<Vec<LeaseRef>>,
    /// Notified when the queue is no longer empty.
    pub wake: Arc<Notify>,
}

impl KeepQueue {
    fn take(&self) -> InFlight<'_> {
        InFlight { queue: self, leases: std::mem::take(&mut lock(&self.waiting)) }
    }

    /// False when there is no room for them.
    fn put(&self, leases: &[LeaseRef]) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.len() + leases.len() > WAITING_MAX {
            return false;
        }
        if waiting.is_empty() && !leases.is_empty() {
            self.wake.notify_one();
        }
        waiting.extend_from_slice(leases);
        true
    }
}

/// Leases on their way to the store. Those that do not get there return to the queue.
struct InFlight<'a> {
    queue: &'a KeepQueue,
    leases: Vec<LeaseRef>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        lock(&self.queue.waiting).append(&mut self.leases);
    }
}

/// Queues these leases to be made permanent. A lease that is lost by then stays lost.
pub(crate) async fn keep(shared: &Shared, leases: Vec<LeaseRef>) {
    if !shared.keep_queue.put(&leases)
        && let Err(error) = renew(shared, &leases).await
    {
        tracing::warn!(%error, "cannot keep workers' leases now");
    }
}

/// Writes the leases in the queue.
pub(crate) async fn flush(shared: &Shared) {
    let mut in_flight = shared.keep_queue.take();
    match renew(shared, &in_flight.leases).await {
        Ok(()) => in_flight.leases.clear(),
        Err(error) => tracing::warn!(%error, "cannot keep workers' leases now"),
    }
}

async fn renew(shared: &Shared, leases: &[LeaseRef]) -> Result<(), store::Error> {
    for leases in leases.chunks(BATCH_JOBS_MAX) {
        let renew = Renew { leases: leases.to_vec(), hold: None };
        // Lost ones include those of workers that have already reported.
        shared.store.job_renew(renew).await?;
    }
    Ok(())
}

pub(crate) struct Keep {
    shared: Arc<Shared>,
    gathering: bool,
    backoff: Backoff,
}

impl Keep {
    pub(crate) fn new(shared: Arc<Shared>) -> Keep {
        Keep { shared, gathering: false, backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX) }
    }
}

#[async_trait]
impl Service for Keep {
    fn name(&self) -> &'static str {
        "keep"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        if !self.gathering {
            self.gathering = true;
            return Ok(Next::After(GATHER));
        }
        let mut in_flight = self.shared.keep_queue.take();
        let renewed = renew(&self.shared, &in_flight.leases).await;
        renewed.map_err(|error| Failed::new(error, self.backoff.pause()))?;
        in_flight.leases.clear();
        self.gathering = false;
        self.backoff.reset();
        Ok(Next::OnWake)
    }
}
