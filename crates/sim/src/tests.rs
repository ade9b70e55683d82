//! The simulation itself is tried: it repeats exactly, and it finds planted bugs.

use std::collections::BTreeSet;

use windlass_proof::history::{DaemonEvent, Event, Record, Recorder};

use crate::control::Control;
use crate::schedule::{Settings, Verdict, play};

/// Enough for every planted bug but `LateOwner`, and few enough for a debug build. `--control`
/// plays more of them.
const SEEDS: u64 = 60;
const FLEET: usize = 20;

fn played(seed: u64, control: Option<Control>) -> Verdict {
    play(Settings { seed, control, fleet: None }).unwrap()
}

fn text(verdict: &Verdict) -> Vec<u8> {
    let mut recorder = Recorder::new(Vec::new());
    for record in &verdict.history {
        recorder.record(record.at, &record.event).unwrap();
    }
    recorder.into_inner()
}

#[test]
fn a_seed_gives_the_same_history_byte_for_byte() {
    for seed in 0..10 {
        let (one, two) = (text(&played(seed, None)), text(&played(seed, None)));
        assert!(!one.is_empty());
        assert!(one == two, "seed {seed} differs");
    }
}

#[test]
fn different_seeds_give_different_histories() {
    assert_ne!(text(&played(1, None)), text(&played(2, None)));
}

#[test]
fn schedules_are_clean_and_not_empty() {
    let (mut jobs, mut attempts, mut faults) = (0, 0, 0);
    for seed in 0..20 {
        let verdict = played(seed, None);
        assert!(verdict.is_clean(), "seed {seed}: {} {:?}", verdict.report, verdict.problems);
        let coverage = verdict.report.coverage;
        jobs += coverage.jobs;
        attempts += coverage.attempts;
        faults += coverage.faults;
    }
    assert!(jobs > 200 && attempts > 200 && faults > 20, "{jobs} {attempts} {faults}");
}

#[test]
fn a_fleet_is_clean_and_busy() {
    let fleet = Some(FLEET);
    let verdict = play(Settings { seed: 0, control: None, fleet }).unwrap();
    assert!(verdict.is_clean(), "{} {:?}", verdict.report, verdict.problems);
    let coverage = verdict.report.coverage;
    assert!(coverage.jobs > 50 && coverage.faults > 5, "{coverage:?}");
    let ready = |record: &Record| match &record.event {
        Event::Daemon { daemon, what: DaemonEvent::Ready } => Some(daemon.clone()),
        _ => None,
    };
    let daemons: BTreeSet<String> = verdict.history.iter().filter_map(ready).collect();
    assert_eq!(daemons.len(), FLEET);
}

/// Whether its own rule finds a planted bug within the seeds.
fn is_found(control: Control) -> bool {
    (0..SEEDS).any(|seed| control.is_found(&played(seed, Some(control)).report))
}

macro_rules! are_found {
    ($($name:ident: $control:ident,)*) => {
        $(#[test]
        fn $name() {
            assert!(is_found(Control::$control));
        })*
    };
}

are_found! {
    syncs_that_are_not_done_are_found: NoSync,
    a_position_that_moves_before_its_jobs_are_stored_is_found: MarkFirst,
    tokens_that_are_ignored_are_found: NoTokens,
    unique_keys_that_are_ignored_are_found: NoUnique,
    a_limit_of_running_jobs_that_is_ignored_is_found: NoConcurrency,
    a_limit_of_starts_that_is_ignored_is_found: NoRate,
    followers_that_are_dropped_are_found: NoFollowers,
    pauses_that_are_left_out_are_found: NoPauses,
}
