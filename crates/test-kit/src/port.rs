//! Loopback ports for programs that need to know theirs before they start.
//!
//! Ports are taken in blocks. A process reserves a block with a socket of the block's name, so that
//! two processes never choose the same port, and the kernel frees the block when its process ends
//! in any way. All blocks are below the range for outgoing connections.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

const PORTS: Range<u16> = 10_000..32_000;
const BLOCK: u16 = 100;

struct Blocks {
    /// Never read; they keep the names in use.
    names: Vec<UnixDatagram>,
    left: Range<u16>,
}

/// A free port that no other test gets while this process lives.
pub fn free_port() -> u16 {
    static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks { names: Vec::new(), left: 0..0 });
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let free = blocks.left.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        if let Some(port) = free {
            return port;
        }
        let (name, block) = take_block();
        blocks.names.push(name);
        blocks.left = block;
    }
}

/// A free block of ports.
fn take_block() -> (UnixDatagram, Range<u16>) {
    let count = u16::try_from(PORTS.len()).expect("ports are 16 bits") / BLOCK;
    let first = fastrand::u16(..count);
    let mut blocks = (0..count).map(|step| PORTS.start + (first + step) % count * BLOCK);
    let taken = blocks.find_map(|start| Some((hold(start)?, start..start + BLOCK)));
    taken.expect("a block of ports that no other test has")
}

fn hold(start: u16) -> Option<UnixDatagram> {
    let name = SocketAddr::from_abstract_name(format!("windlass-test-ports-{start}"));
    UnixDatagram::bind_addr(&name.expect("a short name")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_no_block_is_taken_twice() {
        let ports: std::collections::HashSet<u16> = (0..250).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 250);
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        let (name, block) = take_block();
        assert!(hold(block.start).is_none());
        drop(name);
        assert!(hold(block.start).is_some());
    }
}
