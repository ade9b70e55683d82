//! Changes of the mode, times, owner and attributes of files by a cell without a root of its own:
//! its user owns files of others, too, and Landlock does not cover these changes. They are carried
//! out where the cell may write. Changes are watched only there, too.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, WatchFlags};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};

use super::address::Rules;
use super::call::error;
use super::target::{Target, name_of};

/// Programs that take their owner's rights, which no handler needs to make.
const TAKES_RIGHTS: u32 = 0o6000;
/// Length of a time, and of one of its two numbers.
const TIME_BYTES: usize = 16;
const NUMBER_BYTES: usize = 8;

/// Longest value of an attribute, as the kernel takes it.
const ATTRIBUTE_BYTES_MAX: u64 = 65_536;
/// Leaves the user or the group as it is.
const UNCHANGED: u32 = u32::MAX;

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

/// fchmod.
pub(super) fn change_open_mode(
    rules: &Rules,
    target: &Target,
    file: u64,
    mode: u64,
) -> io::Result<i64> {
    let file = own_open(rules, target, file)?;
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

/// utimensat; without a path, of what is open.
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
    let file = match named {
        (open, 0, _) => own_open(rules, target, u64::from(open.cast_unsigned()))?,
        named => own_file(rules, target, named)?,
    };
    target.confirm()?;
    rustix::fs::utimensat(CWD, place(&file), &times, AtFlags::empty())?;
    Ok(0)
}

/// fchown. This process has no more rights than the caller.
pub(super) fn change_owner(
    rules: &Rules,
    target: &Target,
    file: u64,
    (user, group): (u32, u32),
) -> io::Result<i64> {
    let file = own_open(rules, target, file)?;
    target.confirm()?;
    let changed = |number: u32| (number != UNCHANGED).then_some(number);
    let (user, group) = (changed(user).map(Uid::from_raw), changed(group).map(Gid::from_raw));
    rustix::fs::chown(place(&file), user, group)?;
    Ok(0)
}

/// fsetxattr.
pub(super) fn set_attribute(
    rules: &Rules,
    target: &Target,
    file: u64,
    (name, bytes, length, flags): (u64, u64, u64, u64),
) -> io::Result<i64> {
    if length > ATTRIBUTE_BYTES_MAX {
        return Err(error(libc::E2BIG));
    }
    let (name, bytes) = (target.read_path(name)?, target.read(bytes, length as usize)?);
    let file = own_open(rules, target, file)?;
    target.confirm()?;
    let flags = XattrFlags::from_bits_retain(flags as u32);
    rustix::fs::setxattr(place(&file), name, &bytes, flags)?;
    Ok(0)
}

/// fremovexattr.
pub(super) fn remove_attribute(
    rules: &Rules,
    target: &Target,
    file: u64,
    name: u64,
) -> io::Result<i64> {
    let name = target.read_path(name)?;
    let file = own_open(rules, target, file)?;
    target.confirm()?;
    rustix::fs::removexattr(place(&file), name)?;
    Ok(0)
}

/// inotify_add_watch.
pub(super) fn watch_changes(
    rules: &Rules,
    target: &Target,
    watcher: u64,
    path: u64,
    events: u64,
) -> io::Result<i64> {
    let events = WatchFlags::from_bits_retain(events as u32);
    let link = WatchFlags::DONT_FOLLOW;
    let follow = if events.contains(link) { OFlags::NOFOLLOW } else { OFlags::empty() };
    let file = allow_own(rules, target.open_path_with(&target.read_path(path)?, follow)?)?;
    let watcher = target.descriptor(watcher)?;
    target.confirm()?;
    Ok(inotify::add_watch(watcher, place(&file), events.difference(link))?.into())
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

/// What is open, if it lies there: it may be a file of others that was opened for reading.
fn own_open(rules: &Rules, target: &Target, file: u64) -> io::Result<OwnedFd> {
    allow_own(rules, target.descriptor(file)?)
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
