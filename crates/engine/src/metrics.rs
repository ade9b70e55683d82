//! The metrics of the daemon: one registry, no globals; doors only print it.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use windlass_core::sync::{read, write};
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ServiceLabels {
    pub service: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StepLabels {
    pub direction: &'static str,
}

/// All metrics of one daemon.
pub struct Metrics {
    registry: Registry,
    /// The metrics of each type, found without building labels; `others` for types beyond the
    /// bound.
    types: RwLock<HashMap<TypeKey, Arc<TypeMetrics>>>,
    others: RwLock<Option<Arc<TypeMetrics>>>,
    accepted: Family<TypeLabels, Counter>,
    started: Family<TypeLabels, Counter>,
    retried: Family<TypeLabels, Counter>,
    ended: Family<EndLabels, Counter>,
    running: Family<TypeLabels, Gauge>,
    depth: Family<TypeLabels, Gauge>,
    oldest: Family<TypeLabels, Gauge>,
    leases_expired: Counter,
    audit_dropped: Counter,
    service_failures: Family<ServiceLabels, Counter>,
    journals_left: Gauge,
    journal_waiting: Gauge,
    journal_oldest: Gauge,
    results_parked: Gauge,
    clock_steps: Family<StepLabels, Counter>,
    store_clock_offset: Gauge<f64, AtomicU64>,
    lease: Histogram,
    accept: Histogram,
    journal_sync: Histogram,
    store_commit: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        // 50 µs to 26 s for waits, 1 ms to 2 h for how long jobs are held.
        let short = || Histogram::new(exponential_buckets(0.00005, 2.0, 20));
        let long = || Histogram::new(exponential_buckets(0.001, 3.0, 15));
        let mut metrics = Metrics {
            registry: Registry::with_prefix("windlass"),
            types: RwLock::default(),
            others: RwLock::default(),
            accepted: Family::default(),
            started: Family::default(),
            retried: Family::default(),
            ended: Family::default(),
            running: Family::default(),
            depth: Family::default(),
            oldest: Family::default(),
            leases_expired: Counter::default(),
            audit_dropped: Counter::default(),
            service_failures: Family::default(),
            journals_left: Gauge::default(),
            journal_waiting: Gauge::default(),
            journal_oldest: Gauge::default(),
            results_parked: Gauge::default(),
            clock_steps: Family::default(),
            store_clock_offset: Gauge::default(),
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
        let help = "Refusals that have no entry of their own in the audit";
        r.register("audit_dropped", help, self.audit_dropped.clone());
        let help = "Panics of services in the background";
        r.register("service_failures", help, self.service_failures.clone());
        let help = "Journals of dead daemons that cannot be taken over";
        r.register("journals_left", help, self.journals_left.clone());
        let help = "Accepted jobs that are not in the store yet";
        r.register("journal_waiting", help, self.journal_waiting.clone());
        let help = "Age of the oldest job that is not in the store yet";
        r.register_with_unit("journal_oldest", help, Unit::Seconds, self.journal_oldest.clone());
        let help = "Results that the store cannot take, because a job is damaged there";
        r.register("results_parked", help, self.results_parked.clone());
        let help = "Steps of the wall clock, by direction";
        r.register("clock_steps", help, self.clock_steps.clone());
        let help = "How far the store's clock is ahead of this daemon's";
        r.register("store_clock_offset_seconds", help, self.store_clock_offset.clone());
        let help = "How long jobs were held under a lease";
        r.register_with_unit("lease", help, Unit::Seconds, self.lease.clone());
        let help = "Time of an add, until its jobs were durable";
        r.register_with_unit("accept", help, Unit::Seconds, self.accept.clone());
        let help = "Time of one fdatasync of the journal";
        r.register_with_unit("journal_sync", help, Unit::Seconds, self.journal_sync.clone());
        let help = "Time of one commit of the store";
        r.register_with_unit("store_commit", help, Unit::Seconds, self.store_commit.clone());
    }

    /// All metrics as Prometheus text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String does not fail");
        text
    }

    pub fn accepted(&self, key: &TypeKey, jobs: usize, took: Duration) {
        self.of(key).accepted.inc_by(jobs as u64);
        self.accept.observe(took.as_secs_f64());
    }

    /// Jobs that entered with the settlement of another: no client waited for them.
    pub fn followed(&self, key: &TypeKey, jobs: usize) {
        self.of(key).accepted.inc_by(jobs as u64);
    }

    pub fn started(&self, key: &TypeKey) {
        let of = self.of(key);
        of.started.inc();
        of.running.inc();
    }

    /// An outside worker has claimed a job through this daemon.
    pub fn pulled(&self, key: &TypeKey) {
        self.of(key).started.inc();
    }

    /// How long an outside worker held a job.
    pub fn held(&self, held: Duration) {
        self.lease.observe(held.as_secs_f64());
    }

    /// An attempt that started here has ended, for any reason.
    pub fn stopped(&self, key: &TypeKey, held: Duration) {
        self.of(key).running.dec();
        self.lease.observe(held.as_secs_f64());
    }

    pub fn ended(&self, key: &TypeKey, code: Code, again: bool) {
        let of = self.of(key);
        if again {
            of.retried.inc();
        }
        let TypeLabels { tenant, r#type } = of.labels.clone();
        self.ended.get_or_create(&EndLabels { tenant, r#type, code: code.as_str() }).inc();
    }

    pub fn lease_expired(&self) {
        self.leases_expired.inc();
    }

    pub fn audit_dropped(&self) {
        self.audit_dropped.inc();
    }

    pub fn service_failed(&self, service: &'static str) {
        self.service_failures.get_or_create(&ServiceLabels { service }).inc();
    }

    pub fn journals_left(&self, journals: usize) {
        self.journals_left.set(journals as i64);
    }

    pub fn store_clock_offset(&self, ms: i64) {
        self.store_clock_offset.set(ms as f64 / 1000.0);
    }

    /// How many jobs wait in the journal, and the age of the oldest.
    pub fn journal(&self, waiting: u64, oldest: Duration) {
        self.journal_waiting.set(waiting as i64);
        self.journal_oldest.set(oldest.as_secs() as i64);
    }

    pub fn results_parked(&self, results: usize) {
        self.results_parked.set(results as i64);
    }

    pub fn clock_stepped(&self, direction: &'static str) {
        self.clock_steps.get_or_create(&StepLabels { direction }).inc();
    }

    pub fn journal_synced(&self, took: Duration) {
        self.journal_sync.observe(took.as_secs_f64());
    }

    pub fn store_committed(&self, took: Duration) {
        self.store_commit.observe(took.as_secs_f64());
    }

    /// The waiting jobs, as just read from the store.
    pub fn queue(&self, waiting: impl Iterator<Item = (TypeKey, u64, Duration)>) {
        self.depth.clear();
        self.oldest.clear();
        for (key, ready, oldest) in waiting {
            let of = self.of(&key);
            self.depth.get_or_create(&of.labels).inc_by(ready as i64);
            let gauge = self.oldest.get_or_create(&of.labels);
            if gauge.get() < oldest.as_secs() as i64 {
                gauge.set(oldest.as_secs() as i64);
            }
        }
    }

    fn of(&self, key: &TypeKey) -> Arc<TypeMetrics> {
        let types = read(&self.types);
        if let Some(known) = types.get(key) {
            return known.clone();
        }
        let full = types.len() >= LABELS_MAX;
        drop(types);
        if full {
            let mut others = write(&self.others);
            return others.get_or_insert_with(|| self.make("_other", "_other")).clone();
        }
        let mut types = write(&self.types);
        let make = || self.make(key.tenant.as_str(), key.name.as_str());
        types.entry(key.clone()).or_insert_with(make).clone()
    }

    fn make(&self, tenant: &str, name: &str) -> Arc<TypeMetrics> {
        let labels = TypeLabels { tenant: tenant.into(), r#type: name.into() };
        Arc::new(TypeMetrics {
            accepted: self.accepted.get_or_create(&labels).clone(),
            started: self.started.get_or_create(&labels).clone(),
            retried: self.retried.get_or_create(&labels).clone(),
            running: self.running.get_or_create(&labels).clone(),
            labels,
        })
    }
}

/// The metrics of one type.
struct TypeMetrics {
    labels: TypeLabels,
    accepted: Counter,
    started: Counter,
    retried: Counter,
    running: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_beyond_the_bound_share_one_label() {
        let metrics = Metrics::default();
        for n in 0..LABELS_MAX + 5 {
            let key = TypeKey::new("acme", &format!("t{n}")).unwrap();
            metrics.accepted(&key, 1, Duration::ZERO);
            metrics.ended(&key, Code::Ok, false);
        }
        let text = metrics.encode();
        let shared = r#"windlass_jobs_accepted_total{tenant="_other",type="_other"} 5"#;
        assert!(text.contains(shared), "{text}");
        let ended = r#"windlass_jobs_ended_total{tenant="_other",type="_other",code="ok"} 5"#;
        assert!(text.contains(ended));
        assert_eq!(text.matches("windlass_jobs_accepted_total{").count(), LABELS_MAX + 1);
    }
}
