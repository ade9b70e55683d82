//! System calls that have led out of sandboxes.

use std::io::Read;
use std::net::TcpListener;
use std::process::Command;

use crate::harness::{Config, Daemon, run};
use crate::users::{as_both_users, as_root_and_as_nobody, bare, strict, tries, works};

/// Calls by their numbers on this kind of machine, as root can make them, and the error with which
/// a cell refuses each.
const CALLS: [(&str, &str, &str); 19] = [
    ("unshare user", "272, 0x10000000", "EPERM"),
    ("clone3", "435, clone, 88", "ENOSYS"),
    ("mount", "165, b'none', b'.', b'tmpfs', 0, 0", "EPERM"),
    ("ptrace", "101, 0, 0, 0, 0", "EPERM"),
    ("process_vm_readv", "310, own, piece, 1, piece, 1, 0", "EPERM"),
    ("bpf", "321, 0, array, 72", "EPERM"),
    ("perf_event_open", "298, clock, 0, -1, -1, 0", "EPERM"),
    ("keyctl", "250, 0, -3, 1", "EPERM"),
    ("add_key", "248, b'user', b'x', b'y', 1, -3", "EPERM"),
    ("io_uring_setup", "425, 1, zeros", "EPERM"),
    ("userfaultfd", "323, 1", "EPERM"),
    ("netlink", "41, 16, 3, 0", "EAFNOSUPPORT"),
    ("packet", "41, 17, 3, 0", "EAFNOSUPPORT"),
    ("raw", "41, 2, 3, 1", "EPERM"),
    ("mptcp", "41, 2, 1, 262", "EPROTONOSUPPORT"),
    ("vsock", "41, 40, 1, 0", "EAFNOSUPPORT"),
    ("setns", "308, names, 0", "EPERM"),
    ("chroot", "161, b'.'", "EPERM"),
    ("open_by_handle_at", "304, root, handle, 0", "EPERM"),
];

/// Those that the kernel refuses with the same error to everybody without capabilities, with
/// arguments that it looks at before: only a filter refuses these with `EPERM`.
const MALFORMED: [(&str, &str, &str); 6] = [
    ("mount", "165, 1, 1, 1, 0, 0", "EPERM"),
    ("bpf", "321, 0, 1, 72", "EPERM"),
    ("raw", "41, 2, 3, 1000", "EPERM"),
    ("setns", "308, -1, 0", "EPERM"),
    ("chroot", "161, 1", "EPERM"),
    ("open_by_handle_at", "304, -1, 1, 0", "EPERM"),
];

/// Calls that ordinary programs make, some of them the same with other arguments.
const USUAL: [(&str, &str, &str); 12] = [
    ("fork", "57,", "made"),
    ("socket", "41, 2, 1, 0", "made"),
    ("datagrams", "41, 2, 2, 0", "made"),
    ("pair", "53, 1, 1, 0, zeros", "made"),
    ("pipe", "22, zeros", "made"),
    ("watch", "254, c.syscall(253), b'.', 2", "made"),
    ("event", "290, 0, 0", "made"),
    ("epoll", "291, 0", "made"),
    ("own limit", "302, 0, 4, zeros, 0", "made"),
    ("own priority", "141, 0, 0, 19", "made"),
    ("own policy", "144, 0, 0, zeros", "made"),
    ("own processors", "204, 0, 128, zeros", "made"),
];

/// Makes each call in a process of its own, and prints how it went. A `perf_event_attr` for a clock
/// of this process, a `bpf_attr` for an array, and so on: what the kernel itself would refuse shows
/// nothing.
const MAKE_CALLS: &str = r#"
import ctypes, errno, os, struct
c = ctypes.CDLL(None, use_errno=True)
c.syscall.restype = ctypes.c_long
own = os.getpid()
def memory(layout, *values): return ctypes.create_string_buffer(struct.pack(layout, *values), 4096)
zeros = memory('Q', 0)
piece = memory('2Q', ctypes.addressof(zeros), 8)
clone = memory('5Q', 0, 0, 0, 0, 17)
array = memory('4I', 2, 4, 4, 1)
clock = memory('2I5Q', 1, 112, 0, 0, 0, 0, 0x60)
root, names = os.open('/', os.O_RDONLY), os.open('/proc/self/ns/uts', os.O_RDONLY)
handle = memory('2I', 128, 0)
c.syscall(303, root, b'.', handle, memory('I', 0), 0)
def whole(word): return ctypes.c_long(word) if isinstance(word, int) else word
for name, words in (CALLS):
  child = os.fork()
  if child == 0:
    made = c.syscall(*map(whole, words))
    if made == 0 and name in ('clone3', 'fork'): os._exit(0)
    told = 'made' if made >= 0 else errno.errorcode[ctypes.get_errno()]
    os.write(1, f'{told} {name}\n'.encode())
    os._exit(0)
  os.waitpid(child, 0)
os.write(1, b'tried all\n')
"#;

fn makes(calls: &[(&str, &str, &str)]) -> String {
    let entry = |(name, words, _): &(&str, &str, &str)| format!("({name:?}, ({words})),");
    MAKE_CALLS.replace("CALLS", &calls.iter().map(entry).collect::<String>())
}

/// The calls that went as the table says.
fn as_listed<'a>(calls: &[(&'a str, &str, &str)], log: &str) -> Vec<&'a str> {
    let went = |(name, _, told): &&(&str, &str, &str)| {
        log.lines().any(|line| line == format!("{told} {name}"))
    };
    calls.iter().filter(went).map(|(name, _, _)| *name).collect()
}

fn names<'a>(calls: &[(&'a str, &str, &str)]) -> Vec<&'a str> {
    calls.iter().map(|(name, _, _)| *name).collect()
}

#[test]
fn b13_b18_system_calls_that_lead_out_of_sandboxes_are_refused() {
    as_root_and_as_nobody(|daemon| {
        let tenant = daemon.tenant("a");
        for calls in [&CALLS[..], &MALFORMED, &USUAL] {
            let log = tries(&tenant, "python", &makes(calls));
            assert_eq!(as_listed(calls, &log), names(calls), "{log}");
        }
    });
    // The controls: root makes all of them, and it is not the kernel that refuses them to others.
    let home = Config::new().home;
    let mut free = Command::new("unshare");
    free.args(["--mount", "python3", "-c", &makes(&CALLS)]).current_dir(home.files());
    let told = run(&mut free, b"").ok();
    for (name, ..) in CALLS {
        assert!(told.lines().any(|line| line == format!("made {name}")), "{name}: {told}");
    }
    as_both_users(|config| {
        let open = Daemon::start(bare(config));
        let by_filter = |(name, ..): &&(&str, &str, &str)| !names(&MALFORMED).contains(name);
        let calls: Vec<_> = CALLS.iter().filter(by_filter).chain(&MALFORMED).copied().collect();
        let log = tries(&open.tenant("a"), "python", &makes(&calls));
        assert_eq!(as_listed(&calls, &log), [] as [&str; 0], "{log}");
        assert!(names(&calls).iter().all(|name| log.contains(name)), "{log}");
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
