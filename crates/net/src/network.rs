//! Networks: which addresses may connect.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network such as `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Leading bits that all its addresses share.
    prefix: u32,
}

impl Network {
    /// An IPv4 address that is written as an IPv6 one counts as what it is.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4()
            && (bits(address) ^ bits(self.address)) & mask(self.address, self.prefix) == 0
    }
}

/// The address in the highest bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask(address: IpAddr, prefix: u32) -> u128 {
    let unmasked = u128::MAX.checked_shr(prefix).unwrap_or(0);
    let own = u128::MAX << (128 - width(address));
    !unmasked & own
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wanted = || format!("'{text}' is not a network such as 10.1.0.0/16, nor an address");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wanted())?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| wanted())?,
            None => width(address),
        };
        if prefix > width(address) {
            return Err(wanted());
        }
        if bits(address) & !mask(address, prefix) != 0 {
            return Err(format!("'{text}' has bits behind its prefix; a network has none"));
        }
        Ok(Network { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn a_network_has_the_addresses_with_its_prefix() {
        for (network, address) in [
            ("10.0.0.0/8", "10.255.0.1"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "203.0.113.9"),
            ("fd00::/8", "fdff::1"),
            ("::/0", "2001:db8::1"),
            ("192.168.1.128/25", "192.168.1.200"),
        ] {
            assert!(contains(network, address), "{network} {address}");
        }
        for (network, address) in [
            ("10.0.0.0/8", "11.0.0.1"),
            ("10.1.2.3", "10.1.2.4"),
            ("0.0.0.0/0", "2001:db8::1"),
            ("::/0", "10.0.0.1"),
            ("fd00::/8", "fe00::1"),
            ("192.168.1.128/25", "192.168.1.100"),
        ] {
            assert!(!contains(network, address), "{network} {address}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0.1/8", "example.org", "10.0.0.0/", "10/8"]
        {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        assert_eq!("10.1.0.0/16".parse::<Network>().unwrap().to_string(), "10.1.0.0/16");
    }
}
