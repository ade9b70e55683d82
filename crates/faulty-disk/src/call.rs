//! What a stopped call does, and to which file.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use libc::c_long;

use crate::filter::Stopped;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Open,
    Read,
    Write,
    /// Of a file or a directory.
    Sync,
    Truncate,
    Rename,
    Link,
    Remove,
    MakeDir,
}

/// A call to the file system.
#[derive(Debug)]
pub struct Call {
    pub kind: Kind,
    /// The file that it opens, creates, changes or removes; of a rename or link, the new name.
    pub path: PathBuf,
    pub(crate) thread: u32,
    /// The open file, unless the call names one.
    pub(crate) descriptor: Option<u64>,
    /// Of a write: where its bytes are in the caller's memory, how many, and the offset in the
    /// file, if it has its own.
    pub(crate) bytes: Option<(u64, u64, Option<u64>)>,
}

/// How a call names its file.
#[derive(Clone, Copy)]
enum Named {
    Descriptor,
    /// The argument with the address of the path.
    Path(usize),
    /// The arguments with a directory and an address.
    At(usize, usize),
}

const CALLS: [(c_long, Kind, Named); 15] = [
    (libc::SYS_openat, Kind::Open, Named::At(0, 1)),
    (libc::SYS_read, Kind::Read, Named::Descriptor),
    (libc::SYS_pread64, Kind::Read, Named::Descriptor),
    (libc::SYS_write, Kind::Write, Named::Descriptor),
    (libc::SYS_writev, Kind::Write, Named::Descriptor),
    (libc::SYS_pwrite64, Kind::Write, Named::Descriptor),
    (libc::SYS_fsync, Kind::Sync, Named::Descriptor),
    (libc::SYS_fdatasync, Kind::Sync, Named::Descriptor),
    (libc::SYS_ftruncate, Kind::Truncate, Named::Descriptor),
    (libc::SYS_renameat, Kind::Rename, Named::At(2, 3)),
    (libc::SYS_renameat2, Kind::Rename, Named::At(2, 3)),
    (libc::SYS_linkat, Kind::Link, Named::At(2, 3)),
    (libc::SYS_unlinkat, Kind::Remove, Named::At(0, 1)),
    (libc::SYS_mkdirat, Kind::MakeDir, Named::At(0, 1)),
    (libc::SYS_copy_file_range, Kind::Write, Named::Descriptor),
];

/// Older forms, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: [(c_long, Kind, Named); 7] = [
    (libc::SYS_open, Kind::Open, Named::Path(0)),
    (libc::SYS_creat, Kind::Open, Named::Path(0)),
    (libc::SYS_rename, Kind::Rename, Named::Path(1)),
    (libc::SYS_link, Kind::Link, Named::Path(1)),
    (libc::SYS_unlink, Kind::Remove, Named::Path(0)),
    (libc::SYS_rmdir, Kind::Remove, Named::Path(0)),
    (libc::SYS_mkdir, Kind::MakeDir, Named::Path(0)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: [(c_long, Kind, Named); 0] = [];

const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;

/// The numbers of all calls.
pub(crate) fn numbers() -> Vec<c_long> {
    CALLS.iter().chain(&OLD_CALLS).map(|(number, _, _)| *number).collect()
}

impl Call {
    /// `None` if the file cannot be found out: its caller is gone, or has passed a wrong argument.
    pub(crate) fn of(stopped: &Stopped) -> Option<Call> {
        let mut known = CALLS.iter().chain(&OLD_CALLS);
        let &(_, kind, named) = known.find(|(number, ..)| *number == stopped.number)?;
        let (thread, arguments) = (stopped.thread, &stopped.arguments);
        let copies = stopped.number == libc::SYS_copy_file_range;
        let descriptor = if copies { arguments[2] } else { arguments[0] };
        let path = match named {
            Named::Descriptor => fs::read_link(descriptor_path(thread, descriptor)).ok()?,
            Named::Path(at) => path_from(thread, None, arguments[at])?,
            Named::At(dir, at) => path_from(thread, Some(arguments[dir]), arguments[at])?,
        };
        let descriptor = matches!(named, Named::Descriptor).then_some(descriptor);
        let bytes = match stopped.number {
            libc::SYS_write => Some((arguments[1], arguments[2], None)),
            libc::SYS_pwrite64 => Some((arguments[1], arguments[2], Some(arguments[3]))),
            _ => None,
        };
        Some(Call { kind, path, thread, descriptor, bytes })
    }

    /// The open file, under a name of the kernel's own.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        Some(descriptor_path(self.thread, self.descriptor?))
    }

    /// Which bytes of the file a write changes.
    pub(crate) fn range(&self) -> Option<std::ops::Range<u64>> {
        let (_, length, offset) = self.bytes?;
        let start = match offset {
            Some(offset) => offset,
            None => position(self.thread, self.descriptor?)?,
        };
        Some(start..start + length)
    }

    /// Writes the first half of what this call should write.
    pub(crate) fn write_half(&self) -> io::Result<()> {
        let (Some((address, length, _)), Some(range)) = (self.bytes, self.range()) else {
            return Ok(());
        };
        let mut bytes = vec![0; length as usize / 2];
        memory(self.thread)?.read_exact_at(&mut bytes, address)?;
        let path = descriptor_path(self.thread, self.descriptor.unwrap_or_default());
        File::options().write(true).open(path)?.write_all_at(&bytes, range.start)
    }

    /// The process that makes the call.
    pub(crate) fn process(&self) -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
    }
}

fn descriptor_path(thread: u32, descriptor: u64) -> PathBuf {
    format!("/proc/{thread}/fd/{}", descriptor as i32).into()
}

/// The current position of an open file; its end if it is opened for appending.
fn position(thread: u32, descriptor: u64) -> Option<u64> {
    let info = fs::read_to_string(format!("/proc/{thread}/fdinfo/{}", descriptor as i32)).ok()?;
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
    if flags & libc::O_APPEND != 0 {
        return fs::metadata(descriptor_path(thread, descriptor)).ok().map(|file| file.len());
    }
    field("pos:")?.parse().ok()
}

fn path_from(thread: u32, dir: Option<u64>, address: u64) -> Option<PathBuf> {
    let mut bytes = vec![0; PATH_BYTES_MAX];
    // Fewer bytes if the memory behind the path is not mapped.
    let count = memory(thread).ok()?.read_at(&mut bytes, address).ok()?;
    let end = bytes[..count].iter().position(|byte| *byte == 0)?;
    bytes.truncate(end);
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
    if path.is_absolute() {
        return Some(path);
    }
    let base = match dir.map(|dir| dir as i32) {
        None | Some(libc::AT_FDCWD) => PathBuf::from(format!("/proc/{thread}/cwd")),
        Some(dir) => descriptor_path(thread, dir as u64),
    };
    let base = fs::read_link(base).ok()?;
    Some(if path == Path::new("") { base } else { base.join(path) })
}

fn memory(thread: u32) -> io::Result<File> {
    File::open(format!("/proc/{thread}/mem"))
}
