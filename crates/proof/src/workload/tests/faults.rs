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
