//! Asking the database again: soon in the beginning, then less and less often, for ever.

use std::time::Duration;

use tokio::time::sleep;

use crate::log::Log;
use crate::table::TableError;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The failures of one activity in a row.
pub(super) struct Failures {
    log: Log,
    /// What fails.
    what: &'static str,
    pause: Duration,
    /// The last one, which is not logged again.
    said: Option<TableError>,
}

impl Failures {
    pub(super) fn new(log: &Log, what: &'static str) -> Failures {
        Failures { log: log.clone(), what, pause: PAUSE_MIN, said: None }
    }

    /// Says it, unless it was just said, and waits a little longer each time.
    pub(super) async fn pause(&mut self, error: TableError) {
        if self.said.as_ref() != Some(&error) {
            self.log.error(format_args!("{} failed and is tried again: {error}", self.what));
            self.said = Some(error);
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    pub(super) fn over(&mut self) {
        if self.said.take().is_some() {
            self.log.warn(format_args!("{} works again", self.what));
        }
        self.pause = PAUSE_MIN;
    }
}
