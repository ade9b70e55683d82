//! What an engine is made of, and the numbers that an operator may choose.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{Clock, RetryPolicy, Runner, Store, Sysid, Tenant};

/// The concrete parts behind core's traits; the binary chooses them.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub runner: Arc<dyn Runner>,
    pub clock: Arc<dyn Clock>,
}

/// How picks are shared out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fairness {
    /// A tenant first, then one of its types: a tenant gains nothing by having many types.
    Tenant,
    /// All types of all tenants alike.
    Type,
}

#[derive(Debug, Clone)]
pub struct Options {
    /// `journal/` and `payload/` are below it.
    pub data_dir: PathBuf,
    /// Insist on this sysid; else any free one.
    pub sysid: Option<Sysid>,
    pub fairness: Fairness,
    /// Run jobs of these tenants only; all when `None`.
    pub tenants: Option<Vec<Tenant>>,
    /// Tenants whose jobs wait for a worker as long as it takes; those of others are given up when
    /// nobody has handled them for too long.
    pub keep_unhandled: Vec<Tenant>,
    /// Batches that run at once.
    pub slots: usize,
    /// Further slots that only tenants with fewer than `tenant_slots_min` running batches may use,
    /// so that a tenant whose jobs hang cannot keep others out.
    pub slots_reserved: usize,
    pub tenant_slots_min: usize,
    /// How long a job or a sysid stays with a daemon that does not renew it.
    pub lease: Duration,
    /// How often dead leases and overdue jobs are looked for.
    pub reap_interval: Duration,
    /// How often ended jobs past their time are removed.
    pub purge_interval: Duration,
    /// The store is looked at this often for other daemons' work when it cannot wake us: at first
    /// after `poll_min`, then less and less often, at last every `poll_max`.
    pub poll_min: Duration,
    pub poll_max: Duration,
    /// Defaults where neither the job, nor the handler, nor the type says otherwise.
    pub timeout: Duration,
    pub retry: RetryPolicy,
    pub retention: Duration,
    /// At shutdown, running jobs get this long before they are stopped and handed back.
    pub stop_grace: Duration,
    pub journal_segment_bytes_max: u64,
    /// How long a segment of the journal stays after a synced commit of the store has all of it.
    /// Zero: the embedded store forgets no such commit. A store that fails over to a standby may.
    pub journal_keep: Duration,
    /// Seed of the picks and of the jitter.
    pub seed: u64,
}

impl Options {
    pub fn new(data_dir: PathBuf) -> Options {
        Options {
            data_dir,
            sysid: None,
            fairness: Fairness::Tenant,
            tenants: None,
            keep_unhandled: Vec::new(),
            slots: 16,
            slots_reserved: 16,
            tenant_slots_min: 2,
            lease: Duration::from_secs(10),
            reap_interval: Duration::from_secs(1),
            purge_interval: Duration::from_secs(30),
            poll_min: Duration::from_millis(50),
            poll_max: Duration::from_secs(1),
            timeout: Duration::from_secs(120),
            retry: RetryPolicy::default(),
            retention: Duration::from_secs(3 * 24 * 3600),
            stop_grace: Duration::from_secs(30),
            journal_segment_bytes_max: 64 * 1024 * 1024,
            journal_keep: Duration::ZERO,
            seed: 0,
        }
    }
}
