//! The indexes created at the start.

use crate::database::{Database, DbError};
use crate::dialect::Dialect;
use mongodb::IndexModel;
use mongodb::bson::doc;
use mongodb::options::IndexOptions;
use windlass_test_kit::wait::in_time;

use crate::tests::base::{Background, collection, connect, fresh};
use crate::tests::harness::{BOTH, insert};
use crate::tests::harness_den::{GOOD, World};
use crate::tests::proxy::{Fate, Proxy, server_address};

/// Keys of the indexes of a collection; `!` marks unique ones, `?` sparse ones.
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

/// Creates an index on node names, as another program did.
async fn index_nodes(db: &Database, options: IndexOptions) {
    let model = IndexModel::builder().keys(doc! { "node": 1 }).options(options).build();
    collection(db, "nodes").create_index(model).await.unwrap();
}

#[tokio::test]
async fn both_dialects_get_what_they_need() {
    for dialect in BOTH {
        let db = fresh().await;
        db.speaking(dialect).ensure_indexes().await.unwrap();
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
        db.speaking(dialect).ensure_indexes().await.unwrap();
    }
}

#[tokio::test]
async fn an_index_of_another_name_will_do() {
    let db = fresh().await;
    let options = IndexOptions::builder().name("by_node".to_owned()).unique(true).build();
    index_nodes(&db, options).await;
    db.speaking(Dialect::Released).ensure_indexes().await.unwrap();
    assert_eq!(keys(&db, "nodes").await, ["node:1!"]);
}

#[tokio::test]
async fn an_index_that_cannot_be_made_is_told() {
    let db = fresh().await;
    index_nodes(&db, IndexOptions::default()).await;
    let error = db.speaking(Dialect::Seed).ensure_indexes().await.unwrap_err();
    assert!(matches!(error, DbError::Refused(_)), "{error}");
    assert!(error.to_string().contains("of nodes: it exists, but"), "{error}");

    let db = fresh().await;
    for _ in 0..2 {
        insert(&db, "queues", doc! { "name": "same" }).await;
    }
    db.speaking(Dialect::Seed).ensure_indexes().await.unwrap();
    let error = db.speaking(Dialect::Released).ensure_indexes().await.unwrap_err();
    assert!(matches!(error, DbError::Duplicate(_)), "{error}");
    assert!(error.to_string().contains("of queues"), "{error}");
}

/// Server error for missing rights.
const UNAUTHORIZED: i32 = 13;

/// The original's user may read everything and create indexes, but neither list them nor touch
/// `config` nor, before version 4.2, `changelog`.
#[tokio::test]
async fn the_roles_of_the_original_are_enough_for_a_node() {
    for dialect in BOTH {
        let world = World::new(dialect, GOOD).await;
        world.proxy.each(Fate::RefuseWith(UNAUTHORIZED), |it| {
            it.is("listCollections")
                || it.is("listIndexes")
                || it.is_on("createIndexes", "config")
                || it.is_on("createIndexes", "changelog")
                || it.is_on("insert", "changelog")
        });
        let queue = world.queue(1).await;
        let task = world.tasks(&queue, 1).await[0];
        let running = world.start();
        world.reaches(task, 1).await;
        world.stop.asked.cancel();
        in_time("the node ends", running).await.unwrap().unwrap();
        assert_eq!(keys(&world.sure, "nodes").await, ["node:1!"]);
        assert_eq!(keys(&world.sure, "config").await, [""; 0]);
    }
}

/// Only then is it unknown whether the existing index is adequate.
#[tokio::test]
async fn an_index_that_conflicts_and_may_not_be_looked_at_is_told() {
    let proxy = Proxy::start(server_address().await).await;
    let name = windlass_test_servers::mongodb().new_database();
    let db = connect(&windlass_test_servers::mongodb().url(), &name).await;
    index_nodes(&db, IndexOptions::default()).await;
    proxy.each(Fate::RefuseWith(UNAUTHORIZED), |it| {
        it.is("listCollections") || it.is("listIndexes")
    });
    let error =
        proxy.database(&name).await.speaking(Dialect::Released).ensure_indexes().await.unwrap_err();
    assert!(matches!(error, DbError::Refused(_)), "{error}");
    assert!(error.to_string().contains("of nodes"), "{error}");
}

/// On a large collection it takes longer than any other request.
#[tokio::test]
async fn an_index_may_take_its_time() {
    let proxy = Proxy::start(server_address().await).await;
    let db = proxy.database(&windlass_test_servers::mongodb().new_database()).await;
    let held = proxy.next(Fate::Hold, |it| it.is("createIndexes"));
    let making = Background::spawn({
        let db = db.clone();
        async move { db.speaking(Dialect::Released).ensure_indexes().await }
    });
    held.met().await;
    // A later request that times out waited for a shorter time than the index.
    proxy.next(Fate::Silence, |it| it.is("find"));
    assert!(matches!(db.queues().await, Err(DbError::Away(_))));
    held.release();
    making.await.unwrap().unwrap();
    assert_eq!(keys(&db, "nodes").await, ["node:1!"]);
}
