//! A daemon on a restored directory: everything is resumed, workers and handlers go on until
//! nothing is left to do, and the checker compares what was known before with what is there now.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use windlass_proof::check::Report;
use windlass_proof::history::{Event, FaultKind, Operation, Target};
use windlass_proof::workload::{Mix, Served};
use windlass_test_kit::process::run_patiently;

use super::{Taken, cut};
use crate::client::certainly;
use crate::clock::Steps;
use crate::closing::Closing;
use crate::contact;
use crate::daemon::Daemon;
use crate::door::{Caller, Handlers};
use crate::run::{self, WORKERS};
use crate::site::Site;
use crate::worker::Worker;

/// Workers beside a restored daemon have other names and results than those before.
const WORKER_NUMBERS: u32 = 1000;
/// Numbers of faults that the run itself does not reach.
const FAULT_NUMBERS: u64 = 1 << 60;

/// Restores what one backup has, and checks it against what was known when another one began:
/// usually the same. Returns also what is wrong beside the history.
pub(crate) fn judge(
    old: &Site,
    handlers: &Handlers,
    mix: &Mix,
    binary: &Path,
    (restored, known): (&Taken, &Taken),
) -> Result<(Report, Vec<String>)> {
    let name = restored.dir.file_name().context("a backup has a name")?.to_string_lossy();
    let name = format!("restored-{name}");
    let site = old.beside(&name)?;
    let mut command = Command::new(binary);
    command.arg("restore").arg(&restored.dir).arg("--data-dir").arg(site.data_dir());
    let ended = run_patiently(&mut command, b"").context("a restore did not end")?;
    ensure!(ended.code == Some(0), "a restore failed: {}", ended.stderr);
    let earlier = contexts(&old.history_dir())?;
    cut::copy(&old.history_dir(), &site.history_dir(), known)?;
    let mut witness = site.witness("restored")?;
    for (fault, number) in (FAULT_NUMBERS..).zip(0..old.daemon_count()) {
        let target = Target::Daemon(old.daemon_name(number).to_owned());
        let began = Event::FaultBegan { fault, kind: FaultKind::Kill, target };
        witness.record_at(known.began_ns, &began)?;
    }
    let mut daemon = Daemon::new(&site, 0, binary);
    daemon.start(&mut witness)?;
    daemon.until_ready(&mut witness)?;
    let left = play(&site, handlers, mix)?;
    let status = daemon.end(Signal::TERM, &mut witness)?;
    for context in contexts(&old.history_dir())?.difference(&earlier) {
        fs::rename(old.history_dir().join(context), site.history_dir().join(context))?;
    }
    contact::note(&site, &Steps::default())?;
    let report = run::judge(&site.history_dir(), left.is_empty())?;
    let mut problems = left;
    if !status.success() {
        problems.push(format!("{name} was terminated: {status}"));
    }
    problems.extend(run::panics(&site)?);
    problems.extend(site.take_problems());
    Ok((report, problems))
}

/// The histories of handlers.
fn contexts(dir: &Path) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(Some(name).filter(|name| name.starts_with("context-")));
    }
    Ok(names)
}

/// Resumes everything, runs what is left, and lists it.
fn play(site: &Site, handlers: &Handlers, mix: &Mix) -> Result<Vec<String>> {
    let mut caller = Caller::new(site, handlers, "reopening")?;
    for operation in reopening(mix) {
        certainly(site, &mut caller, &operation)?;
    }
    let (sender, _receiver) = channel();
    let mut workers = Vec::new();
    for (number, served) in WORKERS {
        let numbered = (WORKER_NUMBERS + number, served);
        workers.extend(Worker::new(site, handlers, numbered, mix, std::slice::from_ref(&sender))?);
    }
    let mut closing = Closing::new(site, handlers, "closing", &mix.tenants)?;
    thread::scope(|scope| {
        let ending = site.ending();
        let workers = workers.into_iter().map(|it| scope.spawn(|| it.run())).collect();
        let left = closing.drain();
        drop(ending);
        run::joined(workers)?;
        let left = left?;
        closing.list()?;
        Ok(left)
    })
}

fn reopening(mix: &Mix) -> Vec<Operation> {
    let mut operations = Vec::new();
    for tenant in &mix.tenants {
        for of in &mix.types {
            let (tenant, type_name) = (tenant.clone(), of.name.clone());
            if of.served == Served::Handler {
                let (tenant, type_name) = (tenant.clone(), type_name.clone());
                operations.push(Operation::SetHandler { tenant, type_name, version: u32::MAX });
            }
            let (concurrency, rate) = (None, None);
            let resume = Operation::Resume { tenant: tenant.clone(), type_name: type_name.clone() };
            let limits = Operation::SetLimits { tenant, type_name, concurrency, rate };
            operations.extend([resume, limits]);
        }
    }
    operations
}
