//! Makes each call of an operation fail in turn: the first, then the second, until the operation
//! makes no such call.

// Numbers are reported, and a failing run is named before its panic.
#![allow(clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::call::Kind;
use crate::disk::{Fault, FaultyDisk, Plan};

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

/// How much was tried.
#[derive(Debug, Default)]
pub struct Tally {
    step: usize,
    /// Calls of one run without a fault.
    pub calls: BTreeMap<Kind, u64>,
    pub tried: Vec<Tried>,
    pub checks: u64,
}

/// How much was tried with one fault.
#[derive(Debug)]
pub struct Tried {
    pub fault: Fault,
    /// The first call that fails in this way; then every `step`th.
    pub first: u64,
    /// Calls that can fail in this way, of one run without a fault.
    pub calls: u64,
    /// Runs in which one of them did.
    pub runs: u64,
}

impl Tally {
    /// Prints the numbers, for the table in docs/reliability.md.
    ///
    /// # Panics
    /// If calls of an operation that always makes the same ones were left out.
    pub fn report(&self, what: &str) {
        self.report_varying(what, 100);
    }

    /// As `report`, for an operation that makes more calls in one run than in another: each fault
    /// must have come at this percentage of the calls at least.
    ///
    /// # Panics
    /// If it has not.
    pub fn report_varying(&self, what: &str, percent: u64) {
        let Tally { step, calls, tried, checks } = self;
        let all: u64 = calls.values().sum();
        let faults: u64 = tried.iter().map(|tried| tried.runs).sum();
        eprintln!("{what}: {all} calls {calls:?}, {faults} faults, {checks} checks, step {step}");
        for tried in tried {
            let Tried { fault, first, calls, runs } = tried;
            eprintln!("{what}: {fault:?}: {runs} runs for {calls} calls, from call {first} on");
            let due = tried.due(*step as u64, percent);
            assert!(*runs >= due, "{fault:?} came at {runs} calls instead of {due}");
        }
    }
}

impl Tried {
    /// How often it must have come if it reaches this percentage of the calls.
    fn due(&self, step: u64, percent: u64) -> u64 {
        (self.calls * percent / 100 + step).saturating_sub(self.first) / step
    }
}

/// Makes another part of the calls fail: 1 for all of them.
const STEP_VARIABLE: &str = "WINDLASS_NTH_STEP";

/// Runs without a fault whose calls are counted if only a part of them is to fail. The shortest
/// counts: timers add calls to one that the machine keeps waiting.
const QUIET_RUNS: usize = 2;
/// How often a run is repeated that should have made a call, but was too short.
const REPEATS_MAX: u32 = 4;

type Matches = fn(Kind) -> bool;

/// The faults that each call gets in turn.
const FAULTS: [(Fault, Matches); 3] = [
    (Fault::Error(libc::EIO), |_| true),
    (Fault::Torn(libc::ENOSPC), needs_room),
    (Fault::Kill, |kind| kind != Kind::Read),
];

fn needs_room(kind: Kind) -> bool {
    matches!(kind, Kind::Open | Kind::Write | Kind::Link | Kind::Rename | Kind::MakeDir)
}

/// Runs `operate` on copies of the directory `template`, with one fault in each run, waits until
/// all its threads have ended, and then runs `check` on what is left, without faults. The faults
/// are an error, a full disk and a kill, at each call, or only at every `step`th to save time. Then
/// each of them has calls of its own.
///
/// # Panics
/// If files cannot be copied.
pub fn every_call<K: Send>(
    template: &Path,
    step: usize,
    operate: impl Fn(&Path) -> K + Sync,
    check: impl Fn(&Path, &K, &Trial),
) -> Tally {
    let wanted = std::env::var(STEP_VARIABLE).ok().and_then(|step| step.parse().ok());
    let step = wanted.unwrap_or(step);
    let mut tally = Tally { step, ..Tally::default() };
    let runs = if step > 1 { QUIET_RUNS } else { 1 };
    let quiet = (0..runs).map(|_| Run::of(template, &operate, None));
    let quiet = quiet.min_by_key(|run| run.disk.calls().values().sum::<u64>());
    let quiet = quiet.expect("there is one at least");
    tally.calls = quiet.disk.calls();
    quiet.check(&[Left::AsWritten, Left::PowerCut { seed: None }], &check);
    for (index, (fault, matches)) in FAULTS.into_iter().enumerate() {
        let calls = tally.calls.iter().filter(|(kind, _)| matches(**kind)).map(|(_, n)| n).sum();
        let first = (1 + step * index / FAULTS.len()) as u64;
        let mut tried = Tried { fault, first, calls, runs: 0 };
        for number in (first..).step_by(step) {
            let plan = Plan::nth(number, fault, move |call| matches(call.kind));
            // What varies from run to run may make a single one too short.
            let repeats = if number <= calls { REPEATS_MAX } else { 0 };
            let mut runs = (0..=repeats).map(|_| Run::of(template, &operate, Some(plan.clone())));
            let Some(run) = runs.find(|run| run.disk.hit().is_some()) else { break };
            let by_chance = Left::PowerCut { seed: Some(number) };
            let left = [Left::AsWritten, Left::PowerCut { seed: None }, by_chance];
            tried.runs += 1;
            tally.checks += left.len() as u64;
            run.check(&left, &check);
        }
        tally.tried.push(tried);
    }
    tally
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
        let named = Named(plan.as_ref().map(|plan| (plan.fault, plan.number)));
        let known = disk.run(|| operate(dir.path()));
        drop(named);
        Run { dir, disk, plan, known }
    }

    fn check(&self, left: &[Left], check: &impl Fn(&Path, &K, &Trial)) {
        let (kind, path) = self.disk.hit().unzip();
        let name = path.as_deref().and_then(Path::file_name).unwrap_or_default();
        for left in left {
            let trial = Trial {
                left: *left,
                fault: self.plan.as_ref().map(|plan| plan.fault),
                number: self.plan.as_ref().map_or(0, |plan| plan.number),
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

/// Says in which run there was a panic.
struct Named(Option<(Fault, u64)>);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the run was: {:?}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_due_at_every_step_from_its_first_call_on() {
        let due = |first, calls, step, percent| {
            Tried { fault: Fault::Kill, first, calls, runs: 0 }.due(step, percent)
        };
        assert_eq!([due(1, 7, 1, 100), due(1, 0, 1, 100)], [7, 0]);
        // 33, 130, 227 and 324 of 365; 33, 130 and 227 of 292.
        assert_eq!([due(33, 365, 97, 100), due(33, 365, 97, 80)], [4, 3]);
        assert_eq!([due(97, 97, 97, 100), due(97, 96, 97, 100)], [1, 0]);
        assert_eq!(due(65, 3, 97, 100), 0, "it makes fewer calls than that");
    }
}
