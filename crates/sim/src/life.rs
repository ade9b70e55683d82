//! The life of one daemon's process. Tasks cannot be killed from outside, so a daemon that has died
//! goes on as a ghost: its calls to the store never return, its disk refuses everything, its runner
//! runs nothing, and nobody hears its answers. So nothing that it does has an effect.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use windlass_core::sync::lock;
use windlass_proof::history::FaultKind;

pub(crate) struct Life {
    over: CancellationToken,
    /// Calls to disk and store until it dies; 0 if no fuse is lit.
    fuse: AtomicU64,
    pub(crate) trouble: Arc<Trouble>,
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
    pub(crate) fn new(trouble: Arc<Trouble>) -> Life {
        Life { over: CancellationToken::new(), fuse: AtomicU64::new(0), trouble }
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

/// The faults that a daemon suffers now. They outlast its process.
#[derive(Default)]
pub(crate) struct Trouble(Mutex<Option<FaultKind>>);

impl Trouble {
    pub(crate) fn set(&self, kind: Option<FaultKind>) {
        *lock(&self.0) = kind;
    }

    pub(crate) fn kind(&self) -> Option<FaultKind> {
        *lock(&self.0)
    }
}
