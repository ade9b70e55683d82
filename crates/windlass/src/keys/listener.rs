//! Who listens at an address of this machine. A file with a key may outlive its daemon, and any
//! user may listen at a port that is free again: a key is sent there only if the owner of the file
//! listens there.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a listening socket.
const LISTENING: &str = "0A";

/// Whether a process of this user, and of no other, listens at a loopback address.
pub(super) fn is_of(address: SocketAddr, uid: u32) -> bool {
    let tables = TABLES.map(|table| fs::read_to_string(table).unwrap_or_default());
    let owners = tables.iter().flat_map(|table| owners(table, address));
    let owners: Vec<u32> = owners.collect();
    !owners.is_empty() && owners.iter().all(|owner| *owner == uid)
}

/// The users who listen at an address, by a table of the kernel.
fn owners(table: &str, address: SocketAddr) -> impl Iterator<Item = u32> {
    table.lines().skip(1).filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (local, state, uid) = (words.get(1)?, words.get(3)?, words.get(7)?);
        let (ip, port) = local.split_once(':')?;
        let is_here = *state == LISTENING
            && u16::from_str_radix(port, 16).ok()? == address.port()
            && answers(ip_of(ip)?, address.ip());
        if is_here { uid.parse().ok() } else { None }
    })
}

/// Whether a socket at one address gets the connections to another.
fn answers(local: IpAddr, wanted: IpAddr) -> bool {
    let local = local.to_canonical();
    local == wanted || local.is_unspecified()
}

/// Addresses are printed as 32-bit words in the order of the machine's bytes.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |from: usize| {
        let word = u32::from_str_radix(hex.get(from..from + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    if hex.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let bytes: Vec<u8> = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
    Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_listener_of_this_process_is_its_users() {
        let uid = rustix::process::getuid().as_raw();
        for at in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let mut address = listener.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            assert!(is_of(address, uid), "{at}");
            assert!(!is_of(address, uid + 1), "{at}");
            drop(listener);
            assert!(!is_of(address, uid), "{at}: nobody listens");
        }
    }

    #[test]
    fn one_listener_of_another_user_is_enough_to_refuse() {
        let line = |local: &str, state: &str, uid: u32| {
            format!("  0: {local} 00000000:0000 {state} 0:0 00:0 0 {uid} 0 1 1\n")
        };
        let address: SocketAddr = "127.0.0.1:7600".parse().unwrap();
        let local = format!("{:08X}:1DB0", u32::from_ne_bytes([127, 0, 0, 1]));
        let table = format!(
            "head\n{}{}{}{}",
            line(&local, LISTENING, 1000),
            line("00000000:1DB0", LISTENING, 1001),
            line(&local, "01", 1002),
            line("00000000:1DB1", LISTENING, 1003),
        );
        assert_eq!(owners(&table, address).collect::<Vec<_>>(), [1000, 1001]);
    }
}
