//! Many schedules, one after the other on each processor. They share nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::print;
use crate::schedule::{self, Settings};
use crate::watchdog::Watchdog;

/// Failures that are printed; more of them say no more.
const PRINTED_MAX: u64 = 5;

#[derive(Default)]
struct Tally {
    schedules: AtomicU64,
    jobs: AtomicU64,
    attempts: AtomicU64,
    faults: AtomicU64,
    failed: AtomicU64,
}

/// Runs seeds from `from` on, for as long as both bounds allow. Whether all were clean.
pub(crate) fn run(
    from: u64,
    seeds: u64,
    time_max: Option<Duration>,
    fleet: Option<usize>,
    watchdog: &Watchdog,
) -> Result<bool> {
    let began = Instant::now();
    let (next, tally) = (AtomicU64::new(0), Tally::default());
    let is_over = || time_max.is_some_and(|most| began.elapsed() >= most);
    let work = || -> Result<()> {
        while !is_over() && tally.failed.load(Ordering::Relaxed) < PRINTED_MAX {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                break;
            }
            let settings = Settings { seed: from + number, control: None, fleet };
            watchdog.watch(settings, |settings| play(settings, &tally))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => bail!("a thread panicked"),
        })
    })?;
    let took = began.elapsed();
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let schedules = count(&tally.schedules);
    println!(
        "{schedules} schedules in {:.1} s ({:.0} a minute): {} jobs, {} attempts, {} faults; {} \
         failed",
        took.as_secs_f64(),
        schedules as f64 / took.as_secs_f64() * 60.0,
        count(&tally.jobs),
        count(&tally.attempts),
        count(&tally.faults),
        count(&tally.failed),
    );
    Ok(count(&tally.failed) == 0)
}

fn play(settings: Settings, tally: &Tally) -> Result<()> {
    let verdict = schedule::play(settings)?;
    let coverage = &verdict.report.coverage;
    let add = |to: &AtomicU64, count: u64| to.fetch_add(count, Ordering::Relaxed);
    add(&tally.schedules, 1);
    add(&tally.jobs, coverage.jobs);
    add(&tally.attempts, coverage.attempts);
    add(&tally.faults, coverage.faults);
    if !verdict.is_clean() {
        add(&tally.failed, 1);
        print(&verdict, settings);
    }
    Ok(())
}
