//! Queues, their counts, and the detection of the dialect.

use crate::database::{Counts, Database, DbError, NewQueue, QueueChange};
use crate::dialect::Dialect;
use futures_util::future::join_all;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{BOTH, insert, queue, task};

fn new(name: &str) -> NewQueue {
    NewQueue { name: name.to_owned(), plugin: "Demo".to_owned(), limit: Some(2), sort: None }
}

async fn changelog(db: &Database) -> Vec<Document> {
    collection(db, "changelog").all(doc! {}, doc! {}).await.unwrap()
}

#[tokio::test]
async fn a_new_queue_is_written_in_the_dialect_in_force() {
    let db = fresh().await;
    let wanted = [
        doc! {
            "constructor": "Demo", "maxthreads": 2_i64, "count_todo": 0_i64, "count_total": 0_i64,
        },
        doc! { "plugin": "Demo", "threads": 2_i64 },
    ];
    for (dialect, fields) in BOTH.into_iter().zip(wanted) {
        let name = dialect.name();
        let id = db.speaking(dialect).queue_insert(&new(name)).await.unwrap();
        let mut whole = doc! { "_id": id, "name": name };
        whole.extend(fields);
        assert_eq!(db.queue(name).await.unwrap(), Some(whole.clone()));
        assert_eq!(db.queue(&id.to_hex()).await.unwrap(), Some(whole.clone()));
        let log = changelog(&db).await.pop().unwrap();
        assert_eq!(
            (log.get_object_id("id").ok(), log.get_str("collection").ok()),
            (Some(id), Some("queues"))
        );
        assert_eq!(log.get(dialect.plugin()), whole.get(dialect.plugin()));
    }
    let sorted = NewQueue { limit: None, sort: Some("lifo".to_owned()), ..new("sorted") };
    db.speaking(Dialect::Released).queue_insert(&sorted).await.unwrap();
    let stored = db.queue("sorted").await.unwrap().unwrap();
    assert_eq!(
        (stored.get("threads"), stored.get_str("sort").ok()),
        (Some(&Bson::Null), Some("lifo"))
    );
}

#[tokio::test]
async fn a_name_is_given_once() {
    for dialect in BOTH {
        let db = fresh().await;
        db.speaking(dialect).ensure_indexes().await.unwrap();
        db.speaking(dialect).queue_insert(&new("a")).await.unwrap();
        db.speaking(dialect).queue_insert(&new("b")).await.unwrap();
        let again = db.speaking(dialect).queue_insert(&new("a")).await;
        assert!(matches!(again, Err(DbError::Duplicate(_))), "{again:?}");
        assert_eq!(db.queues().await.unwrap().len(), 2);
        assert_eq!(changelog(&db).await.len(), 2);
    }
    for dialect in BOTH {
        // There is no index.
        let db = fresh().await;
        db.speaking(dialect).queue_insert(&new("a")).await.unwrap();
        db.speaking(dialect).queue_insert(&new("b")).await.unwrap();
        let rename = |name: &str| QueueChange { name: Some(name.into()), ..QueueChange::default() };
        let renamed = db.speaking(dialect).queue_update("b", &rename("a")).await;
        assert!(matches!(renamed, Err(DbError::Duplicate(_))), "{renamed:?}");
        let same = db.speaking(dialect).queue_update("b", &rename("b")).await.unwrap();
        assert_eq!((same.matched_count, same.modified_count), (1, 0));
    }
}

/// The seed's dialect has no unique index on names.
#[tokio::test]
async fn of_queues_that_are_made_at_once_one_stays() {
    let db = fresh().await;
    for round in 0..5 {
        let queue = new(&format!("q{round}"));
        let seed = db.speaking(Dialect::Seed);
        let made = join_all((0..6).map(|_| seed.queue_insert(&queue))).await;
        let made: Vec<ObjectId> = made.into_iter().filter_map(Result::ok).collect();
        let stored: Vec<Document> = db.queues().await.unwrap();
        let stored: Vec<&Document> =
            stored.iter().filter(|stored| stored.get_str("name").unwrap() == queue.name).collect();
        assert_eq!((made.len(), stored.len()), (1, 1), "{stored:?}");
        assert_eq!(stored[0].get_object_id("_id").unwrap(), made[0]);
        assert!(!stored[0].contains_key("windlass"), "{}", stored[0]);
    }
    assert_eq!(changelog(&db).await.len(), 5);
}

#[tokio::test]
async fn of_queues_that_share_a_name_the_oldest_is_meant() {
    let db = fresh().await;
    let (old, young) = (ObjectId::new(), ObjectId::new());
    for id in [young, old] {
        insert(&db, "queues", doc! { "_id": id, "name": "a", "constructor": "X" }).await;
    }
    let limit = QueueChange { limit: Some(Some(5)), ..QueueChange::default() };
    db.speaking(Dialect::Seed).queue_update("a", &limit).await.unwrap();
    let ids = async || -> Vec<ObjectId> {
        let queues = db.queues().await.unwrap();
        queues.iter().map(|queue| queue.get_object_id("_id").unwrap()).collect()
    };
    assert_eq!(ids().await, [old, young]);
    assert_eq!(db.queue("a").await.unwrap().unwrap().get_i64("maxthreads").ok(), Some(5));
    assert!(db.queue_delete("a").await.unwrap().is_some());
    assert_eq!(ids().await, [young]);
}

#[tokio::test]
async fn a_change_touches_what_it_names() {
    let db = fresh().await;
    let id = db.speaking(Dialect::Released).queue_insert(&new("a")).await.unwrap();
    let change = QueueChange {
        name: Some("b".to_owned()),
        plugin: Some("Other".to_owned()),
        limit: Some(None),
        sort: Some(Some("fifo".to_owned())),
    };
    let result = db.speaking(Dialect::Released).queue_update("a", &change).await.unwrap();
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    let wanted = doc! {
        "_id": id, "name": "b", "plugin": "Other", "threads": Bson::Null, "sort": "fifo",
    };
    assert_eq!(db.queue("b").await.unwrap(), Some(wanted));
    let plain = QueueChange { sort: Some(None), ..QueueChange::default() };
    db.speaking(Dialect::Released).queue_update("b", &plain).await.unwrap();
    assert_eq!(db.queue("b").await.unwrap().unwrap().get("sort"), Some(&Bson::Null));
    let none = db.speaking(Dialect::Released).queue_update("a", &plain).await.unwrap();
    assert_eq!(none.matched_count, 0);
    let log = changelog(&db).await;
    assert_eq!(log.len(), 3);
    assert_eq!(log[1].get_str("name").ok(), Some("b"));
}

#[tokio::test]
async fn a_removed_queue_is_written_down() {
    let db = fresh().await;
    let id = db.speaking(Dialect::Seed).queue_insert(&new("a")).await.unwrap();
    task(&db, id, doc! {}).await;
    assert!(db.queue_delete(&id.to_hex()).await.unwrap().is_some());
    assert!(db.queue_delete(&id.to_hex()).await.unwrap().is_none());
    assert_eq!(db.queue_counts(&[id]).await.unwrap()[&id].total, 1, "its tasks stay");
    let log = changelog(&db).await;
    assert_eq!(log.len(), 2);
    assert_eq!(
        (log[1].get_bool("deleted").ok(), log[1].get_object_id("id").ok()),
        (Some(true), Some(id))
    );
}

#[tokio::test]
async fn all_queues_are_counted_in_one_question() {
    let db = fresh().await;
    let one = queue(&db, Dialect::Seed, 1).await;
    let other = queue(&db, Dialect::Seed, 1).await;
    let empty = queue(&db, Dialect::Seed, 1).await;
    for status in [-6, -5, -4, -2, -2, -1, 0, 1, 2, 9] {
        task(&db, one.id, doc! { "status": status }).await;
    }
    task(&db, one.id, doc! { "status": "1" }).await;
    task(&db, one.id, doc! { "status": 1.0 }).await;
    task(&db, one.id, doc! { "status": 0_i64 }).await;
    task(&db, other.id, doc! {}).await;
    let counts = db.queue_counts(&[one.id, other.id, empty.id]).await.unwrap();
    let wanted = Counts { queued: 4, running: 3, completed: 4, orphaned: 1, total: 13 };
    assert_eq!(counts.get(&one.id), Some(&wanted));
    let wanted = Counts { queued: 1, total: 1, ..Counts::default() };
    assert_eq!(counts.get(&other.id), Some(&wanted));
    assert_eq!(counts.get(&empty.id), None);
}

#[tokio::test]
async fn the_documents_tell_the_dialect() {
    let cases = [
        ("queues", doc! { "constructor": "X" }, Dialect::Seed),
        ("queues", doc! { "plugin": "X", "count_todo": 1 }, Dialect::Seed),
        ("queues", doc! { "plugin": "X" }, Dialect::Released),
        ("queues", doc! { "threads": 1 }, Dialect::Released),
        ("tasks", doc! { "parameters": {} }, Dialect::Seed),
        ("tasks", doc! { "params": {} }, Dialect::Released),
    ];
    for (collection, document, dialect) in cases {
        let db = fresh().await;
        assert!(!db.learn_dialect().await.unwrap(), "nothing to tell it from");
        assert_eq!(db.dialect(), Dialect::Seed);
        insert(&db, collection, document.clone()).await;
        assert!(db.learn_dialect().await.unwrap(), "{document}");
        assert_eq!(db.dialect(), dialect, "{document}");
        let set = db.speaking(Dialect::Seed);
        assert!(set.learn_dialect().await.unwrap());
        assert_eq!(set.dialect(), Dialect::Seed);
    }
}

#[tokio::test]
async fn the_server_says_what_time_it_is() {
    let db = fresh().await;
    let first = db.server_time().await.unwrap();
    assert!(db.server_time().await.unwrap() >= first);
}

/// Holds and limits that changed in the meantime are not lost.
#[tokio::test]
async fn a_queue_comes_back_as_it_was_removed() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 3).await;
    let set = doc! { "$set": { "threads": 7, "windlass.holds": [{ "id": "1", "boot": "b" }] } };
    let queues = collection(&db, "queues");
    queues.update_one(doc! { "_id": queue.id }, set).await.unwrap();
    let before = db.queue(&queue.name).await.unwrap().unwrap();
    let gone = db.queue_delete(&queue.id.to_hex()).await.unwrap().unwrap();
    assert_eq!(gone, before);
    db.queue_restore(gone).await.unwrap();
    assert_eq!(db.queue(&queue.id.to_hex()).await.unwrap(), Some(before));
}
