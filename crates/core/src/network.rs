//! What a handler may connect to, as operators and authors write it: networks and names, with an
//! optional port. Which addresses that means on a machine is decided by the runner.
//!
//! ```text
//! 10.1.2.0/24:5432   10.1.2.3   [fd00:1::/32]:443   fd00:1::/32   db.internal:5432   db.internal
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::limit::DESTINATIONS_MAX;
use crate::name::Invalid;

/// Longest name of a machine, as in DNS.
const NAME_BYTES_MAX: usize = 253;

/// What a handler asks for; always within what the operator allows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Network {
    /// No connections at all.
    None,
    /// Public addresses, and what the operator allows besides. The default.
    Public,
    /// Only these.
    Only(Vec<Destination>),
}

impl Network {
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |reason| Err(Invalid::new("options.network", reason));
        match self {
            Network::Only(list) if list.is_empty() => {
                refuse("an empty list allows nothing; write \"none\"".to_owned())
            }
            Network::Only(list) if list.len() > DESTINATIONS_MAX => {
                refuse(format!("at most {DESTINATIONS_MAX} entries, not {}", list.len()))
            }
            Network::None | Network::Public | Network::Only(_) => Ok(()),
        }
    }
}

/// A network or a name, at one port or all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    pub host: Host,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    Net(Net),
    /// In lower case. The daemon resolves it, not the handler.
    Name(String),
}

/// The addresses that begin with the same bits. A single address is a network, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Net {
    /// All other bits are zero.
    address: IpAddr,
    bits: u8,
}

impl Net {
    /// The network of one address.
    pub fn single(address: IpAddr) -> Net {
        Net { address, bits: width(address) }
    }

    /// `None` if there are more bits than the address has, or set ones after them.
    pub fn new(address: IpAddr, bits: u8) -> Option<Net> {
        (bits <= width(address) && tail(address, bits) == 0).then_some(Net { address, bits })
    }

    /// For tables of the program: all other bits of the address are zero.
    pub const fn v4(octets: [u8; 4], bits: u8) -> Net {
        let [a, b, c, d] = octets;
        Net { address: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), bits }
    }

    /// As `v4`, with the first two parts of the address; the others are zero.
    pub const fn v6(parts: [u16; 2], bits: u8) -> Net {
        let [a, b] = parts;
        Net { address: IpAddr::V6(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0)), bits }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        starts_with(address, self.address, self.bits)
    }

    /// Whether it contains the whole of another network.
    pub fn covers(&self, other: &Net) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    /// Whether they have an address in common: then one of them contains the other.
    pub fn overlaps(&self, other: &Net) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address as a number, the first bit always at the same place.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// What follows the first `bits`.
fn tail(address: IpAddr, bits: u8) -> u128 {
    number(address).checked_shl(u32::from(bits)).unwrap_or(0)
}

fn starts_with(address: IpAddr, beginning: IpAddr, bits: u8) -> bool {
    let differ = (number(address) ^ number(beginning)).leading_zeros();
    address.is_ipv4() == beginning.is_ipv4() && differ >= u32::from(bits)
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == width(self.address) {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Net {
    type Err = String;

    fn from_str(text: &str) -> Result<Net, String> {
        let refuse = || format!("'{text}' is not a network, such as 10.1.2.0/24 or fd00:1::/32");
        let Some((address, bits)) = text.split_once('/') else {
            return Ok(Net::single(text.parse().map_err(|_| refuse())?));
        };
        let address = address.parse().map_err(|_| refuse())?;
        let bits = number_of(bits).ok_or_else(refuse)?;
        Net::new(address, bits).ok_or_else(|| {
            format!("'{text}' is not a network: its address has more than its first {bits} bits")
        })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.port) {
            (Host::Net(net), None) => write!(f, "{net}"),
            (Host::Net(net), Some(port)) if net.address.is_ipv6() => write!(f, "[{net}]:{port}"),
            (Host::Net(net), Some(port)) => write!(f, "{net}:{port}"),
            (Host::Name(name), None) => f.write_str(name),
            (Host::Name(name), Some(port)) => write!(f, "{name}:{port}"),
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Destination, String> {
        let refuse = || {
            format!(
                "'{text}' is not a network or a name with an optional port, such as \
                 10.1.2.0/24:5432, [fd00:1::/32]:443 or db.internal:5432"
            )
        };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']').ok_or_else(refuse)?;
                if !host.contains(':') {
                    return Err(refuse());
                }
                (host, (!after.is_empty()).then(|| after.strip_prefix(':').unwrap_or("")))
            }
            // An IPv6 address outside of brackets has no port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            None => None,
            Some(digits) => Some(number_of(digits).filter(|port| *port > 0).ok_or_else(refuse)?),
        };
        let is_net = host.contains(['/', ':']) || host.parse::<IpAddr>().is_ok();
        let host = match is_net {
            true => Host::Net(host.parse()?),
            false if is_name(host) => Host::Name(host.to_ascii_lowercase()),
            false => return Err(refuse()),
        };
        Ok(Destination { host, port })
    }
}

/// Digits only: `parse` alone would accept a sign.
fn number_of<T: FromStr>(digits: &str) -> Option<T> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A name whose last part is a number would be read as an address by some programs.
fn is_name(text: &str) -> bool {
    let is_part = |part: &str| {
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !part.is_empty() && part.len() <= 63 && part.bytes().all(legal)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= NAME_BYTES_MAX
        && text.split('.').all(is_part)
        && !last.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Net {
        text.parse().unwrap()
    }

    #[test]
    fn destinations_are_read_and_written_back() {
        for text in [
            "10.1.2.0/24:5432",
            "10.1.2.0/24",
            "10.1.2.3",
            "10.1.2.3:1",
            "0.0.0.0/0:65535",
            "[fd00:1::/32]:443",
            "[::1]:443",
            "fd00:1::/32",
            "::1",
            "::/0",
            "db.internal:5432",
            "db",
            "my_db-1.x",
        ] {
            let read: Destination = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
        }
        let read: Destination = "DB.Internal".parse().unwrap();
        assert_eq!(read.host, Host::Name("db.internal".into()));
        assert_eq!("[::1]".parse::<Destination>().unwrap().to_string(), "::1");
        assert_eq!("10.1.2.3/32".parse::<Destination>().unwrap().to_string(), "10.1.2.3");
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in [
            "",
            " ",
            ":",
            ":80",
            "x:",
            "x:0",
            "x:65536",
            "x:+1",
            "x:1:",
            "10.1.2.3/24",
            "10.1.2",
            "10.1.2.3/33",
            "10.1.2.3/+8",
            "10.1.2.3/",
            "/8",
            "fd00::/129",
            "fd00::1/64",
            "[10.1.2.3]",
            "[::1",
            "[::1]80",
            "[::1]:",
            "[x]:1",
            "*.internal",
            "a b",
            "a..b",
            ".a",
            "a.",
            "x/8",
            "http://x",
            "x\n",
            "a.1",
            "1e3",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_network_has_its_first_and_last_address_and_no_neighbour() {
        let check = |text: &str, inside: [&str; 2], outside: [&str; 2]| {
            let contains = |address: &str| net(text).contains(address.parse().unwrap());
            assert!(inside.into_iter().all(contains), "{text}");
            assert!(!outside.into_iter().any(contains), "{text}");
        };
        check("10.1.2.0/23", ["10.1.2.0", "10.1.3.255"], ["10.1.1.255", "10.1.4.0"]);
        check("10.1.2.3", ["10.1.2.3", "10.1.2.3"], ["10.1.2.2", "::ffff:10.1.2.3"]);
        check("fc00::/7", ["fc00::", "fdff:ffff::1"], ["fbff:ffff::1", "fe00::"]);
        check("::/0", ["::", "ffff::"], ["0.0.0.0", "1.2.3.4"]);
        check("0.0.0.0/0", ["0.0.0.0", "255.255.255.255"], ["::", "::1"]);
    }

    #[test]
    fn networks_cover_and_overlap_each_other() {
        assert!(net("10.0.0.0/8").covers(&net("10.1.0.0/16")));
        assert!(!net("10.1.0.0/16").covers(&net("10.0.0.0/8")));
        assert!(net("10.1.0.0/16").overlaps(&net("10.0.0.0/8")));
        assert!(!net("10.1.0.0/16").overlaps(&net("10.2.0.0/16")));
        assert!(!net("::/0").overlaps(&net("0.0.0.0/0")));
    }

    #[test]
    fn a_list_of_destinations_has_bounds() {
        let list = |length| Network::Only(vec!["a".parse().unwrap(); length]);
        assert!(list(DESTINATIONS_MAX).check().is_ok());
        for length in [0, DESTINATIONS_MAX + 1] {
            assert_eq!(list(length).check().unwrap_err().field, "options.network");
        }
    }
}
