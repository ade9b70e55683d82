//! Sockets by raw addresses.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_long};

use super::{check, zeroed};

/// Room for the descriptors of one message.
const CONTROL_BYTES_MAX: usize = 128;

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

/// Two connected sockets that keep messages apart.
#[allow(unsafe_code)]
pub(in crate::cell) fn message_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: both numbers are written by the call, and nothing else owns them.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()).into())?;
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// Receives one message, with its descriptors; an empty one at the end.
#[allow(unsafe_code)]
pub(in crate::cell) fn receive(
    socket: BorrowedFd<'_>,
    bytes_max: usize,
) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; bytes_max];
    // Aligned like a header.
    let mut control = [0_u64; CONTROL_BYTES_MAX / 8];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message: libc::msghdr = zeroed();
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES_MAX as _;
    let mut descriptors = Vec::new();
    // SAFETY: both buffers live until the last use of the message, and the kernel writes no more
    // than their lengths. Received descriptors are new, and nothing else owns them.
    unsafe {
        let flags = libc::MSG_CMSG_CLOEXEC;
        let read = check(libc::recvmsg(socket.as_raw_fd(), &mut message, flags) as c_long)?;
        bytes.truncate(read as usize);
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let numbers = libc::CMSG_DATA(header).cast::<RawFd>();
            for index in 0..length / size_of::<RawFd>() {
                let number = ptr::read_unaligned(numbers.add(index));
                descriptors.push(OwnedFd::from_raw_fd(number));
            }
        }
    }
    Ok((bytes, descriptors))
}
