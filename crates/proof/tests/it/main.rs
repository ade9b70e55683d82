//! The whole crate against a queue in memory: the workload drives it, its history is clean, and
//! every bug that is planted in the queue is found by the rule that is there for it.
//!
//! | module | owns |
//! |---|---|
//! | `queue` | a small, correct queue, with bugs on request |
//! | `run` | clients, workers and handlers that write a history of it, under kills |

mod queue;
mod run;

use std::collections::BTreeMap;

use queue::Bug;
use windlass_proof::check::{RULES, Report};
use windlass_proof::workload::Mix;

/// Runs of a correct queue, and at most with each bug.
const SEEDS: u64 = 16;

/// Everything, and swarms.
fn report(seed: u64, bug: Option<Bug>) -> Report {
    let mix = if seed.is_multiple_of(2) { Mix::everything() } else { Mix::swarm(seed) };
    run::run(seed, mix, bug)
}

#[test]
fn runs_of_a_correct_queue_are_clean() {
    let mut faults = 0;
    let mut judged = BTreeMap::new();
    for seed in 0..SEEDS {
        let report = report(seed, None);
        assert!(report.is_clean(), "seed {seed}: {report}");
        assert!(report.coverage.attempts > 100, "seed {seed}: {report}");
        faults += report.coverage.faults;
        for (rule, count) in report.coverage.judged {
            *judged.entry(rule).or_insert(0) += count;
        }
    }
    assert!(faults > SEEDS, "{faults}");
    assert_eq!(judged.len(), RULES.len());
    assert!(
        judged.values().all(|count| *count > 0),
        "every rule had something to judge: {judged:?}"
    );
}

#[test]
fn every_planted_bug_is_found_by_its_rule() {
    let bugs = [
        (Bug::LosesJobs, "lost"),
        (Bug::LeavesJobs, "stuck"),
        (Bug::ForgetsCancels, "in_force"),
        (Bug::RunsCancelled, "after_end"),
        (Bug::BreaksLeasesEarly, "overlap"),
        (Bug::RunsAgain, "extra_run"),
        (Bug::ReusesTokens, "token"),
        (Bug::AcceptsLateOwners, "in_force"),
        (Bug::FollowsTwice, "follower"),
        (Bug::EmitsEarly, "follower"),
        (Bug::AddsTwice, "add_once"),
        (Bug::AddsWhatItRefuses, "refused"),
        (Bug::ForgetsKeys, "idempotency"),
        (Bug::SharesUniqueKeys, "unique"),
        (Bug::IgnoresConcurrency, "concurrency"),
        (Bug::IgnoresRates, "rate"),
        (Bug::NewestFirst, "order"),
        (Bug::StartsEarly, "early"),
        (Bug::RunsExpired, "expired"),
        (Bug::AcceptsLateOwners, "fence"),
        (Bug::Miscounts, "counts"),
        (Bug::DamagesPayloads, "payload"),
        (Bug::ForgetsDeletes, "deleted"),
        (Bug::IgnoresSuspends, "suspended"),
        (Bug::PassesOver, "fairness"),
        (Bug::ForgetsRounds, "round"),
        (Bug::RunsFamiliesTogether, "family"),
        (Bug::LeavesParents, "stuck"),
    ];
    for (bug, rule) in bugs {
        let finds = |seed| report(seed, Some(bug)).totals.iter().any(|(name, _)| *name == rule);
        assert!((0..SEEDS).any(finds), "{bug:?} was not found by {rule}");
    }
}

#[test]
fn a_run_is_repeatable() {
    let verdict = || run::run(3, Mix::swarm(3), None);
    assert_eq!(verdict(), verdict());
}
