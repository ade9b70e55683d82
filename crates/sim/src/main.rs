//! Deterministic simulation: the real engine and journal on a simulated clock, disk, store and
//! runner. A schedule runs on one thread and is decided by one seed, so a schedule that fails is
//! repeated exactly by its seed.
//!
//! | module | owns |
//! |---|---|
//! | `schedule` | one schedule, from the first daemon to the verdict |
//! | `swarm` | many schedules, one after the other on each processor |
//! | `world` | what all parts of a schedule share: random numbers, history, daemons |
//! | `daemon`, `life` | daemons' processes, which die at any call |
//! | `clock`, `disk`, `store`, `runner` | the machine: what the engine takes for the real ones |
//! | `call` | requests, as a door makes them |
//! | `client`, `worker` | who sends them |
//! | `fault` | what is done to daemons and machine |
//! | `closing` | waiting for the rest, and the final listing |
//! | `control` | planted bugs, which must be found |
//! | `plant` | what planted bugs do to the store |
//! | `panics` | panics, which are defects |
//! | `watchdog` | schedules that do not end |

#![allow(clippy::print_stdout, reason = "this is how a tool for developers speaks")]

mod call;
mod client;
mod clock;
mod closing;
mod control;
mod daemon;
mod disk;
mod fault;
mod life;
mod panics;
mod plant;
mod runner;
mod schedule;
mod store;
mod swarm;
#[cfg(test)]
mod tests;
mod watchdog;
mod worker;
mod world;

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use windlass_proof::history::Recorder;

use crate::control::Control;
use crate::schedule::{Settings, Verdict};
use crate::watchdog::{SCHEDULE_TIME_MAX, Watchdog};

/// The numbers of daemons in one queue.
const FLEET_MAX: u64 = 4095;

/// Run simulated schedules of daemons, clients and faults, and check each of them. Exits with 1 if
/// one of them broke a promise.
///
/// A schedule that fails is printed with the command that repeats it exactly.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct Args {
    /// How many schedules to run, from seed 0 or from `--from` on.
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "seconds")]
    seeds: u64,
    /// Run for this long instead, with as many seeds as there is time for.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "S", default_value_t = 0)]
    from: u64,
    /// Run this schedule only.
    #[arg(long, value_name = "S", conflicts_with_all = ["seeds", "seconds", "from"])]
    seed: Option<u64>,
    /// Write the history of that schedule to this file.
    #[arg(long, value_name = "FILE", requires = "seed")]
    history: Option<PathBuf>,
    /// Simulate so many daemons in each schedule, each on a machine of its own with a clock of its
    /// own, instead of one to three on one machine.
    #[arg(long, value_name = "DAEMONS", conflicts_with = "control",
          value_parser = clap::value_parser!(u64).range(1..=FLEET_MAX))]
    fleet: Option<u64>,
    /// Plant a bug, and one after the other, until each was found: this must succeed, or the
    /// simulation proves nothing.
    #[arg(long, conflicts_with_all = ["seconds", "seed"])]
    control: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let fleet = args.fleet.map(|daemons| daemons as usize);
    let watchdog = Watchdog::new(SCHEDULE_TIME_MAX, give_up);
    let clean = match args.seed {
        Some(seed) => {
            let settings = Settings { seed, control: None, fleet };
            play_one(settings, args.history.as_deref(), &watchdog)?
        }
        None if args.control => find_controls(args.seeds, &watchdog)?,
        None => {
            let time_max = args.seconds.map(Duration::from_secs);
            let seeds = if time_max.is_some() { u64::MAX } else { args.seeds };
            swarm::run(args.from, seeds, time_max, fleet, &watchdog)?
        }
    };
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Nothing can end a schedule that hangs, but the process.
fn give_up(late: &[Settings]) {
    for settings in late {
        let (seed, command) = (settings.seed, settings.command());
        println!("seed {seed}: FAILED, it does not end; repeat it with: {command}");
    }
    std::process::exit(1);
}

fn play_one(settings: Settings, history: Option<&Path>, watchdog: &Watchdog) -> Result<bool> {
    let verdict = watchdog.watch(settings, schedule::play)?;
    if let Some(path) = history {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut recorder = Recorder::new(BufWriter::new(file));
        verdict.history.iter().try_for_each(|record| recorder.record(record.at, &record.event))?;
    }
    print(&verdict, settings);
    Ok(verdict.is_clean())
}

/// Whether each of the planted bugs is found within so many seeds.
fn find_controls(seeds: u64, watchdog: &Watchdog) -> Result<bool> {
    let mut all = true;
    for control in Control::ALL {
        let found = (0..seeds).find_map(|seed| {
            let settings = Settings { seed, control: Some(control), fleet: None };
            let verdict = watchdog.watch(settings, schedule::play);
            let found = |verdict: &Verdict| control.is_found(&verdict.report);
            verdict.map(|verdict| found(&verdict).then_some((seed, verdict))).transpose()
        });
        match found.transpose()? {
            Some((seed, verdict)) => {
                let rules: Vec<_> = verdict.report.totals.iter().map(|(rule, _)| *rule).collect();
                println!("found by seed {seed} ({}): {}", rules.join(", "), control.what());
            }
            None => {
                all = false;
                println!("NOT FOUND within {seeds} seeds: {}", control.what());
            }
        }
    }
    Ok(all)
}

fn print(verdict: &Verdict, settings: Settings) {
    println!("{}", verdict.report);
    for problem in &verdict.problems {
        println!("problem: {problem}");
    }
    let outcome = if verdict.is_clean() { "clean" } else { "FAILED" };
    println!("seed {}: {outcome}; repeat it with: {}", settings.seed, settings.command());
}
