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
/// The line about page tables, which no two processes share.
const TABLES: &str = "VmPTE:";

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
    processes.iter().filter_map(|pid| rollup_bytes(*pid).or_else(|| status_bytes(*pid))).sum()
}

/// Own pages in memory and in swap space, and page tables: a process that reads what it has never
/// written to gets those, and no pages.
fn status_bytes(pid: Pid) -> Option<u64> {
    in_status(&file_of(pid, "status")?)
}

/// The same, with pages of several processes divided between them.
fn rollup_bytes(pid: Pid) -> Option<u64> {
    in_rollup(&file_of(pid, "smaps_rollup")?, &file_of(pid, "status")?)
}

fn in_status(status: &str) -> Option<u64> {
    sum_of(status, &["RssAnon:", "VmSwap:", TABLES])
}

fn in_rollup(rollup: &str, status: &str) -> Option<u64> {
    Some(sum_of(rollup, &["Pss_Anon:", "SwapPss:"])? + sum_of(status, &[TABLES])?)
}

fn file_of(pid: Pid, name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{}/{name}", pid.as_raw_nonzero())).ok()
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
    fn pages_swap_space_and_page_tables_count() {
        let status = "Name:\tsh\nRssAnon:\t     100 kB\nRssFile:\t 900 kB\n\
                      VmPTE:\t 4 kB\nVmSwap:\t 28 kB\n";
        let rollup = "Pss: 500 kB\nPss_Anon: 50 kB\nSwap: 28 kB\nSwapPss: 14 kB\n";
        assert_eq!(in_status(status), Some(132 * KIB));
        assert_eq!(in_rollup(rollup, status), Some(68 * KIB));
        assert_eq!(in_status("Name:\tkthreadd\n"), None);
        assert_eq!(in_rollup("", status), None);
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
