//! Adds up the memory of all processes of a cell, where there are no control groups.
//!
//! What is added up is memory that belongs to processes. All other memory that a handler can get
//! is bounded elsewhere: files by the size of the scratch space, and memory that is shared without
//! a file is refused (`filter`). Otherwise it could be kept where no process shows it.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// How fast processes may fill memory, at most: a look comes before the limit is passed by much.
const FILL_BYTES_PER_MS: u64 = 8 << 20;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
const KIB: u64 = 1024;

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Look again after this pause.
    Within(Duration),
    Over,
}

/// Looks at these processes, which may have at most so many bytes together.
pub(super) fn look(processes: &[Pid], bytes_max: u64) -> Look {
    let quick: u64 = processes.iter().filter_map(|pid| status_bytes(*pid)).sum();
    // This counts pages twice that two processes share since a fork.
    let used = if quick > bytes_max { exact(processes) } else { quick };
    if used > bytes_max { Look::Over } else { Look::Within(pause(bytes_max - used)) }
}

/// How long it takes at least to fill what is left.
fn pause(left: u64) -> Duration {
    Duration::from_millis(left / FILL_BYTES_PER_MS).clamp(PAUSE_MIN, PAUSE_MAX)
}

fn exact(processes: &[Pid]) -> u64 {
    let of = |pid: &Pid| rollup_bytes(*pid).or_else(|| status_bytes(*pid));
    processes.iter().filter_map(of).sum()
}

/// Own pages in memory and in swap space.
fn status_bytes(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    sum_of(&text, &["RssAnon:", "VmSwap:"])
}

/// The same, with pages of several processes divided between them.
fn rollup_bytes(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero())).ok()?;
    sum_of(&text, &["Pss_Anon:", "SwapPss:"])
}

/// The sum of these lines, which are in KiB; `None` if there is none of them.
fn sum_of(text: &str, names: &[&str]) -> Option<u64> {
    let value = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let values: Vec<u64> = text.lines().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum::<u64>().saturating_mul(KIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_pages_are_read_in_memory_and_in_swap_space() {
        let status = "Name:\tsh\nRssAnon:\t     100 kB\nRssFile:\t 900 kB\nVmSwap:\t 28 kB\n";
        assert_eq!(sum_of(status, &["RssAnon:", "VmSwap:"]), Some(128 * KIB));
        assert_eq!(sum_of("Name:\tkthreadd\n", &["RssAnon:"]), None);
    }

    #[test]
    fn the_next_look_comes_before_the_rest_can_be_filled() {
        assert_eq!(pause(0), PAUSE_MIN);
        assert_eq!(pause(800 << 20), Duration::from_millis(100));
        assert_eq!(pause(u64::MAX), PAUSE_MAX);
    }

    #[test]
    fn this_process_has_memory_and_is_over_a_limit_of_nothing() {
        let us = [rustix::process::getpid()];
        assert!(rollup_bytes(us[0]).is_some_and(|bytes| bytes > 0));
        assert_eq!(look(&us, 0), Look::Over);
        assert!(matches!(look(&us, 1 << 40), Look::Within(_)));
    }
}
