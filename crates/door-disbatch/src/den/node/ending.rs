//! The stages of a node's shutdown, and what need not wait for it.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::den::runs::Runs;
use crate::task::StopReason;
use windlass_program::Stop;

/// Time limit for writing the ends of tasks when the node stops.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same for an immediate stop.
const HURRY_TIME_MAX: Duration = Duration::from_secs(3);

/// The events that lead to the end, and the tasks they affect.
pub(super) struct Signals<'a> {
    pub(super) stop: &'a Stop,
    pub(super) lost: &'a CancellationToken,
    pub(super) runs: &'a Runs,
    /// How long tasks may continue after the node was asked to stop.
    pub(super) stop_timeout: Duration,
}

#[derive(Default)]
pub(super) struct Ending {
    /// Nothing more is claimed; the end is reached when nothing runs.
    pub(super) began: bool,
    pub(super) stopped: bool,
    pub(super) hurried: bool,
    pub(super) lost: bool,
    end_at: Option<Instant>,
    give_up_at: Option<Instant>,
}

impl Ending {
    /// Waits for the next event and handles it. True: abandon whatever else is in progress.
    pub(super) async fn next(&mut self, signals: &Signals<'_>) -> bool {
        let Signals { stop, lost, runs, stop_timeout } = signals;
        tokio::select! {
            biased;
            () = stop.now.cancelled(), if !self.hurried => self.shorten(runs),
            () = lost.cancelled(), if !self.lost => {
                (self.lost, self.began) = (true, true);
                runs.end_all(StopReason::Fenced);
            }
            () = stop.asked.cancelled(), if !self.stopped => {
                tracing::info!(running = runs.count(), "stopping");
                self.stop(*stop_timeout);
                // A claim in progress is answered soon and then released properly.
                return false;
            }
            () = until(self.end_at) => {
                self.end_at = None;
                runs.end_all(StopReason::Stopped);
            }
            () = until(self.give_up_at) => {
                self.give_up_at = None;
                runs.give_up();
            }
            // A pending claim occupies a slot, too.
            () = runs.ended.notified(), if self.began => return runs.slots_used() == 0,
        }
        true
    }

    /// Runs work that may be abandoned. `None` if the end could not wait for it.
    pub(super) async fn unless_ending<T>(
        &mut self,
        signals: &Signals<'_>,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                leave = self.next(signals) => if leave {
                    return None;
                },
            }
        }
    }

    pub(super) fn stop(&mut self, time: Duration) {
        (self.began, self.stopped) = (true, true);
        self.end_at = Some(Instant::now() + time);
        self.give_up_at = Some(Instant::now() + time + WRITE_TIME_MAX);
    }

    fn shorten(&mut self, runs: &Runs) {
        (self.began, self.stopped, self.hurried) = (true, true, true);
        self.end_at = None;
        self.give_up_at = Some(Instant::now() + HURRY_TIME_MAX);
        runs.end_all(StopReason::Stopped);
    }
}

/// Pends forever without a time.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use mongodb::bson::oid::ObjectId;

    use super::*;

    const STOP_TIMEOUT: Duration = Duration::from_secs(60);

    struct Node {
        stop: Stop,
        lost: CancellationToken,
        runs: Runs,
    }

    impl Node {
        fn new() -> Node {
            Node { stop: Stop::default(), lost: CancellationToken::new(), runs: Runs::default() }
        }

        /// How long a task that never ends is waited for.
        async fn waits(&self, ending: &mut Ending) -> Duration {
            let (stop, lost, runs) = (&self.stop, &self.lost, &self.runs);
            let signals = Signals { stop, lost, runs, stop_timeout: STOP_TIMEOUT };
            let begin = Instant::now();
            assert_eq!(ending.unless_ending(&signals, pending::<()>()).await, None);
            begin.elapsed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_for_nothing_longer_than_it_may_take() {
        let (node, mut ending) = (Node::new(), Ending::default());
        node.stop.asked.cancel();
        assert_eq!(node.waits(&mut ending).await, STOP_TIMEOUT);
        assert_eq!(node.waits(&mut ending).await, WRITE_TIME_MAX);
        assert!(ending.began && ending.stopped && !ending.hurried);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_and_a_lost_name_wait_for_nothing() {
        let (node, mut ending) = (Node::new(), Ending::default());
        node.stop.asked.cancel();
        node.stop.now.cancel();
        assert_eq!(node.waits(&mut ending).await, Duration::ZERO);
        assert_eq!(node.waits(&mut ending).await, HURRY_TIME_MAX);
        let (node, mut ending) = (Node::new(), Ending::default());
        node.lost.cancel();
        assert_eq!(node.waits(&mut ending).await, Duration::ZERO);
        assert!(ending.lost && ending.began && !ending.stopped);
    }

    #[tokio::test(start_paused = true)]
    async fn when_nothing_runs_any_more_nothing_is_waited_for() {
        let (node, mut ending) = (Node::new(), Ending::default());
        node.stop.asked.cancel();
        node.runs.ended.notify_one();
        assert_eq!(node.waits(&mut ending).await, Duration::ZERO);
    }

    /// Its result would never be released.
    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_asked_for_is_waited_for() {
        let (node, mut ending) = (Node::new(), Ending::default());
        node.runs.claim_requested("a", ObjectId::new());
        node.stop.asked.cancel();
        node.runs.ended.notify_one();
        assert_eq!(node.waits(&mut ending).await, STOP_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_in_time_is_done() {
        let (node, mut ending) = (Node::new(), Ending::default());
        node.stop.asked.cancel();
        let (stop, lost, runs) = (&node.stop, &node.lost, &node.runs);
        let signals = Signals { stop, lost, runs, stop_timeout: STOP_TIMEOUT };
        let work = async { tokio::time::sleep(STOP_TIMEOUT / 2).await };
        assert_eq!(ending.unless_ending(&signals, work).await, Some(()));
    }
}
