//! Facts about this machine and its processes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::time::{ClockId, clock_gettime};
use windlass_core::launch::BootTime;

/// The clock that all processes of a machine share, including the fence.
pub(super) fn boot_time() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    BootTime(Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default()))
}

/// Identifies this boot of the kernel and the process id namespace: only a process with the same
/// value can tell whether one of ours is alive. Empty if unknown.
pub(super) fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let space = fs::read_link("/proc/self/ns/pid");
    match (boot, space) {
        (Ok(boot), Ok(space)) => format!("{} {}", boot.trim(), space.display()),
        _ => String::new(),
    }
}

/// Whether the process is alive. A zombie is dead.
pub(super) fn is_alive(process: i64) -> bool {
    is_alive_below(Path::new("/proc"), process)
}

fn is_alive_below(shown: &Path, process: i64) -> bool {
    let Some(id) = i32::try_from(process).ok().filter(|id| *id > 0).and_then(Pid::from_raw) else {
        return false;
    };
    // Other users' processes may be hidden in /proc; a signal that we may not send finds them.
    if test_kill_process(id) == Err(Errno::SRCH) {
        return false;
    }
    let stat = fs::read_to_string(shown.join(format!("{process}/stat"))).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_is_dead() {
        assert!(is_alive(i64::from(std::process::id())));
        let mut child = std::process::Command::new("/bin/cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = i64::from(child.id());
        assert!(is_alive(id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(id));
        assert!(!is_alive(-5));
    }

    /// Other users' processes are hidden where /proc is mounted with `hidepid`.
    #[test]
    fn a_process_that_is_not_shown_lives_until_it_is_gone() {
        let nothing = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("/bin/cat");
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = i64::from(child.id());
        assert!(is_alive_below(nothing.path(), id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive_below(nothing.path(), id));
    }

    #[test]
    fn a_host_has_a_name_that_stays() {
        assert!(!host().is_empty());
        assert_eq!(host(), host());
        assert!(boot_time() <= boot_time());
    }
}
