//! The machine, its disk, and the resources that processes used.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// Clock ticks per second, as Linux shows them to programs on every machine.
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
    /// This machine, with the file system of `dir`.
    pub(crate) fn inspect(dir: &Path) -> anyhow::Result<Machine> {
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

/// What a process has used so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    /// Its current memory.
    pub(crate) resident_bytes: u64,
    /// Its peak memory.
    pub(crate) peak_bytes: u64,
}

/// `process` is a number, or `self`.
pub(crate) fn usage(process: &str) -> anyhow::Result<Usage> {
    let status = read(&format!("/proc/{process}/status"))?;
    let bytes_after = |name| Ok::<_, anyhow::Error>(number_after(&status, name)? * 1024);
    Ok(Usage {
        cpu: cpu(process)?,
        resident_bytes: bytes_after("VmRSS:")?,
        peak_bytes: bytes_after("VmHWM:")?,
    })
}

/// The limit of open files for this process and its children, raised as far as possible.
pub(crate) fn files_max() -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .context("the number of open files cannot be raised")?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// CPU time of a process so far; also of one that has exited and was not reaped.
pub(crate) fn cpu(process: &str) -> anyhow::Result<Duration> {
    let stat = Stat::parse(&read(&format!("/proc/{process}/stat"))?);
    Ok(time_of(stat.context("the processor time of a process is not shown")?.own_ticks))
}

/// All descendants of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    /// Of living ones and of reaped ones.
    pub(crate) cpu: Duration,
    pub(crate) alive: usize,
}

/// `process` is a number, or `self`.
pub(crate) fn family(process: &str) -> anyhow::Result<Family> {
    let first = Stat::parse(&read(&format!("/proc/{process}/stat"))?);
    let first = first.context("/proc shows a process in an unknown form")?;
    let mut strangers = processes();
    let mut known = HashSet::from([first.process]);
    let (mut ticks, mut alive) = (first.waited_ticks, 0);
    loop {
        let (found, others): (Vec<_>, Vec<_>) =
            strangers.into_iter().partition(|stat| known.contains(&stat.parent));
        if found.is_empty() {
            return Ok(Family { cpu: time_of(ticks), alive });
        }
        known.extend(found.iter().map(|stat| stat.process));
        ticks += found.iter().map(|stat| stat.own_ticks + stat.waited_ticks).sum::<u64>();
        alive += found.iter().filter(|stat| !stat.is_dead).count();
        strangers = others;
    }
}

/// All visible processes; some may end meanwhile.
fn processes() -> Vec<Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|text| Stat::parse(&text)).collect()
}

fn time_of(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// One process, as `/proc` shows it.
#[derive(Debug, PartialEq)]
struct Stat {
    process: u32,
    parent: u32,
    /// It has exited and is not reaped.
    is_dead: bool,
    /// User and system time: its own, and that of its reaped children.
    own_ticks: u64,
    waited_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name of the program, in brackets, may contain anything.
        let (before, after) = (text.split_once(" (")?.0, text.rsplit_once(')')?.1);
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Stat {
            process: before.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            is_dead: fields[0] == "Z",
            own_ticks: ticks(11)? + ticks(12)?,
            waited_ticks: ticks(13)? + ticks(14)?,
        })
    }
}

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))
}

fn text_after<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim_start_matches([':', ' ', '\t']).trim())
}

fn number_after(text: &str, name: &str) -> anyhow::Result<u64> {
    let value = text_after(text, name).and_then(|rest| rest.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).with_context(|| format!("no number behind {name}"))
}

/// The type of the file system mounted nearest above `dir`; of two at the same place, the later one
/// hides the other.
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
    fn a_process_is_read_behind_any_program_name() {
        let text = "7 (a) b (c)) Z 1 2 3 4 5 6 7 8 9 10 250 50 30 4 20";
        let stat = Stat { process: 7, parent: 1, is_dead: true, own_ticks: 300, waited_ticks: 34 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("nothing"), None);
    }

    #[test]
    fn what_a_process_started_is_its_family() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sh -c 'cat; true'; true"]);
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // The echo of `cat` shows that it runs.
        std::io::Write::write_all(&mut input, b"x").unwrap();
        let mut output = child.stdout.take().unwrap();
        std::io::Read::read_exact(&mut output, &mut [0]).unwrap();
        assert_eq!(family(&child.id().to_string()).unwrap().alive, 2);
        drop(input);
        child.wait().unwrap();
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(usage("self").unwrap().peak_bytes > 0);
    }
}
