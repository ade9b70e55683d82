//! Payloads that are too large for a frame: each in a separate file, complete and synced before the
//! journal refers to it. A file that no record refers to is removed again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use windlass_core::{JobId, Sysid};

use crate::disk::{Disk, DiskFile, on_disk};
use crate::error::Error;

/// A large payload, synced, not yet referred to by an append. The file is removed when the last
/// clone is dropped without a successful append.
#[derive(Clone)]
pub struct Spool(Arc<SpoolFile>, u64);

impl Spool {
    /// Size of the payload.
    pub fn bytes(&self) -> u64 {
        self.1
    }

    pub fn path(&self) -> &Path {
        &self.0.path
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// From now on a record may refer to the file, which stays even if this process ends.
    pub(crate) fn keep(&self) {
        self.0.kept.store(true, Ordering::Release);
    }

    /// No record refers to the file after all.
    pub(crate) fn release(&self) {
        self.0.kept.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("path", &self.0.path).field("bytes", &self.1).finish()
    }
}

/// Takes a large payload piece by piece. Dropped unfinished, it leaves nothing behind.
pub struct SpoolWriter {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn DiskFile>,
    named: SpoolFile,
    bytes: u64,
}

/// The path of a file that is removed on drop unless it is kept.
struct SpoolFile {
    disk: Arc<dyn Disk>,
    name: String,
    path: PathBuf,
    kept: AtomicBool,
}

impl SpoolWriter {
    pub(crate) async fn create(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        sysid: Sysid,
        id: JobId,
    ) -> Result<SpoolWriter, Error> {
        blocking(&*disk.clone(), move || {
            let name = file_name(sysid, id);
            let path = dir.join(&name);
            let file =
                disk.create(&path).map_err(|error| Error::storage("create", &path, &error))?;
            let named = SpoolFile { disk: disk.clone(), name, path, kept: AtomicBool::new(false) };
            Ok(SpoolWriter { disk, dir, file, named, bytes: 0 })
        })
        .await
    }

    /// Adds a piece of any size. The writer is unusable after an error.
    pub async fn write(&mut self, piece: Bytes) -> Result<(), Error> {
        let (file, path, offset) = (self.file.clone(), self.named.path.clone(), self.bytes);
        self.bytes += piece.len() as u64;
        blocking(&*self.disk, move || {
            file.write_at(&piece, offset).map_err(|error| Error::storage("write", &path, &error))
        })
        .await
    }

    /// The payload is durable when this returns.
    pub async fn finish(self) -> Result<Spool, Error> {
        let SpoolWriter { disk, dir, file, named, bytes } = self;
        blocking(&*disk.clone(), move || {
            file.sync()
                .and_then(|()| disk.sync_dir(&dir))
                .map_err(|error| Error::storage("sync", &named.path, &error))?;
            Ok(Spool(Arc::new(named), bytes))
        })
        .await
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Acquire) {
            return;
        }
        let (disk, path) = (self.disk.clone(), std::mem::take(&mut self.path));
        let remove = move || {
            if let Err(error) = disk.remove(&path) {
                tracing::warn!(file = %path.display(), %error, "cannot remove an unused payload");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.disk.blocks() => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }
}

/// Files in the spool directory start with the number of their daemon, since several share it.
pub(crate) fn is_of(name: &str, sysid: Sysid) -> bool {
    name.strip_prefix(&format!("{sysid}-")).is_some()
}

fn file_name(sysid: Sysid, id: JobId) -> String {
    format!("{sysid}-{id}.payload")
}

/// Runs something that may block on the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    disk: &dyn Disk,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match on_disk(disk, work).await {
        Ok(result) => result,
        Err(error) => Err(Error::Storage(format!("a disk operation was interrupted: {error}"))),
    }
}
