//! The private directories of attempts. Each is new, readable only by its owner, and removed after
//! its attempt; those that a killed daemon left are removed by the next one.
//!
//! ```text
//! <scratch>/.lock               held while a runner lives
//! <scratch>/job-cell-<n>        of a cell that runs one job after another, with the same inside
//! <scratch>/job-<id>-<n>/in     what the handler gets: its script, large payloads
//! <scratch>/job-<id>-<n>/root   where a private root is mounted
//! <scratch>/job-<id>-<n>/work   working directory and HOME, if there is no private root
//! <scratch>/job-<id>-<n>/tmp    TMPDIR, likewise
//! ```

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use windlass_core::JobId;
use windlass_core::sync::lock;

use crate::gate::Gate;
use crate::{Error, kill, remove};

const NAME_PREFIX: &str = "job-";
/// Everybody who sees these may read them; nobody else than the handler does.
const INBOX_MODE: u32 = 0o755;
pub(crate) const FILE_MODE: u32 = 0o644;
/// Maximum number of directories remembered for later removal.
const LEFT_MAX: usize = 1000;

/// The parent of the private directories.
pub(crate) struct Scratch {
    root: PathBuf,
    /// Keeps other runners out while it is open.
    _lock: File,
    made: AtomicU64,
    left: Arc<Unremoved>,
    /// The gate that the processes of the attempts pass through.
    pub(crate) gate: Arc<Gate>,
}

/// Directories that could not be removed yet; each attempt retries one of them.
type Unremoved = Mutex<VecDeque<PathBuf>>;

impl Scratch {
    /// Claims the directory, creates it if missing, and removes what a killed runner left.
    pub(crate) fn open(root: &Path) -> Result<Scratch, Error> {
        let failed = |source| Error::Scratch { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(failed)?;
        // Processes show their directory without symbolic links.
        let root = root.canonicalize().map_err(failed)?;
        let lock = File::create(root.join(".lock")).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::ScratchInUse { path: root }),
            Err(errno) => return Err(failed(errno.into())),
        }
        kill::kill_leftovers(&root.join(NAME_PREFIX));
        for entry in fs::read_dir(&root).map_err(failed)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(NAME_PREFIX) {
                remove(&entry.path());
            }
        }
        let made = AtomicU64::new(0);
        Ok(Scratch { root, _lock: lock, made, left: Arc::default(), gate: Arc::default() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the directory of one attempt.
    pub(crate) fn attempt(&self, id: JobId) -> io::Result<AttemptDir> {
        self.make(&id.to_string())
    }

    /// Creates the directory of a cell that runs one job after another.
    pub(crate) fn cell(&self) -> io::Result<AttemptDir> {
        self.make("cell")
    }

    fn make(&self, name: &str) -> io::Result<AttemptDir> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(format!("{NAME_PREFIX}{name}-{number}"));
        let dir = AttemptDir { path, left: Arc::clone(&self.left) };
        for path in [&dir.path, &dir.root(), &dir.work(), &dir.tmp()] {
            DirBuilder::new().mode(0o700).create(path)?;
        }
        // The handler may run as another user, and sees this directory without those above it.
        fs::create_dir(dir.inbox())?;
        fs::set_permissions(dir.inbox(), Permissions::from_mode(INBOX_MODE))?;
        Ok(dir)
    }
}

/// The directory of one attempt; dropping it removes it with all its contents.
pub(crate) struct AttemptDir {
    path: PathBuf,
    left: Arc<Unremoved>,
}

impl AttemptDir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub(crate) fn tmp(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// What the handler can read and not write.
    pub(crate) fn inbox(&self) -> PathBuf {
        self.path.join("in")
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    /// Puts a new file into the inbox.
    pub(crate) fn hand(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        let path = self.inbox().join(name);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all(contents)?;
        // Whatever the umask is.
        file.set_permissions(Permissions::from_mode(FILE_MODE))
    }
}

impl Drop for AttemptDir {
    fn drop(&mut self) {
        let left = || lock(&self.left);
        let earlier = left().pop_front();
        for dir in [Some(self.path.clone()), earlier].into_iter().flatten() {
            // Those beyond the bound are removed when the next runner starts.
            if !remove(&dir) && left().len() < LEFT_MAX {
                left().push_back(dir);
            }
        }
    }
}

/// Whether the directory is gone.
fn remove(dir: &Path) -> bool {
    match remove::remove(dir) {
        Ok(()) => true,
        Err(_) if dir.symlink_metadata().is_err() => true,
        Err(reason) => {
            let dir = dir.display();
            tracing::warn!(%dir, %reason, "a private directory cannot be removed yet");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> JobId {
        JobId::new(7).unwrap()
    }

    #[test]
    fn an_attempt_has_an_empty_private_directory_that_is_removed_with_its_contents() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(&place.path().join("a/b")).unwrap();
        let (one, other) = (scratch.attempt(id()).unwrap(), scratch.attempt(id()).unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(one.work()).unwrap().count(), 0);
        fs::create_dir_all(one.work().join("x/y/z")).unwrap();
        fs::write(one.work().join("x/y/z/file"), "text").unwrap();
        std::os::unix::fs::symlink("/", one.work().join("x/link")).unwrap();
        fs::set_permissions(one.work().join("x/y"), Permissions::from_mode(0o000)).unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().exists());
    }

    #[test]
    fn a_directory_that_is_deeper_than_a_path_may_be_long_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let scratch = Scratch::open(place.path()).unwrap();
        let dir = scratch.attempt(id()).unwrap();
        let script = "n=directory; i=0; while [ $i -lt 600 ]; do mkdir $n; cd $n; i=$((i+1)); done";
        let mut shell = std::process::Command::new("sh");
        let made = shell.args(["-c", script]).current_dir(dir.work()).status();
        assert!(made.unwrap().success());
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_new_runner_removes_what_a_killed_one_left_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("job-5-0/inside/x/y/z")).unwrap();
        fs::create_dir_all(place.path().join("job-5-0/.removed-0/x/y")).unwrap();
        fs::create_dir_all(place.path().join("of somebody else")).unwrap();
        let _scratch = Scratch::open(place.path()).unwrap();
        assert!(!place.path().join("job-5-0").exists());
        assert!(place.path().join("of somebody else").exists());
    }

    #[test]
    fn a_scratch_directory_belongs_to_one_runner_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = Scratch::open(place.path()).unwrap();
        assert!(matches!(Scratch::open(place.path()), Err(Error::ScratchInUse { .. })));
        drop(first);
        assert!(Scratch::open(place.path()).is_ok());
    }
}
