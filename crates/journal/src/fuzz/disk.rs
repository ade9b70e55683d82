//! A disk with one directory and one file in it, in memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use windlass_core::sync::lock;

use crate::disk::{Disk, DiskFile, Lock};

pub(super) struct OneFile {
    name: PathBuf,
    /// `None` once it is removed.
    content: Arc<Content>,
}

struct Content(Mutex<Option<Vec<u8>>>);

impl OneFile {
    pub(super) fn new(name: PathBuf, bytes: &[u8]) -> OneFile {
        OneFile { name, content: Arc::new(Content(Mutex::new(Some(bytes.to_vec())))) }
    }

    pub(super) fn content(&self) -> Option<Vec<u8>> {
        lock(&self.content.0).clone()
    }
}

impl Disk for OneFile {
    fn is_dir(&self, _dir: &Path) -> bool {
        true
    }

    fn make_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _dir: &Path) -> io::Result<Option<Lock>> {
        Ok(Some(Box::new(())))
    }

    fn list(&self, _dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let name = self.name.to_string_lossy().into_owned();
        Ok(self.content().map(|bytes| (name, bytes.len() as u64)).into_iter().collect())
    }

    fn dirs(&self, _dir: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(self.content().ok_or(io::ErrorKind::NotFound)?.len() as u64)
    }

    fn create(&self, _path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn open(&self, _path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.content.clone())
    }

    fn read(&self, _path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let content = self.content().ok_or(io::ErrorKind::NotFound)?;
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let part = content.get(start..).and_then(|rest| rest.get(..bytes));
        Ok(part.ok_or(io::ErrorKind::UnexpectedEof)?.to_vec())
    }

    fn link(&self, _path: &Path, _name: &Path) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        *lock(&self.content.0) = None;
        Ok(())
    }

    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for Content {
    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut content = lock(&self.0);
        let length = usize::try_from(length).map_err(io::Error::other)?;
        content.as_mut().ok_or(io::ErrorKind::NotFound)?.truncate(length);
        Ok(())
    }
}
