//! Health: what has gone wrong in the background, for `/readyz`, the status and the metrics.
//!
//! A failure is shown for as long as `FAILURES_WINDOW`, although the service runs again by then:
//! whoever looks must see that something is not in order. Why it failed is in the log alone, since
//! the words of a panic may contain anything.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use windlass_core::time::format_duration;

use crate::api::FailedService;
use crate::lock::lock;
use crate::metrics::Metrics;

/// A service that fails so often within `FAILURES_WINDOW` is not started again.
pub(crate) const FAILURES_MAX: usize = 10;
pub(crate) const FAILURES_WINDOW: Duration = Duration::from_secs(5 * 60);

pub(crate) struct Health {
    metrics: Arc<Metrics>,
    /// When services failed lately, the newest `FAILURES_MAX` times.
    services: Mutex<BTreeMap<&'static str, VecDeque<Instant>>>,
    /// Why the engine cannot go on.
    pub failure: watch::Sender<Option<String>>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Health {
        Health { metrics, services: Mutex::default(), failure: watch::Sender::new(None) }
    }

    /// The engine cannot go on by itself.
    pub(crate) fn fail(&self, why: String) {
        tracing::error!(%why, "the daemon cannot go on");
        self.failure.send_replace(Some(why));
    }

    /// A service has panicked. Answers with how often it has lately, this time included.
    pub(crate) fn service_failed(&self, name: &'static str, why: &str) -> usize {
        self.metrics.service_failed(name);
        let now = Instant::now();
        let lately = {
            let mut services = lock(&self.services);
            let failures = services.entry(name).or_default();
            failures.push_back(now);
            if failures.len() > FAILURES_MAX {
                failures.pop_front();
            }
            failures.iter().filter(|at| is_recent(**at, now)).count()
        };
        tracing::error!(service = name, why, lately, "a service panicked");
        lately
    }

    /// Services that failed lately.
    pub(crate) fn failed_services(&self) -> Vec<FailedService> {
        let now = Instant::now();
        let services = lock(&self.services);
        let lately = services.iter().map(|(name, failures)| FailedService {
            name,
            failures: failures.iter().filter(|at| is_recent(**at, now)).count(),
        });
        lately.filter(|service| service.failures > 0).collect()
    }

    /// In words, for `/readyz`.
    pub(crate) fn services(&self) -> Result<(), String> {
        let failed = self.failed_services();
        let in_words = |service: &FailedService| {
            let window = format_duration(FAILURES_WINDOW);
            let FailedService { name, failures } = service;
            format!("the service {name} has panicked {failures} times in the last {window}")
        };
        let words: Vec<String> = failed.iter().map(in_words).collect();
        if words.is_empty() { Ok(()) } else { Err(words.join("; ")) }
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.duration_since(at) < FAILURES_WINDOW
}
