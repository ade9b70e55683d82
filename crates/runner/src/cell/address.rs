//! Where a call of a cell leads, and whether it may.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use super::call::error;
use super::ports::Ports;
use super::target::{Target, name_of};
use super::watch;
use crate::network::{KernelRoutes, Policy};

/// Longest address of a socket.
const ADDRESS_BYTES_MAX: u64 = 128;
/// Longest name of a socket in a file.
const UNIX_PATH_MAX: usize = 108;

/// What a cell may reach.
pub(super) struct Rules {
    /// Absent: nothing.
    pub(super) policy: Option<Policy>,
    /// Absent if the kernel cannot be asked.
    pub(super) routes: Option<KernelRoutes>,
    pub(super) ports: Ports,
    /// Absent if its own root decides what it can name.
    pub(super) own: Option<OwnPlaces>,
}

/// The places of a cell that has no root of its own, by their real names.
pub(super) struct OwnPlaces {
    /// Where it may use sockets in files.
    pub(super) sockets: PathBuf,
    /// Below these it may change files.
    pub(super) files: Vec<PathBuf>,
}

/// Where a call leads, after the decision.
pub(super) struct Destination {
    pub(super) address: Vec<u8>,
    /// The file of a socket, which the address names.
    _file: Option<OwnedFd>,
}

impl Destination {
    pub(super) fn plain(address: Vec<u8>) -> Destination {
        Destination { address, _file: None }
    }

    pub(super) fn is_internet(&self) -> bool {
        matches!(family_of(&self.address), libc::AF_INET | libc::AF_INET6)
    }
}

/// Decides about an address; a refusal is a line of the job's log.
pub(super) fn destination(
    rules: &Rules,
    target: &Target,
    bytes: Vec<u8>,
) -> io::Result<Destination> {
    match family_of(&bytes) {
        libc::AF_INET | libc::AF_INET6 => {
            let to = internet_address(&bytes)?;
            let decided = rules.policy.as_ref().map(|policy| policy.decide(to, &rules.routes));
            match decided {
                Some(Ok(())) => Ok(Destination::plain(bytes)),
                Some(Err(refusal)) => {
                    watch::log(&refusal.to_string());
                    Err(error(libc::EACCES))
                }
                None => Err(error(libc::EACCES)),
            }
        }
        libc::AF_UNIX => match unix_path(&bytes) {
            // Names without a file are those of the cell's own network namespace.
            None if rules.own.is_none() => Ok(Destination::plain(bytes)),
            None => Err(error(libc::EPERM)),
            Some(path) => {
                let file = target.open_path(path)?;
                allow_socket_in(rules, &file).inspect_err(|_| {
                    let reason = "handlers connect to sockets where they may write";
                    watch::log(&format!("refused: connection to {path:?} ({reason})"));
                })?;
                let place = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
                Ok(Destination { address: unix_address(&place)?, _file: Some(file) })
            }
        },
        _ => Err(error(libc::EAFNOSUPPORT)),
    }
}

/// A cell may use sockets where it may write: in its scratch space, and where the operator says so.
/// Those elsewhere lead to services of the machine. Without a root of its own, it may use those in
/// its own directory only.
pub(super) fn allow_socket_in(rules: &Rules, opened: &OwnedFd) -> io::Result<()> {
    let may_write = match &rules.own {
        Some(own) => name_of(opened)?.starts_with(&own.sockets),
        // All that is shown for reading alone is mounted that way.
        None => !rustix::fs::fstatvfs(opened)?.f_flag.contains(StatVfsMountFlags::RDONLY),
    };
    if may_write { Ok(()) } else { Err(error(libc::EACCES)) }
}

pub(super) fn read_address(target: &Target, at: u64, length: u64) -> io::Result<Vec<u8>> {
    if !(2..=ADDRESS_BYTES_MAX).contains(&length) {
        return Err(error(libc::EINVAL));
    }
    target.read(at, length as usize)
}

pub(super) fn family_of(address: &[u8]) -> i32 {
    i32::from(u16::from_le_bytes([address[0], address[1]]))
}

pub(super) fn internet_address(bytes: &[u8]) -> io::Result<SocketAddr> {
    let short = || error(libc::EINVAL);
    let port =
        u16::from_be_bytes([*bytes.get(2).ok_or_else(short)?, *bytes.get(3).ok_or_else(short)?]);
    let address: IpAddr = if family_of(bytes) == libc::AF_INET {
        let four: [u8; 4] = bytes.get(4..8).and_then(|b| b.try_into().ok()).ok_or_else(short)?;
        Ipv4Addr::from(four).into()
    } else {
        let sixteen: [u8; 16] =
            bytes.get(8..24).and_then(|b| b.try_into().ok()).ok_or_else(short)?;
        Ipv6Addr::from(sixteen).into()
    };
    Ok(SocketAddr::new(address, port))
}

/// The file that the address of a UNIX socket names; `None` if it names none.
pub(super) fn unix_path(bytes: &[u8]) -> Option<&Path> {
    let name = bytes.get(2..)?.split(|byte| *byte == 0).next()?;
    (!name.is_empty()).then(|| Path::new(OsStr::from_bytes(name)))
}

pub(super) fn unix_address(path: &Path) -> io::Result<Vec<u8>> {
    let name = path.as_os_str().as_bytes();
    if name.len() >= UNIX_PATH_MAX {
        return Err(error(libc::ENAMETOOLONG));
    }
    let family = (libc::AF_UNIX as u16).to_le_bytes();
    Ok([&family[..], name, &[0]].concat())
}
