//! Lets processes take turns at writing.
//!
//! SQLite's lock has no queue: a process that waits for it retries from time to time, and one that
//! writes back to back has it again before the others retry. So there is a turnstile in front of
//! it. A writer takes the turnstile, then the lock, and then releases the turnstile. A process that
//! waits for the lock holds the turnstile, and one that has just committed has to wait behind it.
//!
//! The turnstile is a lock (`flock`) on the write-ahead log, which SQLite itself never locks. That
//! file exists while any process has the database open, in the right place and with the right mode,
//! and the kernel releases the lock when a process dies. The turnstile only provides fairness. If
//! the lock cannot be taken, because a process that holds it was suspended, or because the file
//! system has no such locks, a writer proceeds without it.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::doubt::beside;
use crate::open::Options;

/// Pause between two attempts to take the turnstile.
const TURN_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Turnstile {
    path: PathBuf,
    /// SQLite creates the file at the first read or write, which may come after the start.
    log: Option<File>,
    patience: Duration,
    /// Another process held it for longer than that: do not wait for it until it has been free.
    stuck: bool,
}

impl Turnstile {
    /// For a file that this process has open.
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
            // Fails only if the file is not locked.
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
                tracing::warn!("another process holds its turn at the store and does not write");
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
        assert!(turnstile.pass(is_held), "the next process waits");
        assert!(other.try_lock().is_ok(), "and it is released");
    }
}
