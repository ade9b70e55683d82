//! Messages that a cell sends with an address, or with descriptors.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::address::{Destination, Rules, destination, read_address};
use super::call::{Answer, Carried, error, value, waits};
use super::sys::socket;
use super::target::Target;

/// Of one message at most this much is sent; a stream's sender sends the rest again.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;
const PIECES_MAX: u64 = 1024;
/// Messages of one call.
const MESSAGES_MAX: u64 = 64;
const CONTROL_BYTES_MAX: u64 = 4096;
/// Flags of a send that a cell may use.
const SEND_FLAGS: i32 = libc::MSG_OOB
    | libc::MSG_DONTROUTE
    | libc::MSG_DONTWAIT
    | libc::MSG_EOR
    | libc::MSG_MORE
    | libc::MSG_CONFIRM;

/// sendto.
pub(super) fn send_to(
    rules: &Rules,
    target: &Target,
    (number, buffer, length, flags): (u64, u64, u64, i32),
    (address, address_length): (u64, u64),
) -> io::Result<Carried> {
    let bytes = target.read(buffer, (length as usize).min(MESSAGE_BYTES_MAX))?;
    let to = destination(rules, target, read_address(target, address, address_length)?)?;
    let socket = target.descriptor(number)?;
    target.confirm()?;
    if to.is_internet() {
        rules.ports.take(socket.as_fd())?;
    }
    Ok(Message { socket, bytes, to: Some(to), descriptors: Vec::new(), flags }.send())
}

/// One message of sendmsg, copied.
pub(super) struct Message {
    socket: OwnedFd,
    bytes: Vec<u8>,
    to: Option<Destination>,
    descriptors: Vec<OwnedFd>,
    flags: i32,
}

impl Message {
    pub(super) fn read(
        rules: &Rules,
        target: &Target,
        number: u64,
        at: u64,
        flags: i32,
    ) -> io::Result<Message> {
        // name, its length, pieces, their number, control data, its length: all eight bytes wide.
        let header = target.read(at, size_of::<libc::msghdr>())?;
        let field = |index: usize| number_at(&header, index * 8);
        let [name, name_length, pieces, count, control, control_length] =
            [0, 1, 2, 3, 4, 5].map(field);
        let to = match name {
            0 => None,
            _ => {
                let bytes = read_address(target, name, name_length & 0xFFFF_FFFF)?;
                Some(destination(rules, target, bytes)?)
            }
        };
        if count > PIECES_MAX {
            return Err(error(libc::EMSGSIZE));
        }
        let list = target.read(pieces, count as usize * size_of::<libc::iovec>())?;
        let mut bytes = Vec::new();
        for piece in list.chunks_exact(size_of::<libc::iovec>()) {
            let left = MESSAGE_BYTES_MAX - bytes.len();
            let length = (number_at(piece, 8) as usize).min(left);
            bytes.extend(target.read(number_at(piece, 0), length)?);
        }
        let socket = target.descriptor(number)?;
        let descriptors = match (control, control_length) {
            (0, _) | (_, 0) => Vec::new(),
            _ if control_length > CONTROL_BYTES_MAX => return Err(error(libc::ENOBUFS)),
            _ => passed(target, &socket, &target.read(control, control_length as usize)?)?,
        };
        target.confirm()?;
        if to.as_ref().is_some_and(Destination::is_internet) {
            rules.ports.take(socket.as_fd())?;
        }
        Ok(Message { socket, bytes, to, descriptors, flags })
    }

    pub(super) fn send(self) -> Carried {
        let flags = self.flags & SEND_FLAGS;
        let at_once = self.send_with(flags | libc::MSG_DONTWAIT);
        let full = matches!(&at_once, Err(reason) if reason.kind() == io::ErrorKind::WouldBlock);
        if full && flags & libc::MSG_DONTWAIT == 0 && waits(self.socket.as_fd()).unwrap_or(false) {
            return Carried::Waits(Box::new(move || Answer::from(self.send_with(flags))));
        }
        Carried::Done(Answer::from(at_once))
    }

    fn send_with(&self, flags: i32) -> io::Result<i64> {
        let to = self.to.as_ref().map(|to| &to.address[..]);
        socket::send(self.socket.as_fd(), &self.bytes, to, &self.descriptors, flags)
    }
}

/// The descriptors that a message passes to another process of the cell; nothing else may
/// accompany one.
fn passed(target: &Target, socket: &OwnedFd, control: &[u8]) -> io::Result<Vec<OwnedFd>> {
    let header = size_of::<libc::cmsghdr>();
    if socket::socket_option(socket.as_fd(), libc::SO_DOMAIN)? != libc::AF_UNIX {
        return Err(error(libc::EINVAL));
    }
    if control.len() < header {
        return Err(error(libc::EINVAL));
    }
    let length = number_at(control, 0) as usize;
    let half = |at: usize| i32::from_le_bytes(control[at..at + 4].try_into().unwrap_or_default());
    if (half(8), half(12)) != (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        || length < header
        || length > control.len()
    {
        return Err(error(libc::EPERM));
    }
    let numbers = control[header..length].chunks_exact(4);
    let numbers = numbers.map(|number| u32::from_le_bytes(number.try_into().unwrap_or_default()));
    numbers.map(|number| target.descriptor(number.into())).collect()
}

/// Sends messages until one does not go; returns how many went.
pub(super) fn send_many(
    rules: &Rules,
    target: Target,
    (number, at, count, flags): (u64, u64, u64, i32),
) -> io::Result<Carried> {
    let mut sent = 0;
    for index in 0..count.min(MESSAGES_MAX) {
        // Addresses of the caller's choice.
        let entry = at.wrapping_add(index * size_of::<libc::mmsghdr>() as u64);
        let length_at = entry.wrapping_add(size_of::<libc::msghdr>() as u64);
        let failed = match Message::read(rules, &target, number, entry, flags).map(Message::send) {
            Ok(Carried::Done(Answer::Value(Ok(bytes)))) => {
                target.write(length_at, &(bytes as u32).to_le_bytes())?;
                sent += 1;
                continue;
            }
            Ok(Carried::Waits(work)) if sent == 0 => {
                return Ok(Carried::Waits(Box::new(move || match work() {
                    Answer::Value(Ok(bytes)) => {
                        let told = target.write(length_at, &(bytes as u32).to_le_bytes());
                        Answer::from(told.map(|()| 1))
                    }
                    failed => failed,
                })));
            }
            Ok(Carried::Done(Answer::Value(Err(errno)))) => error(errno),
            Ok(_) => error(libc::EAGAIN),
            Err(reason) => reason,
        };
        if sent == 0 {
            return Err(failed);
        }
        break;
    }
    Ok(value(sent))
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}
