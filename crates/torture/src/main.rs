//! Torture: real daemons, clients, workers and handlers, all of which write down what they do and
//! see; faults at random moments; then a verdict on the whole history.
//!
//! | module | owns |
//! |---|---|
//! | `run` | one run, from the first daemon to the verdict |
//! | `site` | the directory, clock and phase that all parts share |
//! | `daemon`, `guard` | a daemon's process, which ends with this one |
//! | `door` | requests over HTTP, written down |
//! | `client`, `worker` | who sends them |
//! | `fault` | kills, stops and restarts |
//! | `control` | losing data on purpose, which must be found |
//! | `closing` | waiting for the rest, and the final listing |
//!
//! Every wait is bounded, everything listens on loopback addresses, and no process outlives the
//! run.

#![allow(clippy::print_stdout, reason = "this is how a tool for developers speaks")]

mod client;
mod closing;
mod control;
mod daemon;
mod door;
mod fault;
mod guard;
mod run;
mod site;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use windlass_proof::history::FaultKind;

use crate::run::{Settings, Verdict};

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
    /// What is done to the daemons.
    #[arg(long, value_enum, default_value = "all")]
    fault: Fault,
    /// Daemons on one data directory.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    daemons: u32,
    /// Use a random half of the features, chosen by the seed, instead of all.
    #[arg(long)]
    swarm: bool,
    /// Control: one daemon, and every other kill also loses what was written since the one before.
    /// This run must fail.
    #[arg(long)]
    control: bool,
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

#[derive(Clone, Copy, ValueEnum)]
enum Fault {
    /// SIGKILL, then a new start; also of single contexts.
    Kill,
    /// SIGSTOP, half of the time for longer than the lease, then SIGCONT; also of single contexts.
    Stop,
    /// SIGTERM, then a new start.
    Restart,
    All,
    None,
}

impl Fault {
    fn kinds(self) -> &'static [FaultKind] {
        match self {
            Fault::Kill => &[FaultKind::Kill],
            Fault::Stop => &[FaultKind::Stop],
            Fault::Restart => &[FaultKind::Restart],
            Fault::All => &[FaultKind::Kill, FaultKind::Stop, FaultKind::Restart],
            Fault::None => &[],
        }
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(dir) = &args.check {
        let report = run::judge(&dir.join("history"), args.daemons, true)?;
        println!("{report}");
        return Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let own = std::env::current_exe().context("where this program is")?;
    let binary = own.with_file_name("windlass");
    ensure!(binary.exists(), "{} is missing; run `cargo xtask torture`", binary.display());
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let dir = tempfile::Builder::new().prefix("windlass-torture-").tempdir()?;
    let daemons = if args.control { 1 } else { args.daemons };
    let kinds = if args.control { Fault::Kill.kinds() } else { args.fault.kinds() };
    println!("seed {seed}, {} s, {daemons} daemons", args.seconds);
    let settings = Settings {
        seed,
        busy: Duration::from_secs(args.seconds),
        kinds,
        daemons,
        swarm: args.swarm,
        control: args.control,
        dir: dir.path(),
        binary: &binary,
    };
    let verdict = run::run(&settings);
    let clean = verdict.as_ref().is_ok_and(Verdict::is_clean);
    if args.keep || !clean {
        println!("kept: {}", keep(dir).display());
    }
    print(&verdict?, seed);
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn keep(dir: tempfile::TempDir) -> PathBuf {
    dir.keep()
}

fn print(verdict: &Verdict, seed: u64) {
    let Verdict { report, faults, finishes, unknown, left, panics } = verdict;
    println!("{report}");
    println!(
        "{finishes} finishes by workers, {unknown} unknown answers; {} kills, {} stops, {} \
         restarts of daemons, {} faults of contexts",
        faults.kills, faults.stops, faults.restarts, faults.contexts
    );
    for problem in faults.problems.iter().chain(left).chain(panics) {
        println!("problem: {problem}");
    }
    println!("seed {seed}: {}", if verdict.is_clean() { "clean" } else { "FAILED" });
}
