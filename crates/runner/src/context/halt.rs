//! Ends a batch before its next job: a file of one byte that the context reads between jobs.
//!
//! ```text
//! Windlass  sets the byte · · waits · · reads the channel: job k has no `end`
//! context        end k-1 ─► job k ─► end k ─► looks ─► halted k+1
//! ```
//! A context writes an `end`, then reads the clock, and reads the byte if its last read is a
//! millisecond ago or more. So if an `end` is not in the channel after the wait, the read that
//! follows it sees the byte: of all jobs without an `end`, at most the first has begun.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

/// After this long every context has read the byte, or will read it before it begins another job.
/// Contexts read it once in half this time.
pub(super) const LOOK_WAIT: Duration = Duration::from_millis(2);

const GO_ON: &[u8] = b"0";
const HALT: &[u8] = b"1";

pub(super) struct Halt {
    cell: OwnedFd,
    is_set: bool,
}

impl Halt {
    /// Also the end that the context reads.
    pub(super) fn new() -> io::Result<(Halt, OwnedFd)> {
        let cell =
            rustix::fs::memfd_create("halt", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::io::pwrite(&cell, GO_ON, 0)?;
        // Handlers can neither write to it nor store anything in it.
        rustix::fs::fchmod(&cell, Mode::RUSR)?;
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&cell, seals)?;
        let path = format!("/proc/self/fd/{}", cell.as_raw_fd());
        let theirs = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((Halt { cell, is_set: false }, theirs))
    }

    /// Ends the running batch before its next job. False if that was already set.
    pub(super) fn set(&mut self) -> bool {
        let is_new = !self.is_set;
        self.write(true);
        is_new
    }

    /// Lets the next batch run to its end. Call it only while the context is idle.
    pub(super) fn clear(&mut self) {
        self.write(false);
    }

    fn write(&mut self, is_set: bool) {
        if self.is_set != is_set {
            let written = rustix::io::pwrite(&self.cell, if is_set { HALT } else { GO_ON }, 0);
            debug_assert!(written.is_ok(), "{written:?}");
            self.is_set = is_set;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_sees_each_change_and_can_make_none() {
        let (mut halt, theirs) = Halt::new().unwrap();
        let seen = || {
            let mut byte = [0; 2];
            let read = rustix::io::pread(&theirs, &mut byte, 0).unwrap();
            byte[..read].to_vec()
        };
        assert_eq!(seen(), b"0");
        assert!(halt.set() && !halt.set());
        assert_eq!(seen(), b"1");
        halt.clear();
        assert_eq!(seen(), b"0");
        assert!(rustix::io::pwrite(&theirs, b"1", 0).is_err());
        assert!(rustix::io::pwrite(&halt.cell, b"1", 1).is_err(), "it cannot grow");
    }
}
