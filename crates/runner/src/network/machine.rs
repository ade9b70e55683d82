//! The addresses and name servers of this machine.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use crate::os;

/// Where a machine's name servers are listed.
pub(super) const RESOLVERS_FILE: &str = "/etc/resolv.conf";
/// Name servers that programs use of a list, as in the C library.
const RESOLVERS_MAX: usize = 3;

/// The addresses of all network interfaces.
pub(super) fn addresses() -> io::Result<Vec<IpAddr>> {
    os::interface_addresses()
}

/// The name servers in a file of the form of `/etc/resolv.conf`. Without the file there are none.
pub(super) fn resolvers(file: &Path) -> Vec<IpAddr> {
    parse_resolvers(&fs::read_to_string(file).unwrap_or_default())
}

fn parse_resolvers(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        // A link-local address may name its interface: fe80::1%eth0.
        let address = words.next().filter(|_| is_server)?.split('%').next()?;
        address.parse().ok()
    };
    text.lines().filter_map(server).take(RESOLVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_loopback_address() {
        assert!(addresses().unwrap().iter().any(IpAddr::is_loopback));
    }

    #[test]
    fn name_servers_are_read_as_programs_do() {
        let text = "# nameserver 9.9.9.9\nsearch x\n\nnameserver 127.0.0.53\nnameserver\tfe80::1%e0\
                    \n nameserver 10.0.0.1 # ours\nnameserver 10.0.0.2\nnameserver x\n";
        let read: Vec<_> = parse_resolvers(text).iter().map(IpAddr::to_string).collect();
        assert_eq!(read, ["127.0.0.53", "fe80::1", "10.0.0.1"]);
        assert!(resolvers(Path::new("/no/such/file")).is_empty());
    }
}
