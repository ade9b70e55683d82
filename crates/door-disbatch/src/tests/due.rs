//! Tasks that wait for a time or for other tasks.

use std::collections::HashMap;

use crate::dialect::Dialect;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::tests::base::fresh;
use crate::tests::harness::{at, queue, read, status, task};

fn ids(tasks: &[Document]) -> Vec<ObjectId> {
    tasks.iter().map(|task| task.get_object_id("_id").unwrap()).collect()
}

#[tokio::test]
async fn those_whose_time_has_come_are_found() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let other = ObjectId::new();
    let blocked = |ours: Document| doc! { "status": -4, "windlass": ours };
    let mut due = Vec::new();
    for ours in [
        doc! { "not_before": at(-1) },
        doc! { "not_before": at(0) },
        doc! { "after": [other] },
        doc! { "not_before": at(0), "after": [other] },
    ] {
        due.push(task(&db, queue.id, blocked(ours)).await);
    }
    for fields in [
        blocked(doc! { "not_before": at(1) }),
        blocked(doc! { "not_before": at(1), "after": [other] }),
        blocked(doc! { "not_before": "soon" }),
        blocked(doc! {}),
        doc! { "status": -4 },
        doc! { "status": -4, "windlass": 5 },
        doc! { "status": -3, "windlass": { "not_before": at(-1) } },
        doc! { "status": -5, "windlass": { "not_before": at(-1) } },
    ] {
        task(&db, queue.id, fields).await;
    }
    assert_eq!(ids(&db.tasks_due(None, at(0)).await.unwrap()), due);
    assert_eq!(ids(&db.tasks_due(Some(due[1]), at(0)).await.unwrap()), due[2..]);
}

#[tokio::test]
async fn a_waiting_task_is_queued_once() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let waiting = doc! { "status": -4, "stderr": "waits", "windlass": { "not_before": at(0) } };
    let id = task(&db, queue.id, waiting).await;
    assert!(db.task_release(id, at(5)).await.unwrap());
    let queued = read(&db, id).await;
    assert_eq!(
        (queued.get_i32("status").ok(), queued.get("stderr")),
        (Some(-2), Some(&Bson::Null))
    );
    assert_eq!(queued.get_datetime("mtime").ok(), Some(&at(5)));
    assert!(!db.task_release(id, at(6)).await.unwrap());
    let cancelled = task(&db, queue.id, doc! { "status": -5 }).await;
    assert!(!db.task_release(cancelled, at(6)).await.unwrap());
    assert_eq!(status(&db, cancelled).await, -5);
}

#[tokio::test]
async fn why_it_goes_on_waiting_is_written_once() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let id = task(&db, queue.id, doc! { "status": -4 }).await;
    assert!(db.task_keep_waiting(id, "x failed", at(5)).await.unwrap());
    assert!(!db.task_keep_waiting(id, "x failed", at(6)).await.unwrap());
    let waiting = read(&db, id).await;
    assert_eq!(
        (waiting.get_i32("status").ok(), waiting.get_str("stderr").ok()),
        (Some(-4), Some("x failed"))
    );
    assert_eq!(waiting.get_datetime("mtime").ok(), Some(&at(5)));
    assert!(db.task_release(id, at(7)).await.unwrap());
    assert!(!db.task_keep_waiting(id, "late", at(8)).await.unwrap());
}

#[tokio::test]
async fn statuses_of_those_that_exist() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let (one, odd, missing) = (
        task(&db, queue.id, doc! { "status": 1 }).await,
        task(&db, queue.id, doc! { "status": {} }).await,
        ObjectId::new(),
    );
    let statuses = db.task_statuses(&[one, odd, missing, one]).await.unwrap();
    assert_eq!(statuses, HashMap::from([(one, Some(1)), (odd, None)]));
    assert!(db.task_statuses(&[]).await.unwrap().is_empty());
}
