//! The same seed gives the same run; everything appears; swarms differ; bounds hold.

mod faults;
mod workers;

use std::collections::{BTreeSet, HashSet};

use super::*;
use crate::history::{Add, Answer, Body, Form, JobId, Operation, Origin, Outcome, Plan};

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
    assert!(of(&|form| form.expires_ns.is_some()) && of(&|form| form.retry_after_ns.is_some()));
    assert!(of(&|form| form.plan.children > 0) && of(&|form| form.plan.progress));
    assert!(has(&|add| add.bedrock) && has(&|add| add.count == Mix::everything().glut_count));
    assert!(of(&|form| form.plan.emits > 0) && of(&|form| form.plan.statuses.len() > 1));
    let name = |operation: &Operation| {
        let text = serde_json::to_value(operation).unwrap();
        text.as_object().unwrap().keys().next().unwrap().clone()
    };
    let names: BTreeSet<String> = all.iter().map(name).collect();
    let expected = [
        "add",
        "cancel",
        "cancel_job",
        "delete",
        "delete_job",
        "invalid",
        "remove_handler",
        "requeue_jobs",
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
fn when_it_is_calm_types_are_put_back_and_left_alone() {
    let mut mix = Mix::everything();
    let often = [Feature::Suspend, Feature::Rate, Feature::Handler];
    often.into_iter().for_each(|feature| mix.set(feature, 50));
    let changes_type = |operation: &Operation| {
        matches!(
            operation,
            Operation::Suspend { .. }
                | Operation::Resume { .. }
                | Operation::SetLimits { .. }
                | Operation::SetHandler { .. }
                | Operation::RemoveHandler { .. }
        )
    };
    let mut client = Workload::new(4, 0, mix);
    let busy: Vec<Operation> = (0..200).map(|_| client.next_operation()).collect();
    assert!(busy.iter().any(changes_type));
    let back = client.settle_down();
    assert!(back.iter().any(|it| matches!(it, Operation::Resume { .. })));
    let glut = Mix::everything().glut_count;
    assert!(adds(&back).any(|add| add.count == glut && add.type_name.starts_with("pull")));
    assert!(!(0..500).any(|_| changes_type(&client.next_operation())));
    client.go_on();
    assert!((0..200).any(|_| changes_type(&client.next_operation())));
}

#[test]
fn payloads_say_where_they_come_from_and_have_their_length() {
    let plan = Plan { statuses: vec![500, 200], emits: 1, run_ms: 3, ..Plan::default() };
    let add = |payload_bytes| Add {
        tenant: "a".into(),
        type_name: "t".into(),
        count: 2,
        mark: 77,
        idempotency_key: None,
        bedrock: false,
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
    let whole = payload::of_add(&add(300), 1);
    assert_eq!(payload::body(&whole), Body::Intact(Origin::Add { mark: 77, index: 1 }));
    assert_eq!(payload::body(&payload::of_add(&add(1), 1)), payload::body(&whole));
    let again: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(payload::body(again.to_string().as_bytes()), payload::body(&whole));
    let quoted = serde_json::to_string(&String::from_utf8(whole.clone()).unwrap()).unwrap();
    assert_eq!(payload::body(quoted.as_bytes()), payload::body(&whole));
    assert_eq!(payload::body(b""), Body::Empty);
    assert_ne!(payload::of_add(&add(300), 0)[150..], whole[150..], "the padding differs");
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
fn no_flipped_bit_and_no_missing_piece_leaves_a_payload_intact() {
    let plan = Plan { statuses: vec![500, 200], emits: 1, run_ms: 3, ..Plan::default() };
    let form = Form { payload_bytes: 400, plan, ..Form::default() };
    let (tenant, type_name, idempotency_key) = ("a".into(), "t".into(), None);
    let add = Add { tenant, type_name, count: 1, mark: 7, idempotency_key, bedrock: false, form };
    let whole = payload::of_add(&add, 0);
    let intact = payload::body(&whole);
    let text = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << bit;
            // Blanks, and names of fields that have their default, say nothing.
            let same = text(&flipped).is_some_and(|it| said(&it) == said(&text(&whole).unwrap()));
            assert_eq!(payload::body(&flipped) == intact, same, "bit {bit} of byte {at}");
        }
        assert_ne!(payload::body(&whole[..at]), intact, "cut at {at}");
    }
    // As Python's zlib.crc32 has it.
    assert_eq!(payload::crc32(b"123456789"), 0xcbf4_3926);
}

/// What a payload says, without what is not part of an add.
fn said(payload: &serde_json::Value) -> serde_json::Value {
    let fields = ["origin", "plan", "sum", "pad"];
    fields.iter().map(|field| payload[*field].clone()).collect()
}

#[test]
fn tenants_without_bedrock_have_no_jobs_for_its_workers() {
    let mut mix = Mix::everything();
    mix.bedrock_tenants = 1;
    let (all, _) = operations(6, mix.clone(), 5000);
    let elsewhere = |add: &&Add| add.tenant != "tenant-0";
    let bedrock = |name: &str| name.starts_with("bedrock-");
    for add in adds(&all).filter(elsewhere) {
        assert!(!add.bedrock && !bedrock(&add.type_name), "{add:?}");
        assert!(!add.form.then.as_deref().is_some_and(bedrock), "{add:?}");
    }
    assert!(adds(&all).any(|add| add.bedrock) && adds(&all).filter(elsewhere).count() > 1000);
    let mut worker = Worker::new(1, 0, Served::Bedrock, &mix).unwrap();
    let tenant = |claim| match claim {
        Operation::GetJob { tenant, .. } | Operation::GetJobs { tenant, .. } => tenant,
        other => panic!("{other:?}"),
    };
    assert!((0..50).all(|_| tenant(worker.next_claim()) == "tenant-0"));
}
