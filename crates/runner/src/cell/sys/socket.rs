//! Sockets by raw addresses.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_long};

use super::{check, zeroed};

#[allow(unsafe_code)]
pub(in crate::cell) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: the result is a new descriptor that nothing else owns.
    unsafe {
        let made = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        Ok(OwnedFd::from_raw_fd(check(made.into())? as RawFd))
    }
}

/// An option of a socket that is a number.
#[allow(unsafe_code)]
pub(in crate::cell) fn socket_option(socket: BorrowedFd<'_>, option: c_int) -> io::Result<c_int> {
    let (mut value, mut length) = (0, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes at most the length of the number.
    let result = unsafe {
        let into = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, into, &mut length)
    };
    check(result.into()).map(|_| value)
}

/// Sets an option of the internet protocol that is a number.
#[allow(unsafe_code)]
pub(in crate::cell) fn set_ip_option(
    socket: BorrowedFd<'_>,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the length is that of the number, which lives until the call returns.
    let result = unsafe {
        let (from, length) = ((&raw const value).cast(), size_of::<c_int>() as libc::socklen_t);
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, option, from, length)
    };
    check(result.into()).map(drop)
}

/// The port of a socket of the internet; 0 if it has none.
#[allow(unsafe_code)]
pub(in crate::cell) fn local_port(socket: BorrowedFd<'_>) -> io::Result<u16> {
    // Both kinds of addresses have it at the same place.
    let mut address: libc::sockaddr_in6 = zeroed();
    let mut length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: the kernel writes at most the length of the structure.
    let result =
        unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &mut length) };
    check(result.into()).map(|_| u16::from_be(address.sin6_port))
}

#[allow(unsafe_code)]
pub(in crate::cell) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    // SAFETY: the length is that of the slice.
    let result =
        unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) };
    check(result.into()).map(drop)
}

#[allow(unsafe_code)]
pub(in crate::cell) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    // SAFETY: the length is that of the slice.
    let result =
        unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) };
    check(result.into()).map(drop)
}

#[allow(unsafe_code)]
pub(in crate::cell) fn listen(socket: BorrowedFd<'_>, backlog: c_int) -> io::Result<()> {
    // SAFETY: takes numbers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }.into()).map(drop)
}

/// Sends bytes and descriptors; without an address, to whom the socket is connected.
#[allow(unsafe_code)]
pub(in crate::cell) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    address: Option<&[u8]>,
    descriptors: &[OwnedFd],
    flags: c_int,
) -> io::Result<i64> {
    let mut piece =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message: libc::msghdr = zeroed();
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    if let Some(address) = address {
        message.msg_name = address.as_ptr().cast_mut().cast();
        message.msg_namelen = address.len() as u32;
    }
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let payload = size_of_val(&numbers[..]) as u32;
    // SAFETY: computes sizes only.
    let (space, length) = unsafe { (libc::CMSG_SPACE(payload), libc::CMSG_LEN(payload)) };
    // Aligned like a header.
    let mut control = vec![0_u64; (space as usize).div_ceil(8)];
    if !numbers.is_empty() {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = space as _;
    }
    // SAFETY: the control buffer has room for one header and the numbers, is aligned, and lives
    // until the call returns, as do the bytes and the address.
    let sent = unsafe {
        if !numbers.is_empty() {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = length as _;
            let place = libc::CMSG_DATA(header);
            ptr::copy_nonoverlapping(numbers.as_ptr().cast(), place, payload as usize);
        }
        libc::sendmsg(socket.as_raw_fd(), &message, flags | libc::MSG_NOSIGNAL)
    };
    check(sent as c_long)
}
