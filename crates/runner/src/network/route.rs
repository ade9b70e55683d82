//! Where packets for an address go, asked of the kernel at each decision: addresses come and go
//! while a daemon runs, and a machine takes more packets for itself than its interfaces have
//! addresses (routes to whole networks, broadcast, the routers' address of an IPv6 network).

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Mutex;

use windlass_core::sync::lock;

use super::Why;
use crate::os;

/// Knows where packets go.
pub trait Routes: Send + Sync + 'static {
    /// Why packets to this address do not go to one other machine. `None` if they do, and if that
    /// cannot be found out.
    fn refusal(&self, to: IpAddr) -> Option<Why>;
}

/// Without routes, nothing is known.
impl<R: Routes> Routes for Option<R> {
    fn refusal(&self, to: IpAddr) -> Option<Why> {
        self.as_ref().and_then(|routes| routes.refusal(to))
    }
}

/// Lengths of a message's header and of a route.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
/// Where a route has its kind.
const KIND_AT: usize = HEADER_BYTES + 7;
/// Longer than an answer about one route.
const ANSWER_BYTES_MAX: usize = 4096;
/// Answers that are read for one question; others than the first are left of earlier ones.
const ANSWERS_MAX: usize = 8;

/// Asks the kernel by a socket that stays open, so that nothing but the kernel can keep it from
/// being asked.
pub(crate) struct KernelRoutes(Mutex<Asked>);

struct Asked {
    socket: File,
    /// The number of the last question.
    number: u32,
}

impl KernelRoutes {
    pub(crate) fn open() -> io::Result<KernelRoutes> {
        let socket = File::from(os::route_socket()?);
        Ok(KernelRoutes(Mutex::new(Asked { socket, number: 0 })))
    }
}

impl Routes for KernelRoutes {
    fn refusal(&self, to: IpAddr) -> Option<Why> {
        let kind = lock(&self.0).kind(to).ok()??;
        match kind {
            libc::RTN_UNICAST => None,
            libc::RTN_BROADCAST => Some(Why::Broadcast),
            libc::RTN_MULTICAST => Some(Why::Multicast),
            _ => Some(Why::Own),
        }
    }
}

impl Asked {
    /// The kind of the route to this address; `None` if there is none.
    fn kind(&mut self, to: IpAddr) -> io::Result<Option<u8>> {
        self.number = self.number.wrapping_add(1);
        self.socket.write_all(&question(self.number, to))?;
        for _ in 0..ANSWERS_MAX {
            let mut answer = [0; ANSWER_BYTES_MAX];
            let length = self.socket.read(&mut answer)?;
            let answer = &answer[..length];
            if let Some((_, kind)) = read_answer(answer).filter(|(to, _)| *to == self.number) {
                return Ok(kind);
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Asks for the route that a socket of this process would use.
fn question(number: u32, to: IpAddr) -> Vec<u8> {
    let (family, address) = match to {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut route = [0; ROUTE_BYTES];
    route[0] = family as u8;
    route[1] = address.len() as u8 * 8;
    let attribute_bytes = 4 + address.len();
    let length = HEADER_BYTES + ROUTE_BYTES + attribute_bytes;
    let mut message = (length as u32).to_ne_bytes().to_vec();
    message.extend(libc::RTM_GETROUTE.to_ne_bytes());
    message.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend([0; 4]);
    message.extend(route);
    message.extend((attribute_bytes as u16).to_ne_bytes());
    message.extend(libc::RTA_DST.to_ne_bytes());
    message.extend(address);
    message
}

/// The number of the question, and the kind of the route if there is one.
fn read_answer(answer: &[u8]) -> Option<(u32, Option<u8>)> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let number = u32::from_ne_bytes(answer.get(8..12)?.try_into().ok()?);
    let is_route = kind == libc::RTM_NEWROUTE;
    Some((number, answer.get(KIND_AT).copied().filter(|_| is_route)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_stays_on_this_machine() {
        let routes = KernelRoutes::open().unwrap();
        for (to, expected) in [
            ("127.0.0.1", Some(Why::Own)),
            // All of this network, though one address of it is listed.
            ("127.9.8.7", Some(Why::Own)),
            ("127.255.255.255", Some(Why::Broadcast)),
            // Routed outside, or not at all.
            ("8.8.8.8", None),
            ("2606:4700::1111", None),
        ] {
            for _ in 0..2 {
                assert_eq!(routes.refusal(to.parse().unwrap()), expected, "{to}");
            }
        }
        assert_eq!(None::<KernelRoutes>.refusal("127.0.0.1".parse().unwrap()), None);
    }

    #[test]
    fn answers_of_another_length_or_kind_are_no_route() {
        assert_eq!(read_answer(b""), None);
        assert_eq!(read_answer(&[0; 11]), None);
        let mut error = question(7, "8.8.8.8".parse().unwrap());
        assert_eq!(read_answer(&error), Some((7, None)));
        error[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        error[KIND_AT] = libc::RTN_LOCAL;
        assert_eq!(read_answer(&error), Some((7, Some(libc::RTN_LOCAL))));
        assert_eq!(read_answer(&error[..HEADER_BYTES]), Some((7, None)));
    }
}
