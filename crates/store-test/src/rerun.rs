//! Reruns of ended jobs: single ones, or many of a type.

use std::time::Duration;

use windlass_core::store::{AttemptLog, Changed, Requeue, Settlement};
use windlass_core::{Job, Json, NewJob, State, TypeKey};

use crate::Harness;
use crate::fixture::{
    FAILED, FINISHED, NOW, Subject, acme, after, again, claimed_numbers, globex, id, job, job_of,
    key, priority, queued, release, said, settlement,
};

pub async fn a_rerun_job_is_as_new(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let new = NewJob {
        priority: priority(700),
        timeout: Some(Duration::from_secs(5)),
        expires_at: Some(after(30)),
        unique: Some("k".into()),
        ..job(1)
    };
    store.ran(new.clone(), FINISHED).await;
    let before = store.get(1).await;
    assert_eq!(store.rerun(1, after(60)).await, Changed::Done(Box::new(before)));

    let expected = Job { run_at: after(60), due_at: after(60), expires_at: None, ..queued(&new) };
    assert_eq!(store.get(1).await, expected);
    let claimed = store.claim_one("t", after(60)).await;
    assert_eq!((claimed.job.attempt, claimed.payload), (1, new.payload));
}

pub async fn every_ended_job_can_be_rerun(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.ran(job(2), FAILED).await;
    store.add([job(3)]).await;
    store.cancel(3, NOW).await;
    for number in 1..=3 {
        assert!(store.claim("t", 10, after(8)).await.is_empty(), "it has ended");
        assert!(matches!(store.rerun(number, after(9)).await, Changed::Done(_)));
        assert_eq!(store.claim_one("t", after(9)).await.job.id, id(number));
    }
}

pub async fn a_job_that_has_not_ended_cannot_be_rerun(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let running = store.claim_one("t", NOW).await;
    store.add([job(2)]).await;
    assert_eq!(store.rerun(1, after(9)).await, Changed::Refused(State::Running));
    assert_eq!(store.rerun(2, after(9)).await, Changed::Refused(State::Queued));
    assert_eq!(store.rerun(3, after(9)).await, Changed::NotFound);
    assert_eq!(store.get(1).await, running.job);
    assert_eq!(store.get(2).await, queued(&job(2)));
}

pub async fn a_rerun_forgets_the_result_and_keeps_the_logs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let with = |text: &str| (Some(Json::string(text)), said(text));
    for (text, now) in [("first", after(0)), ("second", after(60))] {
        let claimed = store.claim_one("t", now).await;
        let (data, log) = with(text);
        let end = Settlement { data, log, ..settlement(&claimed, FINISHED) };
        store.at(now + Duration::from_secs(1)).settle(end).await;
        assert!(matches!(store.rerun(1, now + Duration::from_secs(60)).await, Changed::Done(_)));
        assert_eq!(store.job_result(&acme(), id(1)).await.unwrap(), None);
    }
    let log = |text: &str, at| AttemptLog { attempt: 1, ended_at: at, log: said(text) };
    let expected = vec![log("first", after(1)), log("second", after(61))];
    assert_eq!(store.job_log(&acme(), id(1)).await.unwrap(), Some(expected));
}

pub async fn a_rerun_job_is_not_purged(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.rerun(1, after(60)).await;
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(10).await.unwrap(), 0);
    assert_eq!(store.get(1).await.state, State::Queued);
}

pub async fn a_rerun_takes_its_unique_key_back_or_is_held(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = |number| NewJob { unique: Some("k".into()), ..job(number) };
    store.ran(unique(1), FAILED).await;
    store.add([unique(2)]).await;
    let before = store.get(1).await;
    assert_eq!(store.rerun(1, after(9)).await, Changed::Held(id(2)));
    assert_eq!(store.get(1).await, before);

    store.cancel(2, after(9)).await;
    assert!(matches!(store.rerun(1, after(9)).await, Changed::Done(_)));
    assert_eq!(store.rerun(2, after(9)).await, Changed::Held(id(1)));
}

fn requeue(state: State, limit: usize) -> Requeue {
    Requeue { key: key("t"), state, limit }
}

pub async fn s2_33_finished_jobs_of_a_type_are_queued_again_in_bulk(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add((1..=150).map(job)).await;
    let claimed = store.claim("t", 150, NOW).await;
    for claimed in &claimed {
        store.settle(settlement(claimed, FINISHED)).await;
    }
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Finished, 100)).await.unwrap(), 100);
    let again = store.claim("t", 1000, after(60)).await;
    assert_eq!(claimed_numbers(&again), (1..=100).collect::<Vec<_>>(), "the oldest");
    assert!(again.iter().all(|claimed| claimed.job.attempt == 1));
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Finished, 100)).await.unwrap(), 50);
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Finished, 100)).await.unwrap(), 0);
}

pub async fn a_requeue_keeps_to_its_type_and_state(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), FINISHED).await;
    store.ran(job(2), FAILED).await;
    store.ran(job_of("other", 3), FAILED).await;
    store.ran(job(4), again(after(999))).await;
    store.add([NewJob { key: TypeKey { tenant: globex(), ..key("t") }, ..job(5) }, job(6)]).await;
    store.cancel(6, NOW).await;
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Failed, 100)).await.unwrap(), 1);
    assert_eq!(claimed_numbers(&store.claim("t", 10, after(60)).await), [2]);
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Cancelled, 100)).await.unwrap(), 1);
    assert_eq!(claimed_numbers(&store.claim("t", 10, after(60)).await), [6]);
    assert_eq!(store.get(3).await.state, State::Failed);
}

pub async fn a_held_job_does_not_keep_others_from_the_queue(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = |number| NewJob { unique: Some("k".into()), ..job(number) };
    store.ran(unique(1), FAILED).await;
    store.ran(unique(2), FAILED).await;
    store.ran(job(3), FAILED).await;
    assert_eq!(store.at(after(60)).job_requeue(requeue(State::Failed, 2)).await.unwrap(), 2);
    assert_eq!(claimed_numbers(&store.claim("t", 10, after(60)).await), [1, 3]);
    assert_eq!(store.get(2).await.state, State::Failed);
}

pub async fn a_released_job_is_not_touched_by_a_requeue(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.ran(job(1), release(after(999))).await;
    let before = store.get(1).await;
    for state in [State::Finished, State::Failed, State::Cancelled] {
        assert_eq!(store.at(after(60)).job_requeue(requeue(state, 10)).await.unwrap(), 0);
    }
    assert_eq!(store.get(1).await, before);
}
