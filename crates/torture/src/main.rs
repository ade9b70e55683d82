//! Torture: real daemons, clients, workers and handlers, all of which write down what they do and
//! see; faults at random moments; then a verdict on the whole history.
//!
//! | module | owns |
//! |---|---|
//! | `run` | one run, from the first daemon to the verdict |
//! | `long` | runs with rising seeds, until the time is over |
//! | `site` | the directory, clock and phase that all parts share |
//! | `daemon` | a daemon's process |
//! | `guard` | ends and unmounts when this process is gone |
//! | `door` | requests over HTTP, written down |
//! | `client`, `worker` | who sends them |
//! | `backup` | backups under load, restored and checked |
//! | `plant` | damaged journals that lie there from the start |
//! | `contact` | when daemons lost contact with their store |
//! | `fault` | what is done to daemons, their handlers and their disk |
//! | `clock` | the daemons' wall clock, which can be set |
//! | `cluster` | the same load on servers that fail (`cargo xtask cluster`) |
//! | `disk` | the disk of the data directory, made of: |
//! | `volume` | an XFS that loses power and is full |
//! | `layer` | a file system that fails and hangs |
//! | `closing` | waiting for the rest, and the final listing |
//!
//! Every wait is bounded, everything listens on loopback addresses, and no process outlives the
//! run.

#![allow(clippy::print_stdout, reason = "this is how a tool for developers speaks")]

mod backup;
mod client;
mod clock;
mod closing;
mod cluster;
mod contact;
mod daemon;
mod disk;
mod door;
mod fault;
mod guard;
mod layer;
mod long;
mod plant;
mod run;
mod site;
mod volume;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use windlass_proof::check::RULES;
use windlass_proof::history::FaultKind;

use crate::run::{Settings, Verdict};

/// What must break if a backup is judged by a later one: jobs that were added in between are not in
/// it, and those that ended run again.
const LATE_BACKUP_BREAKS: [&str; 3] = ["lost", "after_end", "in_force"];

/// Run real daemons under load and faults, then check that nothing was lost, run twice or
/// forgotten. Exits with 1 if a promise was broken.
///
/// The seed decides what clients and workers draw and when which fault comes. The interleaving of
/// processes is not repeated, so a failing seed may need several runs.
#[derive(Parser)]
#[command(name = "cargo xtask torture", bin_name = "cargo xtask torture")]
struct Args {
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
    daemons: u32,
    /// Use a random half of the features, chosen by the seed, instead of all.
    #[arg(long)]
    swarm: bool,
    /// Many short runs with rising seeds, one to three daemons and changing features, until the
    /// seconds are over; prints a line for each and one for all.
    #[arg(long)]
    long: bool,
    /// Controls: build daemons with a defect each, and fail unless the run finds it (evaluated by
    /// xtask).
    #[arg(long)]
    control: bool,
    /// Take backups under load; afterwards restore each, run it to its end and check it too. With
    /// `--control`, an earlier backup is checked as if it were the last one; succeeds only if that
    /// is found.
    #[arg(long)]
    backup: bool,
    /// Succeed only if the run breaks one of these rules.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = rule, conflicts_with = "long")]
    must_break: Vec<String>,
    /// Run this binary of Windlass, and not the one that was built with this program.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Only check the histories of a run that was kept, with the same number of daemons.
    #[arg(long, value_name = "DIR")]
    check: Option<PathBuf>,
    /// Keep the directory with data, histories and output even if all is well.
    #[arg(long)]
    keep: bool,
    /// Build and use optimised binaries (evaluated by xtask).
    #[arg(long)]
    release: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
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
    /// The disk, and with it the store, does not answer for a while. Needs root and FUSE.
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
    fn kinds(self) -> Vec<FaultKind> {
        match self {
            Fault::Kill => vec![FaultKind::Kill],
            Fault::Stop => vec![FaultKind::Stop],
            Fault::Restart => vec![FaultKind::Restart],
            Fault::Power => vec![FaultKind::PowerCut],
            Fault::Full => vec![FaultKind::DiskFull],
            Fault::Io => vec![FaultKind::ReadError, FaultKind::WriteError, FaultKind::FailedSync],
            Fault::Sync => vec![FaultKind::FailedSync],
            Fault::Hang => vec![FaultKind::StoreHang],
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
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == cluster::COMMAND) {
        return cluster::main(&arguments[1..]);
    }
    let args = Args::parse();
    if let Some(dir) = &args.check {
        let report = run::judge(&dir.join("history"), true)?;
        println!("{report}");
        return Ok(exit_code(report.is_clean()));
    }
    let own = std::env::current_exe().context("where this program is")?;
    let binary = args.binary.clone().unwrap_or_else(|| own.with_file_name("windlass"));
    let binary = std::path::absolute(binary)?;
    ensure!(binary.exists(), "{} is missing; run `cargo xtask torture`", binary.display());
    let mut kinds = possible(&args.fault)?;
    // A restored backup runs by the clock of the machine.
    kinds.retain(|kind| !(args.backup && matches!(kind, FaultKind::ClockStep { .. })));
    let settings = Settings {
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        busy: Duration::from_secs(args.seconds),
        kinds,
        daemons: args.daemons,
        swarm: args.swarm,
        control: args.control,
        backup: args.backup,
        binary,
    };
    if args.long {
        return Ok(exit_code(long::run(&settings, args.keep)));
    }
    println!("seed {}, {} s, {} daemons", settings.seed, args.seconds, settings.daemons);
    let verdict = run_in_directory(&settings, args.keep)?;
    print(&verdict, settings.seed);
    let of_backups = args.backup && args.control;
    let named: Vec<&str> = args.must_break.iter().map(String::as_str).collect();
    let rules = if of_backups { &LATE_BACKUP_BREAKS } else { named.as_slice() };
    if rules.is_empty() {
        return Ok(exit_code(verdict.is_clean()));
    }
    let found = verdict.breaks(rules, of_backups);
    println!("{}: {}", if found { "caught" } else { "NOT caught" }, rules.join(", "));
    Ok(exit_code(found))
}

fn rule(name: &str) -> Result<String, String> {
    let known = RULES.iter().any(|rule| rule.name == name);
    if known { Ok(name.to_owned()) } else { Err("there is no such rule".to_owned()) }
}

fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The kinds that were asked for; of all, those that are possible on this machine.
fn possible(faults: &[Fault]) -> Result<Vec<FaultKind>> {
    let mut kinds = Vec::new();
    for fault in faults {
        for kind in fault.kinds() {
            if kinds.contains(&kind) {
                continue;
            }
            match disk::obstacle(&kind) {
                None => kinds.push(kind),
                Some(why) if *fault == Fault::All => println!("without {kind:?}: {why}"),
                Some(why) => bail!("{kind:?} is not possible: {why}"),
            }
        }
    }
    Ok(kinds)
}

/// One run in a directory of its own, which is kept if something is wrong.
fn run_in_directory(settings: &Settings, keep: bool) -> Result<Verdict> {
    let dir = tempfile::Builder::new().prefix("windlass-torture-").tempdir()?;
    let verdict = run::run(settings, dir.path());
    if keep || !verdict.as_ref().is_ok_and(Verdict::is_clean) {
        println!("kept: {}", dir.keep().display());
    }
    verdict
}

fn print(verdict: &Verdict, seed: u64) {
    let Verdict { report, backups, faults, finishes, unknown, lost_contacts, .. } = verdict;
    println!("{report}");
    for report in backups {
        println!("a backup, restored: {report}");
    }
    println!(
        "{finishes} finishes by workers, {unknown} unknown answers; {faults}; contact lost \
         {lost_contacts} times"
    );
    for problem in verdict.problems() {
        println!("problem: {problem}");
    }
    println!("seed {seed}: {}", if verdict.is_clean() { "clean" } else { "FAILED" });
}
