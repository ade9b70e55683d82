//! Where the figures were taken: the machine, its disk, and what processes used of it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

/// Ticks of processor time per second, which Linux shows to programs on every machine.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) memory_gib: f64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
}

impl Machine {
    /// This machine, with the file system that has `dir`.
    pub(crate) fn look(dir: &Path) -> anyhow::Result<Machine> {
        let cpuinfo = read("/proc/cpuinfo")?;
        let memory_kib = number_after(&read("/proc/meminfo")?, "MemTotal:")?;
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            cpu: text_after(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            memory_gib: memory_kib as f64 / (1024.0 * 1024.0),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            file_system: file_system(&read("/proc/self/mounts")?, dir),
        })
    }

    pub(crate) fn in_memory(&self) -> bool {
        ["tmpfs", "ramfs"].contains(&self.file_system.as_str())
    }
}

/// What a process used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// The most memory that it ever had.
    pub(crate) peak_bytes: u64,
}

/// `process` is a number, or `self`.
pub(crate) fn usage(process: &str) -> anyhow::Result<Usage> {
    let stat = read(&format!("/proc/{process}/stat"))?;
    let ticks = cpu_ticks(&stat).context("the processor time of a process is not shown")?;
    let status = read(&format!("/proc/{process}/status"))?;
    Ok(Usage {
        cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
        peak_bytes: number_after(&status, "VmHWM:")? * 1024,
    })
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))
}

/// User and system time; the name of the program, in brackets, may contain anything.
fn cpu_ticks(stat: &str) -> Option<u64> {
    const USER_AFTER_NAME: usize = 11;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(USER_AFTER_NAME);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

fn text_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim_start_matches([':', ' ', '\t']).trim())
}

fn number_after(text: &str, name: &str) -> anyhow::Result<u64> {
    let value = text_after(text, name).and_then(|rest| rest.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no number behind {name}"))
}

/// The kind of the file system that is mounted nearest above `dir`; of two on one place, the later
/// one hides the other.
fn file_system(mounts: &str, dir: &Path) -> String {
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (Path::new(fields.next()?), fields.next()?);
        dir.starts_with(place).then(|| (place.components().count(), kind))
    });
    above.max_by_key(|(depth, _)| *depth).map_or("unknown", |(_, kind)| kind).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_above_a_directory_is_its_file_system() {
        let mounts = "a / ext4 rw 0 0\nb /x tmpfs rw 0 0\nc /x/y xfs rw 0 0\nd / btrfs rw 0 0\n";
        for (dir, kind) in [("/z", "btrfs"), ("/x/a", "tmpfs"), ("/x/y/z", "xfs"), ("/xy", "btrfs")]
        {
            assert_eq!(file_system(mounts, Path::new(dir)), kind, "{dir}");
        }
    }

    #[test]
    fn processor_time_is_found_behind_any_program_name() {
        let stat = "7 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(cpu_ticks(stat), Some(300));
        assert_eq!(cpu_ticks("nothing"), None);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage("self").unwrap().peak_bytes > 0);
    }
}
