//! The seed's counters.

use crate::database::{Counters, Database, Ending, NewQueue, NewTask, Retried, Run};
use crate::dialect::Dialect;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{at, insert, me, read_queue};

async fn seed_queue(db: &Database) -> ObjectId {
    let new = NewQueue { name: "q".to_owned(), plugin: "Demo".to_owned(), limit: None, sort: None };
    db.speaking(Dialect::Seed).queue_insert(&new).await.unwrap()
}

/// The stored counters, which must equal the actual ones.
async fn counters(db: &Database, queue: ObjectId) -> (i64, i64) {
    let stored = read_queue(db, queue, Dialect::Seed).await;
    let counts = db.queue_counts(&[queue]).await.unwrap()[&queue];
    let stored = (stored.count_todo.unwrap(), stored.count_total.unwrap());
    let real = (counts.todo().try_into().unwrap(), counts.total.try_into().unwrap());
    assert_eq!(stored, real);
    stored
}

#[tokio::test]
async fn they_follow_a_task_on_its_way() {
    let db = fresh().await;
    let queue = seed_queue(&db).await;
    let new = vec![NewTask::default(); 3];
    db.speaking(Dialect::Seed).tasks_create(queue, &new, at(0)).await.unwrap();
    assert_eq!(counters(&db, queue).await, (3, 3));

    let me = me("n", "b");
    let read = read_queue(&db, queue, Dialect::Seed).await;
    let mut ended = Vec::new();
    for (status, todo) in [(1, 2), (7, 1), (-5, 1)] {
        let claimed = db.claim(&read, &me, "t", at(0)).await.unwrap().unwrap();
        let run = Run::of(&claimed).unwrap();
        assert!(db.start(&run, &me, at(0)).await.unwrap());
        let ending = Ending {
            status,
            stdout: Bson::Null,
            stderr: Bson::Null,
            cmd_exit: None,
            cmd_err: None,
            complete: true,
        };
        db.speaking(Dialect::Seed).finish(&run, &me, &ending, at(0)).await.unwrap();
        assert_eq!(counters(&db, queue).await, (todo, 3));
        ended.push(run.id);
    }
    for (id, todo) in ended.into_iter().zip([2, 3, 3]) {
        let retried = db.speaking(Dialect::Seed).task_retry(id, at(0)).await.unwrap();
        assert!(matches!(retried, Retried::Queued(_)));
        assert_eq!(counters(&db, queue).await, (todo, 3));
    }
}

#[tokio::test]
async fn the_released_dialect_has_none() {
    let db = fresh().await;
    let queue = ObjectId::new();
    insert(&db, "queues", doc! { "_id": queue, "name": "q", "plugin": "X" }).await;
    db.speaking(Dialect::Released).tasks_create(queue, &[NewTask::default()], at(0)).await.unwrap();
    let stored = db.queue("q").await.unwrap().unwrap();
    assert!(!stored.contains_key("count_todo") && !stored.contains_key("count_total"));
}

#[tokio::test]
async fn they_are_set_where_they_are_no_numbers() {
    let db = fresh().await;
    let real = Counters { todo: 3, total: 5 };
    for (stored, wanted) in [
        (doc! {}, (3, 5)),
        (doc! { "count_todo": Bson::Null, "count_total": Bson::Null }, (3, 5)),
        (doc! { "count_todo": 9 }, (9, 5)),
        (doc! { "count_total": 9 }, (3, 9)),
        (doc! { "count_todo": "9", "count_total": 7.0 }, (3, 7)),
        (doc! { "count_todo": [9], "count_total": {} }, (3, 5)),
        (doc! { "count_todo": 1.5, "count_total": f64::NAN }, (3, 5)),
    ] {
        let queue = ObjectId::new();
        let mut document = doc! { "_id": queue, "name": queue.to_hex(), "constructor": "X" };
        document.extend(stored);
        insert(&db, "queues", document).await;
        // Unset counters cannot be incremented.
        db.speaking(Dialect::Seed).tasks_create(queue, &[], at(0)).await.unwrap();
        let read = read_queue(&db, queue, Dialect::Seed).await;
        assert!(db.counters_fill(&read, real).await.unwrap());
        let read = read_queue(&db, queue, Dialect::Seed).await;
        assert_eq!((read.count_todo, read.count_total), (Some(wanted.0), Some(wanted.1)));
    }
}

#[tokio::test]
async fn odd_counters_stop_nothing() {
    let db = fresh().await;
    for odd in [Bson::from("x"), Bson::from(doc! {}), Bson::Null] {
        let queue = ObjectId::new();
        let document = doc! {
            "_id": queue, "name": queue.to_hex(), "constructor": "X", "count_todo": odd.clone(),
            "count_total": odd.clone(),
        };
        insert(&db, "queues", document).await;
        let made =
            db.speaking(Dialect::Seed).tasks_create(queue, &[NewTask::default()], at(0)).await;
        assert_eq!(made.unwrap().len(), 1);
        let stored = db.queue(&queue.to_hex()).await.unwrap().unwrap();
        assert_eq!(stored.get("count_todo"), Some(&odd));
    }
}

#[tokio::test]
async fn a_correction_gives_way_to_a_change() {
    let db = fresh().await;
    let queue = seed_queue(&db).await;
    let (zero, real) = (Counters { todo: 0, total: 0 }, Counters { todo: 2, total: 4 });
    let queues = collection(&db, "queues");
    let add = doc! { "$inc": { "count_total": 1 } };
    queues.update_one(doc! { "_id": queue }, add).await.unwrap();
    assert!(!db.counters_correct(queue, zero, real).await.unwrap());
    let seen = Counters { todo: 0, total: 1 };
    assert!(db.counters_correct(queue, seen, real).await.unwrap());
    let read = read_queue(&db, queue, Dialect::Seed).await;
    assert_eq!((read.count_todo, read.count_total), (Some(2), Some(4)));
}
