//! The real disk, on which everything below some directories fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use windlass_engine::RealDisk;
use windlass_journal::{Disk, DiskFile, Lock};

pub struct BadDisk {
    /// Directories, and what their calls return instead of an answer: an `errno`.
    pub bad: Vec<(PathBuf, Failing, i32)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// The contents of files cannot be read.
    Reads,
    /// Nothing can be opened, listed or changed.
    Everything,
}

impl BadDisk {
    fn check(&self, path: &Path, is_read: bool) -> io::Result<()> {
        let fails = |what: Failing| is_read || what == Failing::Everything;
        let bad = self.bad.iter().find(|(dir, what, _)| path.starts_with(dir) && fails(*what));
        bad.map_or(Ok(()), |(.., errno)| Err(io::Error::from_raw_os_error(*errno)))
    }
}

impl Disk for BadDisk {
    fn is_dir(&self, dir: &Path) -> bool {
        RealDisk.is_dir(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(dir, false)?;
        RealDisk.make_dir(dir)
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>> {
        self.check(dir, false)?;
        RealDisk.lock(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        self.check(dir, false)?;
        RealDisk.list(dir)
    }

    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.dirs(dir)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        self.check(path, false)?;
        RealDisk.bytes(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.check(path, false)?;
        RealDisk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.check(path, false)?;
        RealDisk.open(path)
    }

    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        self.check(path, true)?;
        RealDisk.read(path, offset, bytes)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        self.check(path, false)?;
        RealDisk.link(path, name)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(path, false)?;
        RealDisk.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(dir, false)?;
        RealDisk.remove_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.check(dir, false)?;
        RealDisk.sync_dir(dir)
    }
}
