//! Filled data directories. Filling one takes seconds, so it is done once for a process and copied.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;

use crate::Kind;
use crate::guard::Guard;
use crate::kind::{PASSWORD, USER, init_file};

/// The file that is locked in a folder in use.
const LOCK: &str = "lock";

/// A folder without a lock may be one that is just being made.
const SWEEP_AGE: Duration = Duration::from_secs(60);

/// A folder that belongs to a server: its data, its log, the number of its process.
pub(crate) struct Folder {
    pub path: PathBuf,
    _guard: Guard,
    /// Locked while this process lives.
    _lock: File,
}

impl Folder {
    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    fn new(kind: Kind) -> io::Result<Self> {
        let name = format!("{}{:016x}", prefix(kind), fastrand::u64(..));
        sweep(kind);
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        let guard = Guard::of(&path);
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let folder = Self { path, _guard: guard, _lock: lock };
        give_to(kind, &folder.path)?;
        Ok(folder)
    }
}

fn prefix(kind: Kind) -> String {
    format!("windlass-{}-", kind.scheme())
}

/// Removes folders whose process is gone and whose guard could not do it: all processes of a
/// container end with its first.
fn sweep(kind: Kind) {
    let prefix = prefix(kind);
    for folder in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let path = folder.path();
        let lock = path.join(LOCK);
        let age = fs::metadata(&lock).and_then(|lock| lock.modified()).ok();
        let is_old = age.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > SWEEP_AGE);
        let is_ours = folder.file_name().to_string_lossy().starts_with(&prefix);
        let is_free = || File::open(&lock).is_ok_and(|lock| lock.try_lock().is_ok());
        if is_ours && is_old && is_free() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A folder with an installed data directory that nobody uses yet.
pub(crate) fn installed(kind: Kind) -> Folder {
    static TEMPLATES: Mutex<Vec<(Kind, Folder)>> = Mutex::new(Vec::new());
    let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
    let template = match templates.iter().position(|(known, _)| *known == kind) {
        Some(at) => &templates[at].1,
        None => {
            templates.push((kind, install(kind)));
            &templates[templates.len() - 1].1
        }
    };
    let folder = Folder::new(kind).expect("a folder below the temporary one");
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(template.data()).arg(init_file(&template.data())).arg(&folder.path);
    run(&mut copy);
    folder
}

fn install(kind: Kind) -> Folder {
    let folder = Folder::new(kind).expect("a folder below the temporary one");
    let data = folder.data();
    fs::create_dir(&data).expect("a data directory");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("its rights");
    give_to(kind, &data).expect("the data directory can be given to the server's user");
    let init = format!(
        "CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO {USER}@'%' WITH GRANT OPTION;\n"
    );
    fs::write(init_file(&data), init).expect("a file below the temporary folder");
    let mut command = kind.install(&data);
    become_user(kind, &mut command, &folder);
    run(&mut command);
    folder
}

/// These servers refuse to run as root; whoever is not root runs them as himself. Their user may
/// not be allowed to write where we have temporary files.
pub(crate) fn become_user(kind: Kind, command: &mut Command, folder: &Folder) {
    command.env("TMPDIR", &folder.path);
    if let Some((user, group)) = ids(kind) {
        command.uid(user).gid(group);
    }
}

fn give_to(kind: Kind, path: &Path) -> io::Result<()> {
    match ids(kind) {
        Some((user, group)) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}

fn ids(kind: Kind) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let user = kind.system_user();
    let id = |what: &str| {
        let answer = Command::new("id").args([what, user]).output().expect("id can be started");
        let text = String::from_utf8_lossy(&answer.stdout);
        text.trim().parse().unwrap_or_else(|_| {
            panic!("there is no user {user}; install the Debian package {}", kind.package())
        })
    };
    Some((id("-u"), id("-g")))
}

fn run(command: &mut Command) {
    command.current_dir("/").stdin(Stdio::null());
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let told = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}: {told}", done.status);
}
