//! The files by which plugins get tasks and give results. They lie in a directory of this start of
//! the program that nobody else may enter, so that nobody can guess, read or place them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::outcome::Answer;
use super::response;

/// What a response file may have. All of it is held in memory.
pub(crate) const RESPONSE_BYTES_MAX: u64 = 256 * 1024 * 1024;

const PREFIX: &str = "windlass-";
/// The file that is locked in a directory in use.
const LOCK: &str = "lock";
/// A directory whose lock is free may be one that is just being made.
const SWEEP_AGE: Duration = Duration::from_secs(60);
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const WRITABLE_BY_ALL: u32 = 0o002;
/// Only the owner of what lies in such a directory may rename it.
const STICKY: u32 = 0o1000;
const ROOT: u32 = 0;

/// The directory of this start. It is removed when this is dropped.
pub struct Temp {
    dir: PathBuf,
    /// Locked while this process lives.
    _lock: File,
}

impl Temp {
    /// Makes the directory below `parent`, which is made with this mode if it is not there, and
    /// removes those of programs that are gone.
    pub fn open(parent: &Path, parent_mode: u32) -> io::Result<Self> {
        make_parent(parent, parent_mode)?;
        sweep(parent);
        let dir = parent.join(format!("{PREFIX}{:032x}", fastrand::u128(..)));
        DirBuilder::new().mode(DIR_MODE).create(&dir)?;
        let lock = new_file(&dir.join(LOCK))?;
        lock.lock()?;
        Ok(Self { dir, _lock: lock })
    }

    /// Writes the file of a task, and returns its path.
    pub(crate) fn write_task(&self, task: ObjectId, json: &[u8]) -> io::Result<PathBuf> {
        self.keep()?;
        let path = self.task_file(task);
        let mut file = new_file(&path)?;
        file.write_all(json)?;
        Ok(path)
    }

    /// What the plugin wrote for a task. An error is a machine at a limit, and no answer.
    pub(crate) fn read_response(&self, task: ObjectId, bytes_max: u64) -> io::Result<Answer> {
        let path = self.dir.join(format!("{task}-response.json"));
        match self.keep().and_then(|()| read_file(&path, bytes_max)) {
            Ok(Some(bytes)) => Ok(response::read(bytes)),
            Ok(None) => Ok(Answer::TooLarge(bytes_max)),
            Err(error) if is_exhaustion(&error) => Err(error),
            Err(error) => Ok(Answer::Unreadable(format!("open {}: {error}", path.display()))),
        }
    }

    /// Removes whatever is there for a task: what its plugin left beside the files, too.
    pub(crate) fn remove(&self, task: ObjectId) {
        let task = task.to_hex();
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&task) {
                remove_any(&entry.path());
            }
        }
    }

    fn task_file(&self, task: ObjectId) -> PathBuf {
        self.dir.join(format!("{task}.json"))
    }

    /// Programs that clean up old files may have taken the directory away; and where everybody
    /// may write, somebody may have put another one in its place.
    fn keep(&self) -> io::Result<()> {
        let found = match fs::symlink_metadata(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return DirBuilder::new().recursive(true).mode(DIR_MODE).create(&self.dir);
            }
            found => found?,
        };
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        if found.is_dir() && is_ours && found.mode() & 0o077 == 0 {
            return Ok(());
        }
        Err(io::Error::other(format!("{} is not what was made there", self.dir.display())))
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        remove_any(&self.dir);
    }
}

/// The mode is what it is told to be, whatever the umask; one that is there stays as it is, and
/// must be such that nobody can put another directory in the place of ours.
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
        return Err(io::Error::other("everybody may rename what is in it"));
    }
    Ok(())
}

/// Whether it failed because the machine is at a limit, and may be possible later.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    limits.iter().any(|limit| error.raw_os_error() == Some(limit.raw_os_error()))
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}

/// Nothing when it is larger than that. Only a plain file is read: neither a link that leads
/// elsewhere nor a pipe on which one would wait.
fn read_file(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

/// It may be gone already; what cannot be removed is left to the next start.
fn remove_any(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    if let Err(reason) = removed {
        tracing::warn!(path = %path.display(), %reason, "a temporary file cannot be removed");
    }
}

/// Removes the directories of programs that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_named && is_left(&path) {
            remove_any(&path);
        } else if is_named && is_old(&path) {
            // A crash at the start leaves it empty, without a lock; no other goes by this.
            let _ = fs::remove_dir(&path);
        }
    }
}

fn is_left(dir: &Path) -> bool {
    let lock = OpenOptions::new().write(true).open(dir.join(LOCK));
    lock.is_ok_and(|lock| is_old(dir) && lock.try_lock().is_ok())
}

fn is_old(dir: &Path) -> bool {
    let changed = fs::symlink_metadata(dir).and_then(|found| found.modified()).ok();
    changed.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > SWEEP_AGE)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::SystemTime;

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
        let task = ObjectId::new();
        let path = temp.write_task(task, b"{}").unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), format!("{task}.json"));
        assert_eq!((mode(&parent), mode(&temp.dir), mode(&path)), (0o755, 0o700, 0o600));
        assert!(temp.write_task(task, b"{}").is_err(), "it is there already");
        let dir = temp.dir.clone();
        drop(temp);
        assert!(!dir.exists() && parent.exists());
    }

    #[test]
    fn all_that_belongs_to_a_task_goes_with_it() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(home.path());
        let (one, other) = (ObjectId::new(), ObjectId::new());
        temp.write_task(one, b"1").unwrap();
        let kept = temp.write_task(other, b"2").unwrap();
        fs::create_dir(temp.dir.join(format!("{one}-work"))).unwrap();
        fs::write(temp.dir.join(format!("{one}-work/file")), "x").unwrap();
        symlink("/", temp.dir.join(format!("{one}-link"))).unwrap();
        temp.remove(one);
        let left: Vec<_> = fs::read_dir(&temp.dir).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.contains(&kept) && left.contains(&temp.dir.join(LOCK)));
    }

    #[test]
    fn a_response_is_a_plain_file_within_its_bound() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(home.path());
        let task = ObjectId::new();
        let path = temp.dir.join(format!("{task}-response.json"));
        let read = || temp.read_response(task, 20).unwrap();
        assert!(matches!(read(), Answer::Unreadable(why) if why.contains("No such file")));
        fs::write(&path, "12345678901234567890").unwrap();
        assert!(matches!(read(), Answer::NotJson(_)));
        fs::write(&path, "123456789012345678901").unwrap();
        assert_eq!(read(), Answer::TooLarge(20));
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(matches!(read(), Answer::Unreadable(_)));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(read(), Answer::Unreadable(why) if why.contains("not a file")));
    }

    #[test]
    fn a_directory_that_was_taken_away_comes_back_and_a_strange_one_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let temp = open(&home.path().join("below"));
        fs::remove_dir_all(home.path().join("below")).unwrap();
        let path = temp.write_task(ObjectId::new(), b"1").unwrap();
        assert!(path.exists());
        assert_eq!(mode(&temp.dir), 0o700);
        fs::set_permissions(&temp.dir, fs::Permissions::from_mode(0o777)).unwrap();
        let task = ObjectId::new();
        assert!(temp.write_task(task, b"1").is_err());
        fs::write(temp.dir.join(format!("{task}-response.json")), "{\"status\":1}").unwrap();
        let planted = temp.read_response(task, 20).unwrap();
        assert!(matches!(planted, Answer::Unreadable(why) if why.contains("not what was made")));
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
