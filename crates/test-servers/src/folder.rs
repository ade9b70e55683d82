//! Folders of servers in the temporary directory: created, guarded, and swept when their process is
//! gone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use crate::guard::Guard;

/// The lock file of a folder in use.
const LOCK: &str = "lock";

/// A folder without a lock may have just been created.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// The folder of a server: its data, its log, its process id.
pub(crate) struct Folder {
    pub path: PathBuf,
    owner: Option<Owner>,
    _guard: Guard,
    /// Locked while this process lives.
    _lock: File,
}

/// A system user and its group, by number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    pub user: u32,
    pub group: u32,
}

impl Folder {
    /// `kind` becomes part of its name; a server that must not run as root has an owner.
    pub(crate) fn new(kind: &str, owner: Option<Owner>) -> io::Result<Self> {
        let prefix = format!("windlass-{kind}-");
        sweep(&prefix);
        let path = std::env::temp_dir().join(format!("{prefix}{:016x}", fastrand::u64(..)));
        fs::create_dir(&path)?;
        let guard = Guard::of(&path);
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let folder = Self { path, owner, _guard: guard, _lock: lock };
        folder.give(&folder.path)?;
        Ok(folder)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// The server's user may not be allowed to write to our temporary directory.
    pub(crate) fn belong(&self, command: &mut Command) {
        command.env("TMPDIR", &self.path);
        if let Some(owner) = self.owner {
            command.uid(owner.user).gid(owner.group);
        }
    }

    pub(crate) fn give(&self, path: &Path) -> io::Result<()> {
        match self.owner {
            Some(owner) => chown(path, Some(owner.user), Some(owner.group)),
            None => Ok(()),
        }
    }
}

/// Removes folders of dead processes whose guard could not do it: all processes of a container end
/// with its first.
fn sweep(prefix: &str) {
    for folder in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let path = folder.path();
        let lock = path.join(LOCK);
        // Without a lock: its process was killed before it created one.
        let made = fs::metadata(&lock).or_else(|_| fs::metadata(&path));
        let age = made.and_then(|made| made.modified()).ok();
        let is_old = age.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > SWEEP_AGE);
        let is_ours = folder.file_name().to_string_lossy().starts_with(prefix);
        let is_free = || match File::open(&lock) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_ours && is_old && is_free() {
            let _ = fs::remove_dir_all(path);
        }
    }
}
