//! The files that pass tasks to plugins and results back. They are in a private directory of this
//! process, so that no other user can guess, read or create them.
//!
//! Each run of a task has its own directory in it: an earlier run of the same task may still be
//! ending.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use rustix::fs::OFlags;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_core::launch::is_exhaustion;
use windlass_core::sync::lock;

use super::outcome::PluginAnswer;
use super::response;

/// Maximum size of a response file, which is held in memory.
pub(crate) const RESPONSE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Maximum total size of the responses in memory. Those smaller than a unit do not count.
const RESPONSES_BYTES_MAX: u64 = 4 * RESPONSE_BYTES_MAX;
const UNIT_BYTES: u64 = 64 * 1024;

const PREFIX: &str = "windlass-";
/// The lock file of a directory in use.
const LOCK: &str = "lock";
/// A directory without a held lock may have just been created.
const SWEEP_AGE: Duration = Duration::from_secs(60);
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const WRITABLE_BY_ALL: u32 = 0o002;
/// Only the owner of a file may rename it in such a directory.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// The directory of this process. Removed on drop.
pub(crate) struct Temp {
    parent: PathBuf,
    parent_mode: u32,
    dir: PathBuf,
    /// Locked while this process is alive.
    lock: Mutex<File>,
    /// Memory for responses, in units.
    room: Arc<Semaphore>,
}

impl Temp {
    /// Creates the directory below `parent`, which is created with this mode if missing, and
    /// removes those of dead processes.
    pub(crate) fn open(parent: &Path, parent_mode: u32) -> io::Result<Self> {
        make_parent(parent, parent_mode)?;
        sweep(parent);
        let dir = parent.join(format!("{PREFIX}{}", unique()));
        let lock = Mutex::new(make_locked(&dir)?);
        let room = Arc::new(Semaphore::new((RESPONSES_BYTES_MAX / UNIT_BYTES) as usize));
        Ok(Self { parent: parent.to_owned(), parent_mode, dir, lock, room })
    }

    /// The directory for one run of a task. It is not created yet.
    pub(crate) fn run_dir(&self) -> RunDir {
        RunDir(self.dir.join(unique()))
    }

    /// Writes the task's file and returns its path.
    pub(crate) fn write_task(
        &self,
        run_dir: &RunDir,
        task: ObjectId,
        json: &[u8],
    ) -> io::Result<PathBuf> {
        self.keep()?;
        DirBuilder::new().mode(DIR_MODE).create(&run_dir.0)?;
        let path = run_dir.0.join(format!("{task}.json"));
        let mut file = new_file(&path)?;
        file.write_all(json)?;
        Ok(path)
    }

    /// Waits for memory for a response of this size. Dropping the permit frees it.
    pub(crate) async fn room_for(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = (bytes.min(RESPONSE_BYTES_MAX) / UNIT_BYTES) as u32;
        if units == 0 {
            return None;
        }
        // The semaphore is never closed.
        Arc::clone(&self.room).acquire_many_owned(units).await.ok()
    }

    /// Reads the plugin's response. An error means that the machine is out of resources, not that
    /// there is no response.
    pub(crate) fn read_response(
        &self,
        run_dir: &RunDir,
        task: ObjectId,
        bytes_max: u64,
    ) -> io::Result<PluginAnswer> {
        let path = run_dir.response(task);
        match self.keep().and_then(|()| read_file(&path, bytes_max)) {
            Ok(Some(bytes)) => Ok(response::read(bytes)),
            Ok(None) => Ok(PluginAnswer::TooLarge(bytes_max)),
            Err(error) if is_exhaustion(&error) => Err(error),
            Err(error) => Ok(PluginAnswer::Unreadable(format!("open {}: {error}", path.display()))),
        }
    }

    /// Programs that clean up old files may have removed the directory: it is created again in the
    /// same way.
    fn keep(&self) -> io::Result<()> {
        if self.is_there()? {
            return Ok(());
        }
        let mut lock = lock(&self.lock);
        // Another task may have been faster.
        if !self.is_there()? {
            make_parent(&self.parent, self.parent_mode)?;
            *lock = make_locked(&self.dir)?;
        }
        Ok(())
    }

    /// In a world-writable directory, another user may have replaced it.
    fn is_there(&self) -> io::Result<bool> {
        let found = match fs::symlink_metadata(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            found => found?,
        };
        if found.is_dir() && is_ours(&found) && found.mode() & 0o077 == 0 {
            return Ok(true);
        }
        Err(io::Error::other(format!(
            "{} is not the directory that was created there",
            self.dir.display()
        )))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        remove_any(&self.dir);
    }
}

/// The directory of one run of a task.
#[derive(Debug, Clone)]
pub(crate) struct RunDir(PathBuf);

impl RunDir {
    /// 0 if there is none.
    pub(crate) fn response_bytes(&self, task: ObjectId) -> u64 {
        fs::symlink_metadata(self.response(task)).map_or(0, |found| found.len())
    }

    fn response(&self, task: ObjectId) -> PathBuf {
        self.0.join(format!("{task}-response.json"))
    }

    /// Removes everything, including files that a plugin left.
    pub(crate) fn remove(&self) {
        remove_any(&self.0);
    }
}

/// Sets the mode regardless of the umask. An existing directory stays as it is, but must be such
/// that no other user can replace ours.
fn make_parent(parent: &Path, mode: u32) -> io::Result<()> {
    if !parent.is_dir() {
        DirBuilder::new().recursive(true).mode(mode).create(parent)?;
        let kept = if mode & WRITABLE_BY_ALL == 0 { 0 } else { STICKY };
        fs::set_permissions(parent, fs::Permissions::from_mode(mode | kept))?;
    }
    let found = fs::metadata(parent)?;
    let is_trusted = [ROOT, rustix::process::geteuid().as_raw()].contains(&found.uid());
    if !is_trusted {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.mode() & WRITABLE_BY_ALL != 0 && found.mode() & STICKY == 0 {
        return Err(io::Error::other("other users may rename files in it"));
    }
    Ok(())
}

/// Creates a directory and its lock, or neither.
fn make_locked(dir: &Path) -> io::Result<File> {
    DirBuilder::new().mode(DIR_MODE).create(dir)?;
    let lock = new_file(&dir.join(LOCK)).and_then(|lock| lock.lock().map(|()| lock));
    lock.inspect_err(|_| remove_any(dir))
}

fn unique() -> String {
    format!("{:032x}", fastrand::u128(..))
}

fn is_ours(found: &fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Opens only regular files: no links, and no pipes, which would block.
fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

/// `None` if it is larger than that.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = open_plain(path)?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// It may be gone; what cannot be removed is left to the next start.
fn remove_any(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    if let Err(reason) = removed {
        tracing::warn!(path = %path.display(), %reason, "cannot remove a temporary file");
    }
}

/// Removes the directories of our killed processes. Those of other users stay.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_named || !is_old_and_ours(&path) {
            continue;
        }
        if open_plain(&path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            remove_any(&path);
        } else {
            // A crash during the start leaves it empty and without a lock; nothing else is removed
            // here.
            let _ = fs::remove_dir(&path);
        }
    }
}

fn is_old_and_ours(dir: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(dir) else { return false };
    let age = found.modified().ok().and_then(|at| at.elapsed().ok());
    found.is_dir() && is_ours(&found) && age.is_some_and(|age| age > SWEEP_AGE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

    use futures_util::FutureExt;

    use super::*;

    fn open(parent: &Path) -> Temp {
        Temp::open(parent, 0o755).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn only_the_owner_may_see_the_files() {
        let home = tempfile::tempdir().unwrap();
        let parent = home.path().join("a/b");
        let temp = open(&parent);
        let (run_dir, task) = (temp.run_dir(), ObjectId::new());
        let path = temp.write_task(&run_dir, task, b"{}").unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), format!("{task}.json"));
        let modes = [&parent, &temp.dir, &run_dir.0, &path].map(|path| mode(path));
        assert_eq!(modes, [0o755, 0o700, 0o700, 0o600]);
        assert!(temp.write_task(&run_dir, task, b"{}").is_err(), "it is there already");
        let dir = temp.dir.clone();
        drop(temp);
        assert!(!dir.exists() && parent.exists());
    }

    #[test]
    fn all_that_belongs_to_a_run_goes_with_it_and_nothing_of_another_run() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(home.path());
        let (one, other, task) = (temp.run_dir(), temp.run_dir(), ObjectId::new());
        temp.write_task(&one, task, b"1").unwrap();
        let kept = temp.write_task(&other, task, b"2").unwrap();
        fs::create_dir(one.0.join("work")).unwrap();
        fs::write(one.0.join("work/file"), "x").unwrap();
        symlink("/", one.0.join("link")).unwrap();
        one.remove();
        let left: Vec<_> = fs::read_dir(&temp.dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(kept.exists() && left.contains(&temp.dir.join(LOCK)));
    }

    #[test]
    fn a_response_is_a_plain_file_within_its_bound() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(home.path());
        let (run_dir, task) = (temp.run_dir(), ObjectId::new());
        temp.write_task(&run_dir, task, b"{}").unwrap();
        let path = run_dir.0.join(format!("{task}-response.json"));
        let read = || temp.read_response(&run_dir, task, 20).unwrap();
        assert!(matches!(read(), PluginAnswer::Unreadable(why) if why.contains("No such file")));
        fs::write(&path, "12345678901234567890").unwrap();
        assert!(matches!(read(), PluginAnswer::NotJson(_)));
        fs::write(&path, "123456789012345678901").unwrap();
        assert_eq!(read(), PluginAnswer::TooLarge(20));
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(read(), PluginAnswer::Unreadable(_)));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(read(), PluginAnswer::Unreadable(why) if why.contains("not a file")));
    }

    #[tokio::test]
    async fn only_so_much_of_all_responses_is_held_at_once() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(home.path());
        let task = ObjectId::new();
        let run_dir = temp.run_dir();
        assert_eq!(run_dir.response_bytes(task), 0);
        temp.write_task(&run_dir, task, b"{}").unwrap();
        fs::write(run_dir.response(task), "12345").unwrap();
        assert_eq!(run_dir.response_bytes(task), 5);

        let large = || temp.room_for(u64::MAX);
        let mut held = Vec::new();
        while let Some(room) = large().now_or_never() {
            held.push(room.unwrap());
        }
        assert_eq!(held.len() as u64, RESPONSES_BYTES_MAX / RESPONSE_BYTES_MAX);
        let mut waiting = Box::pin(large());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(temp.room_for(5).now_or_never().is_some(), "small ones do not wait");
        held.pop();
        assert!(waiting.now_or_never().flatten().is_some());
    }

    #[test]
    fn a_directory_that_was_taken_away_comes_back_and_a_strange_one_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let parent = home.path().join("below");
        let temp = open(&parent);
        fs::remove_dir_all(&parent).unwrap();
        let (run_dir, task) = (temp.run_dir(), ObjectId::new());
        assert!(temp.write_task(&run_dir, task, b"1").unwrap().exists());
        assert_eq!((mode(&parent), mode(&temp.dir)), (0o755, 0o700));
        let lock = File::open(temp.dir.join(LOCK)).unwrap();
        assert!(lock.try_lock().is_err(), "it is locked as the first one was");
        fs::set_permissions(&temp.dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(temp.write_task(&temp.run_dir(), task, b"1").is_err());
        fs::write(run_dir.0.join(format!("{task}-response.json")), "{\"status\":1}").unwrap();
        let planted = temp.read_response(&run_dir, task, 20).unwrap();
        assert!(
            matches!(planted, PluginAnswer::Unreadable(why) if why.contains("not the directory"))
        );
    }

    #[test]
    fn a_parent_that_comes_back_must_be_as_good_as_the_first_one() {
        let home = tempfile::tempdir().unwrap();
        let parent = home.path().join("below");
        let temp = open(&parent);
        fs::remove_dir_all(&parent).unwrap();
        fs::create_dir(&parent).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(temp.write_task(&temp.run_dir(), ObjectId::new(), b"1").is_err());
        assert!(!temp.dir.exists());
    }

    /// Other users may have created directories with such a name in a world-writable place.
    #[test]
    fn what_others_placed_neither_holds_up_a_start_nor_goes() {
        let home = tempfile::tempdir().unwrap();
        let (pipe, link) = (home.path().join("windlass-pipe"), home.path().join("windlass-link"));
        for dir in [&pipe, &link] {
            fs::create_dir(dir).unwrap();
        }
        let made = std::process::Command::new("mkfifo").arg(pipe.join(LOCK)).status();
        assert!(made.unwrap().success());
        let elsewhere = home.path().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, link.join(LOCK)).unwrap();
        for dir in [&pipe, &link] {
            File::open(dir).unwrap().set_modified(SystemTime::now() - 2 * SWEEP_AGE).unwrap();
        }
        let _temp = open(home.path());
        assert!(pipe.exists() && link.exists());
        if rustix::process::geteuid().is_root() {
            fs::remove_file(link.join(LOCK)).unwrap();
            fs::write(link.join(LOCK), "").unwrap();
            std::os::unix::fs::chown(&link, Some(12345), None).unwrap();
            File::open(&link).unwrap().set_modified(SystemTime::now() - 2 * SWEEP_AGE).unwrap();
            let _temp = open(home.path());
            assert!(link.exists());
        }
    }

    #[test]
    fn a_place_where_anybody_may_rename_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let with = |mode| {
            let parent = home.path().join(format!("{mode:o}"));
            fs::create_dir(&parent).unwrap();
            fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).unwrap();
            Temp::open(&parent, 0o755).is_ok()
        };
        assert_eq!([0o755, 0o775, 0o777, 0o1777].map(with), [true, true, false, true]);
        let made = home.path().join("made");
        let _temp = Temp::open(&made, 0o777).unwrap();
        assert_eq!(mode(&made), 0o1777);
        if rustix::process::geteuid().is_root() {
            let foreign = home.path().join("foreign");
            fs::create_dir(&foreign).unwrap();
            std::os::unix::fs::chown(&foreign, Some(12345), None).unwrap();
            assert!(Temp::open(&foreign, 0o755).is_err());
        }
    }

    #[test]
    fn what_killed_programs_left_is_removed_by_the_next() {
        let home = tempfile::tempdir().unwrap();
        let living = open(home.path());
        let left = home.path().join("windlass-left");
        let fresh = home.path().join("windlass-fresh");
        let foreign = home.path().join("foreign");
        for dir in [&left, &fresh, &foreign] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join(LOCK), "").unwrap();
        }
        for dir in [&living.dir, &left, &foreign] {
            let old = SystemTime::now() - 2 * SWEEP_AGE;
            File::open(dir).unwrap().set_modified(old).unwrap();
        }
        let _next = open(home.path());
        let there = [&living.dir, &left, &fresh, &foreign].map(|dir| dir.exists());
        assert_eq!(there, [true, false, true, true]);
    }
}
