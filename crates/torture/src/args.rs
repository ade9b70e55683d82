//! The command line: read, and written again so that a failed run can be repeated.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use windlass_proof::check::RULES;
use windlass_proof::history::FaultKind;

use crate::disk;
use crate::run::Settings;

/// Run real daemons under load and faults, then check that nothing was lost, run twice or
/// forgotten. Exits with 1 if a promise was broken.
///
/// The seed decides what clients and workers draw and when which fault comes. The interleaving of
/// processes is not repeated, so a failing seed may need several runs.
#[derive(Parser)]
#[command(name = "cargo xtask torture", bin_name = "cargo xtask torture")]
pub(crate) struct Args {
    /// How long clients work and faults come; draining and checking take additional time.
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// Seed of the workload and the plan of faults; default: a random one, which is printed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// What is done to the daemons; several are separated by commas.
    #[arg(long, value_enum, default_value = "all", value_delimiter = ',')]
    fault: Vec<Fault>,
    /// Daemons on one data directory.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(crate) daemons: u32,
    /// Use a random half of the features, chosen by the seed, instead of all.
    #[arg(long)]
    swarm: bool,
    /// Many short runs with rising seeds, one to three daemons and changing features, until the
    /// seconds are over; prints a line for each and one for all.
    #[arg(long)]
    pub(crate) long: bool,
    /// Fail if a kind of fault never came, or a rule had nothing to judge. For root, also if a
    /// fault is not possible on this machine.
    #[arg(long)]
    complete: bool,
    /// Controls: build daemons with a defect each, and fail unless the run finds it; and check an
    /// earlier backup as if it were the last one (evaluated by xtask, but for backups).
    #[arg(long)]
    control: bool,
    /// Take backups under load; afterwards restore each, run it to its end and check it too. With
    /// `--control`, only that of backups: succeeds only if the earlier backup is found.
    #[arg(long)]
    backup: bool,
    /// Succeed only if the run breaks one of these rules.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = rule, conflicts_with = "long")]
    pub(crate) must_break: Vec<String>,
    /// Run this binary of Windlass, and not the one that was built with this program.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Only check the histories of a run that was kept, with the same number of daemons.
    #[arg(long, value_name = "DIR")]
    pub(crate) check: Option<PathBuf>,
    /// Keep the directory with data, histories and output even if all is well.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Build and use optimised binaries (evaluated by xtask).
    #[arg(long)]
    release: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fault {
    /// SIGKILL, then a new start; also of single contexts.
    Kill,
    /// SIGSTOP, half of the time for longer than the lease, then SIGCONT; also of single contexts.
    Stop,
    /// SIGTERM, then a new start.
    Restart,
    /// All daemons and their disk lose power: what was not synced is gone. Needs root and XFS.
    Power,
    /// No room on the disk for a while. Needs root and XFS.
    Full,
    /// Reads, writes or syncs fail for a while. Needs root and FUSE.
    Io,
    /// Only syncs fail for a while; with `power` or `full`, half of the times end with a power cut.
    /// Needs root and FUSE.
    Sync,
    /// The disk does not answer for a while, or only the store's files on it. Needs root and FUSE.
    Hang,
    /// The wall clock of all daemons is set by hours, in both directions.
    Clock,
    /// A journal ends in a torn write, or is damaged in the middle, when its daemon starts.
    Journal,
    /// All of these that are possible here.
    All,
    None,
}

impl Fault {
    /// Those that need neither a disk of the run nor its clock, which the sandbox does not have.
    pub(crate) const IN_SANDBOX: [Fault; 4] =
        [Fault::Kill, Fault::Stop, Fault::Restart, Fault::Journal];

    pub(crate) fn kinds_in_sandbox() -> Vec<FaultKind> {
        Fault::IN_SANDBOX.into_iter().flat_map(Fault::kinds).collect()
    }

    fn kinds(self) -> Vec<FaultKind> {
        match self {
            Fault::Kill => vec![FaultKind::Kill],
            Fault::Stop => vec![FaultKind::Stop],
            Fault::Restart => vec![FaultKind::Restart],
            Fault::Power => vec![FaultKind::PowerCut],
            Fault::Full => vec![FaultKind::DiskFull],
            Fault::Io => vec![FaultKind::ReadError, FaultKind::WriteError, FaultKind::FailedSync],
            Fault::Sync => vec![FaultKind::FailedSync],
            Fault::Hang => vec![FaultKind::DiskHang, FaultKind::StoreHang],
            Fault::Clock => vec![FaultKind::ClockStep { by_ms: 0 }],
            Fault::Journal => vec![FaultKind::TornTail, FaultKind::DamagedJournal],
            Fault::All => {
                let single = |fault: &&Fault| **fault != Fault::All;
                let faults = Fault::value_variants().iter().filter(single);
                faults.flat_map(|fault| fault.kinds()).collect()
            }
            Fault::None => Vec::new(),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn rule(name: &str) -> Result<String, String> {
    let known = RULES.iter().any(|rule| rule.name == name);
    if known { Ok(name.to_owned()) } else { Err("there is no such rule".to_owned()) }
}

impl Args {
    /// The kinds of faults that were asked for; of all, those that are possible on this machine.
    pub(crate) fn kinds(&self) -> Result<Vec<FaultKind>> {
        let mut kinds = Vec::new();
        for fault in &self.fault {
            for kind in fault.kinds() {
                // A restored backup runs by the clock of the machine.
                let excluded = self.backup && matches!(kind, FaultKind::ClockStep { .. });
                if excluded || kinds.contains(&kind) {
                    continue;
                }
                let required = *fault != Fault::All || (self.complete && disk::may_mount());
                match disk::obstacle(&kind) {
                    None => kinds.push(kind),
                    Some(why) if required => bail!("{kind:?} is not possible: {why}"),
                    Some(why) => println!("without {kind:?}: {why}"),
                }
            }
        }
        Ok(kinds)
    }

    /// What is to be run, with these kinds of faults.
    pub(crate) fn settings(&self, kinds: Vec<FaultKind>) -> Result<Settings> {
        let binary = self.binary.clone().map_or_else(own_binary, Ok)?;
        Ok(Settings {
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
            busy: Duration::from_secs(self.seconds),
            faults: self.fault.clone(),
            kinds,
            daemons: self.daemons,
            swarm: self.swarm,
            complete: self.complete,
            control: self.control,
            backup: self.backup,
            binary: std::path::absolute(binary)?,
            release: self.release,
        })
    }
}

/// The binary that was built with this program.
fn own_binary() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this program is")?;
    Ok(own.with_file_name("windlass"))
}

impl Settings {
    /// The command that repeats this run. Features and daemons of a run of the long form follow
    /// from its seed; here they are spelled out, because a single run takes them as they are given.
    pub(crate) fn command(&self) -> String {
        let Settings { seed, busy, faults, daemons, binary, .. } = self;
        let names: Vec<String> = faults.iter().map(|fault| fault.name()).collect();
        let mut command = format!(
            "cargo xtask torture --seed {seed} --seconds {} --daemons {daemons} --fault {}",
            busy.as_secs(),
            names.join(",")
        );
        let flags = [
            (self.swarm, " --swarm"),
            (self.complete, " --complete"),
            (self.control, " --control"),
            (self.backup, " --backup"),
            (self.release, " --release"),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.for_each(|(_, flag)| command += flag);
        if own_binary().ok().as_ref() != Some(binary) {
            command += &format!(" --binary {}", binary.display());
        }
        command
    }
}

/// What a failed run ends with, whatever its form: how to repeat it, and how to check its
/// histories again.
pub(crate) fn print_repeat(command: &str, dir: &Path, daemons: u32) {
    println!("kept: {}", dir.display());
    println!("repeat it with: {command}");
    println!("check it again with: {}", check_command(dir, daemons));
}

fn check_command(dir: &Path, daemons: u32) -> String {
    format!("cargo xtask torture --check {} --daemons {daemons}", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a shell and xtask pass a printed command on.
    fn parsed(command: &str) -> Args {
        let line = command.strip_prefix("cargo xtask ").unwrap();
        Args::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// All that a run can be asked for, in a few combinations.
    fn many_settings() -> Vec<Settings> {
        let lines = [
            "torture --seed 7",
            "torture --seed 8 --seconds 17 --daemons 3 --fault kill,power --swarm",
            "torture --seed 9 --fault none --backup --release --binary /tmp/old/windlass",
            "torture --seed 10 --fault sync,hang,journal --backup --control --complete",
        ];
        let settings = |line: &str| {
            let kinds = vec![FaultKind::Kill, FaultKind::FailedSync];
            Args::try_parse_from(line.split(' ')).unwrap().settings(kinds).unwrap()
        };
        lines.into_iter().map(settings).collect()
    }

    #[test]
    fn the_printed_command_gives_the_settings_of_the_run() {
        for settings in many_settings() {
            let command = settings.command();
            let again = parsed(&command).settings(settings.kinds.clone()).unwrap();
            assert_eq!(again, settings, "{command}");
        }
    }

    #[test]
    fn a_round_of_the_long_form_is_repeated_by_its_command_alone() {
        for settings in many_settings() {
            for seed in 0..6 {
                let round = crate::long::round(&settings, seed, Duration::from_millis(42_700));
                let command = round.command();
                let args = parsed(&command);
                assert!(!args.long, "{command}");
                assert_eq!(args.settings(round.kinds.clone()).unwrap(), round, "{command}");
            }
        }
    }

    #[test]
    fn a_kept_run_is_checked_with_its_number_of_daemons() {
        let args = parsed(&check_command(Path::new("/tmp/windlass-torture-x"), 3));
        assert_eq!(args.check.as_deref(), Some(Path::new("/tmp/windlass-torture-x")));
        assert_eq!(args.daemons, 3);
    }
}
