//! The process whose call is carried out: its memory, descriptors and files. It is not trusted, and
//! may change all of them at any time: what is read here is read once, and only the copy counts.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::process::{Pid, PidfdFlags};

use super::sys::notify;

/// Longest path, as the kernel takes it, and the least page size.
const PATH_BYTES_MAX: usize = 4096;
const PAGE_BYTES: usize = 4096;

pub(super) struct Target {
    thread: i32,
    process: OwnedFd,
    /// Its memory: of this process for good, even if its number is reused.
    memory: File,
    /// Shows whether the call still waits.
    listener: Arc<OwnedFd>,
    call: u64,
}

impl Target {
    /// The process of the thread that makes this call.
    pub(super) fn open(listener: Arc<OwnedFd>, call: u64, thread: u32) -> io::Result<Target> {
        let missing = || io::Error::from_raw_os_error(libc::ESRCH);
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        let leader = leader.and_then(|number| number.trim().parse().ok()).and_then(Pid::from_raw);
        let process =
            rustix::process::pidfd_open(leader.ok_or_else(missing)?, PidfdFlags::empty())?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{thread}/mem"))?;
        Ok(Target { thread: thread.cast_signed(), process, memory, listener, call })
    }

    /// Fails if the call no longer waits: its thread may be gone, and what was read since may be
    /// another's of the same number. To be asked after the last read, before anything is done.
    pub(super) fn confirm(&self) -> io::Result<()> {
        match notify::still_waits(self.listener.as_fd(), self.call) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    pub(super) fn descriptor(&self, number: u64) -> io::Result<OwnedFd> {
        // The kernel uses the low half of the register.
        notify::descriptor_of(self.process.as_fd(), number as u32 as i32)
    }

    /// This many bytes of its memory.
    pub(super) fn read(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.read_exact_at(&mut bytes, address).map_err(fault)?;
        Ok(bytes)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address).map_err(fault)
    }

    /// The path at this address of its memory. What is read may end with the page that it is on.
    pub(super) fn read_path(&self, address: u64) -> io::Result<PathBuf> {
        let mut path = Vec::new();
        while path.len() < PATH_BYTES_MAX {
            let at = address.wrapping_add(path.len() as u64);
            let piece = self.read(at, PAGE_BYTES - at as usize % PAGE_BYTES)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                path.extend(&piece[..end]);
                return Ok(OsString::from_vec(path).into());
            }
            path.extend(piece);
        }
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    }

    /// What is at this path, as the process sees it. Its root is never left.
    pub(super) fn open_path(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_path_with(path, OFlags::empty())
    }

    /// The same with these flags, too.
    pub(super) fn open_path_with(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let thread = self.thread;
        let open = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(
            format!("/proc/{thread}/root"),
            open | OFlags::DIRECTORY,
            Mode::empty(),
        )?;
        let full = match path.is_absolute() {
            true => path.to_owned(),
            false => fs::read_link(format!("/proc/{thread}/cwd"))?.join(path),
        };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&root, &full, open | flags, Mode::empty(), inside)?)
    }
}

/// What the kernel would tell the caller.
fn fault(_: io::Error) -> io::Error {
    io::Error::from_raw_os_error(libc::EFAULT)
}

/// The name of what was opened, as this process sees it.
pub(super) fn name_of(opened: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))
}
