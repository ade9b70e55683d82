//! Retries database operations with growing pauses, without a limit.

use std::time::Duration;

use tokio::time::sleep;

use crate::log::Log;
use crate::table::TableError;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Consecutive failures of one activity.
pub(super) struct Failures {
    log: Log,
    /// The name of the activity.
    what: &'static str,
    pause: Duration,
    /// The last error, to avoid logging it again.
    logged: Option<TableError>,
}

impl Failures {
    pub(super) fn new(log: &Log, what: &'static str) -> Failures {
        Failures { log: log.clone(), what, pause: PAUSE_MIN, logged: None }
    }

    /// Logs the error unless it is a repetition, then waits, a little longer each time.
    pub(super) async fn pause(&mut self, error: TableError) {
        if self.logged.as_ref() != Some(&error) {
            self.log.error(format_args!("{} failed and will be retried: {error}", self.what));
            self.logged = Some(error);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    pub(super) fn succeeded(&mut self) {
        if self.logged.take().is_some() {
            self.log.warn(format_args!("{} works again", self.what));
        }
        self.pause = PAUSE_MIN;
    }
}
