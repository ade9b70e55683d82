//! The system calls of a cell that have no safe form. Each wraps one call; what they mean together
//! is decided elsewhere. Here are those on processes and mounts.

pub(super) mod notify;
pub(super) mod socket;

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libc::{c_int, c_long, c_ulong, pid_t};

/// All namespaces but those of users and of control groups, which are entered apart.
pub(in crate::cell) const NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Capability numbers are below this.
const CAPABILITIES_MAX: c_ulong = 64;

pub(in crate::cell) fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(in crate::cell) fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Keeps a descriptor from the programs that this process and its children start.
#[allow(unsafe_code)]
pub(in crate::cell) fn keep_from_programs(number: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }.into()).map(drop)
}

/// Takes over a descriptor that this process was started with.
#[allow(unsafe_code)]
pub(in crate::cell) fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    keep_from_programs(number)?;
    // SAFETY: it is open, as the call above shows, and each is taken over once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A descriptor that stays open.
#[allow(unsafe_code)]
pub(in crate::cell) fn borrowed(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: used for the standard streams, which this process never closes before its end.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Forks; 0 in the child. The process must have one thread.
#[allow(unsafe_code)]
pub(in crate::cell) fn fork(namespaces: c_int) -> io::Result<pid_t> {
    let flags = (namespaces | libc::SIGCHLD) as c_ulong;
    // SAFETY: like a fork: without a new stack, and there is no other thread.
    Ok(check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) })? as pid_t)
}

/// The same, and the child has this number in the innermost namespace.
#[allow(unsafe_code)]
pub(in crate::cell) fn fork_numbered(number: pid_t) -> io::Result<pid_t> {
    let mut args: libc::clone_args = zeroed();
    args.exit_signal = libc::SIGCHLD as u64;
    args.set_tid = ptr::from_ref(&number) as u64;
    args.set_tid_size = 1;
    // SAFETY: the structure and the number live until the call returns, in either process.
    let forked = unsafe {
        libc::syscall(libc::SYS_clone3, ptr::from_ref(&args), size_of::<libc::clone_args>())
    };
    Ok(check(forked)? as pid_t)
}

/// A structure of numbers and pointers, all zero.
#[allow(unsafe_code)]
pub(in crate::cell) fn zeroed<T: Copy>() -> T {
    // SAFETY: used for structures of the kernel only, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

#[allow(unsafe_code)]
pub(in crate::cell) fn unshare(namespaces: c_int) -> io::Result<()> {
    // SAFETY: takes a number; no descriptor table is unshared.
    check(unsafe { libc::unshare(namespaces) }.into()).map(drop)
}

#[allow(unsafe_code)]
pub(in crate::cell) fn prctl(option: c_int, argument: c_ulong) -> io::Result<()> {
    // SAFETY: only used with options whose arguments are numbers.
    check(unsafe { libc::prctl(option, argument, 0, 0, 0) }.into()).map(drop)
}

/// Mounts; an absent text is a null pointer.
#[allow(unsafe_code)]
pub(in crate::cell) fn mount(
    source: &Path,
    target: &Path,
    kind: &CStr,
    flags: c_ulong,
    data: &CStr,
) -> io::Result<()> {
    let (source, target) = (c_string(source)?, c_string(target)?);
    // SAFETY: all texts end with a zero and live until the call returns.
    let result = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, data.as_ptr().cast())
    };
    check(result.into()).map(drop)
}

/// Changes this mount and all below it: only adds what forbids.
#[allow(unsafe_code)]
pub(in crate::cell) fn restrict_mount(target: &Path, attributes: u64) -> io::Result<()> {
    let target = c_string(target)?;
    let mut wanted: libc::mount_attr = zeroed();
    wanted.attr_set = attributes;
    // SAFETY: the structure and the text live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::AT_RECURSIVE,
            ptr::from_ref(&wanted),
            size_of::<libc::mount_attr>(),
        )
    };
    check(result).map(drop)
}

/// Makes the working directory the root, and lets go of the old one.
#[allow(unsafe_code)]
pub(in crate::cell) fn pivot_here() -> io::Result<()> {
    // SAFETY: texts that end with a zero.
    unsafe {
        check(libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()))?;
        check(libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
    }
    std::env::set_current_dir("/")
}

#[allow(unsafe_code)]
pub(in crate::cell) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the length is that of the text.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// A copy of a mount, with all below it, that is mounted nowhere.
#[allow(unsafe_code)]
pub(in crate::cell) fn copy_mount(mount: &OwnedFd) -> io::Result<OwnedFd> {
    let whole = (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as u32;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | whole;
    // SAFETY: a text that ends with a zero, and the new descriptor has no other owner.
    unsafe {
        let number = libc::syscall(libc::SYS_open_tree, mount.as_raw_fd(), c"".as_ptr(), flags);
        Ok(OwnedFd::from_raw_fd(check(number)? as RawFd))
    }
}

/// Mounts such a copy.
#[allow(unsafe_code)]
pub(in crate::cell) fn mount_copy(copy: &OwnedFd, place: &Path) -> io::Result<()> {
    let place = c_string(place)?;
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH;
    let (from, here) = (copy.as_raw_fd(), libc::AT_FDCWD);
    // SAFETY: both texts live until the call returns.
    let moved = unsafe {
        libc::syscall(libc::SYS_move_mount, from, c"".as_ptr(), here, place.as_ptr(), flags)
    };
    check(moved).map(drop)
}

/// Takes away what is mounted here, with all below it.
#[allow(unsafe_code)]
pub(in crate::cell) fn unmount(place: &Path) -> io::Result<()> {
    let place = c_string(place)?;
    // SAFETY: the text lives until the call returns.
    check(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) }.into()).map(drop)
}

/// Ends all other processes of this namespace, of which this one is the first.
#[allow(unsafe_code)]
pub(in crate::cell) fn kill_all_others() {
    // SAFETY: takes numbers. The first process of a namespace reaches nothing outside.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Copies a descriptor to this number, which programs that are started then have, too.
#[allow(unsafe_code)]
pub(in crate::cell) fn copy_to(descriptor: &OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers; whatever had the number before is not used any more.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into()).map(drop)
}

/// Becomes this user and group, with no other groups.
#[allow(unsafe_code)]
pub(in crate::cell) fn become_user(number: u32) -> io::Result<()> {
    // SAFETY: the list of groups is empty; the others are numbers.
    unsafe {
        check(libc::setgroups(0, ptr::null()).into())?;
        check(libc::setresgid(number, number, number).into())?;
        check(libc::setresuid(number, number, number).into()).map(drop)
    }
}

/// No program can return a capability from now on. To be called while this process is still root.
pub(in crate::cell) fn drop_bounding_set() {
    for capability in 0..CAPABILITIES_MAX {
        // A number that the kernel does not know, or a right that is not there to be given up.
        let _ = prctl(libc::PR_CAPBSET_DROP, capability);
    }
}

/// Gives up all other capabilities.
#[allow(unsafe_code)]
pub(in crate::cell) fn keep_capabilities(kept: u64) -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let (low, high) = (kept as u32, (kept >> 32) as u32);
    let sets = [[low, low, 0], [high, high, 0_u32]];
    // SAFETY: both have the layout that the call expects, and live until it returns.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) }).map(drop)
}

/// Sets a limit by the kernel's number.
#[allow(unsafe_code)]
pub(in crate::cell) fn set_limit((resource, current, maximum): (u32, u64, u64)) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: current, rlim_max: maximum };
    // SAFETY: the structure lives until the call returns.
    check(unsafe { libc::setrlimit(resource, &limit) }.into()).map(drop)
}

/// Installs a filter of system calls; with a listener, returns its descriptor.
#[allow(unsafe_code)]
pub(in crate::cell) fn set_filter(
    program: &[libc::sock_filter],
    flags: c_ulong,
) -> io::Result<Option<OwnedFd>> {
    let len = program.len().try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives until the call returns. A new listener is
    // a descriptor that nothing else owns.
    unsafe {
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        let listener =
            check(libc::syscall(libc::SYS_seccomp, mode, flags, ptr::from_ref(&program)))?;
        let listens = flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0;
        Ok(listens.then(|| OwnedFd::from_raw_fd(listener as RawFd)))
    }
}

/// A descriptor that becomes readable when a child has ended. The signal itself is blocked from now
/// on.
#[allow(unsafe_code)]
pub(in crate::cell) fn ends_of_children() -> io::Result<OwnedFd> {
    let mut signals: libc::sigset_t = zeroed();
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set lives until the calls return, and the new descriptor has no other owner.
    unsafe {
        check(libc::sigaddset(&mut signals, libc::SIGCHLD).into())?;
        check(libc::sigprocmask(libc::SIG_BLOCK, &signals, ptr::null_mut()).into())?;
        let number = check(libc::signalfd(-1, &signals, flags).into())?;
        Ok(OwnedFd::from_raw_fd(number as RawFd))
    }
}

/// The end of a child.
pub(in crate::cell) enum NextEnd {
    /// Which one, and its status as the kernel tells it.
    Ended(pid_t, c_int),
    /// All that are left still run.
    Later,
    /// None is left.
    Never,
}

/// The next child that has ended, without waiting for one.
#[allow(unsafe_code)]
pub(in crate::cell) fn next_end() -> NextEnd {
    let mut status = 0;
    // SAFETY: the status lives until the call returns.
    match unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } {
        0 => NextEnd::Later,
        child if child > 0 => NextEnd::Ended(child, status),
        _ => NextEnd::Never,
    }
}

/// The status of a child as the kernel tells it, and which child; `None` if there is no child.
#[allow(unsafe_code)]
pub(in crate::cell) fn wait_any() -> Option<(pid_t, c_int)> {
    let mut status = 0;
    loop {
        // SAFETY: the status lives until the call returns.
        let child = unsafe { libc::waitpid(-1, &mut status, 0) };
        if child > 0 {
            return Some((child, status));
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return None;
        }
    }
}

/// Runs the program instead of this one; returns only if that fails.
#[allow(unsafe_code)]
pub(in crate::cell) fn exec(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |texts: &[CString]| {
        let mut list: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        list.push(ptr::null());
        list
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists end with a null pointer, and their texts live until the call returns.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process as another one ended.
#[allow(unsafe_code)]
pub(in crate::cell) fn end_like(status: c_int) -> ! {
    // SAFETY: takes numbers, and ends this process.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let signal = libc::WTERMSIG(status);
            libc::signal(signal, libc::SIG_DFL);
            libc::kill(libc::getpid(), signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

#[allow(unsafe_code)]
pub(in crate::cell) fn exit(code: c_int) -> ! {
    // SAFETY: ends this process without running anything of its own.
    unsafe { libc::_exit(code) }
}

/// Closes these numbers; whatever owned them must not be used any more.
#[allow(unsafe_code)]
pub(in crate::cell) fn close_range(first: RawFd, last: RawFd) {
    // SAFETY: the caller no longer uses these numbers.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
