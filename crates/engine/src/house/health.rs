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

use windlass_core::Sysid;
use windlass_core::time::format_duration;

use crate::api::{FailedService, LeftJournal};
use crate::lock::lock;
use crate::metrics::Metrics;

/// A service that fails so often within `FAILURES_WINDOW` is not started again.
pub(crate) const FAILURES_MAX: usize = 10;
pub(crate) const FAILURES_WINDOW: Duration = Duration::from_secs(5 * 60);

pub(crate) struct Health {
    metrics: Arc<Metrics>,
    /// When services failed lately, the newest `FAILURES_MAX` times.
    services: Mutex<BTreeMap<&'static str, VecDeque<Instant>>>,
    /// Journals of dead daemons that cannot be taken over, and why.
    journals: Mutex<BTreeMap<Left, String>>,
    /// Why the engine cannot go on.
    pub failure: watch::Sender<Option<String>>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Health {
        let (services, journals) = (Mutex::default(), Mutex::default());
        Health { metrics, services, journals, failure: watch::Sender::new(None) }
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

    /// Which journals of dead daemons cannot be taken over, and why. Logs what has changed.
    pub(crate) fn set_journals_left(&self, left: BTreeMap<Left, String>) {
        let mut journals = lock(&self.journals);
        for (journal, why) in left.iter().filter(|(key, why)| journals.get(key) != Some(*why)) {
            let journal = journal.map(Sysid::get);
            tracing::error!(journal, why, "a dead daemon's journal cannot be taken over");
        }
        for journal in journals.keys().filter(|journal| !left.contains_key(journal)) {
            let journal = journal.map(Sysid::get);
            tracing::info!(journal, "a journal that could not be taken over is no longer left");
        }
        self.metrics.journals_left(left.len());
        *journals = left;
    }

    pub(crate) fn journals_left(&self) -> Vec<LeftJournal> {
        let journals = lock(&self.journals);
        let left =
            journals.iter().map(|(sysid, why)| LeftJournal { sysid: *sysid, why: why.clone() });
        left.collect()
    }

    /// In words, for `/readyz`. They name no files: the status and the log do.
    pub(crate) fn takeover(&self) -> Result<(), String> {
        let left = lock(&self.journals);
        let in_words = |sysid: &Left| match sysid {
            Some(sysid) => format!("the journal of daemon {sysid} cannot be taken over"),
            None => "the journals of other daemons cannot be listed".to_owned(),
        };
        let words: Vec<String> = left.keys().map(in_words).collect();
        if words.is_empty() { Ok(()) } else { Err(words.join("; ")) }
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

/// A journal that is left: with its number, or the directory of all of them.
pub(crate) type Left = Option<Sysid>;

fn is_recent(at: Instant, now: Instant) -> bool {
    now.duration_since(at) < FAILURES_WINDOW
}
