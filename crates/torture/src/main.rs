//! Torture: real daemons, clients, workers and handlers, all of which write down what they do and
//! see; faults at random moments; then a verdict on the whole history.
//!
//! | module | owns |
//! |---|---|
//! | `args` | the command line, also of the command that repeats a run |
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

mod args;
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

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use clap::Parser;

use crate::args::{Args, print_repeat};
use crate::run::{Settings, Verdict};

/// What must break if a backup is judged by a later one: jobs that were added in between are not in
/// it, and those that ended run again.
const LATE_BACKUP_BREAKS: [&str; 3] = ["lost", "after_end", "in_force"];

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
    let settings = args.settings(args.kinds()?)?;
    let binary = &settings.binary;
    ensure!(binary.exists(), "{} is missing; run `cargo xtask torture`", binary.display());
    if args.long {
        return Ok(exit_code(long::run(&settings, args.keep)));
    }
    let Settings { seed, busy, daemons, .. } = settings;
    println!("seed {seed}, {} s, {daemons} daemons", busy.as_secs());
    let verdict = run_in_directory(&settings, args.keep)?;
    if verdict.is_clean() {
        print(&verdict, seed);
    }
    let of_backups = settings.backup && settings.control;
    let named: Vec<&str> = args.must_break.iter().map(String::as_str).collect();
    let rules = if of_backups { &LATE_BACKUP_BREAKS } else { named.as_slice() };
    if rules.is_empty() {
        return Ok(exit_code(verdict.is_clean()));
    }
    let found = verdict.breaks(rules, of_backups);
    println!("{}: {}", if found { "caught" } else { "NOT caught" }, rules.join(", "));
    Ok(exit_code(found))
}

fn exit_code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One run in a directory of its own. If something is wrong, that is kept, and what was wrong and
/// how to repeat it is printed.
fn run_in_directory(settings: &Settings, keep: bool) -> Result<Verdict> {
    let dir = tempfile::Builder::new().prefix("windlass-torture-").tempdir()?;
    // Whatever fails, what shows why is kept.
    let verdict = catch_unwind(AssertUnwindSafe(|| run::run(settings, dir.path())));
    let verdict =
        verdict.unwrap_or_else(|panic| Err(anyhow!("the run panicked: {}", said(&*panic))));
    if !verdict.as_ref().is_ok_and(Verdict::is_clean) {
        if let Ok(verdict) = &verdict {
            print(verdict, settings.seed);
        }
        print_repeat(&settings.command(), &dir.keep(), settings.daemons);
    } else if keep {
        println!("kept: {}", dir.keep().display());
    }
    verdict
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something")
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
    if !verdict.missing.is_empty() {
        println!("faults that did not come: {}", verdict.missing.join(", "));
    }
    for problem in verdict.problems() {
        println!("problem: {problem}");
    }
    println!("seed {seed}: {}", if verdict.is_clean() { "clean" } else { "FAILED" });
}
