//! What the daemon counts and measures. One registry, no globals; doors only print it.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use windlass_core::{Code, TypeKey};

/// Distinct (tenant, type) pairs that get labels of their own; the rest share `_other`.
pub const LABELS_MAX: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TypeLabels {
    pub tenant: String,
    pub r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    pub tenant: String,
    pub r#type: String,
    pub code: &'static str,
}

/// All numbers of one daemon.
pub struct Metrics {
    registry: Registry,
    labelled: Mutex<HashSet<TypeKey>>,
    accepted: Family<TypeLabels, Counter>,
    started: Family<TypeLabels, Counter>,
    retried: Family<TypeLabels, Counter>,
    ended: Family<EndLabels, Counter>,
    running: Family<TypeLabels, Gauge>,
    depth: Family<TypeLabels, Gauge>,
    oldest: Family<TypeLabels, Gauge>,
    leases_expired: Counter,
    lease: Histogram,
    accept: Histogram,
    journal_sync: Histogram,
    store_commit: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        // 50 µs to 26 s for what is awaited, 1 ms to 2 h for how long jobs are held.
        let short = || Histogram::new(exponential_buckets(0.00005, 2.0, 20));
        let long = || Histogram::new(exponential_buckets(0.001, 3.0, 15));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("windlass"),
            labelled: Mutex::default(),
            accepted: Family::default(),
            started: Family::default(),
            retried: Family::default(),
            ended: Family::default(),
            running: Family::default(),
            depth: Family::default(),
            oldest: Family::default(),
            leases_expired: Counter::default(),
            lease: long(),
            accept: short(),
            journal_sync: short(),
            store_commit: short(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("jobs_accepted", "Jobs accepted", self.accepted.clone());
        r.register("jobs_started", "Attempts started", self.started.clone());
        r.register("jobs_retried", "Attempts followed by another", self.retried.clone());
        r.register("jobs_ended", "Attempts ended, by code", self.ended.clone());
        r.register("jobs_running", "Jobs running in this daemon", self.running.clone());
        r.register("queue_depth", "Jobs ready to run", self.depth.clone());
        let help = "Age of the job that has been ready the longest";
        r.register_with_unit("queue_oldest", help, Unit::Seconds, self.oldest.clone());
        let help = "Leases broken because their owner did not renew them";
        r.register("leases_expired", help, self.leases_expired.clone());
        let help = "How long jobs were held under a lease";
        r.register_with_unit("lease", help, Unit::Seconds, self.lease.clone());
        let help = "Time of an add, until its jobs were durable";
        r.register_with_unit("accept", help, Unit::Seconds, self.accept.clone());
        let help = "Time of one fdatasync of the journal";
        r.register_with_unit("journal_sync", help, Unit::Seconds, self.journal_sync.clone());
        let help = "Time of one commit of the store";
        r.register_with_unit("store_commit", help, Unit::Seconds, self.store_commit.clone());
    }

    /// The Prometheus text of everything.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String does not fail");
        text
    }

    pub fn accepted(&self, key: &TypeKey, jobs: usize, took: Duration) {
        self.accepted.get_or_create(&self.labels(key)).inc_by(jobs as u64);
        self.accept.observe(took.as_secs_f64());
    }

    pub fn started(&self, key: &TypeKey) {
        let labels = self.labels(key);
        self.started.get_or_create(&labels).inc();
        self.running.get_or_create(&labels).inc();
    }

    /// A worker outside has taken a job through this daemon.
    pub fn pulled(&self, key: &TypeKey) {
        self.started.get_or_create(&self.labels(key)).inc();
    }

    /// How long a worker outside held a job.
    pub fn held(&self, held: Duration) {
        self.lease.observe(held.as_secs_f64());
    }

    /// An attempt that was started here is over, however it ended.
    pub fn stopped(&self, key: &TypeKey, held: Duration) {
        self.running.get_or_create(&self.labels(key)).dec();
        self.lease.observe(held.as_secs_f64());
    }

    pub fn ended(&self, key: &TypeKey, code: Code, again: bool) {
        let labels = self.labels(key);
        if again {
            self.retried.get_or_create(&labels).inc();
        }
        let TypeLabels { tenant, r#type } = labels;
        self.ended.get_or_create(&EndLabels { tenant, r#type, code: code.as_str() }).inc();
    }

    pub fn lease_expired(&self) {
        self.leases_expired.inc();
    }

    pub fn journal_synced(&self, took: Duration) {
        self.journal_sync.observe(took.as_secs_f64());
    }

    pub fn store_committed(&self, took: Duration) {
        self.store_commit.observe(took.as_secs_f64());
    }

    /// What waits in the store, as just read from it.
    pub fn queue(&self, waiting: impl Iterator<Item = (TypeKey, u64, Duration)>) {
        self.depth.clear();
        self.oldest.clear();
        for (key, ready, oldest) in waiting {
            let labels = self.labels(&key);
            self.depth.get_or_create(&labels).inc_by(ready as i64);
            let gauge = self.oldest.get_or_create(&labels);
            if gauge.get() < oldest.as_secs() as i64 {
                gauge.set(oldest.as_secs() as i64);
            }
        }
    }

    fn labels(&self, key: &TypeKey) -> TypeLabels {
        let mut labelled = self.labelled.lock().expect("nothing panics while it holds this lock");
        let known = labelled.contains(key);
        if !known && labelled.len() >= LABELS_MAX {
            return TypeLabels { tenant: "_other".into(), r#type: "_other".into() };
        }
        if !known {
            labelled.insert(key.clone());
        }
        TypeLabels { tenant: key.tenant.to_string(), r#type: key.name.to_string() }
    }
}
