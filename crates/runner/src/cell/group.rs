//! The control group of a cell, as the outer process uses it: init is put into it before anything
//! of the handler runs, and the kernel tells when its memory was used up.

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
    members: Vec<File>,
    /// Counts the processes that were ended for lack of memory.
    events: File,
    /// Becomes readable when memory is used up. In version 2 the kernel ends the whole group
    /// itself.
    used_up: Option<OwnedFd>,
}

impl OpenGroup {
    pub(super) fn open(group: &CellGroup) -> io::Result<OpenGroup> {
        let to_write = |path: PathBuf| moved(&OpenOptions::new().write(true).open(path)?);
        let members = group.dirs.iter().map(|dir| to_write(dir.join("cgroup.procs")));
        let memory = group.dirs.first().ok_or(io::ErrorKind::InvalidInput)?;
        let file = match group.version {
            GroupVersion::One => "memory.oom_control",
            GroupVersion::Two => "memory.events",
        };
        let events = moved(&File::open(memory.join(file))?)?;
        let used_up = match group.version {
            GroupVersion::One => Some(tell_when_used_up(memory, &events)?),
            GroupVersion::Two => None,
        };
        Ok(OpenGroup { members: members.collect::<io::Result<_>>()?, events, used_up })
    }

    /// Puts a process into the group; its later children are in it from their start.
    pub(super) fn add(&mut self, process: Pid) -> io::Result<()> {
        for mut members in self.members.drain(..) {
            members.write_all(process.as_raw_nonzero().to_string().as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn used_up(&self) -> Option<BorrowedFd<'_>> {
        self.used_up.as_ref().map(AsFd::as_fd)
    }

    /// Whether a process was ended because the memory of the group was used up.
    pub(super) fn was_used_up(&self) -> bool {
        let mut text = [0; EVENTS_BYTES_MAX];
        let read = self.events.read_at(&mut text, 0).ok();
        kills(&String::from_utf8_lossy(&text[..read.unwrap_or_default()])) > 0
    }
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
