//! Copies files with their checksums, and syncs them.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use sha2::{Digest, Sha256};

use super::manifest::Entry;
use crate::output;

/// The files hold payloads, so only their owner may access them.
pub(super) const FILE_MODE: u32 = 0o600;
const PIECE_BYTES: usize = 1024 * 1024;
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
const MB: u64 = 1024 * 1024;

/// Shows on a terminal how far a copy has come.
pub(super) struct Meter {
    what: &'static str,
    done_bytes: u64,
    total_bytes: Option<u64>,
    shown_at: Instant,
}

impl Meter {
    pub(super) fn new(what: &'static str, total_bytes: Option<u64>) -> Meter {
        Meter { what, done_bytes: 0, total_bytes, shown_at: Instant::now() }
    }

    fn add(&mut self, bytes: u64) {
        self.done_bytes += bytes;
        let total = self.total_bytes.map(|total| format!(" of {}", size_text(total)));
        let text = format!("{}{}", size_text(self.done_bytes), total.unwrap_or_default());
        self.show(&text);
    }

    /// Progress of something that is not measured in bytes.
    pub(super) fn show_part(&mut self, done: u64, total: u64) {
        self.show(&format!("store, {}%", done * 100 / total.max(1)));
    }

    fn show(&mut self, text: &str) {
        if self.shown_at.elapsed() >= SHOW_INTERVAL {
            self.shown_at = Instant::now();
            output::progress(&format!("{}: {text}", self.what));
        }
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        output::progress("");
    }
}

/// Copies the first `bytes` bytes, or fewer if the file has fewer, into a new file, and syncs it.
/// Returns their number and their checksum.
pub(super) fn copy(
    (from, from_path): (&File, &Path),
    to_path: &Path,
    bytes: u64,
    meter: &mut Meter,
) -> anyhow::Result<(u64, String)> {
    let cannot_write = || format!("cannot write {}", to_path.display());
    let to = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(to_path);
    let mut to = to.with_context(cannot_write)?;
    let copied = read((from, from_path), bytes, |piece| {
        meter.add(piece.len() as u64);
        to.write_all(piece).with_context(cannot_write)
    })?;
    to.sync_all().with_context(cannot_write)?;
    Ok(copied)
}

/// How many of the first `bytes` bytes there are, and their checksum.
pub(super) fn checksum(
    from: (&File, &Path),
    bytes: u64,
    meter: &mut Meter,
) -> anyhow::Result<(u64, String)> {
    read(from, bytes, |piece| {
        meter.add(piece.len() as u64);
        Ok(())
    })
}

fn read(
    (from, path): (&File, &Path),
    bytes: u64,
    mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<(u64, String)> {
    let mut from = from.take(bytes);
    let mut sum = Sha256::new();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut done = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            count => count.with_context(|| format!("cannot read {}", path.display()))?,
        };
        if count == 0 {
            return Ok((done, hex(&sum.finalize())));
        }
        sum.update(&buffer[..count]);
        done += count as u64;
        each(&buffer[..count])?;
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the names of these files below `root` durable. The files themselves are synced.
pub(super) fn sync_dirs(root: &Path, files: &[Entry]) -> io::Result<()> {
    let parents = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    let dirs: BTreeSet<&Path> = parents.chain([Path::new("")]).collect();
    dirs.into_iter().rev().try_for_each(|dir| File::open(root.join(dir))?.sync_all())
}

/// A rough size for people.
pub(super) fn size_text(bytes: u64) -> String {
    match bytes {
        0..MB => format!("{} KB", bytes.div_ceil(1024)),
        _ => format!("{}.{} MB", bytes / MB, bytes % MB * 10 / MB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_grows_is_copied_up_to_the_given_length() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, "abcdef").unwrap();
        let file = File::open(&from).unwrap();
        let mut meter = Meter::new("test", None);
        let (bytes, sum) = copy((&file, &from), &to, 3, &mut meter).unwrap();
        assert_eq!((bytes, std::fs::read(&to).unwrap()), (3, b"abc".to_vec()));
        assert_eq!(sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let file = File::open(&from).unwrap();
        assert_eq!(checksum((&file, &from), 100, &mut meter).unwrap().0, 6);
        assert!(copy((&file, &from), &to, 3, &mut meter).is_err(), "it exists");
    }

    #[test]
    fn sizes_are_rough() {
        assert_eq!([0, 1, 1024, MB * 3 / 2].map(size_text), ["0 KB", "1 KB", "1 KB", "1.5 MB"]);
    }
}
