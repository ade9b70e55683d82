//! The parts of an engine, and the settings that an operator may choose.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::add::Durable;
use windlass_core::secret::SealKeys;
use windlass_core::{Clock, Maxima, RetryPolicy, Runner, Store, Sysid, Tenant};
use windlass_journal::Disk;

/// The concrete parts behind core's traits; the binary chooses them.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub runner: Arc<dyn Runner>,
    pub clock: Arc<dyn Clock>,
    /// What the data directory is on.
    pub disk: Arc<dyn Disk>,
    /// The keys of secrets.
    pub seal_keys: Arc<dyn SealKeys>,
}

/// How picks are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fairness {
    /// Pick the tenant that has used the least time of slots for its weight, then one of its types:
    /// neither many types nor long jobs give a tenant an advantage.
    Tenant,
    /// Pick a random tenant, then one of its types: each tenant gets as many picks.
    Draw,
    /// Treat all types of all tenants alike.
    Type,
}

/// How a daemon shows itself to operators.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The name of its machine.
    pub host: String,
    pub version: String,
    /// The address where it serves clients.
    pub listen: String,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub identity: Identity,
    /// Contains `journal/` and `payload/`.
    pub data_dir: PathBuf,
    /// What the answer to an add promises that does not say so itself.
    pub accept: Durable,
    /// Use only this sysid; any free one when `None`.
    pub sysid: Option<Sysid>,
    pub fairness: Fairness,
    /// Run only these tenants' jobs; all when `None`.
    pub tenants: Option<Vec<Tenant>>,
    /// Tenants whose jobs wait for a worker as long as it takes. Other tenants' jobs fail when they
    /// have waited too long for a handler or a worker.
    pub keep_unhandled: Vec<Tenant>,
    /// Batches that run at once.
    pub slots: usize,
    /// Additional slots, only for tenants with fewer than `tenant_slots_min` running batches: a
    /// tenant whose jobs hang cannot block the others.
    pub slots_reserved: usize,
    pub tenant_slots_min: usize,
    /// How long a job or a sysid stays with a daemon that does not renew it.
    pub lease: Duration,
    /// Interval of the search for expired leases and overdue jobs.
    pub reap_interval: Duration,
    /// Interval of the removal of ended jobs past their retention.
    pub purge_interval: Duration,
    /// Interval at which a store without notifications is polled for other daemons' work: starts at
    /// `poll_min` and grows to `poll_max` while idle.
    pub poll_min: Duration,
    pub poll_max: Duration,
    /// Defaults for what neither the job, nor the handler, nor the type sets.
    pub timeout: Duration,
    pub retry: RetryPolicy,
    pub retention: Duration,
    /// How long entries of the audit are kept.
    pub audit_retention: Duration,
    /// The most that clients may ask for.
    pub maxima: Maxima,
    /// At shutdown, running jobs have this long to end before they are stopped and released.
    pub stop_grace: Duration,
    pub journal_segment_bytes_max: u64,
    /// How long a journal segment is kept after a synced commit of the store contains all of it.
    /// Zero is enough for the embedded store, which forgets no such commit; a store that fails over
    /// to a standby may.
    pub journal_keep: Duration,
    /// How often the position is read in a store that may forget what it confirmed: no batch may
    /// follow that would notice.
    pub journal_check: Duration,
    /// Seed of all random numbers: picks, jitter, the identity of the data directory, the journal's
    /// salts. Random unless it is set; a fixed seed makes runs repeatable, and the salts guessable.
    pub seed: u64,
}

impl Options {
    pub fn new(data_dir: PathBuf) -> Options {
        Options {
            identity: Identity::default(),
            data_dir,
            accept: Durable::Journal,
            sysid: None,
            fairness: Fairness::Tenant,
            tenants: None,
            keep_unhandled: Vec::new(),
            slots: 16,
            slots_reserved: 256,
            tenant_slots_min: 1,
            lease: Duration::from_secs(10),
            reap_interval: Duration::from_secs(1),
            purge_interval: Duration::from_secs(30),
            poll_min: Duration::from_millis(50),
            poll_max: Duration::from_secs(1),
            timeout: Duration::from_secs(120),
            retry: RetryPolicy::default(),
            retention: Duration::from_secs(3 * 24 * 3600),
            audit_retention: Duration::from_secs(90 * 24 * 3600),
            maxima: Maxima::default(),
            stop_grace: Duration::from_secs(30),
            journal_segment_bytes_max: 64 * 1024 * 1024,
            journal_keep: Duration::ZERO,
            journal_check: Duration::from_secs(30),
            seed: fastrand::u64(..),
        }
    }
}
