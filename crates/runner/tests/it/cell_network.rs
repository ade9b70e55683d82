//! Connections of handlers in cells: of the internet where their policy allows them, and between
//! their own processes.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread;

use windlass_core::network::Network;
use windlass_core::{HandlerSpec, Lang};
use windlass_runner::LocalRunner;
use windlass_runner::network::NetworkOptions;

use crate::cell::said;
use crate::harness::{Fixture, check_ended, fixture, job, lines_of, options, spec};

/// A runner whose handlers may connect to public addresses only.
fn public_only() -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.network = NetworkOptions::of_machine(Vec::new(), Vec::new()).unwrap();
    Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch }
}

/// A server on this machine that greets everybody; its port.
fn server() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that is gone again was not refused, which its handler shows.
            let _ = stream.unwrap().write_all(b"hello\n");
        }
    });
    port
}

/// Prints what the server of this port says.
fn clients(port: u16) -> [HandlerSpec; 4] {
    let bash = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && head -n 1 <&3'");
    let python = format!(
        "import socket\ns = socket.create_connection(('127.0.0.1', {port}))\n\
         print(s.makefile().readline())"
    );
    let mapped = format!(
        "import socket\ns = socket.socket(socket.AF_INET6)\n\
         s.connect(('::ffff:127.0.0.1', {port}))\n\
         print(s.makefile().readline())"
    );
    let node = format!(
        "await new Promise((done, failed) => require('net').connect({port}, '127.0.0.1')\n\
         .on('data', data => {{ console.log(String(data)); done() }}).on('error', failed))"
    );
    [
        spec(Lang::Sh, &bash),
        spec(Lang::Python, &python),
        spec(Lang::Python, &mapped),
        spec(Lang::Node, &node),
    ]
}

#[tokio::test]
async fn a_handler_connects_to_this_machine_only_if_its_policy_allows_it() {
    let port = server();
    let (closed, open) = (public_only(), fixture());
    for client in clients(port) {
        let report = closed.run(client.clone(), b"").await;
        check_ended(&report, 500, None);
        let log = report.log.to_string();
        let refused = ["127.0.0.1", "[::ffff:127.0.0.1]"]
            .map(|address| format!("refused: connection to {address}:{port} (loopback)"));
        assert!(refused.iter().any(|line| log.contains(line)), "{log}");
        assert!(!log.contains("hello"), "{log}");
        let report = open.run(client, b"").await;
        check_ended(&report, 200, None);
        assert!(said(&report).contains(&"hello".to_owned()), "{}", report.log);
    }
}

#[tokio::test]
async fn a_handler_without_a_network_connects_to_nothing() {
    let port = server();
    let fixture = fixture();
    for mut client in clients(port) {
        client.options.network = Some(Network::None);
        let report = fixture.run(client, b"").await;
        check_ended(&report, 500, None);
        assert!(report.log.to_string().contains("refused: connection to"), "{}", report.log);
    }
}

/// Other addresses of this machine, and other ways to name it.
#[tokio::test]
async fn no_name_of_this_machine_leads_to_it() {
    let port = server();
    let body = format!(
        "import socket
for name in ['127.0.0.1', '127.1.2.3', '0.0.0.0', 'localhost', '0', '2130706433', '0x7f.1']:
    try: print(name, socket.create_connection((name, {port}), timeout=5).makefile().readline())
    except OSError as error: print(name, 'no')
mapped = ['::ffff:127.0.0.1', '::ffff:0.0.0.0', '::127.0.0.1', '64:ff9b::127.0.0.1']
for name in ['::1', '::'] + mapped:
    s = socket.socket(socket.AF_INET6)
    s.settimeout(5)
    try: s.connect((name, {port})); print(name, s.makefile().readline())
    except OSError as error: print(name, 'no')
"
    );
    let report = public_only().run(spec(Lang::Python, &body), b"").await;
    check_ended(&report, 200, None);
    let lines: Vec<String> =
        said(&report).into_iter().filter(|line| !line.starts_with("windlass:")).collect();
    assert_eq!(lines.len(), 13, "{}", report.log);
    assert!(lines.iter().all(|line| line.ends_with(" no")), "{lines:?}");
    let control = fixture().run(spec(Lang::Python, &body), b"").await;
    assert!(said(&control).contains(&"localhost hello".to_owned()), "{}", control.log);
}

/// Sends datagrams in each way that there is, and prints the ways that worked.
fn datagrams(port: u16) -> HandlerSpec {
    let body = format!(
        "import ctypes, socket, struct
to = ('127.0.0.1', {port})
udp = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def connected():
    s = udp(); s.connect(to); s.send(b'connected')
def mapped():
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.sendto(b'mapped', ('::ffff:127.0.0.1', {port}))
def many():
    libc, s = ctypes.CDLL(None, use_errno=True), udp()
    make, at = ctypes.create_string_buffer, ctypes.addressof
    text = make(b'many', 4)
    name = make(struct.pack('<H', 2) + struct.pack('>HBBBB', {port}, 127, 0, 0, 1) + bytes(8), 16)
    piece = make(struct.pack('<QQ', at(text), 4), 16)
    message = make(struct.pack('<8Q', at(name), 16, at(piece), 1, 0, 0, 0, 0), 64)
    if libc.sendmmsg(s.fileno(), message, 1, 0) != 1: raise OSError(ctypes.get_errno(), 'sendmmsg')
ways = {{
    'sendto': lambda: udp().sendto(b'sendto', to),
    'sendmsg': lambda: udp().sendmsg([b'send', b'msg'], [], 0, to),
    'connected': connected, 'mapped': mapped, 'many': many,
}}
for way, send in ways.items():
    try: send(); print(way)
    except OSError as error: print(way, 'no')
"
    );
    spec(Lang::Python, &body)
}

#[tokio::test]
async fn datagrams_follow_the_policy_too() {
    let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = server.local_addr().unwrap().port();
    let ways = ["sendto", "sendmsg", "connected", "mapped", "many"];
    let report = public_only().run(datagrams(port), b"").await;
    check_ended(&report, 200, None);
    let log = report.log.to_string();
    assert!(log.contains(&format!("refused: connection to 127.0.0.1:{port} (loopback)")), "{log}");
    for way in ways {
        assert!(log.contains(&format!("{way} no\n")), "{log}");
    }
    server.set_nonblocking(true).unwrap();
    assert!(server.recv(&mut [0; 16]).is_err(), "nothing has arrived");
    server.set_nonblocking(false).unwrap();
    let report = fixture().run(datagrams(port), b"").await;
    check_ended(&report, 200, None);
    assert_eq!(said(&report), ways, "{}", report.log);
    server.set_read_timeout(Some(windlass_test_kit::wait::PATIENCE)).unwrap();
    for way in ways {
        let mut text = [0; 16];
        let length = server.recv(&mut text).unwrap();
        assert_eq!(&text[..length], way.as_bytes());
    }
}

#[tokio::test]
async fn nobody_can_connect_to_a_handler() {
    let body = "import socket
v4, v6 = socket.AF_INET, socket.AF_INET6
for family, address in [(v4, '0.0.0.0'), (v6, '::'), (v4, '127.0.0.1')]:
    for port in [0, 18231]:
        s = socket.socket(family)
        try:
            s.bind((address, port)); s.listen(); print(address, port, 'listens')
        except OSError as error: print(address, port, 'no')
s = socket.socket(socket.AF_INET)
try: s.listen(); print('listens')
except OSError: print('no')
";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    check_ended(&report, 200, None);
    assert!(!report.log.to_string().contains("listens"), "{}", report.log);
    assert!(report.log.to_string().contains("refused: waiting for connections"), "{}", report.log);
}

/// Two processes of one handler talk by sockets in files, and pass a descriptor.
#[tokio::test]
async fn processes_of_one_handler_connect_to_each_other() {
    let body = "import array, os, socket
def pair(kind, name):
    server = socket.socket(socket.AF_UNIX, kind); server.bind(name)
    client = socket.socket(socket.AF_UNIX, kind)
    if kind == socket.SOCK_DGRAM:
        client.sendto(b'to', name); assert server.recv(9) == b'to'
        client.connect(name); return client, server
    server.listen(1)
    if os.fork() == 0:
        try: client.connect(name); client.sendall(b'hello')
        finally: os._exit(0)
    server.settimeout(30)
    other, _ = server.accept(); assert other.recv(9) == b'hello'; os.wait()
    client = socket.socket(socket.AF_UNIX, kind); client.connect(name)
    return client, server.accept()[0]
kinds = {
    'stream': socket.SOCK_STREAM, 'packet': socket.SOCK_SEQPACKET, 'datagram': socket.SOCK_DGRAM
}
names = {'relative': 'dir/s-', 'absolute': '/tmp/s-', 'abstract': '\\0s-'}
os.mkdir('dir')
open('file', 'w').write('of the file')
for kind, number in kinds.items():
    for name, prefix in names.items():
        client, server = pair(number, prefix + kind)
        passed = array.array('i', [os.open('file', os.O_RDONLY)])
        client.sendmsg([b'x', b'y'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, passed)])
        data, control, flags, _ = server.recvmsg(9, socket.CMSG_SPACE(4))
        (level, type, number_bytes), = control
        got = array.array('i'); got.frombytes(number_bytes)
        print(kind, name, data.decode(), os.read(got[0], 99).decode())
        os.close(got[0]); os.close(passed[0])
";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    check_ended(&report, 200, None);
    let mut expected = Vec::new();
    for kind in ["stream", "packet", "datagram"] {
        for name in ["relative", "absolute", "abstract"] {
            expected.push(format!("{kind} {name} xy of the file"));
        }
    }
    assert_eq!(said(&report), expected, "{}", report.log);
}

/// Names without a file belong to one cell; so does every file that a handler makes itself.
#[tokio::test]
async fn sockets_of_one_handler_cannot_be_reached_by_another() {
    let fixture = fixture();
    let [ready, done] = ["ready", "done"].map(|name| fixture.scratch.path().join(name));
    let connect = "import os, socket, sys, time
def tried(name):
    try: socket.socket(socket.AF_UNIX).connect(name); print('reached')
    except OSError as error: print('no'); print(error, file=sys.stderr)
";
    let names = "names = ['\\0of-a-handler', '/tmp/of-a-handler', 'of-a-handler']\n";
    let server = format!(
        "{connect}{names}servers = []
for name in names:
    servers.append(socket.socket(socket.AF_UNIX))
    servers[-1].bind(name); servers[-1].listen(9); tried(name)
with open({ready:?}, 'w') as f: f.write('x\\n')
while not os.path.exists({done:?}): time.sleep(0.01)"
    );
    let client = format!("{connect}{names}for name in names: tried(name)");
    let mut run = fixture.begin(spec(Lang::Python, &server), vec![job(b"")]);
    lines_of(&ready, 1).await;
    let report = fixture.run(spec(Lang::Python, &client), b"").await;
    assert_eq!(said(&report), ["no"; 3], "{}", report.log);
    fs::write(&done, "").unwrap();
    let (_, control) = run.ended().await;
    assert_eq!(said(&control), ["reached"; 3], "{}", control.log);
}

/// Sockets that lie where a handler may only read lead to services of this machine.
#[tokio::test]
async fn a_socket_of_the_machine_that_is_not_shown_cannot_be_reached() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    for open in [place.path(), &path] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
    }
    let body = format!(
        "import os, socket, sys
def tried(name):
    try: socket.socket(socket.AF_UNIX).connect(name); print('reached')
    except OSError as error: print('no'); print(error, file=sys.stderr)
os.symlink({path:?}, 'link')
for name in [{path:?}, '/proc/1/root' + {path:?}, '../../..' + {path:?}, 'link']: tried(name)"
    );
    let report = fixture().run(spec(Lang::Python, &body), b"").await;
    assert_eq!(said(&report), ["no"; 4], "{}", report.log);
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.isolation.write = vec![place.path().to_owned()];
    let open = Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch };
    let control = open.run(spec(Lang::Python, &body), b"").await;
    assert_eq!(said(&control)[0], "reached", "{}", control.log);
    drop(listener);
}

/// What is shown for reading alone may hold sockets of services, which a mount does not close.
#[tokio::test]
async fn a_socket_in_a_place_that_is_only_read_cannot_be_reached() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    for open in [place.path(), &path] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
    }
    let body = format!(
        "import os, socket
kept = []
def tried(kind, act):
    kept.append(socket.socket(socket.AF_UNIX, kind))
    try: act(kept[-1]); print('reached')
    except OSError: print('no')
os.symlink({path:?}, 'link')
tried(socket.SOCK_STREAM, lambda s: s.connect({path:?}))
tried(socket.SOCK_STREAM, lambda s: s.connect('link'))
tried(socket.SOCK_DGRAM, lambda s: s.bind({path:?} + '-mine'))
tried(socket.SOCK_DGRAM, lambda s: s.bind('mine'))
tried(socket.SOCK_DGRAM, lambda s: s.sendto(b'x', 'mine'))"
    );
    let run = async |write: bool| {
        let scratch = tempfile::tempdir().unwrap();
        let mut options = options(&scratch);
        let list = if write { &mut options.isolation.write } else { &mut options.isolation.read };
        list.push(place.path().to_owned());
        let fixture = Fixture { runner: Arc::new(LocalRunner::new(options).unwrap()), scratch };
        fixture.run(spec(Lang::Python, &body), b"").await
    };
    let report = run(false).await;
    let log = report.log.to_string();
    assert!(log.contains(&format!("refused: connection to {path:?} (")), "{log}");
    let answers: Vec<String> =
        said(&report).into_iter().filter(|line| line == "no" || line == "reached").collect();
    assert_eq!(answers, ["no", "no", "no", "reached", "reached"], "{log}");
    let control = run(true).await;
    assert_eq!(said(&control), ["reached"; 5], "{}", control.log);
}

/// Ports are shared by all programs of a machine.
#[tokio::test]
async fn a_handler_takes_a_bounded_number_of_ports_and_can_use_them_again() {
    let body = "import os, socket
def taken(count):
    kept = []
    try:
        for _ in range(count):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind(('0.0.0.0', 0)); kept.append(s)
    except OSError: pass
    return kept
def in_child(count):
    (asked, ask), (heard, tell) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask)
        kept = taken(count)
        os.write(tell, b'%d' % len(kept))
        os.read(asked, 1)
        os._exit(0)
    os.close(asked); os.close(tell)
    return child, ask, int(os.read(heard, 9))
for turn in range(2):
    children = [in_child(500) for _ in range(3)]
    print('ports', sum(count for _, _, count in children))
    for child, ask, _ in children: os.write(ask, b'x'); os.waitpid(child, 0)
for turn in range(3): print('again', len(taken(500)))";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    check_ended(&report, 200, None);
    let lines: Vec<String> =
        said(&report).into_iter().filter(|line| !line.contains("refused:")).collect();
    let again = "again 500";
    assert_eq!(lines, ["ports 1024", "ports 1024", again, again, again], "{}", report.log);
    let refusals = report.log.to_string().matches("refused: a further port").count();
    assert_eq!(refusals, 2, "one for each time: {}", report.log);
}

/// Ways to a port that nobody sees: sends without an address, and TCP sockets that never connect.
#[tokio::test]
async fn a_handler_takes_no_ports_unseen() {
    let body = "import os, socket
udp = [socket.socket(f, socket.SOCK_DGRAM) for f in [socket.AF_INET, socket.AF_INET6] * 50]
def unseen():
    for s in udp:
        try: os.write(s.fileno(), b'x')
        except OSError: pass
    return len({s.getsockname()[1] for s in udp} - {0})
print('unseen', unseen() <= 1)
for s in udp: s.connect(('127.0.0.1' if s.family == socket.AF_INET else '::ffff:127.0.0.1', 9))
print('connected', len({s.getsockname()[1] for s in udp} - {0}) > 40)
libc = __import__('ctypes').CDLL(None)
for s in udp: libc.connect(s.fileno(), bytes(16), 16)
print('unseen again', unseen() <= 1)
tcp = [socket.socket(socket.AF_INET) for _ in range(50)]
for s in tcp: s.bind(('0.0.0.0', 0))
print('bound', {s.getsockname()[1] for s in tcp})";
    let report = fixture().run(spec(Lang::Python, body), b"").await;
    check_ended(&report, 200, None);
    let expected = ["unseen True", "connected True", "unseen again True", "bound {0}"];
    assert_eq!(said(&report), expected, "{}", report.log);
}
