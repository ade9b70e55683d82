//! One run: daemons, clients, workers and faults; then the end, and the verdict.

use std::fs;
use std::io::{BufRead, Cursor};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use windlass_proof::check::{Report, Terms, check};
use windlass_proof::history::{FaultKind, Merge, Operation};
use windlass_proof::workload::{Mix, Served, TypeMix};

use crate::client::{Client, certainly};
use crate::closing::Closing;
use crate::control::Control;
use crate::daemon::{Daemon, LEASE};
use crate::door::{Caller, Handlers};
use crate::fault::{Done, Injector};
use crate::site::Site;
use crate::worker::Worker;

const CLIENTS: u32 = 4;
const WORKERS: u32 = 16;
/// Longest time between a daemon's claim of a small batch and the begin of its last run, without
/// faults.
const CLAIM_AHEAD: Duration = Duration::from_secs(10);
/// The handler. It knows where its history is, and when the run began.
const HANDLER: &str = include_str!("handler.py");

pub(crate) struct Settings<'a> {
    pub(crate) seed: u64,
    pub(crate) busy: Duration,
    pub(crate) kinds: &'a [FaultKind],
    pub(crate) daemons: u32,
    pub(crate) swarm: bool,
    /// Lose data on purpose.
    pub(crate) control: bool,
    pub(crate) dir: &'a Path,
    pub(crate) binary: &'a Path,
}

pub(crate) struct Verdict {
    pub(crate) report: Report,
    pub(crate) faults: Done,
    pub(crate) finishes: u64,
    pub(crate) unknown: u64,
    /// What is left to do although the run should be drained.
    pub(crate) left: Vec<String>,
    /// Panics in the output of daemons.
    pub(crate) panics: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        let quiet = self.faults.problems.is_empty() && self.left.is_empty();
        quiet && self.panics.is_empty() && self.report.is_clean()
    }
}

pub(crate) fn run(settings: &Settings<'_>) -> Result<Verdict> {
    let site = Site::new(settings.seed, settings.dir, settings.daemons)?;
    let mix = mix(settings);
    let history_dir = site.history_dir();
    let source = HANDLER
        .replace("HISTORY_DIR", history_dir.to_str().context("the path is not UTF-8")?)
        .replace("ORIGIN_NS", &site.origin_ns().to_string());
    let handlers = Handlers { source };
    let daemons = 0..site.daemon_count();
    let daemons = daemons.map(|number| Daemon::new(&site, number, settings.binary));
    let control = settings.control.then(|| Control::new(&site.data_dir()));
    let mut injector = Injector::new(&site, daemons.collect(), control)?;
    set_up(&site, &handlers, &mix)?;
    let played = play(&site, &handlers, &mix, settings, &mut injector);
    site.end();
    let left = played?;
    let faults = injector.close()?;
    let panics = panics(&site)?;
    let report = judge(&site.history_dir(), settings.daemons, left.is_empty())?;
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
    let (finishes, unknown) = (count(&site.tally.finishes), count(&site.tally.unknown));
    Ok(Verdict { report, faults, finishes, unknown, left, panics })
}

/// The mix of the seed, with the types that can be served here.
fn mix(settings: &Settings<'_>) -> Mix {
    let mut mix = match settings.swarm {
        true => Mix::swarm(settings.seed),
        false => Mix::everything(),
    };
    mix.types.retain(|of| of.served != Served::Bedrock);
    if mix.types.is_empty() {
        let of = |name: &str, served| TypeMix { name: name.into(), served };
        mix.types = vec![of("run-0", Served::Handler), of("pull-1", Served::Pull)];
    }
    mix.count_max = mix.count_max.min(10);
    mix
}

fn set_up(site: &Site, handlers: &Handlers, mix: &Mix) -> Result<()> {
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

/// Everything until the final listing. Returns what could not be drained.
fn play<'a>(
    site: &'a Site,
    handlers: &'a Handlers,
    mix: &Mix,
    settings: &Settings<'_>,
    injector: &mut Injector<'a>,
) -> Result<Vec<String>> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| channel()).unzip();
    let mut workers = Vec::new();
    for number in 0..WORKERS {
        workers.extend(Worker::new(site, handlers, number, mix, &senders)?);
    }
    let mut clients = Vec::new();
    for (number, news) in (0..).zip(receivers) {
        clients.push(Client::new(site, handlers, number, mix, news)?);
    }
    let mut closing = Closing::new(site, handlers, &mix.tenants)?;
    let plan = Injector::plan(site, settings.kinds, settings.busy);
    thread::scope(|scope| {
        let workers: Vec<_> = workers.into_iter().map(|it| scope.spawn(|| it.run())).collect();
        let clients: Vec<_> = clients.into_iter().map(|it| scope.spawn(|| it.run())).collect();
        let end = || {
            injector.run(&plan, settings.busy)?;
            site.drain();
            joined(clients)?;
            let left = closing.drain()?;
            injector.watch()?;
            Ok(left)
        };
        let left: Result<Vec<String>> = end();
        site.end();
        joined(workers)?;
        let left = left?;
        closing.list()?;
        Ok(left)
    })
}

fn joined(threads: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    threads.into_iter().try_for_each(|thread| match thread.join() {
        Ok(done) => done,
        Err(_) => bail!("a thread panicked"),
    })
}

/// Reads all histories of a run and checks them.
pub(crate) fn judge(history_dir: &Path, daemons: u32, drained: bool) -> Result<Report> {
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
        rate_daemons: daemons,
        drained,
        ..Terms::default()
    };
    Ok(check(&mut Merge::new(files)?, &terms)?)
}

fn panics(site: &Site) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(site.console_dir())? {
        let text = fs::read(entry?.path()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        found.extend(text.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
    }
    Ok(found)
}
