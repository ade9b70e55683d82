//! The calls that are carried out for a cell, by the kernel's numbers.
//!
//! Sockets of the internet are made here, outside: those that a cell makes itself would lead
//! nowhere. They can be bound to no port of choice, and nobody can connect to them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;

use super::address::{
    Destination, Rules, allow_socket_in, destination, family_of, internet_address, read_address,
    unix_address, unix_path,
};
use super::file::{
    change_mode, change_open_mode, change_owner, change_times, remove_attribute, set_attribute,
    watch_changes,
};
use super::filter::FCHMODAT2;
use super::message::{Message, send_many, send_to};
use super::sys::socket;
use super::target::Target;
use super::watch;

/// The kind of a socket, without its flags.
const KIND: i32 = 0xF;

pub(super) enum Answer {
    /// The result, or an error number.
    Value(Result<i64, i32>),
    /// A new descriptor for the caller, and its flags.
    Socket(OwnedFd, u32),
}

pub(super) enum Carried {
    Done(Answer),
    /// It may take long.
    Waits(Box<dyn FnOnce() -> Answer + Send>),
}

impl Answer {
    pub(super) fn failed(reason: &io::Error) -> Answer {
        Answer::Value(Err(reason.raw_os_error().unwrap_or(libc::EPERM)))
    }
}

impl From<io::Result<i64>> for Answer {
    fn from(result: io::Result<i64>) -> Answer {
        match result {
            Ok(value) => Answer::Value(Ok(value)),
            Err(reason) => Answer::failed(&reason),
        }
    }
}

pub(super) fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

pub(super) fn carry_out(rules: &Rules, target: Target, call: &libc::seccomp_data) -> Carried {
    let [a, b, c, d, e, f] = call.args;
    let done = match i64::from(call.nr) {
        libc::SYS_socket => make_socket(rules, a as i32, b as i32, c as i32),
        libc::SYS_connect => connect(rules, &target, (a, b, c)),
        libc::SYS_bind => bind(rules, &target, (a, b, c)).map(value),
        libc::SYS_listen => listen(&target, a, b as i32).map(value),
        libc::SYS_sendto => send_to(rules, &target, (a, b, c, d as i32), (e, f)),
        libc::SYS_sendmsg => Message::read(rules, &target, a, b, c as i32).map(Message::send),
        libc::SYS_sendmmsg => send_many(rules, target, (a, b, c, d as i32)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => change_mode(rules, &target, (libc::AT_FDCWD, a, 0), b).map(value),
        libc::SYS_fchmod => change_open_mode(rules, &target, a, b).map(value),
        libc::SYS_fchmodat => change_mode(rules, &target, (a as i32, b, 0), c).map(value),
        FCHMODAT2 => change_mode(rules, &target, (a as i32, b, d as i32), c).map(value),
        libc::SYS_utimensat => change_times(rules, &target, (a as i32, b, d as i32), c).map(value),
        libc::SYS_fchown => change_owner(rules, &target, a, (b as u32, c as u32)).map(value),
        libc::SYS_fsetxattr => set_attribute(rules, &target, a, (b, c, d, e)).map(value),
        libc::SYS_fremovexattr => remove_attribute(rules, &target, a, b).map(value),
        libc::SYS_inotify_add_watch => watch_changes(rules, &target, a, b, c).map(value),
        _ => Err(error(libc::ENOSYS)),
    };
    done.unwrap_or_else(|reason| Carried::Done(Answer::failed(&reason)))
}

pub(super) fn value(value: i64) -> Carried {
    Carried::Done(Answer::Value(Ok(value)))
}

/// A socket for TCP or UDP.
fn make_socket(rules: &Rules, family: i32, kind: i32, protocol: i32) -> io::Result<Carried> {
    let usual = match kind & KIND {
        libc::SOCK_STREAM => libc::IPPROTO_TCP,
        libc::SOCK_DGRAM => libc::IPPROTO_UDP,
        _ => return Err(error(libc::EPERM)),
    };
    if protocol != 0 && protocol != usual {
        return Err(error(libc::EPROTONOSUPPORT));
    }
    let socket = socket::socket(family, kind & (KIND | libc::SOCK_NONBLOCK), usual)?;
    rules.ports.prepare(socket.as_fd(), kind & KIND == libc::SOCK_DGRAM)?;
    let flags = if kind & libc::SOCK_CLOEXEC != 0 { libc::O_CLOEXEC as u32 } else { 0 };
    Ok(Carried::Done(Answer::Socket(socket, flags)))
}

fn connect(
    rules: &Rules,
    target: &Target,
    (number, address, length): (u64, u64, u64),
) -> io::Result<Carried> {
    let bytes = read_address(target, address, length)?;
    let socket = target.descriptor(number)?;
    let to = match family_of(&bytes) {
        // Ends an association; leads nowhere.
        libc::AF_UNSPEC => Destination::plain(bytes),
        _ => destination(rules, target, bytes)?,
    };
    target.confirm()?;
    if to.is_internet() {
        rules.ports.take(socket.as_fd())?;
    }
    // Not only if it waits now: the caller can change that at any time.
    let takes_long = socket::socket_option(socket.as_fd(), libc::SO_TYPE)? != libc::SOCK_DGRAM;
    let work = move || {
        // All of it, for the file that the address names.
        let to = to;
        Answer::from(socket::connect(socket.as_fd(), &to.address).map(|()| 0))
    };
    Ok(if takes_long { Carried::Waits(Box::new(work)) } else { Carried::Done(work()) })
}

/// Whether calls on this descriptor wait.
pub(super) fn waits(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(!rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK))
}

/// A socket of the internet gets any free port; one in a file is made where the cell may write.
fn bind(
    rules: &Rules,
    target: &Target,
    (number, address, length): (u64, u64, u64),
) -> io::Result<i64> {
    let bytes = read_address(target, address, length)?;
    let socket = target.descriptor(number)?;
    target.confirm()?;
    match family_of(&bytes) {
        libc::AF_INET | libc::AF_INET6 => {
            if internet_address(&bytes)?.port() != 0 {
                watch::log("refused: a port of its own (handlers cannot be connected to)");
                return Err(error(libc::EACCES));
            }
            rules.ports.bind(socket.as_fd(), &bytes)?;
        }
        libc::AF_UNIX => match unix_path(&bytes) {
            None if rules.own.is_none() => socket::bind(socket.as_fd(), &bytes)?,
            None => return Err(error(libc::EPERM)),
            Some(path) => bind_file(rules, target, socket.as_fd(), path)?,
        },
        _ => return Err(error(libc::EAFNOSUPPORT)),
    }
    Ok(0)
}

fn bind_file(
    rules: &Rules,
    target: &Target,
    socket: BorrowedFd<'_>,
    path: &Path,
) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| error(libc::EADDRINUSE))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = target.open_path(parent.unwrap_or(Path::new(".")))?;
    target.confirm()?;
    allow_socket_in(rules, &dir)?;
    let place = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    socket::bind(socket, &unix_address(&place)?)
}

/// Nobody outside can connect to a cell.
fn listen(target: &Target, number: u64, backlog: i32) -> io::Result<i64> {
    let socket = target.descriptor(number)?;
    target.confirm()?;
    if socket::socket_option(socket.as_fd(), libc::SO_DOMAIN)? != libc::AF_UNIX {
        watch::log("refused: waiting for connections (handlers cannot be connected to)");
        return Err(error(libc::EACCES));
    }
    socket::listen(socket.as_fd(), backlog)?;
    Ok(0)
}
