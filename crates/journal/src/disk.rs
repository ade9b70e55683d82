//! Every call to the file system, behind one small trait, so that tests can make any of them fail
//! and a simulation can stand in for the machine.

use std::any::Any;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinError;

/// Keeps a directory locked until it is dropped or its process ends.
pub type Lock = Box<dyn Any + Send + Sync>;

pub trait Disk: Send + Sync + 'static {
    /// Whether its calls may block, so that they belong on threads of their own. If they never do,
    /// everything runs on the caller's thread, in an order that only the caller decides.
    fn blocks(&self) -> bool {
        true
    }
    fn is_dir(&self, dir: &Path) -> bool;
    /// Creates one directory in an existing parent; an existing directory is not an error. Syncing
    /// the parent makes it durable.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// `None` if another process has the lock; `NotFound` if the directory does not exist, or was
    /// removed.
    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>>;
    /// Names and sizes of the files in a directory; none if it does not exist.
    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>>;
    /// Names of the directories in a directory, and of what cannot be looked at.
    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// The length of a file.
    fn bytes(&self, path: &Path) -> io::Result<u64>;
    /// A new file; it is an error if it exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// An existing file, for writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Exactly `bytes` bytes from `offset`.
    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>>;
    /// Gives a file a second name in the same directory; `AlreadyExists` if it is taken.
    fn link(&self, path: &Path, name: &Path) -> io::Result<()>;
    /// A missing file is not an error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes the lock and the directory, which must contain nothing else. Only the owner of the
    /// lock may do this; if the directory has a new owner by then, it is left alone.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes creations and removals in the directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

pub trait DiskFile: Send + Sync + 'static {
    /// Writes all of `bytes`; after an error, any part of them may be written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Content and length are durable when this returns.
    fn sync(&self) -> io::Result<()>;
    fn truncate(&self, length: u64) -> io::Result<()>;
}

/// Creates the directory and its parents if missing. On return it is durable in its parent, even if
/// it existed: its creator may have died before syncing the parent. Higher levels are durable
/// already, since nothing is created in a directory that is not.
pub fn create_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let is_old = disk.is_dir(dir);
    if !is_old {
        create_dir(disk, parent)?;
        disk.make_dir(dir)?;
    }
    match disk.sync_dir(parent) {
        // We have created nothing in a parent that we can neither read nor change.
        Err(error) if is_old && is_foreign(&error) => Ok(()),
        synced => synced,
    }
}

fn is_foreign(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// Runs work on a disk where it holds up nobody: on a thread for such work if the disk blocks.
pub async fn on_disk<T: Send + 'static>(
    disk: &dyn Disk,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    if disk.blocks() {
        return tokio::task::spawn_blocking(work).await;
    }
    // Others have their turn, as they would while a thread works.
    tokio::task::yield_now().await;
    Ok(work())
}

/// Name of the file whose lock stands for its directory.
const LOCK_NAME: &str = "lock";
/// How often to retry if a lock file vanishes while it is being locked.
const LOCK_ATTEMPTS_MAX: usize = 16;

/// The machine's own file system.
pub struct RealDisk;

impl Disk for RealDisk {
    fn is_dir(&self, dir: &Path) -> bool {
        dir.is_dir()
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn lock(&self, dir: &Path) -> io::Result<Option<Lock>> {
        let path = dir.join(LOCK_NAME);
        for _ in 0..LOCK_ATTEMPTS_MAX {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Another process may have removed the directory, and unlinked this file, before we
            // locked it.
            let same_file = match fs::metadata(&path) {
                Ok(named) => named.ino() == file.metadata()?.ino(),
                Err(_) => false,
            };
            if same_file {
                return Ok(Some(Box::new(file)));
            }
        }
        Ok(None)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<(String, u64)>> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    fn dirs(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            // What cannot be looked at may be one.
            let is_other = fs::metadata(entry.path()).is_ok_and(|found| !found.is_dir());
            if let (false, Ok(name)) = (is_other, entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().create_new(true).write(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().write(true).open(path)?))
    }

    fn read(&self, path: &Path, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        File::open(path)?.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }

    fn link(&self, path: &Path, name: &Path) -> io::Result<()> {
        fs::hard_link(path, name)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        let lock = dir.join(LOCK_NAME);
        self.remove(&lock)?;
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match fs::remove_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    if lock.exists() {
                        return Ok(());
                    }
                }
                removed => return removed,
            }
        }
        Err(io::ErrorKind::DirectoryNotEmpty.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}

#[cfg(test)]
mod tests {
    use windlass_faulty_disk::FaultyDisk;

    use super::*;

    #[test]
    fn files_and_directories_are_listed_apart() {
        let root = tempfile::tempdir().unwrap();
        let (disk, root) = (RealDisk, root.path());
        let file = root.join("file");
        fs::write(&file, "abc").unwrap();
        disk.make_dir(&root.join("dir")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("broken")).unwrap();
        assert_eq!(disk.list(root).unwrap(), [("file".to_owned(), 3)]);
        let mut dirs = disk.dirs(root).unwrap();
        dirs.sort();
        assert_eq!(dirs, ["broken", "dir"], "what cannot be looked at may be one");
        assert!(disk.list(&root.join("missing")).unwrap().is_empty());
        assert!(disk.list(&file).is_err(), "it is not a directory");
        assert_eq!(disk.bytes(&file).unwrap(), 3);
    }

    #[test]
    fn a_second_name_is_the_same_file_and_never_replaces_another() {
        let root = tempfile::tempdir().unwrap();
        let [file, name] = ["file", "name"].map(|name| root.path().join(name));
        fs::write(&file, "abc").unwrap();
        RealDisk.link(&file, &name).unwrap();
        assert_eq!(RealDisk.read(&name, 1, 2).unwrap(), b"bc");
        let taken = RealDisk.link(&file, &name).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn what_is_missing_need_not_be_removed_and_what_stays_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let [dir, link] = ["dir", "link"].map(|name| root.path().join(name));
        let kind = |removed: io::Result<()>| removed.map_err(|error| error.kind());
        assert_eq!(kind(RealDisk.remove(&dir)), Ok(()));
        assert_eq!(kind(RealDisk.remove_dir(&dir)), Ok(()));
        RealDisk.make_dir(&dir).unwrap();
        assert!(RealDisk.remove(&dir).is_err(), "it is a directory");
        fs::write(dir.join("other"), "").unwrap();
        let not_empty = Err(io::ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind(RealDisk.remove_dir(&dir)), not_empty);
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert_eq!(kind(RealDisk.remove_dir(&link)), Err(io::ErrorKind::NotADirectory));
        fs::remove_file(dir.join("other")).unwrap();
        fs::write(dir.join(LOCK_NAME), "").unwrap();
        assert_eq!(kind(RealDisk.remove_dir(&dir)), Ok(()));
        assert!(!RealDisk.is_dir(&dir));
    }

    #[test]
    fn what_was_synced_survives_a_power_cut_and_nothing_else() {
        let [root, left] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let disk = FaultyDisk::new(root.path()).unwrap();
        disk.run(|| {
            for (name, is_synced) in [("synced", true), ("written", false)] {
                let file = RealDisk.create(&root.path().join(name)).unwrap();
                file.write_at(b"abc", 0).unwrap();
                if is_synced {
                    file.sync().unwrap();
                }
            }
            RealDisk.sync_dir(root.path()).unwrap();
            RealDisk.create(&root.path().join("unnamed")).unwrap().sync().unwrap();
        });
        disk.power_cut(left.path(), None).unwrap();
        let mut files = RealDisk.list(left.path()).unwrap();
        files.sort();
        assert_eq!(files, [("synced".to_owned(), 3), ("written".to_owned(), 0)]);
    }
}
