//! Which addresses are not public, and why: the registries of special addresses (RFC 6890 and its
//! updates), and the addresses under which clouds serve credentials to their machines.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use windlass_core::network::Net;

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Loopback,
    Unspecified,
    LinkLocal,
    /// Where a cloud serves a machine's credentials.
    Metadata,
    Private,
    Multicast,
    Broadcast,
    Documentation,
    Reserved,
    /// An address of this machine.
    Own,
    /// A port of the daemon itself.
    Door,
    /// Not among what the handler lists.
    NotListed,
    /// The handler has no network.
    NoNetwork,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::Loopback => "loopback",
            Why::Unspecified => "unspecified",
            Why::LinkLocal => "link-local",
            Why::Metadata => "metadata",
            Why::Private => "private",
            Why::Multicast => "multicast",
            Why::Broadcast => "broadcast",
            Why::Documentation => "documentation",
            Why::Reserved => "reserved",
            Why::Own => "an address of this machine",
            Why::Door => "a port of the daemon",
            Why::NotListed => "not in options.network",
            Why::NoNetwork => "options.network is none",
        })
    }
}

/// The first match counts.
const V4: [(Net, Why); 18] = [
    (Net::v4([255, 255, 255, 255], 32), Why::Broadcast),
    // Azure's agent: a public address that leads to the machine's own host.
    (Net::v4([168, 63, 129, 16], 32), Why::Metadata),
    (Net::v4([169, 254, 169, 254], 32), Why::Metadata),
    (Net::v4([0, 0, 0, 0], 8), Why::Unspecified),
    (Net::v4([10, 0, 0, 0], 8), Why::Private),
    (Net::v4([100, 64, 0, 0], 10), Why::Private),
    (Net::v4([127, 0, 0, 0], 8), Why::Loopback),
    (Net::v4([169, 254, 0, 0], 16), Why::LinkLocal),
    (Net::v4([172, 16, 0, 0], 12), Why::Private),
    (Net::v4([192, 0, 0, 0], 24), Why::Reserved),
    (Net::v4([192, 0, 2, 0], 24), Why::Documentation),
    (Net::v4([192, 88, 99, 0], 24), Why::Reserved),
    (Net::v4([192, 168, 0, 0], 16), Why::Private),
    (Net::v4([198, 18, 0, 0], 15), Why::Reserved),
    (Net::v4([198, 51, 100, 0], 24), Why::Documentation),
    (Net::v4([203, 0, 113, 0], 24), Why::Documentation),
    (Net::v4([224, 0, 0, 0], 4), Why::Multicast),
    (Net::v4([240, 0, 0, 0], 4), Why::Reserved),
];

/// The first match counts. Only 2000::/3 is in use for public addresses, so the last three refuse
/// the rest.
const V6: [(Net, Why); 11] = [
    (Net::v6([0xfc00, 0], 7), Why::Private),
    (Net::v6([0xfe80, 0], 10), Why::LinkLocal),
    (Net::v6([0xfec0, 0], 10), Why::Private),
    (Net::v6([0xff00, 0], 8), Why::Multicast),
    (Net::v6([0x2001, 0], 23), Why::Reserved),
    (Net::v6([0x2001, 0xdb8], 32), Why::Documentation),
    (Net::v6([0x3fff, 0], 20), Why::Documentation),
    (Net::v6([0x5f00, 0], 16), Why::Reserved),
    (Net::v6([0, 0], 3), Why::Reserved),
    (Net::v6([0x4000, 0], 2), Why::Reserved),
    (Net::v6([0x8000, 0], 1), Why::Reserved),
];

/// Where Amazon serves credentials over IPv6.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Why the address is not public; an address with others in it (`embedded`) is judged by those.
pub(super) fn special(address: IpAddr) -> Option<Why> {
    match address {
        IpAddr::V6(Ipv6Addr::LOCALHOST) => return Some(Why::Loopback),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => return Some(Why::Unspecified),
        IpAddr::V6(METADATA_V6) => return Some(Why::Metadata),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    let mut table = V4.iter().chain(&V6);
    table.find(|(net, _)| net.contains(address)).map(|(_, why)| *why)
}

/// Whether any address of the network is not public.
pub(super) fn has_special(net: &Net) -> bool {
    V4.iter().chain(&V6).any(|(special, _)| special.overlaps(net))
}

/// The IPv4 addresses to which packets for this address are forwarded: in addresses of translators
/// (NAT64) and tunnels (6to4, Teredo: its server and its client), and in the old compatible form.
pub(super) fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Vec::new(),
        [0, 0, 0, 0, 0, 0, high, low] => vec![v4(high, low)],
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => vec![v4(high, low)],
        [0x2002, high, low, ..] => vec![v4(high, low)],
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            vec![v4(high, low), v4(!client_high, !client_low)]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(address: &str) -> Option<Why> {
        special(address.parse().unwrap())
    }

    #[test]
    fn every_special_range_ends_where_it_should() {
        let ranges = [
            (Why::Unspecified, "0.0.0.0", "0.255.255.255"),
            (Why::Private, "10.0.0.0", "10.255.255.255"),
            (Why::Private, "100.64.0.0", "100.127.255.255"),
            (Why::Loopback, "127.0.0.0", "127.255.255.255"),
            (Why::LinkLocal, "169.254.0.0", "169.254.255.255"),
            (Why::Metadata, "169.254.169.254", "169.254.169.254"),
            (Why::Metadata, "168.63.129.16", "168.63.129.16"),
            (Why::Private, "172.16.0.0", "172.31.255.255"),
            (Why::Reserved, "192.0.0.0", "192.0.0.255"),
            (Why::Documentation, "192.0.2.0", "192.0.2.255"),
            (Why::Reserved, "192.88.99.0", "192.88.99.255"),
            (Why::Private, "192.168.0.0", "192.168.255.255"),
            (Why::Reserved, "198.18.0.0", "198.19.255.255"),
            (Why::Documentation, "198.51.100.0", "198.51.100.255"),
            (Why::Documentation, "203.0.113.0", "203.0.113.255"),
            (Why::Multicast, "224.0.0.0", "239.255.255.255"),
            (Why::Reserved, "240.0.0.0", "255.255.255.254"),
            (Why::Broadcast, "255.255.255.255", "255.255.255.255"),
            (Why::Unspecified, "::", "::"),
            (Why::Loopback, "::1", "::1"),
            (Why::Reserved, "::1:0:0:0", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Reserved, "2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Documentation, "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Documentation, "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Reserved, "4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Private, "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Metadata, "fd00:ec2::254", "fd00:ec2::254"),
            (Why::Reserved, "fe00::", "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::LinkLocal, "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Private, "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (Why::Multicast, "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ];
        for (expected, first, last) in ranges {
            assert_eq!((why(first), why(last)), (Some(expected), Some(expected)), "{first}");
        }
    }

    #[test]
    fn neighbours_of_special_ranges_are_public() {
        for address in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "191.255.255.255",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2000::",
            "2001:200::",
            "2001:db7:ffff::",
            "2001:db9::",
            "3ffe:ffff::",
            "3fff:1000::",
            "3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        ] {
            assert_eq!(why(address), None, "{address}");
        }
    }

    #[test]
    fn addresses_in_addresses_are_found() {
        let check = |address: &str, expected: &[&str]| {
            let found: Vec<_> =
                embedded(address.parse().unwrap()).iter().map(Ipv4Addr::to_string).collect();
            assert_eq!(found, expected, "{address}");
        };
        check("::", &[]);
        check("::1", &[]);
        check("::2", &["0.0.0.2"]);
        check("::127.0.0.1", &["127.0.0.1"]);
        check("::255.255.255.255", &["255.255.255.255"]);
        check("::1:0:0", &[]);
        check("64:ff9b::", &["0.0.0.0"]);
        check("64:ff9b::10.1.2.3", &["10.1.2.3"]);
        check("64:ff9b::ffff:ffff", &["255.255.255.255"]);
        check("64:ff9b::1:0:0", &[]);
        check("64:ff9b:1::10.1.2.3", &[]);
        check("2002::", &["0.0.0.0"]);
        check("2002:7f00:1::5", &["127.0.0.1"]);
        check("2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", &["255.255.255.255"]);
        check("2003::", &[]);
        check("2001::", &["0.0.0.0", "255.255.255.255"]);
        check("2001:0:808:808:0:0:80ff:fffe", &["8.8.8.8", "127.0.0.1"]);
        check("2001:1::", &[]);
    }

    #[test]
    fn a_network_with_a_special_address_in_the_middle_is_reported() {
        for text in ["8.0.0.0/5", "0.0.0.0/0", "10.1.2.3", "::/0", "fd00::/8", "2001:db8:1::/48"] {
            assert!(has_special(&text.parse().unwrap()), "{text}");
        }
        for text in ["8.8.8.0/24", "1.1.1.1", "2600::/16", "2a00::/12"] {
            assert!(!has_special(&text.parse().unwrap()), "{text}");
        }
    }
}
