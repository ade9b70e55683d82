//! One run: daemons, clients, workers and faults; then the end, and the verdict.

use std::fs;
use std::io::{BufRead, Cursor};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use windlass_proof::check::{Report, Terms, check};
use windlass_proof::history::{FaultKind, Merge, Operation};
use windlass_proof::workload::{Mix, Served};

use crate::args::Fault;
use crate::backup::{self, Backups, Taken};
use crate::client::{Client, certainly};
use crate::closing::Closing;
use crate::contact;
use crate::daemon::{Daemon, LEASE};
use crate::door::{Caller, Handlers};
use crate::fault::{Done, Injector, Plan};
use crate::plant;
use crate::site::Site;
use crate::worker::Worker;

const CLIENTS: u32 = 4;
/// Sixteen that pull over HTTP, and six of Bedrock; with their numbers.
pub(crate) const WORKERS: [(u32, Served); 22] = {
    let mut workers = [(0, Served::Pull); 22];
    let mut number = 0;
    while number < 22 {
        workers[number as usize].0 = number;
        if number >= 16 {
            workers[number as usize].1 = Served::Bedrock;
        }
        number += 1;
    }
    workers
};
/// Longest time between a daemon's claim of a batch and the begin of its last run, without faults:
/// four runs before it (`HANDLER_BATCH`) of at most three seconds, and the start of a context.
const CLAIM_AHEAD: Duration = Duration::from_secs(15);
/// The end of a run is stored in this time without a fault, on a busy machine.
const STORED: Duration = Duration::from_secs(10);
/// Pause before another attempt, with the jitter of the daemons' setting.
const RETRY_PAUSE: Duration = Duration::from_millis(180);
/// Jobs of any one other type that the same consumers may start while a type waits. Types are drawn
/// at random, and taken in batches of up to eight, so it is many draws.
const PASSED_OVER_MAX: u64 = 100;
/// Longest interval of repeating jobs.
const ROUND_INTERVAL: Duration = Duration::from_secs(2);
/// Their next round begins in this time, unless others wait too; most of it is for a busy machine.
const ROUND_MAX: Duration = Duration::from_secs(10);
/// Violations of one rule that are shown.
const VIOLATIONS_MAX: usize = 60;
/// The handler. It knows where its history is, and when the run began.
pub(crate) const HANDLER: &str = include_str!("handler.py");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) busy: Duration,
    /// What was asked for, and what of it is possible on this machine.
    pub(crate) faults: Vec<Fault>,
    pub(crate) kinds: Vec<FaultKind>,
    pub(crate) daemons: u32,
    pub(crate) swarm: bool,
    /// Fail if one of the kinds never came, or a rule had nothing to judge.
    pub(crate) complete: bool,
    /// Check an earlier backup as if it were the last one.
    pub(crate) control: bool,
    /// Take backups.
    pub(crate) backup: bool,
    pub(crate) binary: PathBuf,
    /// The binaries are optimised.
    pub(crate) release: bool,
}

impl Settings {
    /// All features, and nothing that this module does to the daemons.
    pub(crate) fn without_faults(seed: u64, daemons: u32, binary: PathBuf) -> Settings {
        Settings {
            seed,
            busy: Duration::ZERO,
            faults: Vec::new(),
            kinds: Vec::new(),
            daemons,
            swarm: false,
            complete: false,
            control: false,
            backup: false,
            binary,
            release: false,
        }
    }
}

pub(crate) struct Verdict {
    pub(crate) report: Report,
    /// Of each backup, when it had been restored and had run to its end.
    pub(crate) backups: Vec<Report>,
    pub(crate) faults: Done,
    pub(crate) finishes: u64,
    pub(crate) unknown: u64,
    /// How often a daemon lost contact with the store, by a fault or on a busy machine.
    pub(crate) lost_contacts: u64,
    /// Kinds of faults that were asked for and never came.
    pub(crate) missing: Vec<&'static str>,
    /// What is left to do although the run should be drained, what went wrong when a backup was
    /// restored, and what a complete run lacks.
    pub(crate) left: Vec<String>,
    /// Panics in the output of daemons.
    pub(crate) panics: Vec<String>,
}

impl Verdict {
    /// Of a run without backups.
    pub(crate) fn new(
        site: &Site,
        report: Report,
        faults: Done,
        lost_contacts: u64,
        left: Vec<String>,
        panics: Vec<String>,
    ) -> Verdict {
        let finishes = site.tally.finishes.load(Ordering::Relaxed);
        let unknown = site.tally.unknown.load(Ordering::Relaxed);
        let (backups, missing) = (Vec::new(), Vec::new());
        Verdict { report, backups, faults, finishes, unknown, lost_contacts, missing, left, panics }
    }

    pub(crate) fn is_clean(&self) -> bool {
        let reports = self.backups.iter().all(Report::is_clean) && self.report.is_clean();
        reports && self.problems().next().is_none()
    }

    /// Whether one of these rules is broken, by the run or, of a control of backups, by what was
    /// restored. A control that breaks or upsets something else is not found.
    pub(crate) fn breaks(&self, rules: &[&str], of_backups: bool) -> bool {
        let run = [&self.report];
        let reports = if of_backups { self.backups.iter().collect() } else { run.to_vec() };
        let mut totals = reports.into_iter().flat_map(|report| &report.totals);
        totals.any(|(rule, _)| rules.contains(rule))
    }

    /// What is wrong beside the history.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &String> {
        self.faults.problems.iter().chain(&self.left).chain(&self.panics)
    }
}

pub(crate) fn run(settings: &Settings, dir: &Path) -> Result<Verdict> {
    let site = Site::new(settings.seed, dir, settings.daemons, &settings.kinds)?;
    let (disk, clock) = (site.disk(&settings.kinds)?, site.clock()?);
    let mix = mix(settings);
    let history_dir = site.history_dir();
    let source = HANDLER
        .replace("HISTORY_DIR", history_dir.to_str().context("the path is not UTF-8")?)
        .replace("ORIGIN_NS", &site.origin_ns().to_string());
    let handlers = Handlers { source };
    plant::bad_journals(&site.data_dir())?;
    let daemons = 0..site.daemon_count();
    let daemons = daemons.map(|number| Daemon::new(&site, number, &settings.binary));
    let mut injector = Injector::new(&site, daemons.collect(), disk, clock)?;
    set_up(&site, &handlers, &mix)?;
    let backups =
        settings.backup.then(|| Backups::new(&site, &handlers, &mix.tenants, &settings.binary));
    let backups = backups.transpose()?;
    let plan = Plan::new(&site, &settings.kinds, settings.busy);
    let played = thread::scope(|scope| {
        let _ending = site.ending();
        let backups = backups.map(|it| scope.spawn(|| it.run(settings.busy)));
        let act = |injector: &mut Injector<'_>| injector.run(&plan);
        let left = play(&site, &handlers, &mix, &mut injector, act)?;
        let taken = backups.map(|thread| thread.join()).transpose();
        let taken = taken.map_err(|_| anyhow!("a thread panicked"))?.transpose()?;
        anyhow::Ok((left, taken.unwrap_or_default()))
    });
    let (mut left, taken) = played?;
    let mut faults = injector.close()?;
    faults.problems.extend(site.take_problems());
    let panics = panics(&site)?;
    let lost_contacts = contact::note(&site, &faults.clock)?;
    let report = judge(&site.history_dir(), left.is_empty())?;
    let mut backups = Vec::new();
    for pair in pairs(&taken, settings.control) {
        let (report, problems) = backup::judge(&site, &handlers, &mix, &settings.binary, pair)?;
        backups.push(report);
        left.extend(problems);
    }
    let missing = faults.missing(&settings.kinds);
    if settings.complete {
        left.extend(incomplete(&missing, &report.coverage.idle_rules()));
    }
    let verdict = Verdict::new(&site, report, faults, lost_contacts, left, panics);
    Ok(Verdict { backups, missing, ..verdict })
}

/// What is wrong with runs that are to be complete.
pub(crate) fn incomplete(faults: &[&str], rules: &[&str]) -> Vec<String> {
    let lines = [("these faults never came", faults), ("these rules judged nothing", rules)];
    let lacking = lines.into_iter().filter(|(_, names)| !names.is_empty());
    lacking.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect()
}

/// Which backups are restored, and against which they are checked: as a control, the first one
/// against the last.
fn pairs(taken: &[Taken], control: bool) -> Vec<(&Taken, &Taken)> {
    match (control, taken.first().zip(taken.last())) {
        (true, Some(ends)) => vec![ends],
        _ => taken.iter().map(|taken| (taken, taken)).collect(),
    }
}

/// The mix of the seed, as far as it can be served here: Bedrock's door has one tenant.
pub(crate) fn mix(settings: &Settings) -> Mix {
    let mut mix = match settings.swarm {
        true => Mix::swarm(settings.seed),
        false => Mix::everything(),
    };
    mix.bedrock_tenants = 1;
    mix.count_max = mix.count_max.min(10);
    mix
}

pub(crate) fn set_up(site: &Site, handlers: &Handlers, mix: &Mix) -> Result<()> {
    let mut caller = Caller::new(site, handlers, "setup")?;
    for tenant in &mix.tenants {
        for of in mix.types.iter().filter(|of| of.served == Served::Handler) {
            let (tenant, type_name) = (tenant.clone(), of.name.clone());
            let set = Operation::SetHandler { tenant, type_name, version: 0 };
            let body = certainly(site, &mut caller, &set)?;
            if !body["error"].is_null() {
                bail!("the handler was refused: {body}");
            }
        }
    }
    Ok(())
}

/// Everything until the final listing: clients and workers are busy while `act` runs. Returns what
/// could not be drained.
pub(crate) fn play<'a>(
    site: &'a Site,
    handlers: &'a Handlers,
    mix: &Mix,
    injector: &mut Injector<'a>,
    act: impl FnOnce(&mut Injector<'a>) -> Result<()>,
) -> Result<Vec<String>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| channel()).unzip();
    let mut workers = Vec::new();
    for numbered in WORKERS {
        workers.extend(Worker::new(site, handlers, numbered, mix, &senders)?);
    }
    let mut clients = Vec::new();
    for (number, news) in (0..).zip(receivers) {
        clients.push(Client::new(site, handlers, number, mix, news)?);
    }
    let mut closing = Closing::new(site, handlers, "closing", &mix.tenants)?;
    let left = thread::scope(|scope| {
        let ending = site.ending();
        let workers: Vec<_> = workers.into_iter().map(|it| scope.spawn(|| it.run())).collect();
        let clients: Vec<_> = clients.into_iter().map(|it| scope.spawn(|| it.run())).collect();
        let end = || {
            act(injector)?;
            site.drain();
            joined(clients)?;
            let left = closing.drain()?;
            injector.watch()?;
            Ok(left)
        };
        let left: Result<Vec<String>> = end();
        drop(ending);
        joined(workers)?;
        left
    })?;
    closing.list()?;
    Ok(left)
}

pub(crate) fn joined(threads: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    threads.into_iter().try_for_each(|thread| match thread.join() {
        Ok(done) => done,
        Err(_) => bail!("a thread panicked"),
    })
}

/// Reads all histories of a run and checks them.
pub(crate) fn judge(history_dir: &Path, drained: bool) -> Result<Report> {
    let mut files = Vec::new();
    for entry in fs::read_dir(history_dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        files.push((name, Box::new(Cursor::new(text)) as Box<dyn BufRead>));
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    let terms = Terms {
        lease_ns: LEASE.as_nanos() as u64,
        claim_ahead_ns: CLAIM_AHEAD.as_nanos() as u64,
        retry_pause_ns: Some(RETRY_PAUSE.as_nanos() as u64),
        round_max_ns: Some(ROUND_MAX.as_nanos() as u64),
        round_interval_ns: ROUND_INTERVAL.as_nanos() as u64,
        stored_ns: Some(STORED.as_nanos() as u64),
        passed_over_max: Some(PASSED_OVER_MAX),
        violations_max: VIOLATIONS_MAX,
        drained,
        ..Terms::default()
    };
    Ok(check(&mut Merge::new(files)?, &terms)?)
}

pub(crate) fn panics(site: &Site) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for number in 0..site.daemon_count() {
        for text in site.consoles(number)? {
            found.extend(text.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
        }
    }
    Ok(found)
}
