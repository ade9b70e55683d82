//! The life of one daemon's process. Tasks cannot be killed from outside, so a daemon that has died
//! goes on as a ghost: its calls to the store never return, its disk refuses everything, its runner
//! runs nothing, and nobody hears its answers. So nothing that it does has an effect.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use windlass_core::sync::lock;

pub(crate) struct Life {
    over: CancellationToken,
    /// Calls to disk and store until it dies; 0 if no fuse is lit.
    fuse: AtomicU64,
    pub(crate) condition: Arc<Condition>,
}

/// What happens to a daemon at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Lives,
    /// Within this call.
    Dies,
    Dead,
}

impl Life {
    pub(crate) fn new(condition: Arc<Condition>) -> Life {
        Life { over: CancellationToken::new(), fuse: AtomicU64::new(0), condition }
    }

    pub(crate) fn end(&self) {
        self.over.cancel();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Returns when it is over.
    pub(crate) async fn ended(&self) {
        self.over.cancelled().await;
    }

    /// It dies at this call from now; 0 for never.
    pub(crate) fn light_fuse(&self, calls: u64) {
        self.fuse.store(calls, Ordering::Relaxed);
    }

    /// Counts a call.
    pub(crate) fn step(&self) -> Step {
        if self.is_over() {
            return Step::Dead;
        }
        match self.fuse.load(Ordering::Relaxed) {
            0 => Step::Lives,
            1 => {
                self.end();
                Step::Dies
            }
            left => {
                self.fuse.store(left - 1, Ordering::Relaxed);
                Step::Lives
            }
        }
    }
}

/// A fault that a daemon's calls meet while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    DiskFull,
    Reads,
    Writes,
    Syncs,
    /// The daemon is cut off from the store.
    Partition,
}

/// What a daemon suffers now. It outlasts its process.
#[derive(Default)]
pub(crate) struct Condition(Mutex<Option<Trouble>>);

impl Condition {
    pub(crate) fn set(&self, trouble: Option<Trouble>) {
        *lock(&self.0) = trouble;
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        *lock(&self.0)
    }
}
