//! The attacker: this program again, as a handler. It tries what the layers are to stop, and
//! prints what it made. The doctor's side of each attack is in `target`.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::exit;
use std::time::SystemTime;

use super::sys;

/// The first word of the command line of the attacker.
pub(super) const WORD: &str = "windlass-doctor-attack";
/// The line that it prints last.
pub(super) const LAST: &str = "all tried";

/// The mode of a file that handlers may read. It is changed to what it is, as everything that the
/// next attacker needs.
pub(super) const OPEN_MODE: u32 = 0o644;

/// What the attacker has to know of the doctor, as the words of its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Aim {
    pub process: i32,
    /// Of a segment of System V.
    pub segment: i32,
    pub tcp: u16,
    pub udp: u16,
    /// A directory that handlers may not see.
    pub outside: String,
    /// One that they may read.
    pub shown: String,
    pub abstract_name: String,
}

impl Aim {
    pub(super) fn words(&self) -> [String; 7] {
        let Aim { process, segment, tcp, udp, outside, shown, abstract_name } = self.clone();
        let numbers = [process, segment, tcp.into(), udp.into()].map(|number| number.to_string());
        let [process, segment, tcp, udp] = numbers;
        [process, segment, tcp, udp, outside, shown, abstract_name]
    }

    fn of(words: Vec<String>) -> Option<Aim> {
        let [process, segment, tcp, udp, outside, shown, abstract_name] = words.try_into().ok()?;
        let (process, segment) = (process.parse().ok()?, segment.parse().ok()?);
        let (tcp, udp) = (tcp.parse().ok()?, udp.parse().ok()?);
        Some(Aim { process, segment, tcp, udp, outside, shown, abstract_name })
    }
}

/// Becomes the attacker, if the words of the command line say so. A program whose doctor examines
/// calls this first.
pub fn attack_if_told() {
    let mut words = std::env::args().skip(1);
    if words.next().is_none_or(|word| word != WORD) {
        return;
    }
    let Some(aim) = Aim::of(words.collect()) else { exit(2) };
    let tried = attack(&aim, &mut io::stdout());
    exit(if tried.is_ok() { 0 } else { 1 });
}

fn attack(aim: &Aim, out: &mut impl Write) -> io::Result<()> {
    let mut report = |attack: &str, reason: Option<io::Error>| match reason {
        None => writeln!(out, "made {attack}"),
        Some(reason) => writeln!(out, "stopped {attack} {reason}"),
    };
    let Aim { process, outside, shown, .. } = aim;
    // Before it may make a namespace of its own.
    let users = fs::read_link("/proc/self/ns/user")?;
    let (outside, shown) = (Path::new(outside), Path::new(shown));
    let of_daemon = |file: &str| format!("/proc/{process}/{file}");
    report("see", fs::read_to_string(of_daemon("status")).err())?;
    report("segment", sys::find_segment(aim.segment).err())?;
    report("names", fs::symlink_metadata(outside.join("secret")).err())?;
    report("read", fs::read(outside.join("secret")).err())?;
    report("write", fs::write(outside.join("written"), "x").err())?;
    report("private", fs::read(shown.join("private")).err())?;
    let open = shown.join("open");
    report("mode", fs::set_permissions(&open, Permissions::from_mode(OPEN_MODE)).err())?;
    let times = File::open(&open).and_then(|file| file.set_modified(SystemTime::UNIX_EPOCH));
    report("times", times.err())?;

    report("signal", sys::signal(*process).err())?;
    report("prlimit", sys::set_limit_of(*process).err())?;
    report("priority", sys::set_priority_of(*process).err())?;
    report("scheduling", sys::set_scheduling_of(*process).err())?;
    report("memory", OpenOptions::new().read(true).write(true).open(of_daemon("mem")).err())?;
    report("environ", fs::read(of_daemon("environ")).err())?;

    report("tcp", TcpStream::connect((Ipv4Addr::LOCALHOST, aim.tcp)).err())?;
    report("udp", send(aim.udp).err())?;
    report("unix", UnixStream::connect(shown.join("socket")).err())?;
    let named = SocketAddr::from_abstract_name(&aim.abstract_name);
    report("abstract", named.and_then(|address| UnixStream::connect_addr(&address)).err())?;

    report("keyctl", sys::keyctl().err())?;
    report("io_uring", sys::io_uring_setup().err())?;
    report("unshare", sys::make_user_namespace().err())?;
    report("ptrace", sys::be_traced().err())?;
    writeln!(out, "users {}\n{LAST}", users.display())
}

fn send(port: u16) -> io::Result<usize> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(b"x", (Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_read_as_it_was_written() {
        let text = str::to_owned;
        let (outside, shown, abstract_name) = (text("/a b"), text("/c"), text("d"));
        let aim = Aim { process: 7, segment: -1, tcp: 1, udp: 2, outside, shown, abstract_name };
        assert_eq!(Aim::of(aim.words().to_vec()), Some(aim.clone()));
        assert_eq!(Aim::of(aim.words()[1..].to_vec()), None);
    }
}
