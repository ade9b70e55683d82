//! Reads `/proc`. Every answer may be out of date by the time it is used; a process that is gone,
//! or that belongs to another user, has none.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::Pid;
use windlass_core::launch::is_exhaustion;

/// Maximum to read of a process's environment.
const ENVIRON_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Fields of `/proc/<pid>/stat`, counted from 0 after the name.
const STAT_STATE: usize = 0;
const STAT_PARENT: usize = 1;
const STAT_SESSION: usize = 3;
const STAT_FLAGS: usize = 6;
const STAT_USER_TIME: usize = 11;
const STAT_SYSTEM_TIME: usize = 12;
const STAT_STARTED: usize = 19;
const STAT_ENVIRON_START: usize = 47;
const STAT_ENVIRON_END: usize = 48;
/// Bits of the flags, as in linux/sched.h.
const FLAG_EXITING: u32 = 0x4;
const FLAG_KERNEL_THREAD: u32 = 0x20_0000;
/// How often to look again at a process in the middle of an exec.
const EXEC_LOOKS_MAX: u32 = 20;
const EXEC_PAUSE: Duration = Duration::from_micros(100);

/// All processes that are visible here. An error means a lack of descriptors or memory, not an
/// empty list.
pub(crate) fn pids() -> io::Result<Vec<Pid>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = fs::read_dir("/proc")?;
    Ok(entries.flatten().filter_map(number).filter_map(Pid::from_raw).collect())
}

/// The processes with this word among their arguments.
pub(crate) fn with_argument(word: &str) -> Vec<Pid> {
    let has_word = |pid: &Pid| {
        let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
    };
    pids().unwrap_or_default().into_iter().filter(has_word).collect()
}

/// The most recent process id. As long as it stays the same, no process was started.
pub(crate) fn newest() -> Option<u32> {
    let loads = fs::read_to_string("/proc/loadavg").ok()?;
    loads.split_ascii_whitespace().nth(4)?.parse().ok()
}

/// A process as the table shows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) pid: Pid,
    /// Absent if the parent is outside our pid namespace.
    pub(crate) parent: Option<Pid>,
    /// A number, because it is 0 if the session's leader is outside our pid namespace.
    pub(crate) session: i32,
    /// Dead, but not reaped.
    pub(crate) dead: bool,
    /// Dead or dying: it no longer runs, and shows neither its environment nor its directory.
    pub(crate) leaving: bool,
    kernel_thread: bool,
    /// In clock ticks since the machine booted.
    started: u64,
    /// Where its environment is in memory. Every exec moves it, and in the middle of an exec its
    /// end is 0.
    environ: (u64, u64),
}

impl Entry {
    /// Distinguishes it from an older process with the same id.
    pub(crate) fn identity(&self) -> (Pid, u64) {
        (self.pid, self.started)
    }
}

/// Whether a process is one of those looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    Yes,
    No,
    /// It is in the middle of an exec, or could not be read: look again.
    Unclear,
    /// It is dying and shows nothing any more, but still exists.
    Leaving,
}

/// The results for many processes.
#[derive(Debug, Default)]
pub(crate) struct Matches {
    pub(crate) yes: Vec<Pid>,
    pub(crate) unclear: usize,
    pub(crate) leaving: usize,
}

/// Checks these processes, and again those in the middle of an exec: an exec is short, unless the
/// machine is busy.
pub(crate) fn match_each(mut pids: Vec<Pid>, mut question: impl FnMut(&Entry) -> Match) -> Matches {
    let mut matches = Matches::default();
    for look in 0..EXEC_LOOKS_MAX {
        if look > 0 {
            std::thread::sleep(EXEC_PAUSE);
        }
        pids.retain(|pid| {
            let found = match look_at(*pid) {
                Ok(Some(entry)) => question(&entry),
                Ok(None) => Match::No,
                Err(_) => Match::Unclear,
            };
            match found {
                Match::Yes => matches.yes.push(*pid),
                Match::Leaving => matches.leaving += 1,
                Match::No | Match::Unclear => {}
            }
            found == Match::Unclear
        });
        if pids.is_empty() {
            break;
        }
    }
    matches.unclear = pids.len();
    matches
}

/// All processes that are visible here.
pub(crate) fn table() -> Vec<Entry> {
    pids().unwrap_or_default().into_iter().filter_map(entry).collect()
}

/// Whether the initial environment of the process has such a variable (`NAME=value`).
///
/// `entry` was read before anything else about the process. If the process is still the same
/// program afterwards, the results in between are valid as well.
pub(crate) fn environ_has(entry: &Entry, wanted: impl Fn(&[u8]) -> bool) -> Match {
    if entry.kernel_thread {
        return Match::No;
    }
    let environ = match environ(entry.pid) {
        Ok(environ) => environ,
        Err(reason) if is_exhaustion(&reason) => return Match::Unclear,
        // It is gone, or another user's.
        Err(_) => return Match::No,
    };
    if environ.split(|byte| *byte == 0).any(wanted) {
        return Match::Yes;
    }
    match look_at(entry.pid) {
        Ok(None) => Match::No,
        Ok(Some(after)) if after.leaving => Match::Leaving,
        Ok(Some(after)) => {
            let was_there = !environ.is_empty() || after.environ.1 != 0;
            let is_same = after.environ == entry.environ && was_there;
            if is_same { Match::No } else { Match::Unclear }
        }
        Err(_) => Match::Unclear,
    }
}

/// All processes whose environment has such a variable. An error means that the look was
/// incomplete: descriptors or memory were lacking, or a process did not complete its exec.
pub(crate) fn marked(wanted: impl Fn(&[u8]) -> bool) -> io::Result<Vec<Pid>> {
    let matches = match_each(pids()?, |entry| environ_has(entry, &wanted));
    if matches.yes.is_empty() && matches.unclear > 0 {
        return Err(io::Error::other("not every process shows its environment now"));
    }
    Ok(matches.yes)
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
    Stat::read(pid).ok()?.entry(pid)
}

/// `None` if it is gone. An error means a lack of descriptors or memory.
fn look_at(pid: Pid) -> io::Result<Option<Entry>> {
    match Stat::read(pid) {
        Ok(stat) => Ok(stat.entry(pid)),
        Err(reason) if is_exhaustion(&reason) => Err(reason),
        Err(_) => Ok(None),
    }
}

/// CPU time that the process has used so far, in whole seconds.
pub(crate) fn cpu_seconds(pid: Pid) -> Option<u64> {
    let stat = Stat::read(pid).ok()?;
    let ticks: u64 = stat.number::<u64>(STAT_USER_TIME)? + stat.number::<u64>(STAT_SYSTEM_TIME)?;
    ticks.checked_div(rustix::param::clock_ticks_per_second())
}

/// `/proc/<pid>/stat` after the name of the program, which may contain anything.
struct Stat(String);

impl Stat {
    fn read(pid: Pid) -> io::Result<Stat> {
        let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        let behind_name = memchr::memrchr(b')', &stat).map_or(0, |name_end| name_end + 1);
        Ok(Stat(String::from_utf8_lossy(&stat[behind_name..]).into_owned()))
    }

    fn entry(&self, pid: Pid) -> Option<Entry> {
        let dead = matches!(self.field(STAT_STATE)?, "Z" | "X");
        let flags: u32 = self.number(STAT_FLAGS)?;
        Some(Entry {
            pid,
            parent: Pid::from_raw(self.number(STAT_PARENT)?),
            session: self.number(STAT_SESSION)?,
            dead,
            leaving: dead || flags & FLAG_EXITING != 0,
            kernel_thread: flags & FLAG_KERNEL_THREAD != 0,
            started: self.number(STAT_STARTED)?,
            environ: (self.number(STAT_ENVIRON_START)?, self.number(STAT_ENVIRON_END)?),
        })
    }

    fn field(&self, field: usize) -> Option<&str> {
        self.0.split_ascii_whitespace().nth(field)
    }

    fn number<T: FromStr>(&self, field: usize) -> Option<T> {
        self.field(field)?.parse().ok()
    }
}

/// The child of a process that has one.
pub(crate) fn only_child(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
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
        let has = |name: &[u8]| environ_has(&entry, |variable| variable.starts_with(name));
        assert_eq!((has(b"PATH="), has(b"NO_SUCH_VARIABLE=")), (Match::Yes, Match::No));
    }
}
