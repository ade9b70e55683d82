//! The attacker: this program again, as a handler. It tries what the layers are to stop, and
//! prints what it made. The doctor's side of each attack is in `target`.

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::exit;

use super::sys;

/// The first word of the command line of the attacker.
pub(super) const WORD: &str = "windlass-doctor-attack";
/// The line that it prints last.
pub(super) const LAST: &str = "all tried";

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
    attack(&aim);
    exit(0);
}

fn attack(aim: &Aim) {
    let Aim { process, outside, shown, .. } = aim;
    let (outside, shown) = (Path::new(outside), Path::new(shown));
    if let Ok(users) = fs::read_link("/proc/self/ns/user") {
        println!("users {}", users.display());
    }
    let of_daemon = |file: &str| format!("/proc/{process}/{file}");
    report("see", fs::read_to_string(of_daemon("status")));
    report("segment", sys::find_segment(aim.segment));
    report("names", fs::symlink_metadata(outside.join("secret")));
    report("read", fs::read(outside.join("secret")));
    report("write", fs::write(outside.join("written"), "x"));
    report("private", fs::read(shown.join("private")));

    report("signal", sys::signal(*process));
    report("prlimit", sys::set_limit_of(*process));
    report("memory", OpenOptions::new().read(true).write(true).open(of_daemon("mem")));
    report("environ", fs::read(of_daemon("environ")));

    report("tcp", TcpStream::connect((Ipv4Addr::LOCALHOST, aim.tcp)));
    report("udp", send(aim.udp));
    report("unix", UnixStream::connect(shown.join("socket")));
    let named = SocketAddr::from_abstract_name(&aim.abstract_name);
    report("abstract", named.and_then(|address| UnixStream::connect_addr(&address)));

    report("keyctl", sys::keyctl());
    report("io_uring", sys::io_uring_setup());
    report("unshare", sys::make_user_namespace());
    report("ptrace", sys::be_traced());
    println!("{LAST}");
}

fn send(port: u16) -> io::Result<usize> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?.send_to(b"x", (Ipv4Addr::LOCALHOST, port))
}

fn report<T>(attack: &str, made: io::Result<T>) {
    match made {
        Ok(_) => println!("made {attack}"),
        Err(reason) => println!("stopped {attack} {reason}"),
    }
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
