//! What a policy allows, and what it says when it refuses.

use super::*;

/// Says what the kernel would, about this machine's other addresses.
struct Machine;

impl Routes for Machine {
    fn refusal(&self, to: IpAddr) -> Option<Why> {
        match to.to_string().as_str() {
            // Added after the start, in a network that is routed to this machine, the first address
            // of a network, and that of a tunnel.
            "12.3.4.5" | "13.0.0.7" | "2a00:1:2:3::" | "2002:808:808::7" => Some(Why::Own),
            "11.0.0.255" => Some(Why::Broadcast),
            _ => None,
        }
    }
}

/// A daemon on port 7600 of a machine with two addresses and a name server on loopback.
const MACHINE: &str = "own 192.168.1.7\nown 8.8.4.4\ndoor 7600\nresolver 127.0.0.53\n\
                       resolver fd00::53\n";

fn policy(lines: &str) -> Policy {
    format!("{lines}{MACHINE}").parse().unwrap()
}

fn decide(policy: &Policy, to: &str) -> String {
    let decided = policy.decide(to.parse().unwrap(), &Machine);
    decided.map_or_else(|refusal| refusal.to_string(), |()| "ok".into())
}

fn why(policy: &Policy, to: &str) -> Option<Why> {
    policy.decide(to.parse().unwrap(), &Machine).err().map(|refusal| refusal.why)
}

#[test]
fn by_default_public_addresses_are_open_and_all_others_are_not() {
    let public = policy("mode public\n");
    for open in ["8.8.8.8:443", "1.1.1.1:53", "[2606:4700::1111]:443", "93.184.216.34:25"] {
        assert_eq!(decide(&public, open), "ok");
    }
    let sentence = "refused: connection to 127.0.0.1:7600 (loopback)";
    assert_eq!(decide(&public, "127.0.0.1:7600"), sentence);
    let sentence = "refused: connection to [::1]:80 (loopback)";
    assert_eq!(decide(&public, "[::1]:80"), sentence);
    let sentence = "refused: connection to 169.254.169.254:80 (metadata)";
    assert_eq!(decide(&public, "169.254.169.254:80"), sentence);
    assert_eq!(why(&public, "0.0.0.0:80"), Some(Why::Unspecified));
    assert_eq!(why(&public, "10.1.2.3:80"), Some(Why::Private));
}

#[test]
fn addresses_of_this_machine_are_refused_even_if_they_are_public() {
    let public = policy("mode public\n");
    let sentence = "refused: connection to 8.8.4.4:443 (an address of this machine)";
    assert_eq!(decide(&public, "8.8.4.4:443"), sentence);
    assert_eq!(why(&public, "[::ffff:8.8.4.4]:443"), Some(Why::Own));
    assert_eq!(why(&public, "[2002:808:404::1]:443"), Some(Why::Own));
}

/// What is this machine's is known to the kernel alone, and changes.
#[test]
fn addresses_that_the_kernel_keeps_on_this_machine_are_refused() {
    let public = policy("mode public\n");
    let own = ["12.3.4.5:80", "13.0.0.7:80", "[2a00:1:2:3::]:80", "[2002:808:808::7]:80"];
    for to in own.into_iter().chain(["[::ffff:12.3.4.5]:80", "[64:ff9b::12.3.4.5]:80"]) {
        assert_eq!(why(&public, to), Some(Why::Own), "{to}");
    }
    assert_eq!(why(&public, "11.0.0.255:80"), Some(Why::Broadcast));
    for to in ["12.3.4.6:80", "11.0.0.254:80", "[2a00:1:2:3::1]:80", "[2002:808:808::8]:80"] {
        assert_eq!(why(&public, to), None, "{to}");
    }
    // The operator opens what he lists, but for the daemon's port.
    let open = policy("mode public\nallow 12.0.0.0/8\nallow 2002::/16\n");
    for to in ["12.3.4.5", "[2002:808:808::7]"] {
        assert_eq!(why(&open, &format!("{to}:80")), None, "{to}");
        assert_eq!(why(&open, &format!("{to}:7600")), Some(Why::Door), "{to}");
    }
    assert_eq!(why(&open, "12.3.4.6:7600"), None);
}

/// A tunnel's address is refused by the list, too, though the address in it is public.
#[test]
fn an_address_of_this_machine_around_a_public_one_is_refused() {
    let public = policy("mode public\nown 2002:909:909::1\nown 64:ff9b::909:909\n");
    for to in ["[2002:909:909::1]:80", "[64:ff9b::9.9.9.9]:80"] {
        assert_eq!(why(&public, to), Some(Why::Own), "{to}");
    }
    assert_eq!(why(&public, "[2002:909:909::2]:80"), None);
}

#[test]
fn an_ipv4_address_inside_of_an_ipv6_address_is_decided_again() {
    let public = policy("mode public\n");
    for (to, expected) in [
        ("[::ffff:127.0.0.1]:80", Why::Loopback),
        ("[::127.0.0.1]:80", Why::Loopback),
        ("[64:ff9b::10.0.0.1]:80", Why::Private),
        ("[64:ff9b::169.254.169.254]:80", Why::Metadata),
        ("[64:ff9b:1::8.8.8.8]:80", Why::Reserved),
        ("[2002:7f00:1::]:80", Why::Loopback),
        ("[2002:c0a8:101::1]:80", Why::Private),
        ("[2001:0:7f00:1:0:0:f7f7:f7f7]:80", Why::Loopback),
        ("[2001:0:808:808:0:0:80ff:fffe]:80", Why::Loopback),
    ] {
        assert_eq!(why(&public, to), Some(expected), "{to}");
    }
    for to in [
        "[::ffff:8.8.8.8]:80",
        "[::8.8.8.8]:80",
        "[64:ff9b::8.8.8.8]:80",
        "[2002:808:808::]:80",
        "[2001:0:808:808:0:0:f7f7:f7f7]:80",
    ] {
        assert_eq!(why(&public, to), None, "{to}");
    }
}

#[test]
fn the_operator_opens_networks_at_one_port_or_all() {
    let open = policy("mode public\nallow 10.1.2.0/24:5432\nallow fd00:1::/32\n");
    for to in ["10.1.2.0:5432", "10.1.2.255:5432", "[::ffff:10.1.2.3]:5432", "[fd00:1::9]:1"] {
        assert_eq!(why(&open, to), None, "{to}");
    }
    for to in ["10.1.2.3:5433", "10.1.1.255:5432", "10.1.3.0:5432", "[fd00:2::9]:1"] {
        assert_eq!(why(&open, to), Some(Why::Private), "{to}");
    }
    assert_eq!(why(&open, "[64:ff9b::10.1.2.3]:5432"), None);
    assert_eq!(why(&open, "8.8.8.8:443"), None);
}

#[test]
fn ports_of_the_daemon_are_open_only_if_they_are_named() {
    let wide = policy("mode public\nallow 0.0.0.0/0\nallow ::/0\n");
    let sentence = "refused: connection to 127.0.0.1:7600 (a port of the daemon)";
    assert_eq!(decide(&wide, "127.0.0.1:7600"), sentence);
    for to in [
        "127.8.8.8:7600",
        "0.0.0.0:7600",
        "192.168.1.7:7600",
        "[::1]:7600",
        "[::]:7600",
        "[::ffff:127.0.0.1]:7600",
    ] {
        assert_eq!(why(&wide, to), Some(Why::Door), "{to}");
    }
    for to in ["127.0.0.1:7601", "192.168.1.8:7600", "8.8.8.8:7600"] {
        assert_eq!(why(&wide, to), None, "{to}");
    }
    let named = policy("mode public\nallow 127.0.0.0/8\nallow 127.0.0.1:7600\n");
    assert_eq!(why(&named, "127.0.0.1:7600"), None);
    assert_eq!(why(&named, "127.0.0.2:7600"), Some(Why::Door));
}

#[test]
fn a_handler_narrows_what_the_operator_allows_and_never_widens_it() {
    let lines = "mode only\nonly 10.0.0.0/8:5432\nonly 8.8.8.8\nallow 10.1.2.0/24\n";
    let narrow = policy(lines);
    assert_eq!(why(&narrow, "10.1.2.3:5432"), None);
    assert_eq!(why(&narrow, "8.8.8.8:443"), None);
    assert_eq!(why(&narrow, "[::ffff:8.8.8.8]:443"), None);
    assert_eq!(why(&narrow, "10.1.2.3:80"), Some(Why::NotListed));
    assert_eq!(why(&narrow, "1.1.1.1:443"), Some(Why::NotListed));
    assert_eq!(why(&narrow, "10.9.9.9:5432"), Some(Why::Private));
    assert_eq!(why(&policy("mode only\nonly ::/0\n"), "[::1]:80"), Some(Why::Loopback));
}

#[test]
fn name_servers_are_open_for_names_unless_there_is_no_network() {
    for mode in ["mode public\n", "mode only\n"] {
        let policy = policy(mode);
        assert_eq!(why(&policy, "127.0.0.53:53"), None);
        assert_eq!(why(&policy, "[fd00::53]:53"), None);
        assert_eq!(why(&policy, "127.0.0.53:80"), Some(Why::Loopback));
        assert_eq!(why(&policy, "127.0.0.1:53"), Some(Why::Loopback));
    }
    let none = policy("mode none\nallow 0.0.0.0/0\n");
    for to in ["127.0.0.53:53", "8.8.8.8:443", "127.0.0.1:80"] {
        assert_eq!(why(&none, to), Some(Why::NoNetwork), "{to}");
    }
}
