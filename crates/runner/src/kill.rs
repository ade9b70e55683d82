//! Kills processes by their mark, with all their descendants, whatever they start meanwhile.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::proc::{self, Entry};
use crate::tree;

/// Rounds of looking for processes that an earlier daemon left.
const ROUNDS_MAX: u32 = 100;
const ROUND_PAUSE: Duration = Duration::from_millis(1);
/// Rounds of stopping processes before they are killed.
const STOP_ROUNDS_MAX: u32 = 20;
/// Maximum number of descendants collected in one round; the next round finds the rest.
const DESCENDANTS_MAX: usize = 100_000;

/// Kills the processes that a runner on this scratch directory left when it was killed.
pub(crate) fn kill_leftovers(dir_prefix: &Path) {
    let start = tree::marker(dir_prefix);
    let carries = |variable: &[u8]| variable.starts_with(start.as_bytes());
    for round in 0..ROUNDS_MAX {
        match kill_marked(carries, |_| {}) {
            Ok(0) => return,
            Ok(killed) if round == 0 => {
                tracing::warn!(processes = killed, "killed what an earlier daemon left running");
            }
            // What cannot be seen now may be visible in the next round.
            Ok(_) | Err(_) => {}
        }
        std::thread::sleep(ROUND_PAUSE);
    }
}

/// Kills everything that has such a variable in its environment, and all descendants. Returns the
/// number of processes; those just being started may have been missed. An error means that the look
/// was incomplete, and says nothing about what exists.
///
/// `tell` gets what was found before any of it is touched. What is started after that is left to
/// the next call, so that nothing dies unreported.
pub(crate) fn kill_marked(
    carries: impl Fn(&[u8]) -> bool,
    tell: impl FnOnce(&[Pid]),
) -> io::Result<usize> {
    let first = proc::marked(&carries)?;
    if first.is_empty() {
        return Ok(0);
    }
    tell(&first);
    let found = stop_all(|| {
        let mut marked = proc::marked(&carries).unwrap_or_else(|_| first.clone());
        marked.retain(|pid| first.contains(pid));
        with_descendants(marked, &proc::table())
    });
    signal_all(&found, Signal::KILL);
    Ok(found.len())
}

/// All descendants of this process, without itself.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    with_descendants(vec![root], &proc::table()).split_off(1)
}

/// These processes, then all their descendants.
pub(crate) fn with_descendants(mut found: Vec<Pid>, table: &[Entry]) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in table {
        if let Some(parent) = entry.parent {
            children.entry(parent).or_default().push(entry.pid);
        }
    }
    let mut seen: HashSet<Pid> = found.iter().copied().collect();
    let mut next = 0;
    while next < found.len() && found.len() < DESCENDANTS_MAX {
        let more = children.get(&found[next]).into_iter().flatten();
        found.extend(more.filter(|pid| seen.insert(**pid)));
        next += 1;
    }
    found
}

/// Stops what is found until nothing new is found. Stopped processes start nothing more, so this
/// ends once it is faster than they fork; the rounds are bounded anyway.
pub(crate) fn stop_all(find: impl Fn() -> Vec<Pid>) -> Vec<Pid> {
    let mut stopped = HashSet::new();
    for _ in 0..STOP_ROUNDS_MAX {
        let mut new = find();
        new.retain(|pid| stopped.insert(*pid));
        if new.is_empty() {
            break;
        }
        signal_all(&new, Signal::STOP);
    }
    stopped.into_iter().collect()
}

pub(crate) fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        // It may have died meanwhile, which is fine.
        let _ = rustix::process::kill_process(*pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Often enough to compensate for a look that misses a process now and then.
    const LOOKS: u32 = 30;

    #[test]
    fn a_process_in_the_middle_of_an_exec_is_found_by_its_mark_at_the_first_look() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("loop");
        std::fs::write(&program, "#!/bin/sh\nexec \"$0\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        for look in 0..LOOKS {
            let mark = format!("WINDLASS_TEST={}-{look}", std::process::id());
            let (name, value) = mark.split_once('=').unwrap();
            let mut child = Command::new(&program).env(name, value).spawn().unwrap();
            let found = kill_marked(|variable| variable == mark.as_bytes(), |_| {}).unwrap();
            let _ = child.kill();
            child.wait().unwrap();
            assert_eq!(found, 1, "look {look}");
        }
    }
}
