//! A limit across all nodes is never exceeded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::database::{Database, Run, token};
use crate::dialect::Dialect;
use crate::doc::Queue;
use mongodb::bson::{Bson, doc};
use windlass_test_kit::wait::{PATIENCE, pause};

use crate::tests::base::{Background, collection, fresh};
use crate::tests::harness::{at, me, queue, read_queue, task};

async fn current(db: &Database, queue: &Queue) -> Queue {
    read_queue(db, queue.id, Dialect::Released).await
}

async fn holds(db: &Database, queue: &Queue) -> Vec<String> {
    current(db, queue).await.holds.into_iter().map(|hold| hold.id).collect()
}

#[tokio::test]
async fn a_hold_is_taken_while_there_is_room() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 3).await;
    let me = me("n", "b");
    assert!(!db.hold_take(&queue, 3, "a", &me).await.unwrap());
    assert!(!db.hold_take(&queue, 9, "a", &me).await.unwrap());
    assert!(db.hold_take(&queue, 2, "a", &me).await.unwrap());
    assert!(!db.hold_take(&queue, 2, "b", &me).await.unwrap());
    assert!(db.hold_take(&queue, 0, "b", &me).await.unwrap());
    assert!(db.hold_take(&queue, 0, "c", &me).await.unwrap());
    assert!(!db.hold_take(&queue, 0, "d", &me).await.unwrap());
    assert_eq!(holds(&db, &queue).await, ["a", "b", "c"]);
    db.hold_drop(queue.id, "b").await.unwrap();
    assert_eq!(holds(&db, &queue).await, ["a", "c"]);
    assert!(db.hold_take(&queue, 0, "d", &me).await.unwrap());
    assert!(!db.hold_take(&queue, 0, "e", &me).await.unwrap());
}

#[tokio::test]
async fn limits_of_every_stored_type_and_none() {
    let db = fresh().await;
    let me = me("n", "b");
    for one in [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0), Bson::from("1")] {
        let queue = queue(&db, Dialect::Released, one).await;
        assert!(db.hold_take(&queue, 0, "a", &me).await.unwrap());
        assert!(!db.hold_take(&queue, 0, "b", &me).await.unwrap());
    }
    for none in [Bson::Int32(0), Bson::Null] {
        let queue = queue(&db, Dialect::Released, none).await;
        assert!(!db.hold_take(&queue, 0, "a", &me).await.unwrap());
    }
}

#[tokio::test]
async fn a_limit_in_the_seeds_words_counts_until_there_is_one_of_its_own() {
    let db = fresh().await;
    let old = queue(&db, Dialect::Seed, 1).await;
    let old = current(&db, &old).await;
    let me = me("n", "b");
    assert!(db.hold_take(&old, 0, "a", &me).await.unwrap());
    assert!(!db.hold_take(&old, 0, "b", &me).await.unwrap());
    db.hold_drop(old.id, "a").await.unwrap();
    for limit in [Bson::Int32(0), Bson::Null] {
        let set = doc! { "$set": { "threads": limit } };
        let queues = collection(&db, "queues");
        queues.update_one(doc! { "_id": old.id }, set).await.unwrap();
        assert!(!db.hold_take(&old, 0, "a", &me).await.unwrap());
    }
}

#[tokio::test]
async fn a_limit_that_changed_is_looked_at_first() {
    let db = fresh().await;
    let old = queue(&db, Dialect::Released, 3).await;
    let set = doc! { "$set": { "threads": 1 } };
    let queues = collection(&db, "queues");
    queues.update_one(doc! { "_id": old.id }, set).await.unwrap();
    let me = me("n", "b");
    assert!(!db.hold_take(&old, 0, "a", &me).await.unwrap());
    let now = current(&db, &old).await;
    assert!(db.hold_take(&now, 0, "a", &me).await.unwrap());
    assert!(!db.hold_take(&now, 0, "b", &me).await.unwrap());
}

#[tokio::test]
async fn foreign_tasks_are_those_without_our_mark() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 9).await;
    for status in [-6, -2, -1, 0, 1] {
        task(&db, queue.id, doc! { "status": status, "node": "f" }).await;
        let ours = doc! { "boot": "b", "node": "n" };
        task(&db, queue.id, doc! { "status": status, "node": "n", "windlass": ours }).await;
    }
    // The last one was reset by hand while our node had it.
    for windlass in [doc! { "last": "b" }, doc! { "boot": "b", "node": "n" }] {
        task(&db, queue.id, doc! { "status": 0, "node": "f", "windlass": windlass }).await;
    }
    assert_eq!(db.foreign_running(queue.id).await.unwrap(), 4);
}

#[tokio::test]
async fn when_a_foreign_node_was_faster_a_hold_does_not_fit() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 2).await;
    let me = me("n", "b");
    for token in ["first", "second"] {
        assert!(db.hold_take(&queue, 0, token, &me).await.unwrap());
        assert!(db.hold_fits(queue.id, token).await.unwrap());
    }
    task(&db, queue.id, doc! { "status": -1, "node": "f" }).await;
    // Either task may already be running, so neither hold fits.
    assert!(!db.hold_fits(queue.id, "first").await.unwrap());
    assert!(!db.hold_fits(queue.id, "second").await.unwrap());
    db.hold_drop(queue.id, "second").await.unwrap();
    assert!(db.hold_fits(queue.id, "first").await.unwrap());
    assert!(!db.hold_fits(queue.id, "unknown").await.unwrap());
    assert!(db.queue_delete(&queue.id.to_hex()).await.unwrap().is_some());
    assert!(!db.hold_fits(queue.id, "first").await.unwrap());
}

/// Takes a hold, claims, counts running tasks, ends and drops, until the queue is empty.
async fn work(db: Database, queue: Queue, taker: usize, limit: usize, most: Arc<AtomicUsize>) {
    let me = me(&format!("n{taker}"), &format!("b{taker}"));
    let tasks = collection(&db, "tasks");
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "the queue is not empty in time");
        let foreign = db.foreign_running(queue.id).await.unwrap();
        let token = token();
        if !db.hold_take(&queue, foreign, &token, &me).await.unwrap() {
            pause().await;
            continue;
        }
        let Some(claimed) = db.claim(&queue, &me, &token, at(0)).await.unwrap() else {
            db.hold_drop(queue.id, &token).await.unwrap();
            return;
        };
        let run = Run::of(&claimed).unwrap();
        if !db.hold_fits(queue.id, &token).await.unwrap() {
            assert!(db.speaking(Dialect::Released).unclaim(&run, &me, at(0)).await.unwrap());
            db.hold_drop(queue.id, &token).await.unwrap();
            continue;
        }
        assert!(db.start(&run, &me, at(0)).await.unwrap());
        let active = doc! { "status": 0, "windlass.boot": { "$exists": true } };
        let running = tasks.count_documents(active).await.unwrap();
        most.fetch_max(usize::try_from(running).unwrap(), Ordering::SeqCst);
        let end = doc! { "$set": { "status": 1 } };
        tasks.update_one(doc! { "_id": run.id }, end).await.unwrap();
        db.hold_drop(queue.id, &token).await.unwrap();
        assert!(most.load(Ordering::SeqCst) <= limit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_takers_and_a_foreign_node_never_pass_the_limit() {
    const LIMIT: usize = 3;
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 3).await;
    for _ in 0..40 {
        task(&db, queue.id, doc! {}).await;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let takers: Vec<_> = (0..8)
        .map(|taker| Background::spawn(work(db.clone(), queue.clone(), taker, LIMIT, most.clone())))
        .collect();
    // A foreign node that runs one task now and then, within the limit.
    let foreign = task(&db, queue.id, doc! { "status": 1, "node": "f" }).await;
    let tasks = collection(&db, "tasks");
    while !takers.iter().all(Background::is_finished) {
        for status in [0, 1] {
            let set = doc! { "$set": { "status": status } };
            tasks.update_one(doc! { "_id": foreign }, set).await.unwrap();
        }
    }
    for taker in takers {
        taker.await.unwrap();
    }
    let most = most.load(Ordering::SeqCst);
    assert!((1..=LIMIT).contains(&most), "{most}");
    let left = doc! { "status": { "$ne": 1 } };
    assert_eq!(tasks.count_documents(left).await.unwrap(), 0);
    assert_eq!(holds(&db, &queue).await.len(), 0);
}
