//! Watches two limits while an attempt runs. The kernel's own limit of processes counts all of a
//! user, so those of the attempt are counted here. Its limit of CPU time is a signal that a process
//! can ignore, or a limit that can be set once only, so the time of a context is looked at, too.
//!
//! A count reads all of `/proc`. It happens only if so many processes were started on the machine
//! since the last one that the limit could have been passed, which the newest process number shows.

use std::future::pending;
use std::time::Duration;

use rustix::process::Pid;
use tokio::time::{Instant, sleep_until};

use crate::proc;
use crate::tree::Tree;

/// Seconds beyond its CPU time that a process may ignore the signal.
const CPU_GRACE_S: u64 = 1;
/// How often to look.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct ProcessCounter {
    most: Option<u32>,
    look_at: Instant,
    /// The newest process number at the last count, and the result.
    newest: Option<u32>,
    counted: u32,
    /// A process, and how many seconds of CPU time it may have used in all.
    cpu: Option<(Pid, u64)>,
}

impl ProcessCounter {
    /// For an attempt that has just begun.
    pub(crate) fn new(most: Option<u32>) -> ProcessCounter {
        let newest = most.and_then(|_| proc::newest());
        ProcessCounter { most, look_at: Instant::now() + LOOK_PAUSE, newest, counted: 1, cpu: None }
    }

    pub(crate) fn limit_cpu(&mut self, process: Pid, seconds: u64) {
        self.cpu = Some((process, seconds));
    }

    /// Returns when a limit is exceeded, with the text for the log. May be called again after it
    /// was dropped.
    pub(crate) async fn exceeded(&mut self, tree: &Tree) -> String {
        if self.most.is_none() && self.cpu.is_none() {
            return pending().await;
        }
        loop {
            sleep_until(self.look_at).await;
            self.look_at = Instant::now() + LOOK_PAUSE;
            let over = |(process, seconds)| {
                proc::cpu_seconds(process).is_some_and(|used| used > seconds + CPU_GRACE_S)
            };
            if self.cpu.is_some_and(over) {
                return "killed: its CPU time is used up (options.cpu)".into();
            }
            let Some(most) = self.most else { continue };
            let newest = proc::newest();
            if !self.may_exceed(most, newest) {
                continue;
            }
            self.newest = newest;
            self.counted = tree.count();
            if self.counted > most {
                let counted = self.counted;
                return format!(
                    "killed: it had {counted} processes at once, more than the limit of {most}"
                );
            }
        }
    }

    fn may_exceed(&self, most: u32, newest: Option<u32>) -> bool {
        match (self.newest, newest) {
            // The numbers wrap around at some point.
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
        let (newest, cpu) = (Some(100), None);
        let counter = ProcessCounter { most: Some(10), look_at, newest, counted: 4, cpu };
        assert!(!counter.may_exceed(10, Some(100)) && !counter.may_exceed(10, Some(106)));
        assert!(counter.may_exceed(10, Some(107)));
        assert!(counter.may_exceed(10, Some(5)), "the numbers began anew");
        assert!(counter.may_exceed(10, None));
    }
}
