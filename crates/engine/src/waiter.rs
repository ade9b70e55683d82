//! Who waits for what: requests for the end of a job, workers for work of their tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use windlass_core::{JobId, Tenant};

/// Requests that wait for a job to end. An entry lives as long as somebody waits.
#[derive(Default)]
pub(crate) struct JobWaiters(Mutex<HashMap<JobId, Arc<Notify>>>);

impl JobWaiters {
    /// Completes when the job's state changes after this call.
    pub(crate) fn changed(&self, id: JobId) -> OwnedNotified {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        waiters.entry(id).or_default().clone().notified_owned()
    }

    pub(crate) fn wake(&self, id: JobId) {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        if let Some(waiter) = waiters.remove(&id) {
            waiter.notify_waiters();
        }
    }

    /// Forgets a job for which nobody waits any more.
    pub(crate) fn forget(&self, id: JobId) {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        if waiters.get(&id).is_some_and(|waiter| Arc::strong_count(waiter) == 1) {
            waiters.remove(&id);
        }
    }
}

/// Workers that wait for work of a tenant.
#[derive(Default)]
pub(crate) struct TenantWaiters(Mutex<HashMap<Tenant, Arc<Notify>>>);

impl TenantWaiters {
    /// Completes when jobs of the tenant become ready after this call.
    pub(crate) fn ready(&self, tenant: &Tenant) -> OwnedNotified {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        waiters.entry(tenant.clone()).or_default().clone().notified_owned()
    }

    pub(crate) fn wake(&self, tenant: &Tenant) {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        if let Some(waiter) = waiters.remove(tenant) {
            waiter.notify_waiters();
        }
    }

    pub(crate) fn wake_all(&self) {
        let mut waiters = self.0.lock().expect("nothing panics while it holds the waiters");
        waiters.drain().for_each(|(_, waiter)| waiter.notify_waiters());
    }
}
