//! System calls that have no safe form: keeping inherited descriptors from handlers, signal
//! handling, waiting for the exit of a process like for any other event, and the addresses and
//! routes of this machine. All `unsafe` of the crate is here, in `isolate::hook` and in
//! `cell::sys`.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::FdFlags;
use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const STDERR: i32 = 2;

/// Keeps the descriptors that this process inherited from the processes that it starts. Descriptors
/// that it opens itself are close-on-exec anyway.
#[allow(unsafe_code)]
pub(crate) fn keep_inherited_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| *number > STDERR) {
            // SAFETY: the descriptor is used for one call, which changes nothing but whether it
            // stays open across an exec. If it was closed meanwhile, the call fails.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let _ = rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

/// Makes the kernel keep the exit codes of our children. It discards them if we inherited an
/// ignored SIGCHLD.
#[allow(unsafe_code)]
pub(crate) fn keep_exit_codes() -> io::Result<()> {
    // SAFETY: a zeroed `sigaction` is a valid one without a handler, both pointers are valid for
    // the calls, and no handler is installed by them.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGCHLD, std::ptr::null(), &mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        if action.sa_sigaction != libc::SIG_IGN && action.sa_flags & libc::SA_NOCLDWAIT == 0 {
            return Ok(());
        }
        let default: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGCHLD, &default, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// From now on this process ignores the signals that ask programs to end.
#[allow(unsafe_code)]
pub(crate) fn ignore_requests_to_end() -> io::Result<()> {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        // SAFETY: a zeroed `sigaction` is a valid one, the pointer is valid for the call, and no
        // handler is installed by it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_IGN;
            if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

/// Becomes readable when the process exits, and stays so, without reaping the process. It must not
/// have been reaped before.
pub(crate) fn exit_of(process: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    watch_input(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

/// Tells when the descriptor can be read.
#[allow(unsafe_code)]
pub(crate) fn watch_input(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open descriptor for as long as it lives, and the
    // `AsyncFd` owns it.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    Ok(watched?)
}

/// A socket that answers questions about routes at once. It is the kernel that answers.
#[allow(unsafe_code)]
pub(crate) fn route_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes numbers, and the result is a new descriptor that nothing else owns.
    unsafe {
        match libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) {
            ..0 => Err(io::Error::last_os_error()),
            made => Ok(OwnedFd::from_raw_fd(made)),
        }
    }
}

/// The addresses of all network interfaces.
#[allow(unsafe_code)]
pub(crate) fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    // SAFETY: after success the list is valid until it is freed, each entry links to the next or to
    // null, and an address has the form that its family names.
    unsafe {
        let mut list = std::ptr::null_mut();
        if libc::getifaddrs(&mut list) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut next = list;
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let address = entry.ifa_addr;
            let family = address.as_ref().map(|address| i32::from(address.sa_family));
            if family == Some(libc::AF_INET) {
                let v4 = (*address.cast::<libc::sockaddr_in>()).sin_addr;
                addresses.push(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(v4.s_addr))));
            } else if family == Some(libc::AF_INET6) {
                let v6 = (*address.cast::<libc::sockaddr_in6>()).sin6_addr;
                addresses.push(IpAddr::V6(Ipv6Addr::from(v6.s6_addr)));
            }
        }
        libc::freeifaddrs(list);
    }
    Ok(addresses)
}
