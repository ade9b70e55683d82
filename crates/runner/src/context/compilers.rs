//! Who may compile sources now: a bounded number at once, at most one of each tenant, and tenants
//! take turns. Each tenant has a short queue of its own, so one that sets very many handlers, or
//! slow ones, delays only itself.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use windlass_core::Tenant;
use windlass_core::sync::lock;

/// Handlers whose sources are compiled at the same time when they are set.
const COMPILERS_MAX: usize = 2;
/// Handlers of one tenant that may wait to be compiled.
const TENANT_WAITING_MAX: usize = 100;
/// How long one may wait; clients do not wait much longer for an answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Grants places, in turn.
#[derive(Default)]
pub(super) struct Compilers(Mutex<Places>);

#[derive(Default)]
struct Places {
    /// The tenants that compile now.
    working: HashSet<Tenant>,
    /// Tenants with handlers that wait; the one whose turn is next comes first.
    waiting: VecDeque<Queue>,
}

struct Queue {
    tenant: Tenant,
    callers: VecDeque<oneshot::Sender<Place>>,
}

/// The right to compile, until it is dropped.
pub(super) struct Place {
    compilers: Arc<Compilers>,
    tenant: Tenant,
}

/// The queue is full, or its turn did not come in time. The text is for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy(pub(super) String);

impl Compilers {
    /// Waits for a place. A caller that is dropped meanwhile leaves its queue.
    pub(super) async fn place(self: &Arc<Compilers>, tenant: &Tenant) -> Result<Place, Busy> {
        let turn = {
            let mut places = lock(&self.0);
            places.waiting.iter_mut().for_each(Queue::forget_gone);
            places.waiting.retain(|queue| !queue.callers.is_empty());
            places.enter(tenant)?
        };
        self.grant();
        match timeout(WAIT_MAX, turn).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Busy(format!(
                "other handlers were being compiled for {} seconds; try again",
                WAIT_MAX.as_secs()
            ))),
        }
    }

    /// Gives the free places to the tenants whose turn it is.
    fn grant(self: &Arc<Compilers>) {
        loop {
            // A place that nobody takes is dropped, which must happen without the lock.
            let Some((tenant, caller)) = lock(&self.0).next() else { return };
            let _ = caller.send(Place { compilers: Arc::clone(self), tenant });
        }
    }
}

impl Places {
    fn enter(&mut self, tenant: &Tenant) -> Result<oneshot::Receiver<Place>, Busy> {
        let (caller, turn) = oneshot::channel();
        match self.waiting.iter_mut().find(|queue| queue.tenant == *tenant) {
            Some(queue) if queue.callers.len() >= TENANT_WAITING_MAX => {
                return Err(Busy(format!(
                    "{TENANT_WAITING_MAX} handlers of {tenant} are waiting to be compiled; try \
                     again"
                )));
            }
            Some(queue) => queue.callers.push_back(caller),
            None => {
                let callers = VecDeque::from([caller]);
                self.waiting.push_back(Queue { tenant: tenant.clone(), callers });
            }
        }
        Ok(turn)
    }

    /// Takes the next place, and moves its tenant behind the others.
    fn next(&mut self) -> Option<(Tenant, oneshot::Sender<Place>)> {
        if self.working.len() >= COMPILERS_MAX {
            return None;
        }
        let at = self.waiting.iter().position(|queue| !self.working.contains(&queue.tenant))?;
        let mut queue = self.waiting.remove(at)?;
        let (tenant, caller) = (queue.tenant.clone(), queue.callers.pop_front());
        if !queue.callers.is_empty() {
            self.waiting.push_back(queue);
        }
        let caller = caller?;
        self.working.insert(tenant.clone());
        Some((tenant, caller))
    }
}

impl Queue {
    fn forget_gone(&mut self) {
        self.callers.retain(|caller| !caller.is_closed());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.compilers.0).working.remove(&self.tenant);
        self.compilers.grant();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[tokio::test]
    async fn one_tenant_has_one_place_and_leaves_the_other_to_others() {
        let compilers = Arc::new(Compilers::default());
        let (mallory, bob) = (tenant("mallory"), tenant("bob"));
        let first = compilers.place(&mallory).await.unwrap();
        let mut second = Box::pin(compilers.place(&mallory));
        assert!(second.as_mut().now_or_never().is_none());
        let other = compilers.place(&bob).now_or_never().expect("there is a place").unwrap();
        drop(first);
        assert!(second.await.is_ok());
        drop(other);
    }

    #[tokio::test]
    async fn a_full_queue_is_refused_and_those_who_left_it_make_room() {
        let compilers = Arc::new(Compilers::default());
        let mallory = tenant("mallory");
        let place = compilers.place(&mallory).await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..TENANT_WAITING_MAX {
            let mut turn = Box::pin(compilers.place(&mallory));
            assert!(turn.as_mut().now_or_never().is_none());
            waiting.push(turn);
        }
        let refused = compilers.place(&mallory).await.err().expect("its queue is full");
        assert!(refused.0.contains("100 handlers of mallory"), "{refused:?}");
        drop(waiting.remove(3));
        let mut last = Box::pin(compilers.place(&mallory));
        assert!(last.as_mut().now_or_never().is_none(), "there is room for it");
        waiting.push(last);
        drop(place);
        for turn in waiting {
            drop(turn.await.unwrap());
        }
        assert!(lock(&compilers.0).working.is_empty() && lock(&compilers.0).waiting.is_empty());
    }

    #[tokio::test]
    async fn tenants_take_turns() {
        let compilers = Arc::new(Compilers::default());
        let places = [compilers.place(&tenant("a")).await, compilers.place(&tenant("b")).await];
        let tenants = ["c", "c", "d", "c", "d"].map(tenant);
        let mut turns = Vec::new();
        for tenant in &tenants {
            let mut turn = Box::pin(compilers.place(tenant));
            assert!(turn.as_mut().now_or_never().is_none());
            turns.push(turn);
        }
        let [first, _second] = places;
        let (mut held, mut order) = (first.ok(), Vec::new());
        while !turns.is_empty() {
            drop(held.take());
            let mut polled = turns.iter_mut().enumerate();
            let ready = polled.find_map(|(at, turn)| Some((at, turn.as_mut().now_or_never()?)));
            let (at, place) = ready.expect("a free place is given at once");
            drop(turns.remove(at));
            let place = place.unwrap();
            order.push(place.tenant.to_string());
            held = Some(place);
        }
        assert_eq!(order, ["c", "d", "c", "d", "c"]);
    }
}
