//! Shorthand for documents, nodes and times.

use std::time::Duration;

use crate::database::{Database, NodeBoot, Process};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::gridfs::{LoadError, Reader};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use windlass_test_kit::wait::{in_time, pause};

use crate::tests::base;

pub(crate) const BOTH: [Dialect; 2] = [Dialect::Seed, Dialect::Released];

pub(crate) fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_800_000_000_000 + seconds * 1000)
}

pub(crate) fn me(node: &str, boot: &str) -> NodeBoot {
    NodeBoot { node: node.to_owned(), boot: boot.to_owned() }
}

pub(crate) fn process() -> Process {
    Process {
        host: "kernel".to_owned(),
        pid: 7,
        fence: Some(8),
        orphan_after: Duration::from_secs(30),
        version: "1.0".to_owned(),
    }
}

pub(crate) async fn insert(db: &Database, collection: &str, document: Document) {
    base::collection(db, collection).insert_one(document).await.unwrap();
}

/// A queue in this dialect with this limit.
pub(crate) async fn queue(db: &Database, dialect: Dialect, limit: impl Into<Bson>) -> Queue {
    let id = ObjectId::new();
    let limit: Bson = limit.into();
    insert(
        db,
        "queues",
        doc! {
            "_id": id, "name": id.to_hex(), dialect.plugin(): "Demo", dialect.limit(): limit,
            "sort": "fifo",
        },
    )
    .await;
    read_queue(db, id, dialect).await
}

pub(crate) async fn read_queue(db: &Database, id: ObjectId, dialect: Dialect) -> Queue {
    Queue::read(&db.queue(&id.to_hex()).await.unwrap().unwrap(), dialect).unwrap()
}

/// A task whose defaults are overridden by these fields.
pub(crate) async fn task(db: &Database, queue: ObjectId, fields: Document) -> ObjectId {
    let id = ObjectId::new();
    let mut task = doc! {
        "_id": id, "queue": queue, "status": -2, "node": -1, "parameters": {},
        "ctime": at(-1000), "mtime": at(-1000), "stdout": Bson::Null, "stderr": Bson::Null,
    };
    task.extend(fields);
    insert(db, "tasks", task).await;
    id
}

pub(crate) async fn read(db: &Database, id: ObjectId) -> Document {
    db.task(id).await.unwrap().expect("the task is there")
}

pub(crate) async fn status(db: &Database, id: ObjectId) -> i32 {
    read(db, id).await.get_i32("status").unwrap()
}

/// Waits for a condition that has to be checked on a server.
pub(crate) async fn happens(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !happened().await {
            pause().await;
        }
    };
    in_time(what, waiting).await;
}

/// The text of an output file.
pub(crate) async fn load(db: &Database, id: ObjectId) -> Result<String, LoadError> {
    let (mut reader, mut text) = (Reader::open(db, id).await?, String::new());
    while let Some(piece) = reader.text().await? {
        text.push_str(&piece);
    }
    Ok(text)
}
