//! What the disk alone can do: append to a file and sync it, with one caller.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) struct SyncedFile(File);

impl SyncedFile {
    pub(crate) fn create(dir: &Path) -> io::Result<SyncedFile> {
        Ok(SyncedFile(File::create(dir.join("synced"))?))
    }

    /// Appends and syncs; returns how long that took.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<Duration> {
        let began = Instant::now();
        self.0.write_all(bytes)?;
        self.0.sync_data()?;
        Ok(began.elapsed())
    }

    /// Appends repeatedly for a while; returns appends per second.
    pub(crate) fn rate(&mut self, bytes: &[u8], time: Duration) -> io::Result<f64> {
        let began = Instant::now();
        let mut appends = 0u64;
        while began.elapsed() < time {
            self.append(bytes)?;
            appends += 1;
        }
        Ok(appends as f64 / began.elapsed().as_secs_f64())
    }
}

/// The payload of every job here: one line of 200 bytes, including its end.
pub(crate) fn line() -> Vec<u8> {
    let mut line = vec![b'x'; LINE_BYTES - 1];
    line.push(b'\n');
    line
}

pub(crate) const LINE_BYTES: usize = 200;
