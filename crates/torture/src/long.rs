//! The long form: one run after another, with rising seeds, until the time is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use windlass_proof::check::Coverage;
use windlass_proof::history::FaultKind;

use crate::args::Fault;
use crate::fault::Done;
use crate::run::{Settings, Verdict, incomplete};

/// Clients work for so long in each run: short, so that a failing seed is short too.
const ROUND: Duration = Duration::from_secs(60);
/// Daemons of a run: one to so many.
const DAEMONS_MAX: u64 = 3;
/// One of so many runs has its handlers in the sandbox.
const SANDBOX_EVERY: u64 = 4;
/// It ends after so many failed runs.
const FAILED_MAX: usize = 10;
/// Runs beyond the time for kinds of faults that have not come by then.
const EXTRA_RUNS_MAX: u32 = 2;

/// Whether all runs were clean and, if that was asked for, every kind of fault came.
pub(crate) fn run(settings: &Settings, keep: bool) -> bool {
    let began = Instant::now();
    let mut sum = Sum::default();
    let mut seed = settings.seed;
    let mut extra = 0;
    while sum.failed.len() < FAILED_MAX {
        let mut left = settings.busy.saturating_sub(began.elapsed());
        if left.is_zero() {
            let lacks = settings.complete && !sum.lacks(&settings.kinds).is_empty();
            if !lacks || extra == EXTRA_RUNS_MAX {
                break;
            }
            extra += 1;
            left = ROUND;
        }
        let round = round(settings, seed, left);
        match crate::run_in_directory(&round, keep) {
            Ok(verdict) => sum.add(seed, &verdict, began.elapsed()),
            Err(error) => {
                println!("seed {seed}: FAILED: {error:#}");
                sum.failed.push(seed);
            }
        }
        sum.runs += 1;
        seed += 1;
    }
    sum.print(settings.seed, began.elapsed());
    let lacks = sum.lacks(&settings.kinds);
    lacks.iter().for_each(|lack| println!("{lack}"));
    sum.failed.is_empty() && (lacks.is_empty() || !settings.complete)
}

/// The run with this seed, if there is so much time left. Whole seconds, as its command has them.
/// Of all faults, one in so many runs has only those that leave handlers in their sandbox, and all
/// features.
pub(crate) fn round(settings: &Settings, seed: u64, left: Duration) -> Settings {
    let seconds = left.min(ROUND).as_secs().max(1);
    let all = settings.faults == [Fault::All];
    let in_sandbox = all && seed % SANDBOX_EVERY == SANDBOX_EVERY - 1;
    let (faults, kinds) = match in_sandbox {
        true => (Fault::IN_SANDBOX.to_vec(), Fault::kinds_in_sandbox()),
        false => (settings.faults.clone(), settings.kinds.clone()),
    };
    Settings {
        seed,
        faults,
        kinds,
        // Backups take their time.
        busy: if settings.backup { ROUND } else { Duration::from_secs(seconds) },
        daemons: (seed % DAEMONS_MAX) as u32 + 1,
        swarm: !in_sandbox && seed / DAEMONS_MAX % 2 == 1,
        // All runs together are to be complete.
        complete: false,
        ..settings.clone()
    }
}

#[derive(Default)]
struct Sum {
    runs: u64,
    jobs: u64,
    attempts: u64,
    violations: u64,
    done: Done,
    /// By rule: what all runs had for it to judge.
    judged: BTreeMap<&'static str, u64>,
    failed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, seed: u64, verdict: &Verdict, at: Duration) {
        let Coverage { jobs, attempts, .. } = verdict.report.coverage;
        if verdict.is_clean() {
            println!("{} s: seed {seed}: clean; {jobs} jobs; {}", at.as_secs(), verdict.faults);
        } else {
            self.failed.push(seed);
        }
        self.jobs += jobs;
        self.attempts += attempts;
        self.violations += verdict.report.totals.iter().map(|(_, total)| total).sum::<u64>();
        self.done.merge(&verdict.faults);
        for (rule, count) in &verdict.report.coverage.judged {
            *self.judged.entry(rule).or_default() += count;
        }
    }

    /// What no run had, of these faults and of what rules could judge.
    fn lacks(&self, kinds: &[FaultKind]) -> Vec<String> {
        let idle = self.judged.iter().filter(|(_, count)| **count == 0).map(|(rule, _)| *rule);
        incomplete(&self.done.missing(kinds), &idle.collect::<Vec<_>>())
    }

    fn print(&self, first: u64, took: Duration) {
        let Sum { runs, jobs, attempts, violations, done, failed, .. } = self;
        let last = first + runs.saturating_sub(1);
        println!(
            "seeds {first} to {last}, {} s: {done}; {jobs} jobs, {attempts} attempts; \
             {violations} violations, {} problems, failed seeds: {failed:?}",
            took.as_secs(),
            done.problems.len(),
        );
    }
}
