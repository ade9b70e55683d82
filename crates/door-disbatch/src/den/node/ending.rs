//! How far the end of a node is.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::den::runs::Runs;
use crate::task::Why;

/// How long the ends of tasks may take to be written when the node stops.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same when it is told to stop at once.
const HURRY_TIME_MAX: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct Ending {
    /// Nothing more is claimed; it is over when nothing runs.
    pub(super) began: bool,
    pub(super) stopped: bool,
    pub(super) hurried: bool,
    pub(super) lost: bool,
    pub(super) end_at: Option<Instant>,
    pub(super) give_up_at: Option<Instant>,
}

impl Ending {
    pub(super) fn stop(&mut self, time: Duration) {
        (self.began, self.stopped) = (true, true);
        self.end_at = Some(Instant::now() + time);
        self.give_up_at = Some(Instant::now() + time + WRITE_TIME_MAX);
    }

    pub(super) fn hurry(&mut self, runs: &Runs) {
        (self.began, self.stopped, self.hurried) = (true, true, true);
        self.end_at = None;
        self.give_up_at = Some(Instant::now() + HURRY_TIME_MAX);
        runs.end_all(Why::Stopped);
    }
}

/// Never, when there is no such moment.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
