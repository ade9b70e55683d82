//! Makes each call of an operation fail in turn: the first, then the second, until the operation
//! makes no such call.

// A failing run is named before its panic is.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::call::Kind;
use crate::disk::{Fault, FaultyDisk, Plan};
use crate::tally::{Tally, Tried};
use crate::wanted;

/// What a check finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The files as the process left them, by ending or by a kill.
    AsWritten,
    /// The files after a power cut: what was synced, and by this seed some of the rest.
    PowerCut { seed: Option<u64> },
}

/// One run of an operation, and what is left of it.
#[derive(Debug)]
pub struct Trial {
    pub left: Left,
    /// `None` for the run in which nothing fails.
    pub fault: Option<Fault>,
    /// The number of the call that failed.
    pub number: u64,
    pub kind: Option<Kind>,
    /// The name of its file.
    pub file: String,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { left, fault, number, kind, file } = self;
        match (fault, kind) {
            (Some(fault), Some(kind)) => {
                write!(f, "{fault:?} at call {number}, {kind:?} of {file}; {left:?}")
            }
            _ => write!(f, "no fault; {left:?}"),
        }
    }
}

/// Runs without a fault whose calls are counted if only a part of them is to fail. The shortest
/// counts: timers add calls to one that the machine keeps waiting.
const QUIET_RUNS: usize = 2;
/// How often a run is repeated that should have made a call, but was too short.
const REPEATS_MAX: u32 = 4;

/// One of the faults that each call gets in turn.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) fault: Fault,
    /// Whether a call can fail in this way.
    pub(crate) matches: fn(Kind) -> bool,
}

pub(crate) static FAULTS: [Way; 3] = [
    Way { name: "error", fault: Fault::Error(libc::EIO), matches: |_| true },
    Way { name: "full", fault: Fault::Torn(libc::ENOSPC), matches: needs_room },
    Way { name: "kill", fault: Fault::Kill, matches: |kind| kind != Kind::Read },
];

fn needs_room(kind: Kind) -> bool {
    matches!(kind, Kind::Open | Kind::Write | Kind::Link | Kind::Rename | Kind::MakeDir)
}

/// Runs `operate` on copies of the directory `template`, with one fault in each run, waits until
/// all its threads have ended, and then runs `check` on what is left, without faults. The faults
/// are an error, a full disk and a kill, at each call, or only at every `step`th to save time. Then
/// each of them has calls of its own. Runs without a fault are checked too. A run that fails is
/// printed with the command that repeats it.
///
/// # Panics
/// If files cannot be copied, or if the environment asks for a call that is not made.
pub fn every_call<K: Send>(
    template: &Path,
    step: usize,
    operate: impl Fn(&Path) -> K + Sync,
    check: impl Fn(&Path, &K, &Trial),
) -> Tally {
    let trials = Trials { template, operate, check };
    match wanted::call() {
        Some((way, number)) => trials.one(way, number),
        None => trials.all(wanted::step().unwrap_or(step)),
    }
}

struct Trials<'a, O, C> {
    template: &'a Path,
    operate: O,
    check: C,
}

impl<K: Send, O: Fn(&Path) -> K + Sync, C: Fn(&Path, &K, &Trial)> Trials<'_, O, C> {
    fn one(&self, way: &'static Way, number: u64) -> Tally {
        let checks = self.disturb(way, number, REPEATS_MAX).expect("a run makes this call");
        Tally { step: 1, checks, ..Tally::default() }
    }

    fn all(&self, step: usize) -> Tally {
        let mut tally = Tally { step, ..Tally::default() };
        let runs = if step > 1 { QUIET_RUNS } else { 1 };
        tally.calls = self.quiet_calls(runs);
        for (index, way) in FAULTS.iter().enumerate() {
            let calls = tally.calls.iter().filter(|(kind, _)| (way.matches)(**kind));
            let calls = calls.map(|(_, count)| count).sum();
            let first = (1 + step * index / FAULTS.len()) as u64;
            let mut tried = Tried { fault: way.fault, first, calls, runs: 0 };
            for number in (first..).step_by(step) {
                // What varies from run to run may make a single one too short.
                let repeats = if number <= calls { REPEATS_MAX } else { 0 };
                let Some(checks) = self.disturb(way, number, repeats) else { break };
                tried.runs += 1;
                tally.checks += checks;
            }
            tally.tried.push(tried);
        }
        tally
    }

    /// The calls of the shortest of so many runs without a fault.
    fn quiet_calls(&self, runs: usize) -> BTreeMap<Kind, u64> {
        let _named = Named(None);
        let runs = (0..runs).map(|_| Run::of(self.template, &self.operate, None));
        let shortest = runs.min_by_key(|run| run.disk.calls().values().sum::<u64>());
        let shortest = shortest.expect("there is one at least");
        shortest.check(&[Left::AsWritten, Left::PowerCut { seed: None }], &self.check);
        shortest.disk.calls()
    }

    /// Makes one call fail, and returns how many checks there were. `None` if all of the runs were
    /// too short for that.
    fn disturb(&self, way: &'static Way, number: u64, repeats: u32) -> Option<u64> {
        let _named = Named(Some((way, number)));
        let plan = Plan::nth(number, way.fault, move |call| (way.matches)(call.kind));
        for _ in 0..=repeats {
            let run = Run::of(self.template, &self.operate, Some(plan.clone()));
            if run.disk.hit().is_some() {
                let by_chance = Left::PowerCut { seed: Some(number) };
                let left = [Left::AsWritten, Left::PowerCut { seed: None }, by_chance];
                run.check(&left, &self.check);
                return Some(left.len() as u64);
            }
            // It is short, but it must have done everything.
            run.check(&[Left::AsWritten], &self.check);
        }
        None
    }
}

/// A finished run.
struct Run<K> {
    dir: TempDir,
    disk: FaultyDisk,
    plan: Option<Plan>,
    known: K,
}

impl<K: Send> Run<K> {
    fn of(template: &Path, operate: &(impl Fn(&Path) -> K + Sync), plan: Option<Plan>) -> Run<K> {
        let dir = copy_of(template);
        let disk = FaultyDisk::new(dir.path()).expect("the copy can be read");
        if let Some(plan) = plan.clone() {
            disk.set(plan);
        }
        let known = disk.run(|| operate(dir.path()));
        Run { dir, disk, plan, known }
    }

    fn check(&self, left: &[Left], check: &impl Fn(&Path, &K, &Trial)) {
        let (kind, path) = self.disk.hit().unzip();
        let name = path.as_deref().and_then(Path::file_name).unwrap_or_default();
        let plan = self.plan.as_ref().filter(|_| kind.is_some());
        for left in left {
            let trial = Trial {
                left: *left,
                fault: plan.map(|plan| plan.fault),
                number: plan.map_or(0, |plan| plan.number),
                kind,
                file: name.to_string_lossy().into_owned(),
            };
            check(self.left(*left).path(), &self.known, &trial);
        }
    }

    /// Always in a new directory, so that no lock of the run matters.
    fn left(&self, left: Left) -> TempDir {
        match left {
            Left::AsWritten => copy_of(self.dir.path()),
            Left::PowerCut { seed } => {
                let to = temporary_dir();
                self.disk.power_cut(to.path(), seed).expect("the files can be copied");
                to
            }
        }
    }
}

/// In memory if possible, where the syncs of a check cost nothing.
fn temporary_dir() -> TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

fn copy_of(dir: &Path) -> TempDir {
    let to = temporary_dir();
    copy(dir, to.path()).expect("the files can be copied");
    to
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&copied)?;
            copy(&entry.path(), &copied)?;
        } else {
            fs::copy(entry.path(), copied)?;
        }
    }
    Ok(())
}

/// Says how to repeat the run in which there was a panic.
struct Named(Option<(&'static Way, u64)>);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat this run with: {}", wanted::Command(self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_single_call_fails_if_only_that_is_asked_for() {
        let template = tempfile::tempdir().unwrap();
        let operate = |dir: &Path| {
            let _ = fs::write(dir.join("a"), "a");
            fs::write(dir.join("b"), "b").is_ok()
        };
        let seen = RefCell::new(Vec::new());
        let check = |_: &Path, done: &bool, trial: &Trial| {
            seen.borrow_mut().push((*done, trial.number, trial.kind, trial.left));
        };
        let way = &FAULTS[0];
        let tally = Trials { template: template.path(), operate, check }.one(way, 3);
        // The third call opens the second file.
        let left = [None, Some(3)].map(|seed| Left::PowerCut { seed });
        let left = [Left::AsWritten, left[0], left[1]];
        assert_eq!(seen.into_inner(), left.map(|left| (false, 3, Some(Kind::Open), left)));
        tally.report("one call");
    }
}
