//! Stop orders on their way to the attempts they name: every running batch has a `Watch`, and
//! `Stops` knows the watch of each attempt. An attempt gets one order; the first reason wins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;
use windlass_core::AttemptId;
use windlass_core::runner::Stop;
use windlass_core::sync::lock;

type Order = (AttemptId, Stop);

/// The attempts that can be stopped.
#[derive(Default)]
pub(crate) struct Stops {
    watches: Mutex<HashMap<AttemptId, mpsc::Sender<Order>>>,
}

impl Stops {
    /// Starts watching for orders to the attempts of one batch.
    pub(crate) fn watch(self: &Arc<Stops>, ids: Vec<AttemptId>) -> Watch {
        // An attempt gets at most one order, so the channel is never full.
        let (sender, orders) = mpsc::channel(ids.len().max(1));
        let mut watches = self.lock();
        for id in &ids {
            watches.insert(*id, sender.clone());
        }
        drop(watches);
        let given = HashMap::new();
        Watch { stops: Arc::clone(self), _sender: sender, orders, ids, given, shutdown: false }
    }

    pub(crate) fn stop(&self, id: AttemptId, why: Stop) {
        if let Some(sender) = self.lock().remove(&id) {
            // It fails only if the batch is just over.
            let _ = sender.try_send((id, why));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptId, mpsc::Sender<Order>>> {
        lock(&self.watches)
    }
}

/// The orders to the attempts of one batch.
pub(crate) struct Watch {
    stops: Arc<Stops>,
    /// Keeps `orders` open.
    _sender: mpsc::Sender<Order>,
    orders: mpsc::Receiver<Order>,
    ids: Vec<AttemptId>,
    /// Orders that were received and not yet taken.
    given: HashMap<AttemptId, Stop>,
    shutdown: bool,
}

impl Watch {
    /// Waits for the next order to any of these attempts. Cancelling it loses nothing.
    pub(crate) async fn stopped(&mut self, ids: &[AttemptId]) -> Order {
        loop {
            // Called very often, and almost always without an order.
            if !self.given.is_empty()
                && let Some(order) = ids.iter().find_map(|id| self.given.remove_entry(id))
            {
                return order;
            }
            let order = self.orders.recv().await;
            self.receive(order.expect("the watch has a sender of its own"));
        }
    }

    /// The order already received for this attempt, if any.
    pub(crate) fn taken(&mut self, id: AttemptId) -> Option<Stop> {
        self.receive_all();
        self.given.remove(&id)
    }

    /// Whether the daemon is stopping, so that nothing more may be started.
    pub(crate) fn shutdown(&mut self) -> bool {
        self.receive_all();
        self.shutdown
    }

    fn receive_all(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            self.receive(order);
        }
    }

    fn receive(&mut self, (id, why): Order) {
        self.shutdown |= why == Stop::Shutdown;
        self.given.insert(id, why);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watches = self.stops.lock();
        self.ids.iter().for_each(|id| drop(watches.remove(id)));
    }
}

#[cfg(test)]
mod tests {
    use windlass_core::JobId;
    use windlass_core::job::Token;

    use super::*;

    fn id(number: i64) -> AttemptId {
        claim(number, 1)
    }

    fn claim(number: i64, token: i64) -> AttemptId {
        AttemptId { job: JobId::new(number).unwrap(), token: Token(token) }
    }

    #[tokio::test]
    async fn an_order_waits_until_its_job_is_asked_for_and_the_first_reason_wins() {
        let stops = Arc::new(Stops::default());
        let mut watch = stops.watch(vec![id(1), id(2)]);
        stops.stop(id(2), Stop::Cancelled);
        stops.stop(id(2), Stop::Expired);
        stops.stop(id(1), Stop::TimedOut);
        stops.stop(id(3), Stop::TimedOut);
        assert_eq!(watch.stopped(&[id(1)]).await, (id(1), Stop::TimedOut));
        assert_eq!(watch.taken(id(2)), Some(Stop::Cancelled));
        assert_eq!(watch.taken(id(2)), None);
        assert!(!watch.shutdown());
    }

    #[tokio::test]
    async fn a_shutdown_of_one_job_is_seen_by_its_whole_batch_and_by_no_other() {
        let stops = Arc::new(Stops::default());
        let (mut one, mut other) = (stops.watch(vec![id(1), id(2)]), stops.watch(vec![id(3)]));
        stops.stop(id(1), Stop::Shutdown);
        assert!(one.shutdown() && !other.shutdown());
    }

    #[tokio::test]
    async fn a_watch_that_ended_leaves_a_newer_watch_of_the_same_job_alone() {
        let stops = Arc::new(Stops::default());
        let older = stops.watch(vec![claim(1, 1)]);
        let mut newer = stops.watch(vec![claim(1, 2)]);
        drop(older);
        stops.stop(claim(1, 1), Stop::LeaseLost);
        assert_eq!(newer.taken(claim(1, 2)), None);
        stops.stop(claim(1, 2), Stop::Cancelled);
        assert_eq!(newer.taken(claim(1, 2)), Some(Stop::Cancelled));
        drop(newer);
        assert!(stops.lock().is_empty());
    }
}
