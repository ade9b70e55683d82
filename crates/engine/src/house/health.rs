//! Health: problems in the background, for `/readyz`, the status and the metrics.
//!
//! A panic is shown for `FAILURES_WINDOW`, although the service runs again, so that an operator
//! sees it. Its message is only in the log, because it may contain anything.
//!
//! A service whose passes keep failing is shown after `FAILING_SHOWN_AFTER`, until a pass succeeds.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use windlass_core::sync::lock;
use windlass_core::time::format_duration;
use windlass_core::{Clock, JobId, Sysid};

use crate::api::{FailedService, FailingService, LeftJournal, ParkedResult};
use crate::metrics::Metrics;

/// A service that panics this often within `FAILURES_WINDOW` is not restarted.
pub(crate) const FAILURES_MAX: usize = 10;
pub(crate) const FAILURES_WINDOW: Duration = Duration::from_secs(5 * 60);

/// A service whose passes have all failed for this long is shown.
pub(crate) const FAILING_SHOWN_AFTER: Duration = Duration::from_secs(30);

pub(crate) struct Health {
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Services whose latest pass failed.
    failing: Mutex<BTreeMap<&'static str, Failing>>,
    /// Results that the store cannot take, with the reason.
    parked: Mutex<BTreeMap<JobId, String>>,
    /// When services panicked, by the steady clock, the latest `FAILURES_MAX` times.
    services: Mutex<BTreeMap<&'static str, VecDeque<Duration>>>,
    /// Dead daemons' journals that cannot be taken over, with the reason.
    journals: Mutex<BTreeMap<Left, String>>,
    /// Why the engine cannot continue.
    pub failure: watch::Sender<Option<String>>,
}

impl Health {
    pub(crate) fn new(metrics: Arc<Metrics>, clock: Arc<dyn Clock>) -> Health {
        Health {
            metrics,
            clock,
            failing: Mutex::default(),
            parked: Mutex::default(),
            services: Mutex::default(),
            journals: Mutex::default(),
            failure: watch::Sender::new(None),
        }
    }

    /// The engine cannot continue.
    pub(crate) fn fail(&self, why: String) {
        tracing::error!(%why, "the daemon cannot continue");
        self.failure.send_replace(Some(why));
    }

    /// A service has panicked. Returns how often it has recently, including this time.
    pub(crate) fn service_failed(&self, name: &'static str, why: &str) -> usize {
        self.metrics.service_failed(name);
        let now = self.clock.steady();
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

    /// A pass of a service failed.
    pub(crate) fn pass_failed(&self, name: &'static str, why: String) {
        tracing::warn!(service = name, %why, "a pass of a service failed");
        let mut failing = lock(&self.failing);
        let since = failing.get(name).map_or_else(|| self.clock.steady(), |failing| failing.since);
        failing.insert(name, Failing { since, why });
    }

    /// A pass succeeded after others had failed.
    pub(crate) fn pass_succeeded(&self, name: &'static str) {
        let Some(failing) = lock(&self.failing).remove(name) else { return };
        let failed_ms = self.clock.steady().saturating_sub(failing.since).as_millis() as u64;
        tracing::info!(service = name, failed_ms, "a service works again");
    }

    /// Services that have been failing for a long time.
    pub(crate) fn failing_services(&self) -> Vec<FailingService> {
        let now = self.clock.steady();
        let failing = lock(&self.failing);
        let all = failing.iter().map(|(name, Failing { since, why })| FailingService {
            name,
            failing_for: now.saturating_sub(*since),
            why: why.clone(),
        });
        all.filter(|service| service.failing_for >= FAILING_SHOWN_AFTER).collect()
    }

    /// Sets the results that the store cannot take, with the reason.
    pub(crate) fn set_parked(&self, parked: BTreeMap<JobId, String>) {
        self.metrics.results_parked(parked.len());
        *lock(&self.parked) = parked;
    }

    pub(crate) fn parked(&self) -> Vec<ParkedResult> {
        let parked = lock(&self.parked);
        parked.iter().map(|(id, why)| ParkedResult { id: *id, why: why.clone() }).collect()
    }

    /// Services that panicked recently.
    pub(crate) fn failed_services(&self) -> Vec<FailedService> {
        let now = self.clock.steady();
        let services = lock(&self.services);
        let lately = services.iter().map(|(name, failures)| FailedService {
            name,
            failures: failures.iter().filter(|at| is_recent(**at, now)).count(),
        });
        lately.filter(|service| service.failures > 0).collect()
    }

    /// Sets the dead daemons' journals that cannot be taken over, with the reason. Logs changes.
    pub(crate) fn set_journals_left(&self, left: BTreeMap<Left, String>) {
        let mut journals = lock(&self.journals);
        for (journal, why) in left.iter().filter(|(key, why)| journals.get(key) != Some(*why)) {
            let journal = journal.map(Sysid::get);
            tracing::error!(journal, why, "a dead daemon's journal cannot be taken over");
        }
        for journal in journals.keys().filter(|journal| !left.contains_key(journal)) {
            let journal = journal.map(Sysid::get);
            tracing::info!(journal, "a journal that could not be taken over is gone");
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

    /// As text for `/readyz`, without file names, which are in the status and the log.
    pub(crate) fn takeover(&self) -> Result<(), String> {
        let left = lock(&self.journals);
        let in_words = |sysid: &Left| match sysid {
            Some(sysid) => format!("the journal of daemon {sysid} cannot be taken over"),
            None => "the journals of other daemons cannot be listed".to_owned(),
        };
        let words: Vec<String> = left.keys().map(in_words).collect();
        if words.is_empty() { Ok(()) } else { Err(words.join("; ")) }
    }

    /// As text for `/readyz`. The errors are in the status and the log, because they may name files
    /// and jobs.
    pub(crate) fn services(&self) -> Result<(), String> {
        let failed = self.failed_services();
        let failing = |service: FailingService| {
            let since = Duration::from_secs(service.failing_for.as_secs());
            format!("the service {} has failed for {}", service.name, format_duration(since))
        };
        let in_words = |service: &FailedService| {
            let window = format_duration(FAILURES_WINDOW);
            let FailedService { name, failures } = service;
            let times = if *failures == 1 { "once".into() } else { format!("{failures} times") };
            format!("the service {name} has panicked {times} in the last {window}")
        };
        let mut words: Vec<String> = failed.iter().map(in_words).collect();
        words.extend(self.failing_services().into_iter().map(failing));
        match lock(&self.parked).len() {
            0 => {}
            jobs => words.push(format!("the store cannot take the results of {jobs} jobs")),
        }
        if words.is_empty() { Ok(()) } else { Err(words.join("; ")) }
    }
}

struct Failing {
    /// By the steady clock.
    since: Duration,
    /// The error of the latest pass.
    why: String,
}

/// The number of a journal that is left, or `None` for the directory of all journals.
pub(crate) type Left = Option<Sysid>;

fn is_recent(at: Duration, now: Duration) -> bool {
    now.saturating_sub(at) < FAILURES_WINDOW
}
