//! What is done in the background, beside the transactions that cause it: bounds of queues are
//! raised (`front`), and counts of ended jobs are summed up. None of it is needed for correct
//! answers, so a failure is not repeated at once: the next round does the same work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use windlass_core::store::Durability;
use windlass_core::sync::lock;

use crate::Inner;
use crate::error::Result;
use crate::front::{self, OfType, Passed};
use crate::watch::Watch;

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(20);
/// Between two sums.
const SUM_PAUSE: Duration = Duration::from_secs(1);
/// Rows of counts that one transaction sums up.
const SUMMED_MAX: i64 = 10_000;

/// What there is to do.
pub(crate) struct Chores {
    passed: Mutex<Passed>,
    /// Types whose bounds are to be raised, each once.
    full: Mutex<Vec<(i32, OfType)>>,
    counted: AtomicBool,
    noted: Arc<Notify>,
    passed_max: u64,
}

impl Chores {
    pub(crate) fn new(passed_max: u64) -> Chores {
        Chores {
            passed: Mutex::default(),
            full: Mutex::default(),
            counted: AtomicBool::new(false),
            noted: Arc::default(),
            passed_max,
        }
    }

    /// A transaction was committed that took these jobs, and added to counts or did not.
    pub(crate) fn note(&self, passed: Passed, counted: bool) {
        let full = lock(&self.passed).take_full(passed, self.passed_max);
        let any_full = !full.is_empty();
        lock(&self.full).extend(full);
        if (counted && !self.counted.swap(true, Ordering::Relaxed)) || any_full {
            self.noted.notify_one();
        }
    }
}

/// The task that does the chores of a store. Dropping it ends the task.
pub(crate) struct Upkeep(JoinHandle<()>);

impl Upkeep {
    pub(crate) fn start(inner: &Arc<Inner>) -> Upkeep {
        Upkeep(tokio::spawn(serve(Arc::downgrade(inner), inner.chores.noted.clone())))
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(inner: Weak<Inner>, noted: Arc<Notify>) {
    let (mut raises, mut sums) = (Watch::new("bounds of queues"), Watch::new("sums of counts"));
    // Counts that have not been summed up yet are, once enough time has passed.
    let (mut summed_at, mut counted) = (Instant::now(), false);
    loop {
        tokio::select! {
            biased;
            () = noted.notified() => {}
            () = sleep_until(summed_at + SUM_PAUSE), if counted => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let full = std::mem::take(&mut *lock(&inner.chores.full));
        for (type_id, passed) in full {
            raises.run(raise(&inner, type_id, &passed)).await;
        }
        counted |= inner.chores.counted.swap(false, Ordering::Relaxed);
        if counted && summed_at.elapsed() >= SUM_PAUSE {
            let summed = sums.run(sum_up(&inner)).await;
            counted = summed.is_none_or(|rows| rows >= SUMMED_MAX);
            summed_at = Instant::now();
        }
        drop(inner);
        sleep(PAUSE).await;
    }
}

/// Tried once: it is not urgent enough to make others wait again.
async fn raise(inner: &Inner, type_id: i32, passed: &OfType) -> Result<()> {
    inner.try_write(Durability::Relaxed, &|tx| Box::pin(front::raise(tx, type_id, passed))).await
}

/// Returns the number of rows that were summed up.
async fn sum_up(inner: &Inner) -> Result<i64> {
    inner
        .try_write(Durability::Relaxed, &|tx| {
            Box::pin(async {
                let row = tx.query_one("SELECT fold_ended($1)", &[&SUMMED_MAX]).await?;
                Ok(row.try_get(0)?)
            })
        })
        .await
}
