//! The clocks of machines, over tokio's paused time: time passes only when every task waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use windlass_core::{Clock, Timestamp};

/// When every simulation begins.
const BEGIN: Timestamp = Timestamp(1_800_000_000_000);

pub(crate) struct SimClock {
    began: Instant,
    set_by_ms: AtomicI64,
    furthest_ms: AtomicI64,
}

impl SimClock {
    pub(crate) fn new() -> SimClock {
        let (set_by_ms, furthest_ms) = (AtomicI64::new(0), AtomicI64::new(0));
        SimClock { began: Instant::now(), set_by_ms, furthest_ms }
    }

    /// By how much it would have to be set to be as far ahead as it has ever been.
    pub(crate) fn behind_ms(&self) -> i64 {
        self.furthest_ms.load(Ordering::Relaxed) - self.set_by_ms.load(Ordering::Relaxed)
    }

    /// Sets the wall clock, forward or back; no time passes.
    pub(crate) fn set_by(&self, ms: i64) {
        let set_by = self.set_by_ms.fetch_add(ms, Ordering::Relaxed) + ms;
        self.furthest_ms.fetch_max(set_by, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        (BEGIN + self.steady()).shifted(self.set_by_ms.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Duration {
        self.began.elapsed()
    }

    fn machine_run(&self) -> i64 {
        1
    }
}

/// The clock of one machine, which is wrong by some time, and is set when the others are.
pub(crate) struct MachineClock {
    right: Arc<SimClock>,
    wrong_by_ms: i64,
}

impl MachineClock {
    pub(crate) fn new(right: Arc<SimClock>, wrong_by_ms: i64) -> MachineClock {
        MachineClock { right, wrong_by_ms }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        self.right.now().shifted(self.wrong_by_ms)
    }

    fn steady(&self) -> Duration {
        self.right.steady()
    }

    fn machine_run(&self) -> i64 {
        self.right.machine_run()
    }
}
