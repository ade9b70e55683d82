//! The terms of a run: what the checker has to know about its configuration, and how far the
//! witnesses' clocks can be trusted.

/// A second, in nanoseconds.
const SECOND_NS: u64 = 1_000_000_000;

/// Every number that a rule depends on. Times are in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Terms {
    /// The lease of a daemon: a dead one loses its jobs after this.
    pub lease_ns: u64,
    /// How far two witnesses may read the common clock apart. Something is before something else
    /// only if it is by more than this.
    pub slack_ns: u64,
    /// The longest time between the claim of a job by a daemon and the begin of its handler: a
    /// batch is claimed as a whole and runs job by job.
    pub claim_ahead_ns: u64,
    /// The time limit of an attempt of a handler; a run that reaches it may be repeated.
    pub attempt_timeout_ns: u64,
    /// How long an idempotency key is remembered.
    pub key_ttl_ns: u64,
    /// How long ended jobs are kept; `None`: longer than any run.
    pub retention_ns: Option<u64>,
    /// How long jobs are kept that entered as cancelled, because another add had their key.
    pub repeated_retention_ns: u64,
    /// The shortest pause before another attempt of a job that asked for one; `None` switches this
    /// part of the rule off.
    pub retry_pause_ns: Option<u64>,
    /// The longest time from the end of a round of a repeating job to the next one, unless it waits
    /// in line; `None` switches the rule off.
    pub round_max_ns: Option<u64>,
    /// The longest interval of repeating jobs.
    pub round_interval_ns: u64,
    /// The longest time in which the end of a run is stored without a fault; `None`: one lease.
    pub stored_ns: Option<u64>,
    /// Larger payloads take another way into the store, and are not compared in the rule of order.
    pub order_payload_bytes_max: u64,
    /// The longest time that the start of a context takes.
    pub context_start_ns: u64,
    /// How many jobs of any one other type the same consumers may start while a type waits; `None`
    /// switches the rule of fairness off.
    pub passed_over_max: Option<u64>,
    /// The driver waited at the end until nothing was left to do. A job that could still run is
    /// stuck then.
    pub drained: bool,
    /// Violations of one rule that are kept; others are only counted.
    pub violations_max: usize,
}

impl Default for Terms {
    /// For a run with the default configuration on one machine.
    fn default() -> Terms {
        Terms {
            lease_ns: 10 * SECOND_NS,
            slack_ns: SECOND_NS / 1000,
            claim_ahead_ns: 120 * SECOND_NS,
            attempt_timeout_ns: 120 * SECOND_NS,
            key_ttl_ns: 24 * 3600 * SECOND_NS,
            retention_ns: None,
            repeated_retention_ns: 4 * 24 * 3600 * SECOND_NS,
            retry_pause_ns: None,
            round_max_ns: None,
            round_interval_ns: 0,
            stored_ns: None,
            order_payload_bytes_max: 64 * 1024,
            context_start_ns: 10 * SECOND_NS,
            passed_over_max: None,
            drained: false,
            violations_max: 20,
        }
    }
}

impl Terms {
    /// Whether the first time was certainly before the second.
    pub(crate) fn before(&self, first: u64, second: u64) -> bool {
        first.saturating_add(self.slack_ns) < second
    }
}
