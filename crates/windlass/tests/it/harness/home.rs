//! A test's private directory: the data directory of its daemons, and files of its handlers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use windlass_test_kit::folder::{Folder, whole_lines};

/// The directory of the test's files in its home.
const FILES: &str = "files";

pub(crate) struct Home {
    dir: Folder,
}

/// A killed daemon leaves its handlers' processes to the next one, and there is none after the
/// test.
impl Drop for Home {
    fn drop(&mut self) {
        let mark = format!("WINDLASS_DIR={}", self.dir.dir().display());
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let is_ours =
                environ.split(|byte| *byte == 0).any(|var| var.starts_with(mark.as_bytes()));
            if let Some(pid) = number.and_then(Pid::from_raw).filter(|_| is_ours) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Home {
    pub(crate) fn new() -> Home {
        let dir = Folder::new();
        fs::create_dir(dir.path(FILES)).expect("a directory can be made in it");
        // If the daemon is root, its handlers are other users.
        open_to_all(&dir.path(FILES), 0o777);
        Home { dir }
    }

    /// Lets daemons of this user have it.
    pub(crate) fn give_to(&self, user: u32) {
        for dir in [self.dir().to_owned(), self.files()] {
            chown(dir, Some(user), Some(user)).expect("the test is root");
        }
    }

    /// Everything that belongs to the test; daemons print to files in it.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.dir()
    }

    /// Where handlers may write: the files of the test, not those of the daemons.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.path(FILES)
    }

    /// The data directory that daemons of this home share.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path("data")
    }

    /// The file of the embedded store, for tests that name that store.
    pub(crate) fn store(&self) -> PathBuf {
        self.data().join("store.db")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.data().join("journal")
    }

    /// A file of the test, which may not exist yet.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file of the test can be written");
        path
    }

    /// The complete lines that handlers have written to a file so far.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        whole_lines(&self.path(name))
    }

    /// The body of an `sh` handler that appends `job id, space, payload` to a file.
    pub(crate) fn recorder(&self, name: &str) -> String {
        let file = self.path(name);
        let made = fs::OpenOptions::new().append(true).create(true).open(&file);
        drop(made.expect("a file of the test can be made"));
        // Handlers of all tenants write to it.
        open_to_all(&file, 0o666);
        format!("echo \"$WINDLASS_JOB_ID $(cat)\" >> '{}'", self.path(name).display())
    }

    /// The body of an `sh` handler that records and then waits while the file `hold` exists; it
    /// ends by itself when the test's directory is gone.
    pub(crate) fn holder(&self, name: &str, hold: &str) -> String {
        let hold = self.write(hold, "");
        format!("{}; while [ -e '{}' ]; do sleep 0.05; done", self.recorder(name), hold.display())
    }

    pub(crate) fn let_go(&self, hold: &str) {
        fs::remove_file(self.path(hold)).expect("the file that holds the handlers is there");
    }
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is the test's own");
}

/// Path and content hash of every file below a directory.
pub(crate) fn snapshot(dir: &Path) -> BTreeMap<PathBuf, String> {
    files_below(dir).into_iter().map(|path| (path.clone(), sha256_of(&path))).collect()
}

/// Bytes of all files below a directory.
pub(crate) fn file_bytes_below(dir: &Path) -> u64 {
    files_below(dir).iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum()
}

pub(crate) fn sha256_of(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum is installed");
    assert!(output.status.success(), "sha256sum {} failed", path.display());
    String::from_utf8_lossy(&output.stdout)[..64].to_owned()
}

/// All files below a directory.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = fs::read_dir(dir) else { return files };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
