//! The system calls of attacks that have no safe form. Each wraps one call.

use std::ffi::{c_int, c_long};
use std::io;
use std::ptr;

/// Asks for the number of the own session keyring.
const KEYCTL_GET_KEYRING_ID: c_long = 0;
const SESSION_KEYRING: c_long = -3;
/// Bytes of `struct io_uring_params`, and a bit more.
const RING_PARAMS_BYTES: usize = 256;
/// Room for the processors of a large machine.
const PROCESSOR_WORDS: usize = 128;
/// Of a segment of System V.
const SEGMENT_BYTES: usize = 4096;

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[allow(unsafe_code)]
pub(super) fn keyctl() -> io::Result<()> {
    let (operation, keyring) = (KEYCTL_GET_KEYRING_ID, SESSION_KEYRING);
    // SAFETY: takes numbers.
    check(unsafe { libc::syscall(libc::SYS_keyctl, operation, keyring, 0_i64) }).map(drop)
}

/// The ring stays open until this process ends.
#[allow(unsafe_code)]
pub(super) fn io_uring_setup() -> io::Result<()> {
    let mut params = [0_u8; RING_PARAMS_BYTES];
    // SAFETY: the kernel writes its parameters, which are smaller, into this buffer.
    check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_i64, params.as_mut_ptr()) }).map(drop)
}

#[allow(unsafe_code)]
pub(super) fn make_user_namespace() -> io::Result<()> {
    // SAFETY: takes a number.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into()).map(drop)
}

/// Lets the parent of this process trace it.
#[allow(unsafe_code)]
pub(super) fn be_traced() -> io::Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: this request uses none of its arguments.
    check(unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, nothing, nothing) }).map(drop)
}

/// Whether a process could be sent a signal.
#[allow(unsafe_code)]
pub(super) fn signal(process: i32) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::kill(process, 0) }.into()).map(drop)
}

/// Sets a limit of a process to what it is.
#[allow(unsafe_code)]
pub(super) fn set_limit_of(process: i32) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_NOFILE;
    // SAFETY: the kernel writes a limit into this one.
    let read = unsafe { libc::prlimit(process, resource, ptr::null(), &raw mut limit) };
    check(read.into())?;
    // SAFETY: the kernel reads a limit from this one.
    let set = unsafe { libc::prlimit(process, resource, &raw const limit, ptr::null_mut()) };
    check(set.into()).map(drop)
}

/// Sets the priority of a process to what it is.
#[allow(unsafe_code)]
pub(super) fn set_priority_of(process: i32) -> io::Result<()> {
    let (kind, process) = (libc::PRIO_PROCESS, process as libc::id_t);
    // SAFETY: takes numbers. The call below fails as this one does.
    let priority = unsafe { libc::getpriority(kind, process) };
    // SAFETY: takes numbers.
    check(unsafe { libc::setpriority(kind, process, priority) }.into()).map(drop)
}

/// Sets on which processors a process may run to those on which it may.
#[allow(unsafe_code)]
pub(super) fn set_scheduling_of(process: i32) -> io::Result<()> {
    let mut processors = [0_u64; PROCESSOR_WORDS];
    let size = size_of_val(&processors);
    // SAFETY: the kernel writes at most this many bytes.
    let read = unsafe { libc::sched_getaffinity(process, size, processors.as_mut_ptr().cast()) };
    check(read.into())?;
    // SAFETY: the kernel reads this many bytes.
    let set = unsafe { libc::sched_setaffinity(process, size, processors.as_ptr().cast()) };
    check(set.into()).map(drop)
}

/// Finds a segment of System V that another process has made.
#[allow(unsafe_code)]
pub(super) fn find_segment(key: i32) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::shmget(key, 0, 0) }.into()).map(drop)
}

/// A segment of System V that everybody may use, until this is dropped.
pub(super) struct Segment(c_int);

impl Segment {
    #[allow(unsafe_code)]
    pub(super) fn make(key: i32) -> io::Result<Segment> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o666;
        // SAFETY: takes numbers.
        let id = check(unsafe { libc::shmget(key, SEGMENT_BYTES, flags) }.into())?;
        Ok(Segment(id as c_int))
    }
}

impl Drop for Segment {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: this request uses no buffer.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, ptr::null_mut()) };
    }
}
