//! Plans of faults.

use std::collections::{BTreeSet, HashSet};

use super::super::*;
use crate::history::FaultKind;

const SECOND_NS: u64 = 1_000_000_000;

fn all_faults() -> FaultMix {
    FaultMix::of(|_| true, 3, 3600 * SECOND_NS, 10 * SECOND_NS)
}

#[test]
fn a_plan_of_faults_is_repeatable_and_within_its_bounds() {
    let mix = all_faults();
    let plan = fault_plan(5, &mix);
    assert_eq!(plan, fault_plan(5, &mix));
    assert_ne!(plan, fault_plan(6, &mix));
    assert!(plan.len() > 50 && plan.len() <= mix.faults_max, "{}", plan.len());
    assert!(plan.windows(2).all(|pair| pair[0].at_ns + pair[0].for_ns < pair[1].at_ns));
    assert!(plan.last().is_some_and(|last| last.at_ns + last.for_ns <= mix.run_ns));
    assert!(plan.iter().all(|fault| !matches!(fault.aim, Aim::Daemon(number) if number > 2)));
    let few = FaultMix { faults_max: 7, ..mix };
    assert_eq!(fault_plan(5, &few).len(), 7);
    let none = FaultMix { kinds: Vec::new(), ..few };
    assert_eq!(fault_plan(5, &none), []);
}

#[test]
fn every_kind_of_fault_appears_and_some_stops_outlive_the_lease() {
    let mix = all_faults();
    let plans: Vec<PlannedFault> = (0..20).flat_map(|seed| fault_plan(seed, &mix)).collect();
    let kinds: HashSet<_> = plans.iter().map(|fault| std::mem::discriminant(&fault.kind)).collect();
    assert_eq!(kinds.len(), mix.kinds.len());
    let stops = || plans.iter().filter(|fault| fault.kind == FaultKind::Stop);
    assert!(stops().any(|stop| stop.for_ns > mix.lease_ns));
    assert!(stops().any(|stop| stop.for_ns < mix.lease_ns));
    let steps = plans.iter().filter_map(|fault| match fault.kind {
        FaultKind::ClockStep { by_ms } => Some(by_ms.signum()),
        _ => None,
    });
    assert_eq!(steps.collect::<BTreeSet<_>>(), [-1, 1].into());
}

#[test]
fn swarms_of_faults_differ_and_are_never_empty() {
    let swarms: Vec<FaultMix> = (0..64).map(|seed| all_faults().swarm(seed)).collect();
    assert!(swarms.iter().all(|mix| !mix.kinds.is_empty()));
    let kinds = |mix: &FaultMix| format!("{:?}", mix.kinds);
    assert!(swarms.iter().map(kinds).collect::<HashSet<_>>().len() > 60);
}

fn opened(seed: u64, mix: &FaultMix) -> Vec<PlannedFault> {
    fault_plan(seed, &FaultMix { each_first: true, ..mix.clone() })
}

#[test]
fn a_plan_that_begins_with_each_kind_has_each_once_before_any_comes_again() {
    let mix = all_faults();
    let name = |fault: &PlannedFault| std::mem::discriminant(&fault.kind);
    for seed in 0..50 {
        let plan = opened(seed, &mix);
        let first = &plan[..mix.kinds.len()];
        assert_eq!(first.iter().map(name).collect::<HashSet<_>>().len(), mix.kinds.len());
        let steps = first.iter().filter(|it| matches!(it.kind, FaultKind::ClockStep { .. }));
        assert!(steps.clone().all(|it| it.kind != FaultKind::ClockStep { by_ms: 0 }));
        assert!(first.iter().all(|fault| fault.aim != Aim::Holder), "each has an effect");
    }
    let orders: HashSet<_> = (0..50).map(|seed| format!("{:?}", opened(seed, &mix)[0])).collect();
    assert!(orders.len() > 10);
}

#[test]
fn two_seeds_that_follow_each_other_begin_with_different_halves() {
    let mix = all_faults();
    let name = |fault: &PlannedFault| std::mem::discriminant(&fault.kind);
    for seed in 0..50 {
        let plans = [opened(seed, &mix), opened(seed + 1, &mix)];
        let halves = plans.iter().flat_map(|plan| &plan[..mix.kinds.len().div_ceil(2)]);
        assert_eq!(halves.map(name).collect::<HashSet<_>>().len(), mix.kinds.len());
    }
}

#[test]
fn a_plan_has_one_calm_stretch_if_there_is_time_for_it() {
    let calm_ns = 25 * SECOND_NS;
    let mix = |seconds: u64| FaultMix { calm_ns, run_ns: seconds * SECOND_NS, ..all_faults() };
    for seed in 0..50 {
        let mix = mix(120);
        let at = calm_at(seed, &mix).unwrap();
        assert!((60 * SECOND_NS..=95 * SECOND_NS).contains(&at), "{at}");
        let plan = fault_plan(seed, &mix);
        let within = |it: &PlannedFault| it.at_ns < at + calm_ns && it.at_ns + it.for_ns >= at;
        assert!(!plan.iter().any(within) && plan.iter().any(|it| it.at_ns < at), "seed {seed}");
    }
    let plans = || (0..50).flat_map(|seed| fault_plan(seed, &mix(120)));
    assert!(plans().any(|fault| fault.at_ns > 100 * SECOND_NS), "it goes on after that");
    assert_eq!(calm_at(1, &mix(49)), None);
    assert_eq!(calm_at(1, &all_faults()), None);
}
