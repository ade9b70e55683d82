//! The indexes that are made at start.

use mongodb::IndexModel;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use windlass_door_disbatch::database::{Database, DbError};
use windlass_door_disbatch::dialect::Dialect;

use crate::base::fresh;
use crate::harness::{BOTH, insert};
use crate::proxy::{Fate, Proxy, server_address};

/// Keys of the indexes of a collection, a `!` behind those that hold values apart, `?` behind
/// those that leave out missing ones.
async fn keys(db: &Database, collection: &str) -> Vec<String> {
    let show = |index: &IndexModel| {
        let keys: Vec<String> =
            index.keys.iter().map(|(key, way)| format!("{key}:{way}")).collect();
        let options = index.options.clone().unwrap_or_default();
        let mark = |set: Option<bool>, mark| if set == Some(true) { mark } else { "" };
        keys.join(",") + mark(options.unique, "!") + mark(options.sparse, "?")
    };
    let mut shown: Vec<_> = db.indexes(collection).await.unwrap().iter().map(show).collect();
    shown.retain(|keys| keys != "_id:1");
    shown.sort();
    shown
}

#[tokio::test]
async fn both_dialects_get_what_they_need() {
    for dialect in BOTH {
        let db = fresh().await;
        db.ensure_indexes(dialect).await.unwrap();
        let tasks = [
            "node:1,status:1,queue:1",
            "node:1,status:1,queue:1,_id:-1",
            "node:1,status:1,queue:1,_id:1",
            "queue:1,status:1",
        ];
        assert_eq!(keys(&db, "tasks").await, tasks);
        assert_eq!(keys(&db, "nodes").await, ["node:1!"]);
        assert_eq!(keys(&db, "changelog").await, ["collection:1"]);
        assert_eq!(keys(&db, "tasks.chunks").await, ["files_id:1,n:1!"]);
        let files = ["filename:1,metadata.task_id:1", "filename:1,uploadDate:1"];
        assert_eq!(keys(&db, "tasks.files").await, files);
        let (queues, config): (&[&str], &[&str]) = match dialect {
            Dialect::Seed => (&[], &["active:1!?", "label:1!"]),
            Dialect::Released => (&["name:1!"], &[]),
        };
        assert_eq!(keys(&db, "queues").await, queues);
        assert_eq!(keys(&db, "config").await, config);
        db.ensure_indexes(dialect).await.unwrap();
    }
}

#[tokio::test]
async fn an_index_of_another_name_will_do() {
    let db = fresh().await;
    let options = IndexOptions::builder().name("by_node".to_owned()).unique(true).build();
    let model = IndexModel::builder().keys(doc! { "node": 1 }).options(options).build();
    db.raw().collection::<Document>("nodes").create_index(model).await.unwrap();
    db.ensure_indexes(Dialect::Released).await.unwrap();
    assert_eq!(keys(&db, "nodes").await, ["node:1!"]);
}

#[tokio::test]
async fn an_index_that_cannot_be_made_is_told() {
    let db = fresh().await;
    let model = IndexModel::builder().keys(doc! { "node": 1 }).build();
    db.raw().collection::<Document>("nodes").create_index(model).await.unwrap();
    let error = db.ensure_indexes(Dialect::Seed).await.unwrap_err();
    assert!(matches!(error, DbError::Refused(_)), "{error}");
    assert!(error.to_string().contains("of nodes: it is there, but"), "{error}");

    let db = fresh().await;
    for _ in 0..2 {
        insert(&db, "queues", doc! { "name": "same" }).await;
    }
    db.ensure_indexes(Dialect::Seed).await.unwrap();
    let error = db.ensure_indexes(Dialect::Released).await.unwrap_err();
    assert!(matches!(error, DbError::Duplicate(_)), "{error}");
    assert!(error.to_string().contains("of queues"), "{error}");
}

/// On a large collection it takes longer than anything else that is asked.
#[tokio::test]
async fn an_index_may_take_its_time() {
    let proxy = Proxy::start(server_address().await).await;
    let db = proxy.database(&windlass_test_servers::mongodb().new_database()).await;
    let held = proxy.next(Fate::Hold, |it| it.is("createIndexes"));
    let making = tokio::spawn({
        let db = db.clone();
        async move { db.ensure_indexes(Dialect::Released).await }
    });
    held.met().await;
    // What is asked later and given up waited for less time than the index.
    proxy.next(Fate::Silence, |it| it.is("find"));
    assert!(matches!(db.queues().await, Err(DbError::Away(_))));
    held.release();
    making.await.unwrap().unwrap();
    assert_eq!(keys(&db, "nodes").await, ["node:1!"]);
}
