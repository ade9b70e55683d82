//! The position of a journal is stored in the same change as its jobs.

use windlass_core::JobId;
use windlass_core::store::{
    Changed, Durability, IdempotencyRecord, Insert, Inserted, Insertion, JournalMark,
};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, everything_of, id, job, job_of, journal,
};

/// Jobs from a journal of which the store has everything up to `from`, or nothing.
fn marked(
    jobs: impl IntoIterator<Item = i64>,
    number: i64,
    [from, position]: [Option<i64>; 2],
) -> Insert {
    let position = id(position.expect("a mark goes somewhere"));
    Insert {
        jobs: jobs.into_iter().map(job).collect(),
        keys: Vec::new(),
        mark: Some(JournalMark { journal: journal(number), from: from.map(id), position }),
        durability: Durability::Synced,
    }
}

async fn insert(store: &Subject, insert: Insert) -> Vec<Inserted> {
    store.job_insert(insert).await.unwrap().done().unwrap()
}

async fn position(store: &Subject, number: i64) -> Option<JobId> {
    store.journal_position(journal(number)).await.unwrap()
}

pub async fn a_mark_comes_with_its_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(position(&store, 7).await, None);
    insert(&store, marked(1..=3, 7, [None, Some(3)])).await;
    assert_eq!(position(&store, 7).await, Some(id(3)));
    insert(&store, marked(4..=5, 7, [Some(3), Some(5)])).await;
    assert_eq!(position(&store, 7).await, Some(id(5)));
}

pub async fn a_mark_moves_only_from_where_it_is(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, marked(1..=5, 7, [None, Some(5)])).await;
    for from in [None, Some(3), Some(6)] {
        let answer = store.job_insert(marked([7], 7, [from, Some(9)])).await.unwrap();
        assert_eq!(answer, Insertion::Behind(Some(id(5))), "from {from:?}");
        assert_eq!(position(&store, 7).await, Some(id(5)));
    }
    let never_seen = store.job_insert(marked([8], 8, [Some(5), Some(8)])).await.unwrap();
    assert_eq!(never_seen, Insertion::Behind(None));
    assert_eq!(position(&store, 8).await, None);
    let jobs = store.listed(everything_of(acme())).await;
    assert_eq!(jobs.len(), 5, "an insert that is refused adds nothing");
}

pub async fn what_is_inserted_again_behind_its_mark_is_a_duplicate(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1), job(2)]).await;
    let answers = insert(&store, marked(1..=3, 7, [None, Some(3)])).await;
    assert_eq!(answers, [Inserted::Duplicate, Inserted::Duplicate, Inserted::New]);
}

/// Everything after the last synced change is lost, and the mark with it, so that ingest learns
/// where to continue.
pub async fn a_store_that_forgot_says_where_it_is(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let relaxed =
        |jobs, marks| Insert { durability: Durability::Relaxed, ..marked(jobs, 7, marks) };
    insert(&store, marked([1], 7, [None, Some(1)])).await;
    insert(&store, relaxed(2..=3, [Some(1), Some(3)])).await;
    let Some(store) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, store);
    assert_eq!(store.find(3).await, None);
    let next = || relaxed(4..=4, [Some(3), Some(4)]);
    assert_eq!(store.job_insert(next()).await.unwrap(), Insertion::Behind(Some(id(1))));
    assert_eq!(insert(&store, relaxed(2..=3, [Some(1), Some(3)])).await, [Inserted::New; 2]);
    assert_eq!(insert(&store, next()).await, [Inserted::New]);
    assert_eq!(store.claim("t", 10, NOW).await.len(), 4);
}

pub async fn a_flush_keeps_what_was_relaxed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let relaxed =
        |jobs, marks| Insert { durability: Durability::Relaxed, ..marked(jobs, 7, marks) };
    insert(&store, relaxed(1..=2, [None, Some(2)])).await;
    store.flush().await.unwrap();
    insert(&store, relaxed(3..=3, [Some(2), Some(3)])).await;
    let Some(store) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, store);
    assert_eq!(position(&store, 7).await, Some(id(2)));
    assert_eq!((store.find(2).await.is_some(), store.find(3).await), (true, None));
}

pub async fn every_daemon_has_its_own_mark(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, marked([1], 7, [None, Some(1)])).await;
    insert(&store, marked([2], 8, [None, Some(2)])).await;
    assert_eq!(position(&store, 7).await, Some(id(1)));
    assert_eq!(position(&store, 8).await, Some(id(2)));
    assert_eq!(position(&store, 9).await, None);
}

pub async fn an_insert_without_a_mark_leaves_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, marked([1], 7, [None, Some(1)])).await;
    store.add([job(2)]).await;
    assert_eq!(position(&store, 7).await, Some(id(1)));
}

pub async fn a_mark_may_come_alone(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(insert(&store, marked([], 7, [None, Some(9)])).await, []);
    assert_eq!(position(&store, 7).await, Some(id(9)));
}

pub async fn a_mark_outlives_its_jobs(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, marked([], 7, [None, Some(2)])).await;
    store.ran(job(1), FINISHED).await;
    store.add([job(2)]).await;
    assert_eq!(store.at(after(366 * 24 * 3600)).job_purge(10).await.unwrap(), 1);
    assert!(matches!(store.delete(2).await, Changed::Done(_)));
    assert_eq!(position(&store, 7).await, Some(id(2)));
}

pub async fn an_insert_that_is_refused_leaves_nothing_behind(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    insert(&store, marked([1], 7, [None, Some(1)])).await;
    let key = IdempotencyRecord {
        tenant: acme(),
        key: "k".into(),
        fingerprint: 1,
        ids: vec![id(3)],
        expires_at: after(60),
    };
    let stale = marked([], 7, [None, Some(3)]);
    let stale = Insert { jobs: vec![job_of("other", 3)], keys: vec![key], ..stale };
    assert_eq!(store.job_insert(stale).await.unwrap(), Insertion::Behind(Some(id(1))));
    assert_eq!(store.idempotency_get(&acme(), "k").await.unwrap(), None);
    assert_eq!(store.stats("other", NOW).await, None);
    assert_eq!(store.id_newest().await.unwrap(), Some(id(1)));
}

/// A caller that did not get the answer asks again, and learns that it was done.
pub async fn an_insert_that_comes_twice_happens_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let lost = || marked(1..=3, 7, [None, Some(3)]);
    insert(&store, lost()).await;
    let claimed = store.claim("t", 1, NOW).await;
    assert_eq!(store.job_insert(lost()).await.unwrap(), Insertion::Behind(Some(id(3))));
    assert_eq!(store.get(1).await, claimed[0].job);
    assert_eq!(insert(&store, marked([4], 7, [Some(3), Some(4)])).await, [Inserted::New]);
    assert_eq!(store.claim("t", 9, NOW).await.len(), 3);
}
