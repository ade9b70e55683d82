//! What happens between fork and exec. The child of a multi-threaded process may only make system
//! calls there: it must not allocate, lock or panic.

use std::io;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::Mutex;

use rustix::fs::{Mode, OFlags};

use windlass_core::sync::lock;

use super::limit::Limit;

/// The descriptors of a context's channel.
const REQUESTS: i32 = 3;
const ANSWERS: i32 = 4;
/// The descriptor that shows whether its batch is halted.
const HALT: i32 = 5;
/// Descriptors from this number on are not for the new process.
const NUMBERS_END: i32 = 10;
/// The largest signal number.
const SIGNAL_MAX: i32 = 64;

/// A context's additional descriptors. None of these has a number below `NUMBERS_END`.
pub(crate) struct Channels {
    pub(crate) requests: OwnedFd,
    pub(crate) answers: OwnedFd,
    pub(crate) halt: OwnedFd,
}

/// Descriptors for the new process, and the numbers that they get there: all between those of the
/// standard streams and `NUMBERS_END`. None of them has such a number here.
#[derive(Default)]
pub(crate) struct Descriptors(Vec<(OwnedFd, i32)>);

impl Descriptors {
    pub(crate) fn of(channels: Option<Channels>) -> Descriptors {
        let mut descriptors = Descriptors::default();
        if let Some(Channels { requests, answers, halt }) = channels {
            descriptors.add(requests, REQUESTS);
            descriptors.add(answers, ANSWERS);
            descriptors.add(halt, HALT);
        }
        descriptors
    }

    pub(crate) fn add(&mut self, descriptor: OwnedFd, number: i32) {
        debug_assert!((REQUESTS..NUMBERS_END).contains(&number));
        self.0.push((descriptor, number));
    }
}

/// Everything that the hook needs, prepared before the fork.
pub(super) struct Plan {
    pub(super) descriptors: Descriptors,
    /// Absent for a cell, which confines its process itself.
    pub(super) confined: Option<Confined>,
}

pub(super) struct Confined {
    pub(super) limits: Vec<Limit>,
    /// Landlock rules.
    pub(super) ruleset: Option<OwnedFd>,
}

/// Occupies the numbers of handed-over descriptors in this process for good, so that no descriptor
/// that a new process needs until its exec has one of them.
pub(super) fn reserve_numbers() -> io::Result<()> {
    static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let mut reserved = lock(&RESERVED);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    loop {
        // The lowest free number is used.
        let descriptor = rustix::fs::open("/dev/null", flags, Mode::empty())?;
        if descriptor.as_raw_fd() >= NUMBERS_END {
            return Ok(());
        }
        reserved.push(descriptor);
    }
}

/// Makes the command carry out the plan in the process that it starts.
#[allow(unsafe_code)]
pub(super) fn arm(command: &mut Command, plan: Plan) {
    // SAFETY: the hook makes system calls only, on values that the plan owns; it takes no lock and
    // allocates nothing, and its errors are numbers.
    unsafe {
        command.pre_exec(move || confine(&plan));
    }
}

fn confine(plan: &Plan) -> io::Result<()> {
    rustix::process::setsid()?;
    reset_signals();
    for (descriptor, number) in &plan.descriptors.0 {
        copy(descriptor, *number)?;
    }
    close_others(&plan.descriptors);
    let Some(Confined { limits, ruleset }) = &plan.confined else { return Ok(()) };
    for (resource, limit) in limits {
        rustix::process::setrlimit(*resource, *limit)?;
    }
    drop_capabilities()?;
    forbid_new_privileges()?;
    ruleset.as_ref().map_or(Ok(()), restrict)
}

/// Otherwise handlers would inherit signals that were ignored or blocked when the daemon started.
#[allow(unsafe_code)]
pub(crate) fn reset_signals() {
    // The layout of the raw system call: the C library reserves two signals. All zeros mean the
    // default, whatever the order of the fields.
    let default = [0_u64; 4];
    // SAFETY: a zeroed `sigset_t` is empty, and the pointers are valid for the calls. Signals that
    // cannot be changed stay as they are.
    unsafe {
        for signal in 1..=SIGNAL_MAX {
            let (to, from) = (default.as_ptr(), ptr::null_mut::<libc::c_void>());
            libc::syscall(libc::SYS_rt_sigaction, signal, to, from, mem::size_of::<u64>());
        }
        let none: libc::sigset_t = mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
    }
}

#[allow(unsafe_code)]
fn copy(from: &OwnedFd, to: i32) -> io::Result<()> {
    // SAFETY: the copy takes over the number, which is not closed here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(to) });
    Ok(rustix::io::dup2(from, &mut target)?)
}

/// Closes all descriptors but the standard streams and these at the exec. They are opened
/// close-on-exec anyway; this covers a forgotten one, unless the kernel lacks the call.
fn close_others(kept: &Descriptors) {
    for number in REQUESTS..NUMBERS_END {
        if !kept.0.iter().any(|(_, of_new)| *of_new == number) {
            close_range(number, number.cast_unsigned());
        }
    }
    close_range(NUMBERS_END, u32::MAX);
}

#[allow(unsafe_code)]
fn close_range(first: i32, last: u32) {
    // SAFETY: the call changes only whether descriptors stay open across an exec.
    unsafe {
        let flags = libc::CLOSE_RANGE_CLOEXEC;
        libc::syscall(libc::SYS_close_range, first.cast_unsigned(), last, flags);
    }
}

/// If the daemon is root, its handlers are root in name only: they cannot read other processes,
/// raise limits or bypass permissions. No program returns these rights to them, because new
/// privileges are forbidden, too.
#[allow(unsafe_code)]
fn drop_capabilities() -> io::Result<()> {
    /// Sets of 64 capabilities, in two halves, for the calling process.
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [[0_u32; 3]; 2];
    // SAFETY: both have the layout that the call expects, and live until it returns.
    match unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn forbid_new_privileges() -> io::Result<()> {
    // SAFETY: the call takes numbers and changes one flag of the process.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The version of Landlock in this kernel.
#[allow(unsafe_code)]
pub(crate) fn landlock_version() -> io::Result<i64> {
    const ASK_VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no rules and returns a number.
    let version = unsafe {
        let no_rules = ptr::null::<libc::c_void>();
        libc::syscall(libc::SYS_landlock_create_ruleset, no_rules, 0, ASK_VERSION)
    };
    if version > 0 { Ok(version) } else { Err(io::Error::last_os_error()) }
}

#[allow(unsafe_code)]
fn restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the call only takes rights away from this process.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
