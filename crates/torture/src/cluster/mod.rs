//! Cluster runs: three daemons, each with its own data directory, on one PostgreSQL store, under
//! the load of the torture run, while servers, daemons and networks fail.
//!
//! | module | owns |
//! |---|---|
//! | `fault` | what fails, and how it comes back |
//! | `machine` | machines: network namespaces, and the programs in them |
//! | `postgres` | what both topologies know of PostgreSQL |
//! | `single` | one server with a disk of its own |
//! | `patroni` | three servers under Patroni, with etcd |
//! | `probe` | how long nothing can be stored |
//!
//! The run has its own namespaces of processes, networks and mounts, so nothing outlives it.

mod fault;
mod machine;
mod patroni;
mod postgres;
mod probe;
mod single;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use windlass_proof::check::RULES;

use crate::closing::Closing;
use crate::contact;
use crate::daemon::Daemon;
use crate::door::Handlers;
use crate::fault::Injector;
use crate::run::{self, HANDLER, Settings, Verdict};
use crate::site::Site;

use fault::{Database, Fault, Round};
use patroni::Patroni;
use probe::{Gap, Probes, TENANT};
use single::Single;

/// Daemons of a run.
const DAEMONS: u32 = 3;
/// What begins the command line of a cluster run.
pub(crate) const COMMAND: &str = "cluster";
/// The first process of the namespace: ends the others with it, and reaps them.
const INIT: &str = "\"$0\" \"$@\"; exit $?";

/// Run three daemons on PostgreSQL under load, let parts of the cluster fail, then check that
/// nothing was lost, run twice or forgotten. Exits with 1 if a promise was broken. Needs root.
#[derive(Parser)]
#[command(name = "cargo xtask cluster", bin_name = "cargo xtask cluster")]
struct Args {
    /// What fails; several are separated by commas, all faults are run without it.
    #[arg(long, value_enum, value_delimiter = ',')]
    fault: Vec<Fault>,
    /// How often each of them comes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// How long everything works before each fault.
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u64,
    /// Seed of the workload and the order of faults; default: a random one, which is printed.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Members of etcd: one or three.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    etcd: u8,
    /// Controls: build daemons with a defect each, and fail unless the run finds it (evaluated by
    /// xtask).
    #[arg(long)]
    control: bool,
    /// Succeed only if the run breaks one of these rules, or loses what a probe added.
    #[arg(long, hide = true, value_delimiter = ',')]
    must_break: Vec<String>,
    /// Run this binary of Windlass, and not the one that was built with this program.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// Keep the directory with histories, data and output even if all is well.
    #[arg(long)]
    keep: bool,
    /// Build and use optimised binaries (evaluated by xtask).
    #[arg(long)]
    release: bool,
    /// It is in its namespaces already.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Everything behind the word `cluster`.
pub(crate) fn main(arguments: &[String]) -> Result<ExitCode> {
    let args = Args::parse_from(arguments);
    for rule in &args.must_break {
        ensure!(RULES.iter().any(|it| it.name == rule), "there is no rule {rule}");
    }
    if !args.inside {
        return enter(&arguments[1..]);
    }
    machine::lay_network()?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let faults = match args.fault.as_slice() {
        [] => Fault::value_variants(),
        named => named,
    };
    let mut good = true;
    for of_patroni in [false, true] {
        let faults = faults.iter().filter(|fault| fault.is_of_patroni() == of_patroni);
        let faults: Vec<Fault> = faults.copied().collect();
        if !faults.is_empty() {
            good &= run_in_directory(&args, seed, &faults)?;
        }
    }
    Ok(crate::exit_code(good))
}

/// Starts this program again in new namespaces, whose processes all end with their first.
fn enter(arguments: &[String]) -> Result<ExitCode> {
    ensure!(rustix::process::geteuid().is_root(), "a cluster needs namespaces; run it as root");
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", INIT]).arg(std::env::current_exe()?).args([COMMAND, "--inside"]);
    // In our place, so that whatever ends this process ends them all.
    Err(command.args(arguments).exec()).context("cannot start unshare")
}

/// One run on one topology. Whether it is as it should be.
fn run_in_directory(args: &Args, seed: u64, faults: &[Fault]) -> Result<bool> {
    let names: Vec<String> = faults.iter().map(|fault| fault.name()).collect();
    println!("seed {seed}: {} rounds of {}", args.rounds, names.join(", "));
    let dir = tempfile::Builder::new().prefix("windlass-cluster-").tempdir()?;
    // The servers' user has a folder in it.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open)?;
    let ran = run_on(args, seed, faults, dir.path());
    let clean = ran.as_ref().is_ok_and(|ran| ran.verdict.is_clean());
    if args.keep || !clean {
        println!("kept: {}", dir.keep().display());
    }
    let ran = ran?;
    ran.print(seed);
    let rules: Vec<&str> = args.must_break.iter().map(String::as_str).collect();
    if rules.is_empty() {
        return Ok(clean);
    }
    let found = ran.verdict.breaks(&rules, false) || ran.lost > 0;
    println!("{}: {}", if found { "caught" } else { "NOT caught" }, rules.join(", "));
    Ok(found)
}

/// What a run showed.
struct Ran {
    verdict: Verdict,
    gaps: BTreeMap<Fault, Vec<Gap>>,
    /// Adds of probes that were acknowledged, and those of them that are gone.
    probed: usize,
    lost: usize,
}

fn run_on(args: &Args, seed: u64, faults: &[Fault], dir: &Path) -> Result<Ran> {
    let mut database = match faults[0].is_of_patroni() {
        true => Database::Patroni(Patroni::new(dir, if args.etcd < 3 { 1 } else { 3 })?),
        false => Database::Single(Single::new(dir)?),
    };
    let site = Site::on_server(seed, dir, DAEMONS, &database.url())?;
    let own = std::env::current_exe().context("where this program is")?;
    let binary = args.binary.clone().unwrap_or_else(|| own.with_file_name("windlass"));
    let settings = Settings::without_faults(seed, DAEMONS, std::path::absolute(binary)?);
    let mix = run::mix(&settings);
    let history_dir = site.history_dir();
    let source = HANDLER
        .replace("HISTORY_DIR", history_dir.to_str().context("the path is not UTF-8")?)
        .replace("ORIGIN_NS", &site.origin_ns().to_string());
    let handlers = Handlers { source };
    let daemons = 0..site.daemon_count();
    let daemons = daemons.map(|number| Daemon::new(&site, number, &settings.binary));
    let mut injector = Injector::new(&site, daemons.collect(), None, None)?;
    run::set_up(&site, &handlers, &mix)?;
    let probes = Probes::new(&site);
    let mut gaps = BTreeMap::<Fault, Vec<Gap>>::new();
    let load = Duration::from_secs(args.seconds);
    let played = thread::scope(|scope| {
        for daemon in 0..site.daemon_count() {
            let probes = &probes;
            scope.spawn(move || probes.run(daemon));
        }
        let played = run::play(&site, &handlers, &mix, &mut injector, |injector| {
            let mut rng = fastrand::Rng::with_seed(seed);
            let database = &mut database;
            for fault in plan(&mut rng, faults, args.rounds) {
                injector.wait_until(site.now_ns() + load.as_nanos() as u64)?;
                let mut round =
                    Round { site: &site, injector: &mut *injector, database, probes: &probes };
                let gap = round.carry_out(fault, rng.u64(..))?;
                println!("{:.1} s: {}", site.now_ns() as f64 / 1e9, text(fault, &[gap]));
                gaps.entry(fault).or_default().push(gap);
            }
            injector.wait_until(site.now_ns() + load.as_nanos() as u64)
        });
        site.end();
        played
    });
    let mut left = played?;
    let drained = left.is_empty();
    let listed = Closing::new(&site, &handlers, "probes", &[])?.jobs(TENANT, "")?;
    let lost = probes.lost(&listed);
    if let Some(job) = lost.first() {
        left.push(format!("{} acknowledged jobs of probes are gone, such as {job}", lost.len()));
    }
    let mut faults = injector.close()?;
    faults.problems.extend(site.take_problems());
    let panics = run::panics(&site)?;
    let lost_contacts = contact::note(&site, &faults.clock)?;
    let report = run::judge(&site.history_dir(), drained)?;
    let verdict = Verdict::new(&site, report, faults, lost_contacts, left, panics);
    Ok(Ran { verdict, gaps, probed: probes.count(), lost: lost.len() })
}

/// Each fault as often as there are rounds, in an order that the seed decides. A transaction that
/// stays open comes once, and first.
fn plan(rng: &mut fastrand::Rng, faults: &[Fault], rounds: u32) -> Vec<Fault> {
    let (open, others): (Vec<Fault>, Vec<Fault>) =
        faults.iter().copied().partition(|fault| *fault == Fault::OpenTransaction);
    let mut plan: Vec<Fault> = (0..rounds).flat_map(|_| others.clone()).collect();
    rng.shuffle(&mut plan);
    open.into_iter().chain(plan).collect()
}

impl Ran {
    fn print(&self, seed: u64) {
        crate::print(&self.verdict, seed);
        println!("{} acknowledged adds of probes, {} of them gone", self.probed, self.lost);
        for (fault, gaps) in &self.gaps {
            println!("{}", text(*fault, gaps));
        }
    }
}

/// The gaps of a fault: those of all daemons together, and those of the slowest one.
fn text(fault: Fault, gaps: &[Gap]) -> String {
    let line = |of: fn(&Gap) -> Duration| {
        let mut times: Vec<Duration> = gaps.iter().map(of).collect();
        times.sort_unstable();
        let [low, middle, high] = [0, times.len() / 2, times.len() - 1].map(|at| times[at]);
        match times.len() {
            1 => format!("{:.1} s", low.as_secs_f64()),
            _ => format!(
                "{:.1} / {:.1} / {:.1} s",
                low.as_secs_f64(),
                middle.as_secs_f64(),
                high.as_secs_f64()
            ),
        }
    };
    let (any, longest) = (line(|gap| gap.any), line(|gap| gap.longest));
    format!("{}, {} rounds: gap {any}; of the slowest daemon {longest}", fault.name(), gaps.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_comes_in_every_round_and_an_open_transaction_once_at_the_start() {
        let faults = [Fault::Backend, Fault::OpenTransaction, Fault::Daemon];
        let plan = plan(&mut fastrand::Rng::with_seed(1), &faults, 4);
        assert_eq!((plan.len(), plan[0]), (9, Fault::OpenTransaction));
        for fault in [Fault::Backend, Fault::Daemon] {
            assert_eq!(plan.iter().filter(|it| **it == fault).count(), 4);
        }
    }
}
