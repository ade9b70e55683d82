//! Control groups: the kernel itself bounds the memory and the tasks of all processes of a cell.
//!
//! ```text
//! <own group of the daemon>
//! ├─ windlass-daemon            version 2: the daemon, which may not stay in a group with others
//! └─ windlass-<scratch>         named after the scratch directory, which belongs to one runner
//!    ├─ cell-0, cell-1 …        one for each cell, removed with it
//! ```
//! In version 2 one hierarchy has both controllers; in version 1 there is one for each of them.
//! A runner holds a lock on the group that has its cells. What a killed one left is not locked, and
//! is removed by the next one that starts beside it, or that uses the same scratch directory, where
//! the place is written down.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use windlass_core::sync::lock;

use super::hierarchy::{self, Places};
use super::limit::HELPER_TASKS;
use crate::cell::{CellGroup, GroupVersion};

const NAME_PREFIX: &str = "windlass-";
const CELL_PREFIX: &str = "cell-";
/// Where the daemon moves itself: a group with controllers for its children has no processes.
const DAEMON: &str = "windlass-daemon";
/// In the scratch directory: where groups are made, one path a line.
const RECORD: &str = ".groups";
const CONTROLLERS: &str = "+memory +pids";
/// Maximum number of groups remembered for later removal, and tries to remove one.
const LEFT_MAX: usize = 1000;
const TRIES_MAX: u32 = 500;
const TRY_PAUSE: Duration = Duration::from_millis(2);

/// The groups of one runner.
pub(crate) struct Groups {
    version: GroupVersion,
    /// In version 1 memory first, then tasks, if the machine has that controller.
    parents: Vec<PathBuf>,
    /// Tell others that these belong to a living runner.
    _locks: Vec<File>,
    made: AtomicU64,
    left: Arc<Unremoved>,
}

/// Groups that could not be removed yet; each new one retries one of them.
type Unremoved = Mutex<VecDeque<PathBuf>>;

/// The group of one cell, in each hierarchy. Dropping it removes it.
pub(crate) struct Group {
    cell: CellGroup,
    left: Arc<Unremoved>,
}

impl Groups {
    /// Finds a place for groups, and removes those that a killed runner left. `scratch` must be
    /// locked. An error says why this machine has no place.
    pub(crate) fn open(scratch: &Path) -> Result<Groups, String> {
        let text = |path: &str| fs::read_to_string(path).map_err(|why| format!("{path}: {why}"));
        let places = Places::read(&text("/proc/self/mountinfo")?, &text("/proc/self/cgroup")?);
        let meta = fs::metadata(scratch).map_err(|reason| reason.to_string())?;
        let name = format!("{NAME_PREFIX}{:x}-{:x}", meta.dev(), meta.ino());
        let (version, bases) = choose(&places)?;
        sweep_record(scratch, &name, &places);
        bases.iter().for_each(|base| sweep_beside(base));
        let parents: Vec<PathBuf> = bases.iter().map(|base| base.join(&name)).collect();
        let record: String = parents.iter().map(|path| format!("{}\n", path.display())).collect();
        let failed = |what: &Path| {
            let what = what.display().to_string();
            move |reason: io::Error| format!("{what}: {reason}")
        };
        fs::write(scratch.join(RECORD), record).map_err(failed(scratch))?;
        let mut locks = Vec::new();
        for parent in &parents {
            locks.push(make_locked(parent).map_err(failed(parent))?);
            if version == GroupVersion::Two {
                let control = parent.join("cgroup.subtree_control");
                fs::write(control, CONTROLLERS).map_err(failed(parent))?;
            }
        }
        let (made, left) = (AtomicU64::new(0), Arc::default());
        Ok(Groups { version, parents, _locks: locks, made, left })
    }

    /// A group for one cell with these bounds.
    pub(crate) fn make(&self, memory: Option<u64>, tasks: Option<u64>) -> io::Result<Group> {
        let earlier = lock(&self.left).pop_front();
        earlier.into_iter().for_each(|dir| remove_or_remember(dir, &self.left));
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let cell = CellGroup { version: self.version, dirs: Vec::new() };
        let mut group = Group { cell, left: Arc::clone(&self.left) };
        for parent in &self.parents {
            let dir = parent.join(format!("{CELL_PREFIX}{number}"));
            fs::create_dir(&dir)?;
            group.cell.dirs.push(dir);
        }
        for (file, value, is_needed) in settings(self.version, memory, tasks) {
            // In version 1 each file is in its own hierarchy.
            let of = usize::from(file == "pids.max").min(group.cell.dirs.len() - 1);
            let path = group.cell.dirs[of].join(file);
            match fs::write(&path, &value) {
                Err(reason) if is_needed && path.exists() => return Err(reason),
                // A kernel that does not account swap has no file for it.
                _ => {}
            }
        }
        Ok(group)
    }
}

impl Group {
    /// What the cell has to know of it.
    pub(crate) fn of_cell(&self) -> &CellGroup {
        &self.cell
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for dir in lock(&self.left).drain(..).chain(self.parents.drain(..)) {
            // What is still busy is removed by the next runner.
            let _ = remove_in_time(&dir);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in self.cell.dirs.drain(..) {
            remove_or_remember(dir, &self.left);
        }
    }
}

fn remove_or_remember(dir: PathBuf, left: &Unremoved) {
    if remove_in_time(&dir).is_err() {
        let mut left = lock(left);
        if left.len() < LEFT_MAX {
            left.push_back(dir);
        }
    }
}

/// Files, what is written to them, and whether a refusal counts.
fn settings(
    version: GroupVersion,
    memory: Option<u64>,
    tasks: Option<u64>,
) -> Vec<(&'static str, String, bool)> {
    let mut settings = Vec::new();
    if let Some(bytes) = memory {
        let (bytes, none) = (bytes.to_string(), "0".to_owned());
        match version {
            GroupVersion::One => settings.extend([
                ("memory.limit_in_bytes", bytes.clone(), true),
                ("memory.memsw.limit_in_bytes", bytes, false),
            ]),
            GroupVersion::Two => settings.extend([
                ("memory.max", bytes, true),
                ("memory.swap.max", none, false),
                // One process that is over the limit takes all others with it.
                ("memory.oom.group", "1".to_owned(), true),
            ]),
        }
    }
    // The outer process is in the group, too, unless tasks have a hierarchy of their own.
    let helpers = if version == GroupVersion::Two { HELPER_TASKS } else { 0 };
    settings.extend(tasks.map(|tasks| ("pids.max", (tasks + helpers).to_string(), true)));
    settings
}

/// The version of this machine, and the groups below which others may be made.
fn choose(places: &Places) -> Result<(GroupVersion, Vec<PathBuf>), String> {
    if let Some(own) = &places.unified
        && has_memory(own)
    {
        return delegate(own).map(|base| (GroupVersion::Two, vec![base]));
    }
    let Some(memory) = &places.memory else {
        return Err("the daemon's group has no memory controller".into());
    };
    if !rustix::process::geteuid().is_root() {
        return Err("control groups of version 1 are for root".into());
    }
    let both = [Some(memory.clone()), places.pids.clone()];
    Ok((GroupVersion::One, both.into_iter().flatten().collect()))
}

fn has_memory(group: &Path) -> bool {
    let known = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    known.split_whitespace().any(|name| name == "memory")
}

/// Makes controllers available below the daemon's own group, which must have been given to it. The
/// daemon moves into a group of its own for that.
fn delegate(own: &Path) -> Result<PathBuf, String> {
    let base = match own.ends_with(DAEMON) {
        true => own.parent().unwrap_or(own),
        false => own,
    };
    let control = base.join("cgroup.subtree_control");
    let failed = |reason: io::Error| format!("{}: {reason}", base.display());
    let enabled = fs::read_to_string(&control).map_err(failed)?;
    if ["memory", "pids"].iter().all(|name| enabled.split_whitespace().any(|has| has == *name)) {
        return Ok(base.to_owned());
    }
    let us = std::process::id().to_string();
    let inside = fs::read_to_string(base.join("cgroup.procs")).map_err(failed)?;
    if inside.lines().any(|process| process != us) {
        return Err("the daemon's group has other processes, so it cannot be divided".into());
    }
    let leaf = base.join(DAEMON);
    make_dir(&leaf).map_err(failed)?;
    fs::write(leaf.join("cgroup.procs"), &us).map_err(failed)?;
    fs::write(&control, CONTROLLERS).map_err(|reason| {
        // As it was.
        let _ = fs::write(base.join("cgroup.procs"), &us);
        let _ = fs::remove_dir(&leaf);
        failed(reason)
    })?;
    Ok(base.to_owned())
}

fn make_dir(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(reason) if reason.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes a group and locks it. Another runner may remove it in between, which is seen afterwards.
fn make_locked(dir: &Path) -> io::Result<File> {
    for _ in 0..TRIES_MAX {
        make_dir(dir)?;
        let Some(locked) = lock_group(dir)? else { return Err(io::ErrorKind::ResourceBusy.into()) };
        if dir.metadata().is_ok_and(|now| locked.metadata().is_ok_and(|own| now.ino() == own.ino()))
        {
            return Ok(locked);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// The lock on a group, unless a living runner has it.
fn lock_group(dir: &Path) -> io::Result<Option<File>> {
    let group = File::open(dir)?;
    match rustix::fs::flock(&group, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(group)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes what killed runners have left beside the own groups.
fn sweep_beside(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_string_lossy().starts_with(NAME_PREFIX) && name != DAEMON;
        if is_ours && let Ok(Some(_locked)) = lock_group(&entry.path()) {
            remove_all(&entry.path());
        }
    }
}

/// Removes the groups of a killed runner on this scratch directory. Their processes have ended with
/// it, or are about to.
fn sweep_record(scratch: &Path, name: &str, places: &Places) {
    let record = fs::read_to_string(scratch.join(RECORD)).unwrap_or_default();
    for parent in record.lines().map(Path::new) {
        let is_ours = parent.ends_with(name) && places.contain(parent);
        if is_ours {
            remove_all(parent);
        }
    }
}

fn remove_all(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(CELL_PREFIX) {
            // Version 1 has no such file.
            let _ = hierarchy::write_existing(&entry.path().join("cgroup.kill"), "1");
            let _ = remove_in_time(&entry.path());
        }
    }
    if let Err(reason) = remove_in_time(parent) {
        let dir = parent.display();
        tracing::warn!(%dir, %reason, "a control group of an earlier daemon cannot be removed");
    }
}

/// Removes a group whose processes have ended, or are about to. Blocks for a moment.
fn remove_in_time(dir: &Path) -> io::Result<()> {
    let mut removed = Ok(());
    for _ in 0..TRIES_MAX {
        removed = fs::remove_dir(dir);
        match &removed {
            Err(reason) if reason.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(TRY_PAUSE);
            }
            Err(reason) if reason.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => return removed,
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(list: &'a [(&'static str, String, bool)], file: &str) -> Option<&'a str> {
        list.iter().find(|(name, ..)| *name == file).map(|(_, value, _)| value.as_str())
    }

    #[test]
    fn bounds_are_written_to_the_files_of_each_version() {
        let two = settings(GroupVersion::Two, Some(1 << 20), Some(64));
        assert_eq!(value(&two, "memory.max"), Some("1048576"));
        assert_eq!(value(&two, "memory.swap.max"), Some("0"));
        assert_eq!(value(&two, "memory.oom.group"), Some("1"));
        assert_eq!(value(&two, "pids.max"), Some("192"), "with the outer process and its threads");
        let one = settings(GroupVersion::One, Some(1 << 20), None);
        assert_eq!(value(&one, "memory.limit_in_bytes"), Some("1048576"));
        assert_eq!(value(&one, "memory.memsw.limit_in_bytes"), Some("1048576"));
        assert_eq!((value(&one, "memory.max"), value(&one, "pids.max")), (None, None));
        assert_eq!(value(&settings(GroupVersion::One, None, Some(64)), "pids.max"), Some("64"));
    }

    #[test]
    fn groups_of_an_earlier_runner_are_removed_by_their_name_only() {
        let (scratch, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = Places { mounts: vec![mount.path().to_owned()], ..Places::default() };
        let (ours, other) = (mount.path().join("windlass-1-2"), mount.path().join("other"));
        let outside = scratch.path().join("windlass-1-2");
        for dir in [&ours, &other, &outside] {
            fs::create_dir_all(dir.join("cell-0")).unwrap();
        }
        fs::create_dir(ours.join("cell-1")).unwrap();
        let lines = [&ours, &other, &outside].map(|path| format!("{}\n", path.display()));
        fs::write(scratch.path().join(RECORD), lines.concat()).unwrap();
        sweep_record(scratch.path(), "windlass-1-2", &places);
        assert!(!ours.exists());
        assert!(other.join("cell-0").exists() && outside.join("cell-0").exists());
    }

    #[test]
    fn groups_that_a_living_runner_has_locked_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let [dead, living, other] =
            ["windlass-1", "windlass-2", "other"].map(|name| base.path().join(name));
        for dir in [&dead, &living, &other] {
            fs::create_dir_all(dir.join("cell-0")).unwrap();
        }
        let locked = make_locked(&living).unwrap();
        sweep_beside(base.path());
        assert!(!dead.exists() && living.join("cell-0").exists() && other.join("cell-0").exists());
        drop(locked);
        sweep_beside(base.path());
        assert!(!living.exists(), "its runner is gone");
    }
}
