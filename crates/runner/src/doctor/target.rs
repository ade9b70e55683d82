//! What the attacks aim at: files, sockets and memory of the doctor, and who has reached them.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use super::attack::{Aim, OPEN_MODE};
use super::sys::Segment;

/// In front of the doctor's number in the key of its segment: no other program's.
const SEGMENT_KEY: i32 = 0x5744_0000;
/// Most that a number of a process has of it.
const SEGMENT_MASK: i32 = 0xFFFF;

pub(super) struct Target {
    aim: Aim,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    named: UnixListener,
    _segment: Segment,
}

impl Target {
    /// `beside` is a directory of the doctor's own.
    pub(super) fn make(beside: &Path) -> io::Result<Target> {
        let process = std::process::id() as i32;
        let (outside, shown) = (beside.join("outside"), shown(beside));
        for dir in [&outside, &shown] {
            fs::create_dir(dir)?;
            fs::set_permissions(dir, Permissions::from_mode(0o777))?;
        }
        fs::write(outside.join("secret"), "secret\n")?;
        fs::write(shown.join("private"), "private\n")?;
        fs::set_permissions(shown.join("private"), Permissions::from_mode(0o600))?;
        fs::write(shown.join("open"), "open\n")?;
        fs::set_permissions(shown.join("open"), Permissions::from_mode(OPEN_MODE))?;
        let unix = UnixListener::bind(shown.join("socket"))?;
        fs::set_permissions(shown.join("socket"), Permissions::from_mode(0o777))?;
        let abstract_name = format!("windlass-doctor-{process}");
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        unix.set_nonblocking(true)?;
        named.set_nonblocking(true)?;
        let segment = SEGMENT_KEY | (process & SEGMENT_MASK);
        let aim = Aim {
            process,
            segment,
            tcp: tcp.local_addr()?.port(),
            udp: udp.local_addr()?.port(),
            outside: outside.display().to_string(),
            shown: shown.display().to_string(),
            abstract_name,
        };
        let _segment = Segment::make(segment)?;
        Ok(Target { aim, tcp, udp, unix, named, _segment })
    }

    pub(super) fn aim(&self) -> &Aim {
        &self.aim
    }

    /// In which ways something has arrived since this was last asked. What was sent on this
    /// machine is here by now.
    pub(super) fn reached(&self) -> Vec<&'static str> {
        let mut ways = Vec::new();
        if self.tcp.accept().is_ok() {
            ways.push("a TCP port of this machine");
        }
        if self.udp.recv(&mut [0]).is_ok() {
            ways.push("a UDP port of this machine");
        }
        if self.unix.accept().is_ok() {
            ways.push("a UNIX socket in a directory that it may read");
        }
        if self.named.accept().is_ok() {
            ways.push("an abstract UNIX socket");
        }
        ways
    }
}

/// A directory that handlers may read.
pub(super) fn shown(beside: &Path) -> PathBuf {
    beside.join("shown")
}
