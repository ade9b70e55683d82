//! System calls that have led out of sandboxes.

use std::io::Read;
use std::net::TcpListener;

use crate::harness::Daemon;
use crate::users::{as_both_users, as_root_and_as_nobody, strict, works};

/// Calls by their numbers on this kind of machine, with arguments that would succeed for some.
#[test]
fn b13_b18_system_calls_that_lead_out_of_sandboxes_are_refused() {
    let calls = [
        ("unshare user", "272, 0x10000000"),
        ("clone3", "435, 0, 0"),
        ("mount", "165, b'none', b'/job', b'tmpfs', 0, 0"),
        ("ptrace", "101, 0, 0, 0, 0"),
        ("process_vm_readv", "310, 1, 0, 0, 0, 0, 0"),
        ("bpf", "321, 0, 0, 0"),
        ("perf_event_open", "298, 0, 0, -1, -1, 0"),
        ("keyctl", "250, 0, -3, 1"),
        ("add_key", "248, b'user', b'x', b'y', 1, -3"),
        ("io_uring_setup", "425, 1, 0"),
        ("userfaultfd", "323, 1"),
        ("netlink", "41, 16, 3, 0"),
        ("packet", "41, 17, 3, 0"),
        ("raw", "41, 2, 3, 1"),
        ("mptcp", "41, 2, 1, 262"),
        ("vsock", "41, 40, 1, 0"),
        ("setns", "308, 0, 0"),
        ("chroot", "161, b'/'"),
        ("open_by_handle_at", "304, -100, 0, 0"),
    ];
    // Calls that ordinary programs make, some of them the same with other arguments.
    let usual = [
        ("fork", "57,"),
        ("socket", "41, 2, 1, 0"),
        ("datagrams", "41, 2, 2, 0"),
        ("pair", "53, 1, 1, 0, (ctypes.c_int * 2)()"),
        ("pipe", "22, (ctypes.c_int * 2)()"),
        ("watch", "254, c.syscall(253), b'.', 2"),
        ("event", "290, 0, 0"),
        ("epoll", "291, 0"),
        ("own limit", "302, 0, 4, (ctypes.c_ulong * 2)(), 0"),
        ("own priority", "141, 0, 0, 19"),
        ("own policy", "144, 0, 0, (ctypes.c_int * 1)()"),
        ("own processors", "204, 0, 128, ctypes.create_string_buffer(128)"),
    ];
    let says = |list: &[(&str, &str)]| -> String {
        let entry = |(name, words): &(&str, &str)| format!("({name:?}, ({words},)),");
        let list: String = list.iter().map(entry).collect();
        format!(
            "import ctypes, os\nc = ctypes.CDLL(None, use_errno=True)\nown = os.getpid()\n\
             for name, words in ({list}):\n  \
             made = c.syscall(*words)\n  \
             if os.getpid() != own: os._exit(0)\n  \
             print('made' if made >= 0 else 'refused', name, ctypes.get_errno())\n\
             return 200"
        )
        .replace(",,", ",")
    };
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        let log = works(&tenant, "python", &says(&calls));
        assert_eq!(log.matches("refused ").count(), calls.len(), "{log}");
        let log = works(&tenant, "python", &says(&usual));
        assert_eq!(log.matches("made ").count(), usual.len(), "{log}");
    });
}

/// Ways to open a connection in which the call that names the address is not the usual one, or the
/// one that sends the first packet names no address.
fn opens_fast(port: u16) -> String {
    format!(
        "import socket\n\
         to, connect_later = ('127.0.0.1', {port}), 30\n\
         def later(s):\n  \
         s.setsockopt(socket.IPPROTO_TCP, connect_later, 1); s.connect(to); s.send(b'later ')\n\
         for name, act in (\n  \
         ('sendto', lambda s: s.sendto(b'sendto ', socket.MSG_FASTOPEN, to)),\n  \
         ('sendmsg', lambda s: s.sendmsg([b'sendmsg '], [], socket.MSG_FASTOPEN, to)),\n  \
         ('no address', lambda s: s.send(b'none ', socket.MSG_FASTOPEN)),\n  \
         ('later', later),\n  \
         ('connect', lambda s: (s.connect(to), s.send(b'connect ')))):\n  \
         with socket.socket() as s:\n    \
         try:\n      act(s); print('sent', name)\n    \
         except OSError as e: print('refused', name, e)\n\
         return 200"
    )
}

/// What has arrived when the job has ended, in the order of the connections.
fn arrived(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).unwrap();
    let mut all = String::new();
    while let Ok((mut stream, _)) = listener.accept() {
        stream.set_nonblocking(false).unwrap();
        all.push_str("connected: ");
        stream.read_to_string(&mut all).unwrap();
    }
    all
}

#[test]
fn b13_tcp_fast_open_does_not_pass_the_network_policy() {
    as_root_and_as_nobody(|daemon| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let body = opens_fast(listener.local_addr().unwrap().port());
        let log = works(&daemon.tenant("a"), "python", &body);
        assert_eq!(
            (arrived(&listener).as_str(), log.matches("refused ").count()),
            ("", 5),
            "{log}"
        );
    });
    as_both_users(|config| {
        let open = Daemon::start(strict(config).loopback());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let body = opens_fast(listener.local_addr().unwrap().port());
        let log = works(&open.tenant("a"), "python", &body);
        // Data in the first packet is refused everywhere; programs then connect as usual.
        let expected = "connected: later connected: connect ";
        assert_eq!(arrived(&listener), expected, "{log}");
    });
}
