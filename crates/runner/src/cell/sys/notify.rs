//! Calls of other processes that wait for a decision, and what has to be read and written for them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, zeroed};

/// The next call that waits for a decision.
#[allow(unsafe_code)]
pub(in crate::cell) fn next_call(listener: BorrowedFd<'_>) -> io::Result<libc::seccomp_notif> {
    let mut call: libc::seccomp_notif = zeroed();
    // SAFETY: the kernel fills the structure, which lives until the call returns.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) };
    check(result.into()).map(|_| call)
}

/// Whether the call still waits, so that what was read belongs to it.
#[allow(unsafe_code)]
pub(in crate::cell) fn still_waits(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads the number, which lives until the call returns.
    unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0
    }
}

/// Answers a call: its result, or an error number.
#[allow(unsafe_code)]
pub(in crate::cell) fn answer_call(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) {
    let (val, error) = match result {
        Ok(value) => (value, 0),
        Err(errno) => (0, -errno),
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags: 0 };
    // A caller that is gone needs no answer.
    // SAFETY: the structure lives until the call returns.
    unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut response);
    }
}

/// Answers a call with a descriptor for its caller.
#[allow(unsafe_code)]
pub(in crate::cell) fn answer_with(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    flags: u32,
) -> io::Result<()> {
    let mut added: libc::seccomp_notif_addfd = zeroed();
    added.id = id;
    added.flags = libc::SECCOMP_ADDFD_FLAG_SEND as u32;
    added.srcfd = descriptor.as_raw_fd().cast_unsigned();
    added.newfd_flags = flags;
    // SAFETY: the structure lives until the call returns.
    let result = unsafe {
        libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw mut added)
    };
    check(result.into()).map(drop)
}

/// A descriptor of another process.
#[allow(unsafe_code)]
pub(in crate::cell) fn descriptor_of(
    process: BorrowedFd<'_>,
    number: RawFd,
) -> io::Result<OwnedFd> {
    // SAFETY: the result is a new descriptor that nothing else owns.
    unsafe {
        let taken = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0);
        Ok(OwnedFd::from_raw_fd(check(taken)? as RawFd))
    }
}
