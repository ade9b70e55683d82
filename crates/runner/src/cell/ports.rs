//! The ports of this machine that the sockets of a cell take. All programs of a machine share them:
//! without a bound, one handler could leave none for the name lookups of everybody else.
//!
//! A port is taken by a call that is carried out here, and the sockets that have one are counted by
//! their numbers. At the bound of the count, the kernel's lists of sockets tell which of them
//! still have a port, wherever a descriptor of them may be; so in the usual case counting costs
//! nothing. Two ways to a port that cannot be seen here are closed instead: a TCP socket that is
//! bound takes its port only when it connects, and a datagram that is sent without an address finds
//! a range of a single port. The second needs Linux 6.3, as does the share that is left to others.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use windlass_core::sync::lock;

use super::call::error;
use super::sys::socket;
use super::watch;

/// Ports that the sockets of one cell have at the same time.
const PORTS_MAX: usize = 1024;
/// One part in this many of the machine's ports is not for cells, however many there are.
const SHARE_OF_OTHERS: u16 = 4;
/// The machine's ports, and those of a kernel that does not tell.
const RANGE_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RANGE: (u16, u16) = (32_768, 60_999);
/// Where the kernel lists the sockets that have ports.
const LISTS: [&str; 4] = ["/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6"];
/// Where a line of a list has the number of its socket.
const NUMBER_AT: usize = 9;
/// The option of a socket that narrows its ports.
const LOCAL_PORT_RANGE: i32 = 51;

pub(super) struct Ports {
    /// The ports for cells.
    range: (u16, u16),
    /// Opened before this process gives up its rights.
    lists: Vec<File>,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Sockets that have a port, or had one.
    sockets: HashSet<u64>,
    /// The job's log says that there are too many.
    is_told: bool,
}

impl Ports {
    pub(super) fn new() -> Ports {
        let (low, high) =
            fs::read_to_string(RANGE_FILE).ok().and_then(|text| read_range(&text)).unwrap_or(RANGE);
        let lists = LISTS.iter().filter_map(|list| File::open(list).ok()).collect();
        let range = (low, high - (high - low) / SHARE_OF_OTHERS);
        Ports { range, lists, taken: Mutex::default() }
    }

    /// To be called for a new socket, before the cell has it.
    pub(super) fn prepare(&self, socket: BorrowedFd<'_>, is_datagram: bool) -> io::Result<()> {
        if is_datagram {
            self.close_range(socket);
            return Ok(());
        }
        self.open_range(socket);
        socket::set_ip_option(socket, libc::IP_BIND_ADDRESS_NO_PORT, 1)
    }

    /// Gives a socket a port for a call that needs one. A stream gets it by connecting.
    pub(super) fn take(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let any = match socket::socket_option(socket, libc::SO_DOMAIN)? {
            libc::AF_INET => any_address(libc::AF_INET, size_of::<libc::sockaddr_in>()),
            libc::AF_INET6 => any_address(libc::AF_INET6, size_of::<libc::sockaddr_in6>()),
            // The call itself will fail.
            _ => return Ok(()),
        };
        if socket::local_port(socket)? != 0 {
            return Ok(());
        }
        match is_datagram(socket)? {
            true => self.bind(socket, &any),
            false => self.count(socket),
        }
    }

    /// Binds a socket of the internet to an address without a port.
    pub(super) fn bind(&self, socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
        if !is_datagram(socket)? {
            return socket::bind(socket, address);
        }
        self.count(socket)?;
        self.open_range(socket);
        let bound = socket::bind(socket, address);
        // It may lose its port again.
        self.close_range(socket);
        bound
    }

    fn count(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let number = rustix::fs::fstat(socket)?.st_ino;
        let taken = &mut *lock(&self.taken);
        if taken.sockets.len() >= PORTS_MAX {
            let with_port = self.sockets_with_port()?;
            taken.sockets.retain(|socket| with_port.contains(socket));
        }
        if taken.sockets.len() >= PORTS_MAX && !taken.sockets.contains(&number) {
            if !taken.is_told {
                watch::log(&format!("refused: a further port ({PORTS_MAX} are in use)"));
            }
            taken.is_told = true;
            return Err(error(libc::ENOBUFS));
        }
        taken.is_told = false;
        taken.sockets.insert(number);
        Ok(())
    }

    fn sockets_with_port(&self) -> io::Result<HashSet<u64>> {
        let mut numbers = HashSet::new();
        for mut list in &self.lists {
            let mut text = String::new();
            list.rewind()?;
            list.read_to_string(&mut text)?;
            numbers.extend(read_numbers(&text));
        }
        Ok(numbers)
    }

    fn open_range(&self, socket: BorrowedFd<'_>) {
        set_range(socket, self.range);
    }

    /// All sockets of cells that get a port unseen share this one.
    fn close_range(&self, socket: BorrowedFd<'_>) {
        let (_, last) = self.range;
        set_range(socket, (last, last));
    }
}

/// Kernels before 6.3 do not know it.
fn set_range(socket: BorrowedFd<'_>, (low, high): (u16, u16)) {
    let both = u32::from(high) << 16 | u32::from(low);
    let _ = socket::set_ip_option(socket, LOCAL_PORT_RANGE, both.cast_signed());
}

fn is_datagram(socket: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(socket::socket_option(socket, libc::SO_TYPE)? == libc::SOCK_DGRAM)
}

fn any_address(family: i32, length: usize) -> Vec<u8> {
    let mut address = vec![0; length];
    address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    address
}

fn read_range(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_whitespace().map(str::parse);
    let (low, high) = (words.next()?.ok()?, words.next()?.ok()?);
    (low < high).then_some((low, high))
}

/// The numbers of the sockets in a list of the kernel; its first line is a heading.
fn read_numbers(text: &str) -> impl Iterator<Item = u64> {
    text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(NUMBER_AT)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernels_lists_name_a_socket_that_has_a_port() {
        let bound = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        let number = rustix::fs::fstat(bound.as_fd()).unwrap().st_ino;
        let ports = Ports::new();
        assert!(ports.sockets_with_port().unwrap().contains(&number));
        drop(bound);
        assert!(!ports.sockets_with_port().unwrap().contains(&number), "read anew");
    }

    #[test]
    fn ranges_are_read_as_the_kernel_writes_them() {
        assert_eq!(read_range("32768\t60999\n"), Some((32_768, 60_999)));
        for bad in ["", "1", "x 2", "2 1", "1 70000"] {
            assert_eq!(read_range(bad), None, "{bad}");
        }
    }
}
