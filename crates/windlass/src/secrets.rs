//! The key file of secrets: `secrets.key` in the data directory, unless `secrets.key_file` names
//! another. It is for its owner alone, and shared by the daemons of a data directory.
//!
//! The file is only ever replaced as a whole. Who seals or replaces keys holds a lock on the file
//! itself; a replacement is locked before it gets the file's name, so there is no moment in which
//! others could lock it.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use windlass_core::file_name::FileName;
use windlass_core::limit::SEAL_KEYS_MAX;
use windlass_core::secret::{KeyLock, KeyRing, LockedKeys, NoKeys, SealKeys};

use crate::keys;

/// In the data directory.
pub(crate) const FILE: &str = "secrets.key";
/// Largest key file that is read: all its keys, and a page of comments.
const FILE_BYTES_MAX: u64 = 4096 + 128 * SEAL_KEYS_MAX as u64;
/// The rights of the group and of everybody else.
const OTHERS: u32 = 0o077;
/// How often a file is opened that others replace at the same time.
const OPEN_TRIES_MAX: usize = 10;

pub(crate) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    pub(crate) fn new(path: PathBuf) -> KeyFile {
        KeyFile { path }
    }

    /// The error for clients, which see no directories.
    fn unusable(&self, why: impl std::fmt::Display) -> NoKeys {
        NoKeys::Unusable(format!("the key file {} {why}", FileName(&self.path)))
    }

    /// Opens the file if nobody else has access to it.
    fn open(&self) -> Result<File, NoKeys> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Err(NoKeys::Missing),
            Err(Errno::LOOP) => {
                return Err(self.unusable("is a symbolic link: name the file that it leads to"));
            }
            Err(error) => return Err(self.unusable(format!("cannot be opened: {error}"))),
        };
        let metadata = file.metadata().map_err(|error| self.unusable(error))?;
        if !metadata.is_file() {
            return Err(self.unusable("is not a file"));
        }
        if metadata.mode() & OTHERS != 0 {
            let why = "is accessible to other users: close it (chmod go=), and replace its keys \
                       if somebody may have read them (windlass secret rekey)";
            return Err(self.unusable(why));
        }
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.unusable("belongs to another user"));
        }
        Ok(file)
    }

    fn read_from(&self, file: &File) -> Result<KeyRing, NoKeys> {
        let mut text = zeroize::Zeroizing::new(String::new());
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| self.unusable(format!("cannot be read: {error}")))?;
        KeyRing::parse(&text).ok_or_else(|| self.unusable("holds something else than keys"))
    }

    /// Whether this is still the file with our name.
    fn is_current(&self, file: &File) -> io::Result<bool> {
        let (ours, named) = (file.metadata()?, self.path.symlink_metadata()?);
        Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
    }
}

impl SealKeys for KeyFile {
    fn read(&self) -> Result<KeyRing, NoKeys> {
        self.read_from(&self.open()?)
    }

    fn make(&self) -> Result<(), NoKeys> {
        let ring = KeyRing::random().map_err(|error| self.unusable(error))?;
        let made = keys::create(&self.path, &ring.reveal());
        let made = made.map_err(|error| self.unusable(format!("cannot be made: {error}")))?;
        if made {
            let (file, key) = (self.path.display(), ring.newest());
            tracing::info!(%file, %key, "made a key for secrets; it is in this file");
        }
        Ok(())
    }

    fn lock(&self, how: KeyLock) -> Result<Box<dyn LockedKeys>, NoKeys> {
        for _ in 0..OPEN_TRIES_MAX {
            let file = self.open()?;
            let locked = match how {
                KeyLock::Seal => file.try_lock_shared(),
                KeyLock::Replace => file.try_lock(),
            };
            match locked {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(NoKeys::Busy),
                Err(TryLockError::Error(error)) => {
                    return Err(self.unusable(format!("cannot be locked: {error}")));
                }
            }
            // It may have been replaced since it was opened.
            if self.is_current(&file).unwrap_or(false) {
                let ring = self.read_from(&file)?;
                return Ok(Box::new(Locked { path: self.path.clone(), ring, files: vec![file] }));
            }
        }
        Err(NoKeys::Busy)
    }
}

/// The locks end with the files.
struct Locked {
    path: PathBuf,
    ring: KeyRing,
    files: Vec<File>,
}

impl LockedKeys for Locked {
    fn ring(&self) -> &KeyRing {
        &self.ring
    }

    fn replace(&mut self, ring: KeyRing) -> Result<(), NoKeys> {
        let file = replace(&self.path, &ring.reveal()).map_err(|error| {
            let name = FileName(&self.path);
            NoKeys::Unusable(format!("the key file {name} cannot be replaced: {error}"))
        })?;
        self.files.push(file);
        self.ring = ring;
        Ok(())
    }
}

/// Writes a whole file, locks it, and puts it in place of the one that is there, durably.
fn replace(path: &Path, text: &str) -> io::Result<File> {
    let beside = keys::beside(path, text.as_bytes())?;
    beside.as_file().try_lock()?;
    let file = beside.persist(path)?;
    keys::sync_parent(path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn key_file() -> (tempfile::TempDir, KeyFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        (dir, KeyFile::new(path))
    }

    fn unusable(file: &KeyFile) -> String {
        match file.read() {
            Err(NoKeys::Unusable(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_key_is_made_once_for_all_daemons_and_for_its_owner_alone() {
        let (dir, file) = key_file();
        assert_eq!(file.read(), Err(NoKeys::Missing));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| file.make().unwrap());
            }
        });
        let ring = file.read().unwrap();
        file.make().unwrap();
        assert_eq!(file.read().unwrap(), ring);
        assert_eq!(file.path.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_file_of_others_or_a_link_is_refused_without_its_directory() {
        let (dir, file) = key_file();
        file.make().unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&file.path, Permissions::from_mode(mode)).unwrap();
            let why = unusable(&file);
            assert!(why.starts_with("the key file secrets.key is accessible to other"), "{why}");
            assert!(!why.contains(dir.path().to_str().unwrap()), "{why}");
        }
        fs::set_permissions(&file.path, Permissions::from_mode(0o400)).unwrap();
        assert!(file.read().is_ok());
        let link = KeyFile::new(dir.path().join("link.key"));
        symlink(&file.path, &link.path).unwrap();
        assert!(unusable(&link).contains("is a symbolic link"));
        fs::create_dir(dir.path().join("dir.key")).unwrap();
        let directory = KeyFile::new(dir.path().join("dir.key"));
        assert!(unusable(&directory).contains("is not a file"));
        fs::write(file.path.with_extension("x"), "not a key").unwrap();
        let other = KeyFile::new(file.path.with_extension("x"));
        fs::set_permissions(&other.path, Permissions::from_mode(0o600)).unwrap();
        assert!(unusable(&other).contains("holds something else than keys"));
    }

    #[test]
    fn who_seals_keeps_keys_from_being_replaced_and_the_other_way_round() {
        let (_dir, file) = key_file();
        assert!(matches!(file.lock(KeyLock::Seal), Err(NoKeys::Missing)));
        file.make().unwrap();
        let busy = |how| matches!(file.lock(how), Err(NoKeys::Busy));
        let (one, other) = (file.lock(KeyLock::Seal).unwrap(), file.lock(KeyLock::Seal).unwrap());
        assert!(busy(KeyLock::Replace));
        drop((one, other));
        let mut keys = file.lock(KeyLock::Replace).unwrap();
        assert!(busy(KeyLock::Seal) && busy(KeyLock::Replace));
        let both = keys.ring().with_new_key().unwrap();
        keys.replace(both.clone()).unwrap();
        assert_eq!((file.read().unwrap(), keys.ring()), (both.clone(), &both));
        assert!(busy(KeyLock::Seal), "the new file is locked as well");
        keys.replace(both.only(&[])).unwrap();
        drop(keys);
        assert_eq!(file.lock(KeyLock::Seal).unwrap().ring(), &both.only(&[]));
        assert_eq!(file.path.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
