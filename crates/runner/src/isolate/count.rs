//! How many processes an attempt has. The kernel's own limit counts all processes of a user and
//! does not bind root, so they are counted while the attempt runs.
//!
//! A count reads all of `/proc`. It is made only when so many processes were started on the machine
//! since the last one that there could be too many, which the newest process number tells.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::proc;
use crate::tree::Tree;

/// How often the newest process number is looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Census {
    most: Option<u32>,
    look_at: Instant,
    /// The newest process number at the last count, and what was counted.
    newest: Option<u32>,
    counted: u32,
}

impl Census {
    /// For an attempt that has just begun.
    pub(crate) fn new(most: Option<u32>) -> Census {
        let newest = most.and_then(|_| proc::newest());
        Census { most, look_at: Instant::now() + LOOK_PAUSE, newest, counted: 1 }
    }

    /// Returns when there are too many processes, with the words for the log. It may be called
    /// again after it was dropped.
    pub(crate) async fn exceeded(&mut self, tree: &Tree) -> String {
        let Some(most) = self.most else {
            return pending().await;
        };
        loop {
            sleep_until(self.look_at).await;
            self.look_at = Instant::now() + LOOK_PAUSE;
            let newest = proc::newest();
            if !self.may_exceed(most, newest) {
                continue;
            }
            self.newest = newest;
            self.counted = tree.count();
            if self.counted > most {
                let counted = self.counted;
                return format!("killed: it had {counted} processes at once, and may have {most}");
            }
        }
    }

    fn may_exceed(&self, most: u32, newest: Option<u32>) -> bool {
        match (self.newest, newest) {
            // The numbers begin anew at some point.
            (Some(then), Some(now)) if now >= then => {
                now - then > most.saturating_sub(self.counted)
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_made_only_when_enough_processes_were_started() {
        let look_at = Instant::now();
        let census = Census { most: Some(10), look_at, newest: Some(100), counted: 4 };
        assert!(!census.may_exceed(10, Some(100)) && !census.may_exceed(10, Some(106)));
        assert!(census.may_exceed(10, Some(107)));
        assert!(census.may_exceed(10, Some(5)), "the numbers began anew");
        assert!(census.may_exceed(10, None));
    }
}
