//! Cancelling, retrying, creating and removing tasks.

use crate::database::{Cancelled, DbError, NewTask, Retried};
use crate::dialect::Dialect;
use crate::doc::Task;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{BOTH, at, insert, me, process, queue, read, read_queue, status, task};
use crate::tests::proxy::{Fate, Proxy, server_address};

#[tokio::test]
async fn what_waits_is_cancelled_at_once() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for was in [-2, -4] {
        let id = task(&db, queue.id, doc! { "status": was }).await;
        assert_eq!(db.task_cancel(id, at(3)).await.unwrap(), Cancelled::Done);
        let cancelled = read(&db, id).await;
        assert_eq!(cancelled.get_i32("status").ok(), Some(-5));
        assert_eq!(cancelled.get_datetime("mtime").ok(), Some(&at(3)));
    }
}

#[tokio::test]
async fn what_runs_is_asked_to_end_when_it_is_ours() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for was in [-1, 0] {
        let boot = doc! { "boot": "b", "node": "n" };
        let ours = doc! { "status": was, "node": "n", "windlass": boot.clone() };
        let id = task(&db, queue.id, ours).await;
        assert_eq!(db.task_cancel(id, at(3)).await.unwrap(), Cancelled::Asked);
        let asked = read(&db, id).await;
        assert_eq!(asked.get_i32("status").ok(), Some(was));
        assert!(Task::read(&asked).unwrap().cancel);

        // The second one was reset by hand while our node had it.
        for windlass in [doc! {}, boot] {
            let foreign = doc! { "status": was, "node": "f", "windlass": windlass };
            let id = task(&db, queue.id, foreign).await;
            let before = read(&db, id).await;
            assert_eq!(db.task_cancel(id, at(3)).await.unwrap(), Cancelled::Foreign);
            assert_eq!(read(&db, id).await, before);
        }
    }
}

#[tokio::test]
async fn what_has_ended_cannot_be_cancelled() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let statuses = [-7, -6, -5, -3, 1, 2, 9].map(Bson::Int32);
    for was in statuses.into_iter().chain([Bson::from("-2"), Bson::Null]) {
        let id = task(&db, queue.id, doc! { "status": was.clone() }).await;
        assert_eq!(db.task_cancel(id, at(3)).await.unwrap(), Cancelled::Not(was));
    }
    let missing = db.task_cancel(ObjectId::new(), at(3)).await.unwrap();
    assert_eq!(missing, Cancelled::Missing);
}

#[tokio::test]
async fn what_has_ended_can_be_run_again() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        for was in [-6, -5, 1, 2, 9] {
            let id = task(
                &db,
                queue.id,
                doc! {
                    "status": was, "node": "n", "stdout": "out", "stderr": ObjectId::new(),
                    "complete": true, "cmdExit": 3, "cmdErr": "x",
                    "windlass": { "last": "b", "run": "t", "cancel": true, "priority": 5 },
                },
            )
            .await;
            let before = read(&db, id).await;
            let retried = db.speaking(dialect).task_retry(id, at(5)).await.unwrap();
            assert_eq!(retried, Retried::Queued(before));
            let wanted = doc! {
                "_id": id, "queue": queue.id, "status": -2, "node": dialect.unclaimed(),
                "parameters": {}, "ctime": at(-1000), "mtime": at(5), "stdout": Bson::Null,
                "stderr": Bson::Null, "windlass": { "priority": 5 },
            };
            assert_eq!(read(&db, id).await, wanted);
        }
        for was in [-4, -3, -2, -1, 0] {
            let id = task(&db, queue.id, doc! { "status": was }).await;
            let retried = db.speaking(dialect).task_retry(id, at(5)).await.unwrap();
            assert_eq!(retried, Retried::Not(Bson::Int32(was)));
        }
        let missing = db.speaking(dialect).task_retry(ObjectId::new(), at(5)).await.unwrap();
        assert_eq!(missing, Retried::Missing);
    }
}

#[tokio::test]
async fn a_task_with_odd_fields_of_ours_can_be_run_again() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for odd in [Bson::Int32(5), Bson::from("x"), Bson::from(vec![1]), Bson::Null] {
        let id = task(&db, queue.id, doc! { "status": 2, "windlass": odd }).await;
        let retried = db.speaking(Dialect::Seed).task_retry(id, at(5)).await.unwrap();
        assert!(matches!(retried, Retried::Queued(_)));
        assert_eq!(status(&db, id).await, -2);
    }
}

#[tokio::test]
async fn new_tasks_are_written_in_the_dialect_in_force() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let new = NewTask { params: doc! { "user": "a" }, ..NewTask::default() };
        let ids =
            db.speaking(dialect).tasks_create(queue.id, &[new.clone(), new], at(1)).await.unwrap();
        assert_eq!(ids.len(), 2);
        let wanted = doc! {
            "_id": ids[0], "queue": queue.id, "status": -2, "stdout": Bson::Null,
            "stderr": Bson::Null, "node": dialect.unclaimed(), dialect.params(): { "user": "a" },
            "ctime": at(1), "mtime": at(1),
        };
        assert_eq!(read(&db, ids[0]).await, wanted);
        assert!(!read_queue(&db, queue.id, dialect).await.priorities);
    }
}

#[tokio::test]
async fn new_tasks_with_everything_of_ours() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let other = ObjectId::new();
    let new = NewTask {
        params: doc! {},
        priority: Some(4),
        not_before: Some(at(60)),
        after: vec![other],
        timeout_seconds: Some(9),
        retries: Some(2),
    };
    let ids = db.speaking(Dialect::Seed).tasks_create(queue.id, &[new], at(1)).await.unwrap();
    let made = Task::read(&read(&db, ids[0]).await).unwrap();
    assert_eq!((made.status, made.retries, made.timeout_seconds), (-4, 2, Some(9)));
    assert_eq!((made.not_before, made.after), (Some(at(60)), vec![other]));
    assert!(read_queue(&db, queue.id, Dialect::Seed).await.priorities);
}

#[tokio::test]
async fn tasks_of_a_queue_are_removed_but_for_those_that_somebody_has() {
    let db = fresh().await;
    let (one, other) = (queue(&db, Dialect::Seed, 1).await, queue(&db, Dialect::Seed, 1).await);
    for was in [-6, -4, -2, -1, 0, 1, 2] {
        task(&db, one.id, doc! { "status": was, "node": "n" }).await;
        task(&db, other.id, doc! { "status": was }).await;
    }
    let ours = doc! { "status": 0, "node": "n", "windlass": { "boot": "b", "run": "r" } };
    let ours = task(&db, one.id, ours).await;
    insert(&db, "tasks", doc! { "queue": one.id, "status": "odd" }).await;
    assert_eq!(db.tasks_delete(one.id).await.unwrap().count, 6);
    let tasks = collection(&db, "tasks");
    assert_eq!(tasks.count_documents(doc! { "queue": one.id }).await.unwrap(), 3);
    assert_eq!(tasks.count_documents(doc! { "queue": other.id }).await.unwrap(), 7);
    assert_eq!(db.tasks_cancel_active(one.id).await.unwrap(), 1);
    assert!(Task::read(&read(&db, ours).await).unwrap().cancel);
}

/// A plugin that ends its task itself writes the status first and may still be running.
#[tokio::test]
async fn a_task_that_its_node_has_not_closed_is_not_queued_again() {
    let db = fresh().await;
    db.node_enter(&me("n", "b"), &process(), at(0)).await.unwrap();
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let open = doc! { "boot": "b", "node": "n", "run": "r" };
        let open = doc! { "status": 1, "node": "n", "windlass": open };
        let id = task(&db, queue.id, open).await;
        let retried = db.speaking(dialect).task_retry(id, at(5)).await.unwrap();
        assert_eq!(retried, Retried::Not(Bson::Int32(1)));
        assert_eq!(read(&db, id).await.get_i32("status").unwrap(), 1);
    }
}

/// Its node stopped or died before it could close the task, and no other node ever does.
#[tokio::test]
async fn a_task_that_nobody_will_close_any_more_is_queued_again() {
    let db = fresh().await;
    db.node_enter(&me("n", "later"), &process(), at(0)).await.unwrap();
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        // The second one was reset by hand and has since run on a foreign node.
        for (node, boot) in [("n", "b"), ("f", "later")] {
            let open = doc! { "boot": boot, "node": "n", "run": "r" };
            let open = doc! { "status": 1, "node": node, "windlass": open };
            let id = task(&db, queue.id, open).await;
            let retried = db.speaking(dialect).task_retry(id, at(5)).await.unwrap();
            assert!(matches!(retried, Retried::Queued(_)), "{node}: {retried:?}");
            let queued = read(&db, id).await;
            assert_eq!(queued.get_i32("status").unwrap(), -2);
            assert_eq!(queued.get_document("windlass").unwrap(), &doc! {});
        }
    }
}

/// Fields of any type are compared with themselves, so that invalid ones do no harm.
#[tokio::test]
async fn tasks_with_odd_times_are_cancelled_and_queued_again() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let odd = [Bson::Null, Bson::Int32(0), Bson::from("x"), Bson::from(doc! { "$oid": "x" })];
    for mtime in odd {
        let id = task(&db, queue.id, doc! { "mtime": mtime.clone() }).await;
        assert_eq!(db.task_cancel(id, at(3)).await.unwrap(), Cancelled::Done, "{mtime}");
        let id = task(&db, queue.id, doc! { "status": 2_i64, "mtime": mtime.clone() }).await;
        let retried = db.speaking(Dialect::Seed).task_retry(id, at(5)).await.unwrap();
        assert!(matches!(retried, Retried::Queued(_)), "{mtime}");
    }
}

/// By then the task may have ended and be running again.
#[tokio::test]
async fn a_late_request_to_end_all_of_a_queue_ends_no_later_run() {
    let proxy = Proxy::start(server_address().await).await;
    let name = windlass_test_servers::mongodb().new_database();
    let db = proxy.database(&name).await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let run = |token: &str| doc! { "boot": "b", "run": token };
    let first = doc! { "status": 0, "node": "n", "windlass": run("first") };
    let id = task(&db, queue.id, first).await;
    let late =
        proxy.next(Fate::Late, |it| it.is_on("update", "tasks") && it.mentions("windlass.cancel"));
    let asked = db.tasks_cancel_active(queue.id).await;
    assert!(matches!(asked, Err(DbError::Away(_))), "{asked:?}");
    let tasks = collection(&db, "tasks");
    let again = doc! { "$set": { "windlass": run("second") } };
    tasks.update_one(doc! { "_id": id }, again).await.unwrap();
    late.release();
    late.delivered().await;
    assert!(!Task::read(&read(&db, id).await).unwrap().cancel);
    assert_eq!(db.tasks_cancel_active(queue.id).await.unwrap(), 1);
    assert!(Task::read(&read(&db, id).await).unwrap().cancel);
}
