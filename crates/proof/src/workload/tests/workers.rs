//! What workers do with their jobs.

use std::collections::HashSet;

use super::super::*;
use crate::history::{Claimed, JobId, Operation, Plan, Token};

fn claimed(job: JobId, type_name: String) -> Claimed {
    let (token, lease_ns, resumed, origin) = (None, None, false, None);
    Claimed { job, type_name, attempt: 1, token, lease_ns, resumed, origin }
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
        let job = Claimed { token, ..claimed(job, type_name) };
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
    let gets = |get: Operation| matches!(get, Operation::GetJob { .. } | Operation::GetJobs { .. });
    assert!((0..9).all(|_| gets(worker.next_claim())));
    let (job, type_name) = (JobId(1), "bedrock-2".to_owned());
    let job = claimed(job, type_name);
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

#[test]
fn workers_add_children_in_the_first_attempt_only() {
    let mut worker = Worker::new(1, 0, Served::Pull, &Mix::everything()).unwrap();
    let plan = Plan { children: 2, ..Plan::default() };
    let mut marks = HashSet::new();
    let mut children = |job: &Claimed| {
        let acts = worker.react("tenant-0", job, &plan, 1);
        let parents = acts.iter().filter_map(|act| match act {
            Act::Send(Operation::Add(add)) => {
                assert!(marks.insert(add.mark) && add.type_name == job.type_name);
                add.form.parent
            }
            _ => None,
        });
        parents.filter(|parent| *parent == job.job).count()
    };
    let first = Claimed { token: Some(Token(1)), ..claimed(JobId(7), "pull-1".into()) };
    assert_eq!(children(&first), 2);
    assert_eq!(children(&Claimed { attempt: 2, ..first.clone() }), 0);
    assert_eq!(children(&Claimed { resumed: true, ..first.clone() }), 0);
    assert_eq!(children(&first), 2);
}
