//! Ends of tasks.

use crate::database::{Database, DbError, Ending, Finished, NodeBoot, Run};
use crate::dialect::Dialect;
use crate::doc::Queue;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{BOTH, at, me, queue, read, status, task};

fn ending(status: i32) -> Ending {
    Ending {
        status,
        stdout: Bson::from("out"),
        stderr: Bson::from("err"),
        cmd_exit: Some(3),
        cmd_err: Some("exit status 3".to_owned()),
        complete: true,
    }
}

/// A task running under `me("n", "b")`.
async fn running(db: &Database, queue: &Queue, ours: Document, token: &str) -> (NodeBoot, Run) {
    let me = me("n", "b");
    task(db, queue.id, doc! { "windlass": ours }).await;
    let claimed = db.claim(queue, &me, token, at(0)).await.unwrap().unwrap();
    let run = Run::of(&claimed).unwrap();
    assert!(db.start(&run, &me, at(1)).await.unwrap());
    (me, run)
}

#[tokio::test]
async fn status_output_and_time_come_together() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let (me, run) = running(&db, &queue, doc! { "cancel": true }, "t").await;
        let finished = db.speaking(dialect).finish(&run, &me, &ending(2), at(7)).await.unwrap();
        assert_eq!(finished, Finished::Ended);
        let ended = read(&db, run.id).await;
        assert_eq!(ended.get_i32("status").ok(), Some(2));
        assert_eq!(
            (ended.get_str("stdout").ok(), ended.get_str("stderr").ok()),
            (Some("out"), Some("err"))
        );
        assert_eq!(ended.get_datetime("mtime").ok(), Some(&at(7)));
        assert_eq!(ended.get_bool("complete").ok(), Some(true));
        assert_eq!(ended.get_i32("cmdExit").ok(), Some(3));
        assert_eq!(ended.get_str("cmdErr").ok(), Some("exit status 3"));
        assert_eq!(ended.get_str("node").ok(), Some("n"));
        let ours = ended.get_document("windlass").unwrap();
        assert_eq!(ours.get_str("last").ok(), Some("b"));
        assert_eq!(ours.get_datetime("started").ok(), Some(&at(1)));
        assert_eq!(ours.get_datetime("ended").ok(), Some(&at(7)));
        assert!(!ours.contains_key("boot") && !ours.contains_key("cancel"));
    }
}

#[tokio::test]
async fn a_program_that_never_started_leaves_no_exit() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 1).await;
    let (me, run) = running(&db, &queue, doc! {}, "t").await;
    let ending = Ending { cmd_exit: None, cmd_err: None, complete: false, ..ending(2) };
    db.speaking(Dialect::Released).finish(&run, &me, &ending, at(7)).await.unwrap();
    let ended = read(&db, run.id).await;
    assert!(!ended.contains_key("cmdExit") && !ended.contains_key("cmdErr"));
    assert_eq!(ended.get_bool("complete").ok(), Some(false));
}

#[tokio::test]
async fn a_claimed_task_may_end_too() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let id = task(&db, queue.id, doc! {}).await;
    let me = me("n", "b");
    let run = Run::of(&db.claim(&queue, &me, "t", at(0)).await.unwrap().unwrap()).unwrap();
    let finished = db.speaking(Dialect::Seed).finish(&run, &me, &ending(-5), at(1)).await.unwrap();
    assert_eq!((finished, status(&db, id).await), (Finished::Ended, -5));
}

#[tokio::test]
async fn who_has_lost_a_task_cannot_end_it() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let (mine, run) = running(&db, &queue, doc! { "retries": 1 }, "t").await;
    let before = read(&db, run.id).await;
    let late = Run { token: "earlier".to_owned(), ..run.clone() };
    for (run, who) in [(&run, me("n", "x")), (&run, me("m", "b")), (&late, mine.clone())] {
        for status in [1, 2, -5, -6] {
            let finished =
                db.speaking(Dialect::Seed).finish(run, &who, &ending(status), at(7)).await;
            assert_eq!(finished.unwrap(), Finished::NotMine);
        }
        let handed = db.speaking(Dialect::Seed).finish_handed_over(run, &who, at(7)).await.unwrap();
        assert_eq!(handed, None);
    }
    assert_eq!(read(&db, run.id).await, before);

    db.orphan_ours("n", "b", at(8)).await.unwrap();
    let finished = db.speaking(Dialect::Seed).finish(&run, &mine, &ending(1), at(9)).await.unwrap();
    assert_eq!((finished, status(&db, run.id).await), (Finished::NotMine, -6));
}

#[tokio::test]
async fn a_failure_with_tries_left_is_put_back() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let (me, run) = running(&db, &queue, doc! { "retries": 1 }, "first").await;
        let finish = async |run: &Run, status: i32| {
            db.speaking(dialect).finish(run, &me, &ending(status), at(7)).await.unwrap()
        };
        assert_eq!(finish(&run, 2).await, Finished::Again);
        let back = read(&db, run.id).await;
        assert_eq!(back.get_i32("status").ok(), Some(-2));
        assert_eq!(back.get("node"), Some(&dialect.unclaimed()));
        assert_eq!(back.get_str("stdout").ok(), Some("out"));
        assert_eq!(finish(&run, 2).await, Finished::Again, "a lost answer");

        let claimed = db.claim(&queue, &me, "second", at(8)).await.unwrap().unwrap();
        let second = Run::of(&claimed).unwrap();
        assert_eq!((second.id, second.attempt), (run.id, 1));
        assert!(db.start(&second, &me, at(8)).await.unwrap());
        assert_eq!(finish(&run, 2).await, Finished::Again, "it is about the first try");
        assert_eq!(status(&db, run.id).await, 0, "the second one goes on");
        assert_eq!(finish(&second, 3).await, Finished::Ended);
        assert_eq!(status(&db, run.id).await, 3);
    }
}

#[tokio::test]
async fn success_cancelling_and_orphaning_use_no_tries() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for status in [1, -5, -6] {
        let (me, run) = running(&db, &queue, doc! { "retries": 5 }, "t").await;
        let finished =
            db.speaking(Dialect::Seed).finish(&run, &me, &ending(status), at(7)).await.unwrap();
        assert_eq!((finished, self::status(&db, run.id).await), (Finished::Ended, status));
    }
    let (me, run) = running(&db, &queue, doc! { "retries": 5, "cancel": true }, "t").await;
    let finished = db.speaking(Dialect::Seed).finish(&run, &me, &ending(2), at(7)).await.unwrap();
    assert_eq!(finished, Finished::Ended, "it was asked to end");
}

#[tokio::test]
async fn a_program_may_have_ended_its_task_itself() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 1).await;
    let (me, run) = running(&db, &queue, doc! {}, "t").await;
    let settle =
        async || db.speaking(Dialect::Released).finish_handed_over(&run, &me, at(9)).await.unwrap();
    assert_eq!(settle().await, None, "it is still running");
    let tasks = collection(&db, "tasks");
    let by_program = doc! { "$set": { "status": 4, "stdout": "mine", "complete": true } };
    let filter = doc! { "_id": run.id, "status": 0, "node": "n" };
    tasks.update_one(filter, by_program).await.unwrap();
    let ended = settle().await.unwrap();
    assert_eq!(ended.get_i32("status").ok(), Some(4));
    assert_eq!(ended.get_str("stdout").ok(), Some("mine"));
    assert_eq!(ended.get_datetime("mtime").ok(), Some(&at(9)));
    assert!(!ended.get_document("windlass").unwrap().contains_key("boot"));
    assert_eq!(settle().await, Some(ended), "a lost answer");
}

#[tokio::test]
async fn output_may_be_files() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let (me, run) = running(&db, &queue, doc! {}, "t").await;
    let file = ObjectId::new();
    let ending = Ending { stdout: Bson::from(file), stderr: Bson::Null, ..ending(1) };
    db.speaking(Dialect::Seed).finish(&run, &me, &ending, at(7)).await.unwrap();
    let ended = read(&db, run.id).await;
    assert_eq!(ended.get_object_id("stdout").ok(), Some(file));
    assert_eq!(ended.get("stderr"), Some(&Bson::Null));
}

#[tokio::test]
async fn output_that_no_document_can_hold_is_refused_and_changes_nothing() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let (me, run) = running(&db, &queue, doc! {}, "t").await;
    let before = read(&db, run.id).await;
    let large = Ending { stdout: Bson::from("x".repeat(17 * 1024 * 1024)), ..ending(1) };
    let refused = db.speaking(Dialect::Seed).finish(&run, &me, &large, at(7)).await;
    assert!(matches!(refused, Err(DbError::Refused(_))), "{refused:?}");
    assert_eq!(read(&db, run.id).await, before);
    let finished = db.speaking(Dialect::Seed).finish(&run, &me, &ending(1), at(8)).await.unwrap();
    assert_eq!(finished, Finished::Ended);
}
