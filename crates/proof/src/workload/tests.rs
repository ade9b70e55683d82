//! The same seed gives the same run; everything appears; swarms differ; bounds hold.

use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::history::{
    Add, Answer, Claimed, FaultKind, Form, JobId, Operation, Origin, Outcome, Plan, Token,
};

const SECOND_NS: u64 = 1_000_000_000;

/// Operations of a client whose requests are all answered well.
fn operations(seed: u64, mix: Mix, count: usize) -> (Vec<Operation>, Workload) {
    let mut client = Workload::new(seed, 1, mix);
    let mut next = 0;
    let operations = (0..count).map(|_| {
        let operation = client.next_operation();
        let outcome = match &operation {
            Operation::Add(add) => {
                let ids: Vec<JobId> =
                    (0..u64::from(add.count)).map(|index| JobId(next + index)).collect();
                next += u64::from(add.count);
                client.held(&add.tenant, ids[0]);
                Outcome::Ids(ids)
            }
            _ => Outcome::Nothing,
        };
        client.answered(&operation, &Answer::Done(outcome));
        operation
    });
    (operations.collect(), client)
}

fn adds(operations: &[Operation]) -> impl Iterator<Item = &Add> {
    operations.iter().filter_map(|operation| match operation {
        Operation::Add(add) => Some(&**add),
        _ => None,
    })
}

#[test]
fn the_same_seed_gives_the_same_operations() {
    let run = |seed| operations(seed, Mix::swarm(seed), 2000).0;
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    let client = |number| Workload::new(7, number, Mix::everything()).next_operation();
    assert_ne!((0..9).map(client).collect::<Vec<_>>(), vec![client(0); 9]);
}

#[test]
fn every_form_and_every_operation_appears() {
    let (all, _) = operations(1, Mix::everything(), 3000);
    let has = |wanted: &dyn Fn(&Add) -> bool| adds(&all).any(wanted);
    let of = |wanted: &dyn Fn(&Form) -> bool| adds(&all).any(|add| wanted(&add.form));
    assert!(has(&|add| add.count > 1) && has(&|add| add.idempotency_key.is_some()));
    assert!(of(&|form| form.payload_bytes == 0) && of(&|form| form.payload_bytes > 2 << 20));
    assert!(of(&|form| form.unique.is_some()) && of(&|form| form.parent.is_some()));
    assert!(of(&|form| form.then.is_some()) && of(&|form| form.repeat.is_some()));
    assert!(of(&|form| form.delay_ns.is_some()) && of(&|form| form.priority.is_some()));
    assert!(of(&|form| form.plan.emits > 0) && of(&|form| form.plan.statuses.len() > 1));
    let name = |operation: &Operation| {
        let text = serde_json::to_value(operation).unwrap();
        text.as_object().unwrap().keys().next().unwrap().clone()
    };
    let names: BTreeSet<String> = all.iter().map(name).collect();
    let expected = [
        "add",
        "cancel",
        "delete",
        "invalid",
        "remove_handler",
        "resume",
        "retry",
        "set_handler",
        "set_limits",
        "suspend",
    ];
    assert!(names.iter().eq(expected), "{names:?}");
    let tenants: HashSet<&str> = adds(&all).map(|add| add.tenant.as_str()).collect();
    assert_eq!(tenants.len(), 3);
}

#[test]
fn adds_with_a_key_are_sent_again_unchanged() {
    let (all, _) = operations(3, Mix::everything(), 2000);
    let keyed: Vec<&Add> =
        adds(&all).filter(|add| add.idempotency_key.as_deref().is_some_and(is_own)).collect();
    let mut again = 0;
    for (number, add) in keyed.iter().enumerate() {
        let earlier = keyed[..number].iter().find(|e| e.idempotency_key == add.idempotency_key);
        again += usize::from(earlier.is_some());
        assert!(earlier.is_none_or(|earlier| earlier == add));
    }
    assert!(again > 10, "{again}");
}

fn is_own(key: &str) -> bool {
    key.starts_with("client-")
}

#[test]
fn marks_differ_between_adds_and_clients() {
    let mut seen = HashSet::new();
    for client in 0..3 {
        let mut mix = Mix::everything();
        mix.set(Feature::Idempotent, 0);
        let mut client = Workload::new(5, client, mix);
        for _ in 0..500 {
            if let Operation::Add(add) = client.next_operation() {
                assert!(seen.insert(add.mark));
            }
        }
    }
}

#[test]
fn changes_refer_to_jobs_that_were_acknowledged() {
    let (all, client) = operations(9, Mix::everything(), 20_000);
    let jobs = adds(&all).map(|add| u64::from(add.count)).sum::<u64>();
    for operation in &all {
        if let Operation::Cancel { job, .. }
        | Operation::Retry { job, .. }
        | Operation::Delete { job, .. } = operation
        {
            assert!(job.0 < jobs);
        }
    }
    assert!(client.known_jobs() <= 3 * KNOWN_JOBS_MAX);
    assert!(adds(&all).filter(|add| add.form.repeat.is_some()).count() <= 32);
}

#[test]
fn what_a_swarm_leaves_out_does_not_appear_and_swarms_differ() {
    let subset = |seed| Feature::ALL.map(|feature| Mix::swarm(seed).has(feature));
    let subsets: HashSet<_> = (0..64).map(subset).collect();
    assert!(subsets.len() > 60, "{}", subsets.len());
    for feature in Feature::ALL {
        let index = feature as usize;
        let with = subsets.iter().filter(|subset| subset[index]).count();
        assert!(feature == Feature::Plain || (10..54).contains(&with), "{feature:?}: {with}");
    }
    let mut mix = Mix::everything();
    let off = [Feature::Unique, Feature::Cancel, Feature::Invalid, Feature::Repeat];
    off.into_iter().for_each(|feature| mix.set(feature, 0));
    mix.set(Feature::Plain, 0);
    assert!(mix.has(Feature::Plain), "it is always there");
    let (all, _) = operations(2, mix, 3000);
    assert!(adds(&all).all(|add| add.form.unique.is_none() && add.form.repeat.is_none()));
    let invalid = |operation: &Operation| matches!(operation, Operation::Invalid { .. });
    assert!(!all.iter().any(|o| invalid(o) || matches!(o, Operation::Cancel { .. })));
}

#[test]
fn the_closing_undoes_what_would_keep_jobs_waiting() {
    let mut mix = Mix::everything();
    let often = [Feature::Suspend, Feature::Concurrency, Feature::Repeat];
    often.into_iter().for_each(|feature| mix.set(feature, 50));
    let (all, mut client) = operations(4, mix, 500);
    let closing = client.closing();
    for operation in &all {
        let undone = |wanted: &Operation| closing.contains(wanted);
        match operation.clone() {
            Operation::Suspend { tenant, type_name } => {
                assert!(undone(&Operation::Resume { tenant, type_name }));
            }
            Operation::SetLimits { tenant, type_name, .. } => {
                let (concurrency, rate) = (None, None);
                assert!(undone(&Operation::SetLimits { tenant, type_name, concurrency, rate }));
            }
            _ => {}
        }
    }
    let cancels = closing.iter().filter(|o| matches!(o, Operation::Cancel { .. })).count();
    assert!((1..=16).contains(&cancels), "{cancels}");
    assert_eq!(client.closing(), []);
}

#[test]
fn payloads_say_where_they_come_from_and_have_their_length() {
    let plan = Plan { statuses: vec![500, 200], emits: 1, run_ms: 3 };
    let add = |payload_bytes| Add {
        tenant: "a".into(),
        type_name: "t".into(),
        count: 2,
        mark: 77,
        idempotency_key: None,
        form: Form { payload_bytes, plan: plan.clone(), ..Form::default() },
    };
    let origin = Some(Origin::Add { mark: 77, index: 1 });
    for bytes in [200, 1000, 3 << 20] {
        let payload = payload::of_add(&add(bytes), 1);
        assert_eq!(payload.len() as u64, bytes);
        assert_eq!(payload::read(&payload), (origin, plan.clone()));
    }
    assert_eq!(payload::read(&payload::of_add(&add(1), 1)), (origin, plan.clone()));
    assert!(payload::of_add(&add(0), 1).is_empty());
    for nothing in [&b""[..], b"text", b"7", b"{}"] {
        assert_eq!(payload::read(nothing), (None, Plan::default()));
    }
    let emitted = payload::of_emit(JobId(9), 2);
    assert_eq!(payload::read(emitted.as_bytes()).0, Some(Origin::Emit { of: JobId(9), index: 2 }));
    let result = payload::of_result(JobId(9), "w-1");
    let quoted = serde_json::to_string(&result).unwrap();
    for form in [result, quoted] {
        assert_eq!(payload::read(form.as_bytes()).0, Some(Origin::Then { of: JobId(9) }));
    }
}

#[test]
fn workers_report_in_every_way_and_never_with_the_same_result() {
    let mix = Mix::everything();
    let mut worker = Worker::new(1, 0, Served::Pull, &mix).unwrap();
    let (mut results, mut silent, mut late) = (HashSet::new(), 0, 0);
    for number in 0..500 {
        let Operation::Claim { tenant, types, limit, lease_ns } = worker.next_claim() else {
            panic!("a pull worker claims")
        };
        assert!(types.iter().all(|of| of.starts_with("pull-")) && (1..=8).contains(&limit));
        let (job, token) = (JobId(number), Some(Token(number + 1)));
        let type_name = types[0].clone();
        let job = Claimed { job, type_name, attempt: 1, token, lease_ns: None, origin: None };
        let acts = worker.react(&tenant, &job, &Plan::default(), lease_ns);
        let finishes = acts.iter().filter_map(|act| match act {
            Act::Send(Operation::Finish { data, status: 200, .. }) => data.clone(),
            _ => None,
        });
        let finishes: Vec<String> = finishes.collect();
        silent += usize::from(finishes.is_empty());
        late += usize::from(acts.contains(&Act::OutliveLease));
        assert!(finishes.into_iter().all(|data| results.insert(data)));
    }
    assert!(silent > 5 && late > 5 && results.len() > 450, "{silent} {late} {}", results.len());
    assert!(Worker::new(1, 0, Served::Handler, &mix).is_none());
}

#[test]
fn bedrock_workers_always_report() {
    let mut worker = Worker::new(1, 0, Served::Bedrock, &Mix::everything()).unwrap();
    assert!(matches!(worker.next_claim(), Operation::GetJob { .. }));
    let (job, type_name) = (JobId(1), "bedrock-2".to_owned());
    let job = Claimed { job, type_name, attempt: 1, token: None, lease_ns: None, origin: None };
    for status in [200, 400, 500] {
        let plan = Plan { statuses: vec![status], ..Plan::default() };
        let acts = worker.react("tenant-0", &job, &plan, 0);
        let Some(Act::Send(report)) = acts.last() else { panic!("no report") };
        let fits = match status {
            200 => matches!(report, Operation::FinishJob { .. }),
            400 => matches!(report, Operation::FailJob { .. }),
            _ => matches!(report, Operation::RetryJob { .. }),
        };
        assert!(fits, "{status}: {report:?}");
    }
}

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
