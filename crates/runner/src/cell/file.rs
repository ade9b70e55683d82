//! Changes of the mode and the times of files that a cell without a root of its own names: its user
//! owns files of others, too, and Landlock does not cover these changes. They are carried out where
//! the cell may write.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};

use super::address::Rules;
use super::call::error;
use super::target::{Target, name_of};

/// Programs that take their owner's rights, which no handler needs to make.
const TAKES_RIGHTS: u32 = 0o6000;
/// Length of a time, and of one of its two numbers.
const TIME_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;

/// A directory, the address of a path in it, and flags.
type Named = (i32, u64, i32);

/// chmod and its other forms.
pub(super) fn change_mode(
    rules: &Rules,
    target: &Target,
    named: Named,
    mode: u64,
) -> io::Result<i64> {
    let file = own_file(rules, target, named)?;
    set_mode(target, &file, mode)
}

/// fchmod: what is open for reading alone may be a file of others.
pub(super) fn change_open_mode(
    rules: &Rules,
    target: &Target,
    file: u64,
    mode: u64,
) -> io::Result<i64> {
    let file = allow_own(rules, target.descriptor(file)?)?;
    set_mode(target, &file, mode)
}

fn set_mode(target: &Target, file: &OwnedFd, mode: u64) -> io::Result<i64> {
    let mode = mode as u32;
    if mode & TAKES_RIGHTS != 0 {
        return Err(error(libc::EPERM));
    }
    target.confirm()?;
    rustix::fs::chmod(place(file), Mode::from_raw_mode(mode))?;
    Ok(0)
}

/// utimensat with a path.
pub(super) fn change_times(
    rules: &Rules,
    target: &Target,
    named: Named,
    times: u64,
) -> io::Result<i64> {
    let times = match times {
        0 => {
            let now = Timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
            Timestamps { last_access: now, last_modification: now }
        }
        at => read_times(&target.read(at, 2 * TIME_BYTES)?),
    };
    let file = own_file(rules, target, named)?;
    target.confirm()?;
    rustix::fs::utimensat(CWD, place(&file), &times, AtFlags::empty())?;
    Ok(0)
}

/// What the call names, if it lies where the cell may write. The descriptor stays that file,
/// whatever is put at its path.
fn own_file(rules: &Rules, target: &Target, (dir, path, flags): Named) -> io::Result<OwnedFd> {
    let path = target.read_path(path)?;
    let file = match (path.as_os_str().is_empty(), flags & libc::AT_EMPTY_PATH != 0) {
        (true, true) => target.descriptor(u64::from(dir.cast_unsigned()))?,
        (true, false) => return Err(error(libc::ENOENT)),
        (false, _) => {
            let is_link = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
            let follow = if is_link { OFlags::NOFOLLOW } else { OFlags::empty() };
            target.open_path_with(&below(target, dir, path)?, follow)?
        }
    };
    allow_own(rules, file)
}

fn allow_own(rules: &Rules, file: OwnedFd) -> io::Result<OwnedFd> {
    let name = name_of(&file)?;
    let is_own = |own: &PathBuf| name.starts_with(own);
    match rules.own.as_ref().is_some_and(|own| own.files.iter().any(is_own)) {
        true => Ok(file),
        false => Err(error(libc::EPERM)),
    }
}

/// The path, which may begin at an open directory of the caller's.
fn below(target: &Target, dir: i32, path: PathBuf) -> io::Result<PathBuf> {
    if path.is_absolute() || dir == libc::AT_FDCWD {
        return Ok(path);
    }
    Ok(name_of(&target.descriptor(u64::from(dir.cast_unsigned()))?)?.join(path))
}

/// A name that leads to what is open.
fn place(file: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(file.as_raw_fd().to_string())
}

fn read_times(bytes: &[u8]) -> Timestamps {
    let number = |at: usize| {
        let bytes = bytes.get(at..at + NUMBER_BYTES).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, i64::from_le_bytes)
    };
    let time = |at: usize| Timespec { tv_sec: number(at), tv_nsec: number(at + NUMBER_BYTES) };
    Timestamps { last_access: time(0), last_modification: time(TIME_BYTES) }
}
