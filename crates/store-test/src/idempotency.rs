//! A repeated add with the same key gets the answer of the first.

use windlass_core::limit::{IDEMPOTENCY_TTL, REPEATED_RETENTION};
use windlass_core::store::{Durability, IdempotencyRecord, Insert, Inserted};
use windlass_core::{NewJob, State, Timestamp};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, claimed_numbers, globex, id, job, job_of};

fn record(key: &str, ids: &[i64], expires_at: Timestamp) -> IdempotencyRecord {
    IdempotencyRecord {
        tenant: acme(),
        key: key.into(),
        fingerprint: u64::MAX - 1,
        ids: ids.iter().map(|number| id(*number)).collect(),
        expires_at,
    }
}

async fn insert(store: &Subject, jobs: Vec<NewJob>, keys: Vec<IdempotencyRecord>) -> Vec<Inserted> {
    let insert = Insert { jobs, keys, mark: None, durability: Durability::Synced };
    store.job_insert(insert).await.unwrap().done().unwrap()
}

async fn get(store: &Subject, key: &str, now: Timestamp) -> Option<IdempotencyRecord> {
    store.at(now).idempotency_get(&acme(), key).await.unwrap()
}

pub async fn a_key_comes_back_with_its_ids(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(get(&store, "k", NOW).await, None);
    let kept = record("k", &[1, i64::MAX, 2], after(60));
    insert(&store, vec![job(1), job(2)], vec![kept.clone()]).await;
    assert_eq!(get(&store, "k", NOW).await, Some(kept));
}

pub async fn a_key_lasts_for_its_time(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, vec![job(1)], vec![record("k", &[1], after(60))]).await;
    assert!(get(&store, "k", after(59)).await.is_some());
    assert_eq!(get(&store, "k", after(61)).await, None);
    assert_eq!(store.at(after(61)).job_purge(10).await.unwrap(), 0, "no job went");
    assert_eq!(get(&store, "k", NOW).await, None, "an outdated key is cleared away");
}

pub async fn a_purge_keeps_keys_that_last(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let keys = vec![record("short", &[1], after(10)), record("long", &[1], after(99))];
    insert(&store, vec![job(1)], keys).await;
    store.at(after(20)).job_purge(10).await.unwrap();
    assert!(get(&store, "long", after(20)).await.is_some());
}

pub async fn a_replayed_insert_keeps_the_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let kept = record("k", &[1], after(60));
    for expected in [Inserted::New, Inserted::Duplicate] {
        assert_eq!(insert(&store, vec![job(1)], vec![kept.clone()]).await, [expected]);
        assert_eq!(get(&store, "k", NOW).await, Some(kept.clone()));
    }
}

/// It was accepted while the store was away, and another daemon's add has used the key by now.
pub async fn a_repeat_that_was_accepted_enters_as_cancelled(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let first = record("k", &[1, 2], after(60));
    insert(&store, vec![job(1), job(2)], vec![first.clone()]).await;
    let repeat = || {
        let other = NewJob { run_at: after(9), ..job_of("other", 4) };
        (vec![job(3), other, job(5)], vec![record("k", &[3, 4], after(99))])
    };
    let (jobs, keys) = repeat();
    let answers = insert(&store, jobs, keys).await;
    assert_eq!(answers, [Inserted::Repeated, Inserted::Repeated, Inserted::New]);
    for number in [3, 4] {
        let job = store.get(number).await;
        assert_eq!((job.state, job.finished_at), (State::Cancelled, Some(NOW)), "{number}");
        assert_eq!((job.attempt, job.last), (0, None));
    }
    assert_eq!(get(&store, "k", NOW).await, Some(first));
    let cancelled = store.stats("other", NOW).await.expect("the type is there").cancelled;
    assert_eq!(cancelled, 1);
    let (jobs, keys) = repeat();
    assert_eq!(insert(&store, jobs, keys).await, [Inserted::Duplicate; 3]);
    assert_eq!(claimed_numbers(&store.claim("t", 9, after(99)).await), [1, 2, 5]);
    assert!(store.claim("other", 9, after(99)).await.is_empty());

    store.at(after(99)).job_purge(9).await.unwrap();
    assert!(store.find(3).await.is_some(), "it can be seen for some time");
    store.at(NOW + REPEATED_RETENTION).job_purge(9).await.unwrap();
    assert_eq!(store.find(3).await, None);
}

pub async fn an_add_in_several_batches_is_one_add(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (ours, theirs) = (record("k", &[1, 2], after(60)), record("k", &[3, 4], after(60)));
    for (number, record, expected) in [
        (1, &ours, Inserted::New),
        (3, &theirs, Inserted::Repeated),
        (2, &ours, Inserted::New),
        (4, &theirs, Inserted::Repeated),
    ] {
        assert_eq!(insert(&store, vec![job(number)], vec![record.clone()]).await, [expected]);
    }
}

pub async fn an_old_add_under_a_key_that_was_used_anew_is_no_repeat(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (old, new) = (after(60), after(60) + IDEMPOTENCY_TTL);
    insert(&store, vec![job(2)], vec![record("k", &[2], new)]).await;
    let answers = insert(&store, vec![job(1)], vec![record("k", &[1], old)]).await;
    assert_eq!(answers, [Inserted::New]);
    assert_eq!(get(&store, "k", NOW).await, Some(record("k", &[2], new)));
    let newer = record("k", &[3], new + IDEMPOTENCY_TTL);
    assert_eq!(insert(&store, vec![job(3)], vec![newer.clone()]).await, [Inserted::New]);
    assert_eq!(get(&store, "k", NOW).await, Some(newer));
}

pub async fn keys_belong_to_one_tenant_and_are_taken_to_the_letter(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let longest = "k".repeat(windlass_core::limit::KEY_BYTES_MAX);
    let keys = ["k", "K", "k ", " k", "ü", "u", "k%", "k'\"", longest.as_str()];
    let records: Vec<_> =
        keys.iter().zip(1..).map(|(key, number)| record(key, &[number], after(60))).collect();
    let theirs = IdempotencyRecord { tenant: globex(), ..record("k", &[99], after(60)) };
    insert(&store, vec![], records.iter().cloned().chain([theirs.clone()]).collect()).await;
    for record in records {
        assert_eq!(get(&store, &record.key.clone(), NOW).await, Some(record));
    }
    assert_eq!(store.at(NOW).idempotency_get(&globex(), "k").await.unwrap(), Some(theirs));
    assert_eq!(store.at(NOW).idempotency_get(&globex(), "K").await.unwrap(), None);
}

pub async fn two_adds_of_one_batch_with_the_same_key_are_one(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let (first, second) = (record("k", &[1], after(60)), record("k", &[2], after(61)));
    let answers = insert(&store, vec![job(1), job(2)], vec![first.clone(), second]).await;
    assert_eq!(answers, [Inserted::New, Inserted::Repeated]);
    assert_eq!(get(&store, "k", NOW).await, Some(first));
    assert_eq!(claimed_numbers(&store.claim("t", 9, NOW).await), [1]);
}
