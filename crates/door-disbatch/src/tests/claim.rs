//! Claiming, releasing and starting tasks.

use std::collections::HashSet;

use crate::database::{Database, Run, token};
use crate::dialect::Dialect;
use crate::doc::{Queue, Sort};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};

use crate::tests::base::{collection, fresh};
use crate::tests::harness::{BOTH, at, me, queue, read, status, task};

async fn claim(db: &Database, queue: &Queue) -> Option<ObjectId> {
    let claimed = db.claim(queue, &me("n", "b"), &token(), at(0)).await.unwrap();
    claimed.map(|task| task.get_object_id("_id").unwrap())
}

#[tokio::test]
async fn a_claim_sets_node_status_time_and_our_mark() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let id = task(&db, queue.id, doc! { "node": dialect.unclaimed(), "status": -2 }).await;
        let claimed = db.claim(&queue, &me("n", "b"), "t", at(5)).await.unwrap().unwrap();
        assert_eq!(claimed, read(&db, id).await);
        assert_eq!(claimed.get_str("node").ok(), Some("n"));
        assert_eq!(claimed.get_i32("status").ok(), Some(-1));
        assert_eq!(claimed.get_datetime("mtime").ok(), Some(&at(5)));
        assert_eq!(
            claimed.get_document("windlass").ok(),
            Some(&doc! { "boot": "b", "node": "n", "run": "t" })
        );
        let run = Run { id, token: "t".to_owned(), attempt: 0 };
        assert_eq!(Run::of(&claimed), Some(run));
    }
}

#[tokio::test]
async fn only_what_waits_in_the_queue_and_nobody_has_is_claimed() {
    let db = fresh().await;
    let (one, other) = (queue(&db, Dialect::Seed, 1).await, queue(&db, Dialect::Seed, 1).await);
    for node in [Bson::Null, Bson::Int32(-1), Bson::Int64(-1), Bson::Double(-1.0)] {
        let id = task(&db, one.id, doc! { "node": node }).await;
        assert_eq!(claim(&db, &other).await, None);
        assert_eq!(claim(&db, &one).await, Some(id));
    }
    for status in [-7, -6, -5, -4, -3, -1, 0, 1, 2] {
        task(&db, one.id, doc! { "status": status }).await;
    }
    task(&db, one.id, doc! { "node": "host" }).await;
    assert_eq!(claim(&db, &one).await, None);
}

#[tokio::test]
async fn a_task_with_odd_fields_is_passed_over_or_claimed_but_never_in_the_way() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let values = [
        Bson::Null,
        Bson::Int32(5),
        Bson::Double(1.5),
        Bson::from("x"),
        Bson::Boolean(true),
        Bson::from(vec![1]),
        Bson::from(vec![doc! {}]),
        Bson::from(at(5)),
    ];
    let base = doc! { "queue": queue.id, "status": -2, "node": -1 };
    let fields = ["_id", "queue", "status", "node", "parameters", "ctime", "mtime", "windlass"];
    for field in fields.into_iter().chain(["stdout", "stderr"]) {
        for value in &values {
            let mut odd = base.clone();
            odd.insert(field, value.clone());
            // The same invalid id cannot be inserted twice.
            let _ = collection(&db, "tasks").insert_one(odd).await;
        }
    }
    for value in &values {
        for field in ["boot", "run", "attempt", "retries", "priority"] {
            task(&db, queue.id, doc! { "windlass": { field: value.clone() } }).await;
        }
    }
    let good = task(&db, queue.id, doc! {}).await;
    let mut taken = HashSet::new();
    while let Some(id) = claim(&db, &queue).await {
        assert!(taken.insert(id), "claimed twice");
    }
    assert!(taken.contains(&good));
    let waiting = doc! { "status": -2, "windlass": { "$exists": true } };
    let left = collection(&db, "tasks").count_documents(waiting).await.unwrap();
    assert_eq!(left, 8, "those into which our fields cannot be written");
}

#[tokio::test]
async fn the_queue_says_in_which_order() {
    let db = fresh().await;
    let mut queue = queue(&db, Dialect::Seed, 1).await;
    let mut ids = Vec::new();
    for priority in [None, Some(1), Some(5), Some(1)] {
        let fields = priority.map_or(doc! {}, |priority| {
            doc! { "windlass": { "priority": priority } }
        });
        ids.push(task(&db, queue.id, fields).await);
    }
    let order = async |queue: &Queue| {
        let me = me("n", "b");
        let mut claimed = Vec::new();
        while let Some(task) = db.claim(queue, &me, &token(), at(0)).await.unwrap() {
            claimed.push(Run::of(&task).unwrap());
        }
        for run in &claimed {
            assert!(db.speaking(Dialect::Seed).unclaim(run, &me, at(0)).await.unwrap());
        }
        let place = |run: &Run| ids.iter().position(|id| *id == run.id).unwrap();
        claimed.iter().map(place).collect::<Vec<_>>()
    };
    queue.sort = Sort::Fifo;
    assert_eq!(order(&queue).await, [0, 1, 2, 3]);
    queue.sort = Sort::Lifo;
    assert_eq!(order(&queue).await, [3, 2, 1, 0]);
    queue.priorities = true;
    assert_eq!(order(&queue).await, [2, 3, 1, 0]);
    queue.sort = Sort::Fifo;
    assert_eq!(order(&queue).await, [2, 1, 3, 0]);
    queue.sort = Sort::Unknown("best".to_owned());
    assert_eq!(order(&queue).await[0], 2);
    queue.priorities = false;
    assert_eq!(order(&queue).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_never_claim_the_same_task() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for _ in 0..40 {
        task(&db, queue.id, doc! {}).await;
    }
    let takers = (0..8).map(|taker| {
        let (db, queue) = (db.clone(), queue.clone());
        tokio::spawn(async move {
            let mut taken = Vec::new();
            let me = me(&format!("n{taker}"), &format!("b{taker}"));
            while let Some(task) = db.claim(&queue, &me, &token(), at(0)).await.unwrap() {
                taken.push(task.get_object_id("_id").unwrap());
            }
            taken
        })
    });
    let mut all = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        all.extend(taker.await.unwrap());
    }
    assert_eq!(all.len(), 40);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 40);
}

#[tokio::test]
async fn a_task_given_back_is_as_unclaimed_as_the_dialect_says() {
    let db = fresh().await;
    for dialect in BOTH {
        let queue = queue(&db, dialect, 1).await;
        let id = task(&db, queue.id, doc! {}).await;
        let me = me("n", "b");
        let task = db.claim(&queue, &me, "t", at(0)).await.unwrap().unwrap();
        assert!(db.speaking(dialect).unclaim(&Run::of(&task).unwrap(), &me, at(9)).await.unwrap());
        let back = read(&db, id).await;
        assert_eq!(back.get("node"), Some(&dialect.unclaimed()));
        assert_eq!(back.get_i32("status").ok(), Some(-2));
        assert_eq!(back.get_datetime("mtime").ok(), Some(&at(9)));
        assert!(!back.get_document("windlass").unwrap().contains_key("boot"));
    }
}

#[tokio::test]
async fn a_start_sets_status_time_and_attempt() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let id = task(&db, queue.id, doc! { "windlass": { "attempt": 2 } }).await;
    let me = me("n", "b");
    let claimed = db.claim(&queue, &me, "t", at(0)).await.unwrap().unwrap();
    let run = Run::of(&claimed).unwrap();
    assert!(db.start(&run, &me, at(3)).await.unwrap());
    let started = read(&db, id).await;
    assert_eq!(started.get_i32("status").ok(), Some(0));
    assert_eq!(started.get_datetime("mtime").ok(), Some(&at(3)));
    let ours = started.get_document("windlass").unwrap();
    assert_eq!(ours.get_datetime("started").ok(), Some(&at(3)));
    assert_eq!(ours.get_i64("attempt").ok(), Some(3));
    // The answer was lost, so the request is repeated.
    assert!(db.start(&run, &me, at(4)).await.unwrap());
    assert_eq!(read(&db, id).await, started);
    // No program was started, because that answer was lost too: the task is released as it is.
    assert!(db.speaking(Dialect::Seed).unclaim(&run, &me, at(4)).await.unwrap());
    assert_eq!(read(&db, id).await.get_i32("status").ok(), Some(-2));
    assert!(!db.speaking(Dialect::Seed).unclaim(&run, &me, at(4)).await.unwrap());
}

#[tokio::test]
async fn who_has_lost_a_task_cannot_change_it() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    let id = task(&db, queue.id, doc! {}).await;
    let mine = me("n", "b");
    let run = Run::of(&db.claim(&queue, &mine, "t", at(0)).await.unwrap().unwrap()).unwrap();
    let late = Run { token: "earlier".to_owned(), ..run.clone() };
    let before = read(&db, id).await;
    let cases = [(&run, me("n", "other")), (&run, me("m", "b")), (&late, mine.clone())];
    for (run, who) in &cases {
        assert!(!db.start(run, who, at(1)).await.unwrap());
        assert!(!db.speaking(Dialect::Seed).unclaim(run, who, at(1)).await.unwrap());
    }
    assert_eq!(read(&db, id).await, before);
    assert!(db.start(&run, &mine, at(1)).await.unwrap());
    for (run, who) in &cases {
        assert!(!db.start(run, who, at(1)).await.unwrap());
    }
    assert_eq!(status(&db, id).await, 0);
}

#[tokio::test]
async fn a_node_sees_what_it_has_and_what_is_to_be_ended() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 1).await;
    for _ in 0..3 {
        task(&db, queue.id, doc! {}).await;
    }
    let mine = me("n", "b");
    let mut runs = Vec::new();
    for token in ["1", "2"] {
        let claimed = db.claim(&queue, &mine, token, at(0)).await.unwrap().unwrap();
        runs.push(Run::of(&claimed).unwrap());
    }
    db.claim(&queue, &me("n", "other"), "3", at(0)).await.unwrap().unwrap();
    assert!(db.start(&runs[1], &mine, at(0)).await.unwrap());
    db.task_cancel(runs[1].id, at(0)).await.unwrap();
    let mut held = db.claimed_by(&mine).await.unwrap();
    held.sort_by_key(|held| held.run.token.clone());
    let seen: Vec<_> = held.iter().map(|held| (held.run.id, held.status, held.cancel)).collect();
    assert_eq!(seen, [(runs[0].id, -1, false), (runs[1].id, 0, true)]);
}
