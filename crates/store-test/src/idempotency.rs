//! A repeated add with the same key is answered as the first.

use windlass_core::store::{Durability, IdempotencyRecord, Insert, Inserted};
use windlass_core::{NewJob, Timestamp};

use crate::Harness;
use crate::fixture::{NOW, Subject, acme, after, globex, id, job};

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
    store.idempotency_get(&acme(), key, now).await.unwrap()
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
    assert_eq!(store.job_purge(after(61), 10).await.unwrap(), 0, "no job went");
    assert_eq!(get(&store, "k", NOW).await, None, "an outdated key is cleared away");
}

pub async fn a_purge_keeps_keys_that_last(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let keys = vec![record("short", &[1], after(10)), record("long", &[1], after(99))];
    insert(&store, vec![job(1)], keys).await;
    store.job_purge(after(20), 10).await.unwrap();
    assert!(get(&store, "long", after(20)).await.is_some());
}

pub async fn an_outdated_key_can_be_used_anew(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, vec![job(1)], vec![record("k", &[1], after(10))]).await;
    let anew = record("k", &[2], after(99));
    insert(&store, vec![job(2)], vec![anew.clone()]).await;
    assert_eq!(get(&store, "k", after(20)).await, Some(anew));
}

pub async fn a_replayed_insert_keeps_the_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let kept = record("k", &[1], after(60));
    for expected in [Inserted::New, Inserted::Duplicate] {
        assert_eq!(insert(&store, vec![job(1)], vec![kept.clone()]).await, [expected]);
        assert_eq!(get(&store, "k", NOW).await, Some(kept.clone()));
    }
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
    assert_eq!(store.idempotency_get(&globex(), "k", NOW).await.unwrap(), Some(theirs));
    assert_eq!(store.idempotency_get(&globex(), "K", NOW).await.unwrap(), None);
}
