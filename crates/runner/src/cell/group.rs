//! The control group of a cell. The outer process joins it before it forks init: what it carries
//! out for the handler is charged to the cell. The kernel tells when the memory of the
//! group was used up.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::CONTROL;

/// Longest file of events.
const EVENTS_BYTES_MAX: usize = 1024;
/// In a list of members: the process that writes it.
const THIS_PROCESS: &[u8] = b"0";

/// The directories of the group, one for each hierarchy; memory first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CellGroup {
    pub(crate) version: GroupVersion,
    pub(crate) dirs: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum GroupVersion {
    One,
    Two,
}

/// An opened group. It stays usable when this process has given up its rights.
pub(super) struct OpenGroup {
    /// Where init is put: in version 1, tasks have a hierarchy of their own, and the outer process
    /// is not one of the handler's.
    of_init: Vec<File>,
    /// Counts the processes that were ended for lack of memory.
    events: File,
    /// Becomes readable when memory is used up. In version 2 the kernel ends the whole group
    /// itself, with the outer process, and the daemon reads why.
    used_up: Option<OwnedFd>,
}

impl GroupVersion {
    /// The file that counts the processes which were ended for lack of memory.
    fn events_file(self) -> &'static str {
        match self {
            GroupVersion::One => "memory.oom_control",
            GroupVersion::Two => "memory.events",
        }
    }
}

impl CellGroup {
    /// Whether a process was ended because the memory of the group was used up. The outer process
    /// tells that itself, unless it was the one.
    pub(crate) fn was_used_up(&self) -> bool {
        let Some(memory) = self.dirs.first() else { return false };
        let events = File::open(memory.join(self.version.events_file()));
        events.is_ok_and(|events| has_kills(&events))
    }
}

impl OpenGroup {
    /// Opens the group, and puts the memory of this process and of its later children into it.
    pub(super) fn join(group: &CellGroup) -> io::Result<OpenGroup> {
        let members =
            |dir: &PathBuf| moved(&OpenOptions::new().write(true).open(dir.join("cgroup.procs"))?);
        let (memory, others) = group.dirs.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let of_init = others.iter().map(members).collect::<io::Result<_>>()?;
        let events = moved(&File::open(memory.join(group.version.events_file()))?)?;
        let used_up = match group.version {
            GroupVersion::One => Some(tell_when_used_up(memory, &events)?),
            GroupVersion::Two => None,
        };
        members(memory)?.write_all(THIS_PROCESS)?;
        Ok(OpenGroup { of_init, events, used_up })
    }

    /// Puts init into the other hierarchies; its later children are in them from their start.
    pub(super) fn add_init(&mut self, init: Pid) -> io::Result<()> {
        for mut members in self.of_init.drain(..) {
            members.write_all(init.as_raw_nonzero().to_string().as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn used_up(&self) -> Option<BorrowedFd<'_>> {
        self.used_up.as_ref().map(AsFd::as_fd)
    }

    /// Whether a process was ended because the memory of the group was used up.
    pub(super) fn was_used_up(&self) -> bool {
        has_kills(&self.events)
    }
}

fn has_kills(events: &File) -> bool {
    let mut text = [0; EVENTS_BYTES_MAX];
    let read = events.read_at(&mut text, 0).ok();
    kills(&String::from_utf8_lossy(&text[..read.unwrap_or_default()])) > 0
}

/// The number of processes that were ended, as both versions write it.
fn kills(events: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    events.lines().find_map(count).unwrap_or_default()
}

/// A copy with a number that the handler's process does not have.
fn moved(file: &impl AsFd) -> io::Result<File> {
    Ok(fcntl_dupfd_cloexec(file, CONTROL + 1)?.into())
}

fn tell_when_used_up(memory: &Path, events: &File) -> io::Result<OwnedFd> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let told = OwnedFd::from(moved(&eventfd(0, flags)?)?);
    let order = format!("{} {}", told.as_raw_fd(), events.as_raw_fd());
    let mut control = OpenOptions::new().write(true).open(memory.join("cgroup.event_control"))?;
    control.write_all(order.as_bytes())?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_processes_are_read_from_both_versions() {
        assert_eq!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(kills("low 0\nhigh 0\nmax 5\noom 1\noom_kill 3\noom_group_kill 1\n"), 3);
        assert_eq!(kills("low 0\nmax 5\n"), 0);
    }
}
