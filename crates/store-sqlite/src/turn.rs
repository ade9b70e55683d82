//! Processes take turns at the file.
//!
//! SQLite's lock has no queue: whoever waits for it looks again from time to time, and one that
//! writes back to back has it again before anybody has looked. So there is a turnstile before it. A
//! writer takes the turnstile, then the lock, and then lets go of the turnstile. One that waits for
//! the lock has the turnstile meanwhile, and whoever has just committed waits behind it.
//!
//! The turnstile is a lock (`flock`) on the write-ahead log, which SQLite itself never locks: that
//! file is there while anybody has the database open, in the right place and with the right mode,
//! and the kernel gives the lock back when a process dies. It only makes things fair. Where it
//! cannot be had, because a process was stopped in the doorway, or because the file system has no
//! such locks, a writer goes past it.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::doubt::beside;
use crate::open::Options;

/// Pause between two looks at the turnstile.
const TURN_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Turnstile {
    path: PathBuf,
    /// SQLite makes the file with the first read or write, which may come after the start.
    log: Option<File>,
    patience: Duration,
    /// Somebody kept it for longer than that: it is not waited for until it has been free again.
    stuck: bool,
}

impl Turnstile {
    /// Before a file that this process has open.
    pub(crate) fn open(options: &Options) -> Turnstile {
        let path = beside(&options.path, "-wal");
        let log = File::open(&path).ok();
        Turnstile { path, log, patience: options.busy_timeout, stuck: false }
    }

    /// Takes SQLite's lock when it is this process's turn.
    pub(crate) fn pass<T>(&mut self, lock: impl FnOnce() -> T) -> T {
        let held = self.wait();
        let locked = lock();
        if let (Some(log), true) = (&self.log, held) {
            // It can only fail for a file that is not locked.
            let _ = log.unlock();
        }
        locked
    }

    fn wait(&mut self) -> bool {
        if self.log.is_none() {
            self.log = File::open(&self.path).ok();
        }
        let Some(log) = &self.log else { return false };
        let mut since = None;
        loop {
            match log.try_lock() {
                Ok(()) => {
                    self.stuck = false;
                    return true;
                }
                Err(TryLockError::Error(_)) => return false,
                Err(TryLockError::WouldBlock) if self.stuck => return false,
                Err(TryLockError::WouldBlock) => {}
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= self.patience {
                tracing::warn!("another process keeps its turn at the store and does not write");
                self.stuck = true;
                return false;
            }
            std::thread::sleep(TURN_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_taken_from_the_moment_the_log_is_there() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("jobs.db");
        let mut turnstile = Turnstile::open(&Options::new(&path));
        turnstile.pass(|| ());
        let log = beside(&path, "-wal");
        std::fs::write(&log, "").unwrap();
        let other = File::open(&log).unwrap();
        let is_held = || matches!(other.try_lock(), Err(TryLockError::WouldBlock));
        assert!(turnstile.pass(is_held), "the next to come waits behind it");
        assert!(other.try_lock().is_ok(), "and it lets go");
    }
}
