//! Watches over the background tasks of the store, which nobody waits for: a chore that fails is
//! logged, more loudly if it keeps failing, and one that panics does not end its task.

use std::fmt::Debug;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::sleep;
use windlass_core::sync::panic_text;

/// The pause of a task after a panic.
const PANIC_PAUSE: Duration = Duration::from_secs(1);
/// So many failures in a row are more than a passing one, such as a failover. They are a warning,
/// and so is each doubling of their number.
const REPEATED: u32 = 8;

/// The chores of one task.
pub(crate) struct Watch {
    task: &'static str,
    /// Failures and panics since a chore was done.
    failed: u32,
}

impl Watch {
    pub(crate) fn new(task: &'static str) -> Watch {
        Watch { task, failed: 0 }
    }

    /// Runs a chore; `None` if it failed or panicked.
    pub(crate) async fn run<T, E: Debug>(
        &mut self,
        chore: impl Future<Output = Result<T, E>>,
    ) -> Option<T> {
        let (task, before) = (self.task, self.failed);
        match AssertUnwindSafe(chore).catch_unwind().await {
            Ok(Ok(done)) => {
                self.failed = 0;
                if before >= REPEATED {
                    tracing::info!(task, failed = before, "a task of the store works again");
                }
                return Some(done);
            }
            Ok(Err(failure)) => {
                self.failed = before.saturating_add(1);
                if is_warned_of(self.failed) {
                    let failed = self.failed;
                    tracing::warn!(task, ?failure, failed, "a task of the store keeps failing");
                } else {
                    tracing::debug!(task, ?failure, "a task of the store failed");
                }
            }
            Err(panic) => {
                self.failed = before.saturating_add(1);
                let why = panic_text(&*panic);
                tracing::error!(task, why, "a task of the store panicked; this is a bug");
                sleep(PANIC_PAUSE).await;
            }
        }
        None
    }
}

fn is_warned_of(failed: u32) -> bool {
    failed >= REPEATED && failed.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_after_a_chore_that_panics() {
        let (mut watch, began) = (Watch::new("test"), Instant::now());
        assert_eq!(watch.run::<(), ()>(async { panic!("a defect") }).await, None);
        assert_eq!((watch.failed, began.elapsed()), (1, PANIC_PAUSE));
        assert_eq!(watch.run(async { Ok::<_, ()>(7) }).await, Some(7));
        assert_eq!(watch.failed, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_counted_until_a_chore_is_done_and_cost_no_pause() {
        let (mut watch, began) = (Watch::new("test"), Instant::now());
        for failed in 1..=3 * REPEATED {
            assert_eq!(watch.run(async { Err::<(), _>("away") }).await, None);
            assert_eq!(watch.failed, failed);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        watch.run(async { Ok::<_, ()>(()) }).await;
        assert_eq!(watch.failed, 0);
    }

    #[test]
    fn a_failure_that_goes_on_is_a_warning_now_and_then() {
        let warned: Vec<u32> = (0..100).filter(|failed| is_warned_of(*failed)).collect();
        assert_eq!(warned, [8, 16, 32, 64]);
    }
}
