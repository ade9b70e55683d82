//! Entries of nodes.

use crate::database::{Database, Entered};
use crate::dialect::Dialect;
use crate::doc::Node;
use mongodb::bson::{Bson, Document, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{at, insert, me, process};

async fn changelog(db: &Database) -> u64 {
    collection(db, "changelog").count_documents(doc! {}).await.unwrap()
}

async fn entry(db: &Database, name: &str) -> Document {
    db.node(name).await.unwrap().unwrap()
}

/// The beat of node `n`.
async fn beat(db: &Database) -> i64 {
    entry(db, "n").await.get_document("windlass").unwrap().get_i64("beat").unwrap()
}

#[tokio::test]
async fn a_first_entry_is_made_and_written_down() {
    let db = fresh().await;
    db.speaking(Dialect::Seed).ensure_indexes().await.unwrap();
    let entered = db.node_enter(&me("n", "b"), &process(), at(0)).await.unwrap();
    assert_eq!(entered, Entered::Mine);
    let mine = entry(&db, "n").await;
    assert_eq!(mine.get_datetime("timestamp").ok(), Some(&at(0)));
    let node = Node::read(&mine).unwrap();
    assert_eq!((node.boot.as_deref(), node.host.as_deref()), (Some("b"), Some("kernel")));
    assert_eq!((node.pid, node.fence), (Some(7), Some(8)));
    let log = collection(&db, "changelog").find_one(doc! {}).await.unwrap().unwrap();
    assert_eq!(log.get_str("collection").ok(), Some("nodes"));
    assert_eq!((log.get_str("node").ok(), log.get("id")), (Some("n"), mine.get("_id")));
    // The answer was lost, so the request is repeated.
    let again = db.node_enter(&me("n", "b"), &process(), at(1)).await.unwrap();
    assert!(matches!(again, Entered::Mine));
    assert_eq!(changelog(&db).await, 1);
    assert_eq!(db.nodes().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_name_belongs_to_one_start() {
    let db = fresh().await;
    db.speaking(Dialect::Seed).ensure_indexes().await.unwrap();
    let (one, other) = (me("n", "b"), me("n", "c"));
    db.node_enter(&one, &process(), at(0)).await.unwrap();
    let Entered::Taken(taken) = db.node_enter(&other, &process(), at(1)).await.unwrap() else {
        panic!("it is taken");
    };
    assert_eq!(Node::read(&taken).unwrap().boot.as_deref(), Some("b"));
    assert_eq!(db.node_update(&other, at(2), None).await.unwrap(), None);
    assert!(!db.node_beat(&other).await.unwrap());
    db.node_leave(&other).await.unwrap();
    assert_eq!(entry(&db, "n").await, taken, "a node without the name changes nothing");

    db.node_leave(&one).await.unwrap();
    assert!(!db.node_beat(&one).await.unwrap());
    let entered = db.node_enter(&other, &process(), at(4)).await.unwrap();
    assert!(matches!(entered, Entered::Mine));
    assert!(db.node_beat(&other).await.unwrap());
}

#[tokio::test]
async fn only_who_shows_no_life_loses_the_name() {
    let db = fresh().await;
    let one = me("n", "b");
    db.node_enter(&one, &process(), at(0)).await.unwrap();
    let seen = entry(&db, "n").await.get_document("windlass").unwrap().get("beat").cloned();
    assert!(!db.node_evict("n", "b", &None).await.unwrap(), "its beat was not observed");
    assert!(db.node_beat(&one).await.unwrap());
    assert!(!db.node_evict("n", "b", &seen).await.unwrap(), "it has shown life");
    assert!(db.node_beat(&one).await.unwrap());
    let seen = entry(&db, "n").await.get_document("windlass").unwrap().get("beat").cloned();
    assert!(db.node_evict("n", "b", &seen).await.unwrap());
    assert!(!db.node_beat(&one).await.unwrap(), "it can never come back");
    assert_eq!(db.node_update(&one, at(1), None).await.unwrap(), None);
    assert!(db.node_evict("n", "b", &seen).await.unwrap(), "done is done");
    assert!(db.node_evict("m", "b", &seen).await.unwrap(), "there is no such entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_starts_at_once_one_gets_the_name() {
    let db = fresh().await;
    db.speaking(Dialect::Released).ensure_indexes().await.unwrap();
    let enter = |boot: usize| {
        let db = db.clone();
        tokio::spawn(async move {
            let me = me("n", &format!("b{boot}"));
            matches!(db.node_enter(&me, &process(), at(0)).await.unwrap(), Entered::Mine)
        })
    };
    let mut mine = 0;
    for start in (0..8).map(enter).collect::<Vec<_>>() {
        mine += usize::from(start.await.unwrap());
    }
    assert_eq!((mine, db.nodes().await.unwrap().len()), (1, 1));
}

#[tokio::test]
async fn a_foreign_entry_keeps_what_it_says() {
    let db = fresh().await;
    insert(&db, "nodes", doc! { "node": "n", "maxthreads": 3, "timestamp": 5, "x": 1 }).await;
    let entered = db.node_enter(&me("n", "b"), &process(), at(0)).await.unwrap();
    assert_eq!(entered, Entered::Mine);
    let mine = entry(&db, "n").await;
    assert_eq!((mine.get_i32("maxthreads").ok(), mine.get_i32("x").ok()), (Some(3), Some(1)));
    assert_eq!(changelog(&db).await, 0, "it was there before");
}

#[tokio::test]
async fn an_entry_with_odd_fields_is_entered_all_the_same() {
    let db = fresh().await;
    let odd = [
        doc! { "windlass": 5 },
        doc! { "windlass": [1] },
        doc! { "windlass": { "boot": 7, "beat": "x" } },
        doc! { "timestamp": "x", "maxthreads": {}, "queues": 1 },
    ];
    for (number, fields) in odd.into_iter().enumerate() {
        let me = me(&format!("n{number}"), "b");
        let mut document = doc! { "node": &me.node };
        document.extend(fields);
        insert(&db, "nodes", document).await;
        let entered = db.node_enter(&me, &process(), at(0)).await.unwrap();
        assert!(matches!(entered, Entered::Mine));
        assert!(db.node_beat(&me).await.unwrap());
    }
}

#[tokio::test]
async fn signs_of_life_and_the_report() {
    let db = fresh().await;
    let me = me("n", "b");
    db.node_enter(&me, &process(), at(0)).await.unwrap();
    let first = beat(&db).await;
    assert!(db.node_beat(&me).await.unwrap());
    assert!(beat(&db).await > first);
    let report = vec![doc! { "name": "demo", "tasks_todo": 1 }];
    let updated = db.node_update(&me, at(9), Some(report.clone())).await.unwrap().unwrap();
    assert_eq!(updated.get_datetime("timestamp").ok(), Some(&at(9)));
    assert_eq!(updated.get("queues"), Some(&Bson::from(report)));
    let updated = db.node_update(&me, at(10), None).await.unwrap().unwrap();
    assert!(updated.contains_key("queues"));
}

/// Another program wrote into the entry of a living node, whose life sign continues to change.
#[tokio::test]
async fn a_beat_that_cannot_grow_is_replaced_by_who_lives() {
    let odd = [
        Bson::Null,
        Bson::from("x"),
        Bson::from(doc! { "$gt": "" }),
        Bson::from(vec![1]),
        Bson::Int64(i64::MAX),
        Bson::Int32(-9),
        Bson::Double(1e300),
        Bson::Double(f64::INFINITY),
        Bson::Double(f64::NAN),
    ];
    let db = fresh().await;
    let me = me("n", "b");
    db.node_enter(&me, &process(), at(0)).await.unwrap();
    let nodes = collection(&db, "nodes");
    let beat = async || {
        let entry = entry(&db, "n").await;
        entry.get_document("windlass").unwrap().get("beat").cloned().unwrap()
    };
    for value in odd {
        let set = doc! { "$set": { "windlass.beat": value.clone() } };
        nodes.update_one(doc! { "node": "n" }, set).await.unwrap();
        assert!(db.node_beat(&me).await.unwrap(), "{value}");
        let first = beat().await;
        assert!(first != value, "{value}");
        assert!(db.node_beat(&me).await.unwrap(), "{value}");
        assert!(beat().await != first, "{value}");
        assert!(!db.node_evict("n", "b", &Some(value.clone())).await.unwrap(), "{value}");
    }
}

/// Others see nothing else: a node that enters again, such as with a new fence, must be noticed.
#[tokio::test]
async fn entering_again_is_a_sign_of_life() {
    let db = fresh().await;
    let me = me("n", "b");
    let mut seen = Vec::new();
    for second in 0..3 {
        db.node_enter(&me, &process(), at(second)).await.unwrap();
        seen.push(beat(&db).await);
    }
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
}

#[tokio::test]
async fn a_limit_set_meanwhile_is_not_overwritten() {
    let db = fresh().await;
    let me = me("n", "b");
    db.node_enter(&me, &process(), at(0)).await.unwrap();
    let before = changelog(&db).await;
    let result = db.node_set_limit("n", Some(4)).await.unwrap();
    assert_eq!((result.matched_count, result.modified_count), (1, 1));
    let updated = db.node_update(&me, at(1), None).await.unwrap().unwrap();
    assert_eq!(updated.get_i64("maxthreads").ok(), Some(4));
    let id = updated.get_object_id("_id").unwrap().to_hex();
    db.node_set_limit(&id, None).await.unwrap();
    assert_eq!(entry(&db, &id).await.get("maxthreads"), Some(&Bson::Null));
    assert_eq!(changelog(&db).await, before + 2);
    assert_eq!(db.node_set_limit("nobody", Some(1)).await.unwrap().matched_count, 0);
    assert_eq!(changelog(&db).await, before + 2);
}
