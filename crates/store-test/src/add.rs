//! Adds that the store decides: idempotency keys, unique keys and parents, all or nothing.

use bytes::Bytes;

use windlass_core::family::Unfit;
use windlass_core::limit::{BATCH_JOBS_MAX, IDEMPOTENCY_TTL};
use windlass_core::store::{Add, Added, IdempotencyKey, IdempotencyRecord, Piece};
use windlass_core::{Extra, JobId, NewJob, Payload, State};

use crate::Harness;
use crate::fixture::{
    FINISHED, NOW, Subject, acme, after, everything_of, globex, id, job, job_of, key, numbers,
    queued, settlement,
};

pub(crate) fn keyed(text: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey { key: text.into(), fingerprint: u64::MAX - 1 })
}

pub(crate) fn add_of(jobs: impl IntoIterator<Item = NewJob>, key: Option<IdempotencyKey>) -> Add {
    Add { tenant: acme(), jobs: jobs.into_iter().collect(), key }
}

/// The record of an add with this key, made at `NOW`.
fn record(text: &str, ids: &[i64]) -> IdempotencyRecord {
    let ids = ids.iter().map(|number| id(*number)).collect();
    IdempotencyRecord::new(&acme(), &keyed(text).unwrap(), ids, NOW)
}

async fn new_ids(store: &Subject, add: Add) -> Vec<JobId> {
    match store.job_add(add).await.unwrap() {
        Added::New { ids, .. } => ids,
        other => panic!("nothing was added: {other:?}"),
    }
}

async fn present(store: &Subject) -> Vec<i64> {
    numbers(&store.listed(everything_of(acme())).await)
}

pub async fn an_add_enters_whole_and_what_moved_is_told(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let later = NewJob { run_at: after(60), ..job(2) };
    let added = store.job_add(add_of([job(1), later.clone()], None)).await.unwrap();
    let Added::New { ids, moved } = added else { panic!("{added:?}") };
    assert_eq!(ids, [id(1), id(2)]);
    assert_eq!(moved.entered, [(id(1), key("t")), (id(2), key("t"))]);
    assert_eq!((moved.ready.get(&key("t")), moved.due), (Some(&1), Some(after(60))));
    assert_eq!(store.get(1).await, queued(&job(1)));
    assert_eq!(store.get(2).await, queued(&later));
}

pub async fn an_add_with_a_key_that_is_known_adds_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(new_ids(&store, add_of([job(1), job(2)], keyed("k"))).await, [id(1), id(2)]);
    let known = record("k", &[1, 2]);
    assert_eq!(store.at(NOW).idempotency_get(&acme(), "k").await.unwrap(), Some(known.clone()));

    // The caller compares the fingerprints.
    for fingerprint in [1, u64::MAX - 1] {
        let key = Some(IdempotencyKey { key: "k".into(), fingerprint });
        let again = store.job_add(add_of([job_of("other", 3)], key)).await.unwrap();
        assert_eq!(again, Added::Known(known.clone()));
    }
    assert_eq!(present(&store).await, [2, 1]);
    assert_eq!(store.stats("other", NOW).await, None);

    assert_eq!(new_ids(&store, add_of([job(4)], keyed("K"))).await, [id(4)]);
    let theirs = NewJob { key: windlass_core::TypeKey { tenant: globex(), ..key("t") }, ..job(5) };
    let theirs = Add { tenant: globex(), ..add_of([theirs], keyed("k")) };
    assert_eq!(new_ids(&store, theirs).await, [id(5)]);
}

pub async fn an_outdated_key_can_be_used_anew(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    new_ids(&store, add_of([job(1)], keyed("k"))).await;
    let anew = || add_of([job(2)], keyed("k"));
    let last = NOW + IDEMPOTENCY_TTL - std::time::Duration::from_millis(1);
    assert!(matches!(store.at(last).job_add(anew()).await.unwrap(), Added::Known(_)));
    let now = NOW + IDEMPOTENCY_TTL;
    assert_eq!(new_ids(store.at(now), anew()).await, [id(2)]);
    let known = store.at(now).idempotency_get(&acme(), "k").await.unwrap();
    assert_eq!(known.map(|record| record.ids), Some(vec![id(2)]));
}

pub async fn a_key_remembers_the_ids_that_were_answered(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let unique = |number| NewJob { unique: Some("u".into()), ..job(number) };
    store.add([unique(1)]).await;
    assert_eq!(new_ids(&store, add_of([unique(2), job(3)], keyed("k"))).await, [id(1), id(3)]);
    assert_eq!(store.find(2).await, None);
    let again = store.job_add(add_of([unique(4), job(5)], keyed("k"))).await.unwrap();
    assert_eq!(again, Added::Known(record("k", &[1, 3])));
}

pub async fn the_holder_of_a_unique_key_stands_for_a_child_too(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job_of("parent", 1)]).await;
    store.claim_one("parent", NOW).await;
    let unique = |number: i64, name: &str, text: &str| NewJob {
        unique: Some(text.into()),
        parent: Some(id(1)),
        ..job_of(name, number)
    };
    store.add([unique(2, "t", "k"), unique(3, "other", "k")]).await;
    let jobs = [unique(4, "t", "k"), unique(5, "t", "K"), unique(6, "t", "K")];
    assert_eq!(new_ids(&store, add_of(jobs, None)).await, [id(2), id(5), id(5)]);
    store.cancel(2, NOW).await;
    assert_eq!(new_ids(&store, add_of([unique(7, "t", "k")], None)).await, [id(7)]);
}

pub async fn a_child_begins_as_its_parent_lets_it(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let hidden = Extra { hidden: true, ..Extra::default() };
    store.add([job_of("parent", 1), NewJob { paused: true, extra: hidden, ..job(2) }]).await;
    let running = store.claim_one("parent", NOW).await;
    let child = |number, parent| NewJob { parent: Some(id(parent)), ..job_of("child", number) };
    let added = store.job_add(add_of([child(3, 1), child(4, 2), job(5)], None)).await.unwrap();
    let Added::New { ids, moved } = added else { panic!("{added:?}") };
    assert_eq!(ids, [id(3), id(4), id(5)]);
    assert_eq!(moved.ready.get(&key("t")), Some(&1));

    let (paused, hidden) = (store.get(3).await, store.get(4).await);
    assert_eq!((paused.state, paused.parent), (State::Paused, Some(id(1))));
    assert_eq!((hidden.state, hidden.extra.hidden), (State::Queued, true));
    assert!(store.get(1).await.children && store.get(2).await.children);
    store.settle(settlement(&running, FINISHED)).await;
    assert_eq!(store.get(3).await.state, State::Queued, "its parent waits for it");
}

pub async fn an_unfit_parent_refuses_the_whole_add(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let theirs = windlass_core::TypeKey { tenant: globex(), ..key("parent") };
    store.add([job(1), job_of("parent", 2), NewJob { key: theirs, ..job(3) }]).await;
    store.claim_one("parent", NOW).await;
    let child = |number, parent| NewJob { parent: Some(id(parent)), ..job_of("child", number) };
    store.add([NewJob { paused: true, ..child(4, 2) }]).await;
    let unfit = [(9, Unfit::Missing), (3, Unfit::Missing), (1, Unfit::NotOpen)];
    for (parent, unfit) in unfit.into_iter().chain([(4, Unfit::Grandchild)]) {
        let add = add_of([job(5), child(6, 2), child(7, parent)], keyed("k"));
        let refused = Added::Unfit { parent: id(parent), unfit };
        assert_eq!(store.job_add(add).await.unwrap(), refused);
    }
    assert_eq!(present(&store).await, [4, 2, 1]);
    assert_eq!(store.at(NOW).idempotency_get(&acme(), "k").await.unwrap(), None);
}

pub async fn pieces_of_jobs_that_do_not_enter_are_removed(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let large = async |number: i64| {
        let piece = Piece { id: id(number), index: 0, bytes: Bytes::from("piece") };
        store.payload_put(vec![piece]).await.unwrap();
        NewJob { payload: Payload::Pieces { bytes: 5 }, ..job(number) }
    };
    let kept = async |number| store.payload_piece(id(number), 0).await.unwrap().is_some();
    let first = NewJob { unique: Some("u".into()), ..large(1).await };
    new_ids(&store, add_of([first.clone()], keyed("k"))).await;

    let known = store.job_add(add_of([large(2).await], keyed("k"))).await.unwrap();
    let unfit = NewJob { parent: Some(id(9)), ..large(3).await };
    let unfit = store.job_add(add_of([unfit], None)).await.unwrap();
    assert!(matches!((known, unfit), (Added::Known(_), Added::Unfit { .. })));
    let held = NewJob { unique: Some("u".into()), ..large(4).await };
    assert_eq!(new_ids(&store, add_of([held], None)).await, [id(1)]);
    assert!(!kept(2).await && !kept(3).await && !kept(4).await);

    // The same call again, because its answer was lost.
    store.job_add(add_of([first.clone()], keyed("k"))).await.unwrap();
    assert_eq!(new_ids(&store, add_of([first], None)).await, [id(1)]);
    assert!(kept(1).await);
}

pub async fn an_add_is_durable_with_its_key(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    new_ids(&store, add_of([job(1)], keyed("k"))).await;
    store.add([job(2)]).await;
    let Some(store) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, store);
    assert_eq!(present(&store).await, [1]);
    let again = store.job_add(add_of([job(3)], keyed("k"))).await.unwrap();
    assert_eq!(again, Added::Known(record("k", &[1])));
}

pub async fn an_id_that_is_there_changes_nothing(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    store.add([job(1)]).await;
    let before = store.claim_one("t", NOW).await.job;
    let same = NewJob { run_at: after(9), unique: Some("u".into()), ..job_of("other", 1) };
    let added = store.job_add(add_of([same, job(2)], None)).await.unwrap();
    let Added::New { ids, moved } = added else { panic!("{added:?}") };
    assert_eq!(ids, [id(1), id(2)]);
    assert_eq!(moved.entered, [(id(2), key("t"))], "only this one entered");
    assert_eq!(moved.due, None);
    assert_eq!(store.get(1).await, before);
    assert_eq!(store.stats("other", NOW).await, None);
}

pub async fn a_full_add_enters_at_once(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    let most = BATCH_JOBS_MAX as i64;
    let ids = new_ids(&store, add_of((1..=most).map(job), keyed("k"))).await;
    assert_eq!(ids, (1..=most).map(id).collect::<Vec<_>>());
    assert_eq!(store.stats("t", NOW).await.expect("the type is there").ready, most as u64);
    let known = store.idempotency_get(&acme(), "k").await.unwrap();
    assert_eq!(known.map(|record| record.ids), Some(ids));
}
