//! What `/proc` says about processes. Every answer may be out of date when it arrives; a process
//! that is gone, or that belongs to somebody else, simply has no answer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use rustix::process::Pid;
use windlass_core::launch::is_exhaustion;

/// Most that is read of a process's environment.
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Fields of `/proc/<pid>/stat`, counted from 0 behind the name.
const STAT_STATE: usize = 0;
const STAT_PARENT: usize = 1;
const STAT_SESSION: usize = 3;
const STAT_USER_TIME: usize = 11;
const STAT_SYSTEM_TIME: usize = 12;

/// All processes of the machine that can be seen from here. An error is a lack of descriptors or
/// memory, and not an answer.
pub(crate) fn pids() -> io::Result<Vec<Pid>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(number).filter_map(Pid::from_raw).collect())
}

/// The number that was given to a new process last. As long as it stays the same, none was started.
pub(crate) fn newest() -> Option<u32> {
    let loads = fs::read_to_string("/proc/loadavg").ok()?;
    loads.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// A process as the table shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) pid: Pid,
    /// Absent for one whose parent is outside of our pid namespace.
    pub(crate) parent: Option<Pid>,
    /// A number, because it is 0 when the session's leader is outside of our pid namespace.
    pub(crate) session: i32,
    /// Dead, but not reaped.
    pub(crate) dead: bool,
}

/// All processes that can be seen from here.
pub(crate) fn table() -> Vec<Entry> {
    pids().unwrap_or_default().into_iter().filter_map(entry).collect()
}

/// Whether the environment with which the process was started has such a variable (`NAME=value`).
pub(crate) fn environ_has(pid: Pid, wanted: impl Fn(&[u8]) -> bool) -> bool {
    environ(pid).is_ok_and(|environ| environ.split(|byte| *byte == 0).any(wanted))
}

/// All processes whose environment has such a variable. An error is a lack of descriptors or
/// memory, and not an answer.
pub(crate) fn marked(wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Pid>> {
    let mut marked = Vec::new();
    for pid in pids()? {
        match environ(pid) {
            Ok(environ) if environ.split(|byte| *byte == 0).any(&wanted) => marked.push(pid),
            Err(reason) if is_exhaustion(&reason) => return Err(reason),
            // It has none, is gone, or is somebody else's.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(marked)
}

fn environ(pid: Pid) -> io::Result<Vec<u8>> {
    let mut environ = Vec::new();
    let path = format!("/proc/{}/environ", pid.as_raw_nonzero());
    File::open(path)?.take(ENVIRON_BYTES_MAX).read_to_end(&mut environ)?;
    Ok(environ)
}

/// Whether the process works in this directory or below it.
pub(crate) fn works_below(pid: Pid, dir: &Path) -> bool {
    fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero()))
        .is_ok_and(|cwd| cwd.starts_with(dir))
}

pub(crate) fn entry(pid: Pid) -> Option<Entry> {
    let stat = Stat::read(pid)?;
    Some(Entry {
        pid,
        parent: Pid::from_raw(stat.number(STAT_PARENT)?),
        session: stat.number(STAT_SESSION)?,
        dead: matches!(stat.field(STAT_STATE)?, "Z" | "X"),
    })
}

/// Processor time that the process has used so far, in whole seconds.
pub(crate) fn cpu_seconds(pid: Pid) -> Option<u64> {
    let stat = Stat::read(pid)?;
    let ticks: u64 = stat.number::<u64>(STAT_USER_TIME)? + stat.number::<u64>(STAT_SYSTEM_TIME)?;
    ticks.checked_div(rustix::param::clock_ticks_per_second())
}

/// `/proc/<pid>/stat` behind the name of the program, which may contain anything.
struct Stat(String);

impl Stat {
    fn read(pid: Pid) -> Option<Stat> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        let name_end = memchr::memrchr(b')', &stat)?;
        Some(Stat(str::from_utf8(&stat[name_end + 1..]).ok()?.to_owned()))
    }

    fn field(&self, field: usize) -> Option<&str> {
        self.0.split_ascii_whitespace().nth(field)
    }

    fn number<T: FromStr>(&self, field: usize) -> Option<T> {
        self.field(field)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_with_its_parent_and_its_directory() {
        let own = rustix::process::getpid();
        assert!(pids().unwrap().contains(&own));
        let entry = table().into_iter().find(|entry| entry.pid == own).unwrap();
        assert_eq!(entry.parent, rustix::process::getppid());
        assert!(!entry.dead && cpu_seconds(own).is_some());
        assert!(works_below(own, &std::env::current_dir().unwrap()));
        assert!(!works_below(own, Path::new("/no such directory")));
        assert!(!environ_has(own, |variable| variable.starts_with(b"NO_SUCH_VARIABLE=")));
    }
}
