//! Lost answers: the change was made, but the caller does not know.

use crate::database::{
    Claim, Database, DbError, Ending, Entered, Finished, NewQueue, NewTask, Run,
};
use crate::dialect::Dialect;
use crate::doc::Queue;
use mongodb::bson::{Bson, doc};

use crate::tests::base::collection;
use crate::tests::harness::{at, me, process, read, read_queue, status};
use crate::tests::proxy::{Fate, Handle, Proxy, server_address};

struct Case {
    proxy: Proxy,
    db: Database,
    queue: Queue,
}

/// A queue in the seed's dialect with one task.
async fn case() -> Case {
    let server = windlass_test_servers::mongodb();
    let proxy = Proxy::start(server_address().await).await;
    let db = proxy.database(&server.new_database()).await;
    let new = NewQueue { name: "q".to_owned(), plugin: "P".to_owned(), limit: None, sort: None };
    let id = db.speaking(Dialect::Seed).queue_insert(&new).await.unwrap();
    db.speaking(Dialect::Seed).tasks_create(id, &[NewTask::default()], at(0)).await.unwrap();
    let queue = read_queue(&db, id, Dialect::Seed).await;
    Case { proxy, db, queue }
}

impl Case {
    fn lose(&self, command: &'static str) -> Handle {
        self.proxy.next(Fate::LoseAnswer, move |it| it.is(command))
    }

    async fn claim(&self) -> Run {
        let claimed = self.db.claim(&self.queue, &me("n", "b"), "t", at(0)).await;
        Run::of(&claimed.unwrap().unwrap()).unwrap()
    }

    async fn todo(&self) -> i64 {
        read_queue(&self.db, self.queue.id, Dialect::Seed).await.count_todo.unwrap()
    }
}

fn assert_away<T: std::fmt::Debug>(answer: Result<T, DbError>) {
    assert!(matches!(answer, Err(DbError::Away(_))), "{answer:?}");
}

fn ending(status: i32) -> Ending {
    Ending {
        status,
        stdout: Bson::from("out"),
        stderr: Bson::Null,
        cmd_exit: Some(0),
        cmd_err: None,
        complete: true,
    }
}

#[tokio::test]
async fn a_claim_shows_under_our_boot() {
    let case = case().await;
    let me = me("n", "b");
    case.lose("findAndModify");
    assert_away(case.db.claim(&case.queue, &me, "t", at(0)).await);
    let held = case.db.claimed_by(&me).await.unwrap();
    assert_eq!((held.len(), held[0].run.token.as_str(), held[0].status), (1, "t", -1));
    assert!(case.db.speaking(Dialect::Seed).unclaim(&held[0].run, &me, at(1)).await.unwrap());
    assert_eq!(status(&case.db, held[0].run.id).await, -2);
}

#[tokio::test]
async fn a_claim_given_back_is_given_back() {
    let case = case().await;
    let (me, run) = (me("n", "b"), case.claim().await);
    case.lose("update");
    assert_away(case.db.speaking(Dialect::Seed).unclaim(&run, &me, at(1)).await);
    assert!(!case.db.speaking(Dialect::Seed).unclaim(&run, &me, at(1)).await.unwrap());
    assert_eq!(status(&case.db, run.id).await, -2);
}

#[tokio::test]
async fn a_start_is_recognised() {
    let case = case().await;
    let (me, run) = (me("n", "b"), case.claim().await);
    case.lose("update");
    assert_away(case.db.start(&run, &me, at(1)).await);
    let started = read(&case.db, run.id).await;
    assert_eq!(started.get_i32("status").unwrap(), 0);
    assert!(case.db.start(&run, &me, at(2)).await.unwrap());
    assert_eq!(read(&case.db, run.id).await, started, "nothing is written twice");
}

#[tokio::test]
async fn an_end_is_recognised_and_counted_once() {
    let case = case().await;
    let (me, run) = (me("n", "b"), case.claim().await);
    assert!(case.db.start(&run, &me, at(1)).await.unwrap());
    case.lose("findAndModify");
    assert_away(case.db.speaking(Dialect::Seed).finish(&run, &me, &ending(1), at(2)).await);
    let ended = read(&case.db, run.id).await;
    assert_eq!(ended.get_i32("status").unwrap(), 1);
    assert_eq!(case.todo().await, 1);
    let again = case.db.speaking(Dialect::Seed).finish(&run, &me, &ending(1), at(3)).await.unwrap();
    assert_eq!(again, Finished::Ended);
    assert_eq!(read(&case.db, run.id).await, ended, "nothing is written twice");
    assert_eq!(case.todo().await, 0);
}

#[tokio::test]
async fn an_end_by_the_plugin_itself_is_recognised_and_counted_once() {
    let case = case().await;
    let (me, run) = (me("n", "b"), case.claim().await);
    assert!(case.db.start(&run, &me, at(1)).await.unwrap());
    let tasks = collection(&case.db, "tasks");
    let ended = doc! { "$set": { "status": 1, "stdout": "out" } };
    tasks.update_one(doc! { "_id": run.id }, ended).await.unwrap();
    case.lose("findAndModify");
    assert_away(case.db.speaking(Dialect::Seed).finish_handed_over(&run, &me, at(2)).await);
    assert_eq!(case.todo().await, 1);
    assert!(
        case.db
            .speaking(Dialect::Seed)
            .finish_handed_over(&run, &me, at(3))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(case.todo().await, 0);
}

#[tokio::test]
async fn an_end_by_a_runner_is_recognised_and_counted_once() {
    let case = case().await;
    let run = case.claim().await;
    let tasks = collection(&case.db, "tasks");
    let foreign = doc! { "$set": { "status": 0 }, "$unset": { "windlass": "" } };
    tasks.update_one(doc! { "_id": run.id }, foreign).await.unwrap();
    let claim = Claim::Runner { node: "n".to_owned(), id: run.id };
    case.lose("findAndModify");
    let ending = ending(1);
    let db = case.db.speaking(Dialect::Seed);
    let end = |seconds| db.claim_finish(&claim, &ending, at(seconds));
    assert_away(end(2).await);
    assert_eq!(case.todo().await, 1);
    assert_eq!(end(3).await.unwrap(), Finished::Ended);
    assert_eq!(case.todo().await, 0);
}

#[tokio::test]
async fn a_failure_that_was_put_back_is_recognised() {
    let case = case().await;
    let (me, run) = (me("n", "b"), case.claim().await);
    let tasks = collection(&case.db, "tasks");
    let set = doc! { "$set": { "windlass.retries": 2 } };
    tasks.update_one(doc! { "_id": run.id }, set).await.unwrap();
    assert!(case.db.start(&run, &me, at(1)).await.unwrap());
    case.lose("update");
    assert_away(case.db.speaking(Dialect::Seed).finish(&run, &me, &ending(2), at(2)).await);
    let again = case.db.speaking(Dialect::Seed).finish(&run, &me, &ending(2), at(3)).await.unwrap();
    assert_eq!(again, Finished::Again);
    let back = read(&case.db, run.id).await;
    assert_eq!(back.get_i32("status").unwrap(), -2);
    let retries = back.get_document("windlass").unwrap().get_i32("retries").unwrap();
    assert_eq!(retries, 1, "one try was used");
    assert_eq!(case.todo().await, 1);
}

#[tokio::test]
async fn new_tasks_are_made_once() {
    let case = case().await;
    let lost = case.lose("insert");
    let new = [NewTask::default(), NewTask::default()];
    let made =
        case.db.speaking(Dialect::Seed).tasks_create(case.queue.id, &new, at(1)).await.unwrap();
    let counts = case.db.queue_counts(&[case.queue.id]).await.unwrap()[&case.queue.id];
    assert_eq!((made.len(), counts.total, lost.count()), (2, 3, 1));
    for id in made {
        assert_eq!(status(&case.db, id).await, -2);
    }
    assert_eq!(case.todo().await, 3);
}

#[tokio::test]
async fn an_entry_is_recognised() {
    let case = case().await;
    case.db.speaking(Dialect::Seed).ensure_indexes().await.unwrap();
    let me = me("n", "b");
    for command in ["insert", "findAndModify"] {
        case.lose(command);
        assert_away(case.db.node_enter(&me, &process(), at(0)).await);
        let entered = case.db.node_enter(&me, &process(), at(1)).await.unwrap();
        assert!(matches!(entered, Entered::Mine));
        assert_eq!(case.db.nodes().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_hold_shows_under_our_boot() {
    let case = case().await;
    let new = NewQueue { name: "r".to_owned(), plugin: "P".to_owned(), limit: Some(1), sort: None };
    let id = case.db.speaking(Dialect::Released).queue_insert(&new).await.unwrap();
    let queue = read_queue(&case.db, id, Dialect::Released).await;
    case.lose("update");
    assert_away(case.db.hold_take(&queue, 0, "t", &me("n", "b")).await);
    let holds = read_queue(&case.db, id, Dialect::Released).await.holds;
    assert_eq!((holds.len(), holds[0].id.as_str(), holds[0].boot.as_str()), (1, "t", "b"));
    assert!(!case.db.hold_take(&queue, 0, "u", &me("n", "b")).await.unwrap());
}

#[tokio::test]
async fn a_server_that_falls_silent_is_not_waited_for_without_end() {
    let case = case().await;
    let silence = case.proxy.next(Fate::Silence, |it| it.is("find"));
    // From here on the paused clock advances whenever everything waits.
    tokio::time::pause();
    assert_away(case.db.queues().await);
    assert_eq!(silence.count(), 1, "it was asked");
}
