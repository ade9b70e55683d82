//! Tasks of dead nodes.

use crate::database::{Entered, Owner};
use crate::dialect::Dialect;
use crate::doc::{Node, Queue};
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::tests::base::fresh;
use crate::tests::harness::{at, me, process, queue, read, read_queue, status, task};

const STATUSES: [i32; 7] = [-6, -4, -2, -1, 0, 1, 2];

#[tokio::test]
async fn a_dead_start_loses_its_tasks_its_holds_and_its_name() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Released, 9).await;
    let dead = me("n", "b");
    db.node_enter(&dead, &process(), at(0)).await.unwrap();
    let mut of_it = Vec::new();
    let mut others = Vec::new();
    for status in STATUSES {
        let owned = |node: &str, ours| doc! { "status": status, "node": node, "windlass": ours };
        let (mine, cancel) = (doc! { "boot": "b" }, doc! { "boot": "b", "cancel": true });
        of_it.push((status, task(&db, queue.id, owned("n", mine.clone())).await));
        of_it.push((status, task(&db, queue.id, owned("n", cancel)).await));
        others.push(task(&db, queue.id, owned("n", doc! { "boot": "c" })).await);
        others.push(task(&db, queue.id, owned("n", doc! {})).await);
        others.push(task(&db, queue.id, owned("m", mine)).await);
    }
    let mut before = Vec::new();
    for id in &others {
        before.push(read(&db, *id).await);
    }
    assert!(db.hold_take(&queue, 0, "h1", &dead).await.unwrap());
    assert!(db.hold_take(&queue, 0, "h2", &me("m", "c")).await.unwrap());

    let beat = Some(Bson::Int64(at(0).timestamp_millis()));
    assert!(db.node_evict("n", "b", &beat).await.unwrap());
    assert_eq!(db.orphan_ours("n", "b", at(9)).await.unwrap(), 4);
    for (was, id) in of_it {
        let task = read(&db, id).await;
        let active = was == -1 || was == 0;
        assert_eq!(task.get_i32("status").ok(), Some(if active { -6 } else { was }));
        assert_eq!(task.get_datetime("mtime").ok(), Some(&if active { at(9) } else { at(-1000) }));
        assert_eq!(task.get("stderr"), Some(&Bson::Null));
        let ours = task.get_document("windlass").unwrap();
        assert!(!ours.contains_key("boot") && !ours.contains_key("cancel"));
        assert_eq!(ours.get_str("last").ok(), active.then_some("b"));
    }
    for (id, before) in others.into_iter().zip(before) {
        assert_eq!(read(&db, id).await, before);
    }
    let Queue { holds, .. } = read_queue(&db, queue.id, Dialect::Released).await;
    assert_eq!(holds.len(), 1);
    assert_eq!(holds[0].id, "h2");
    let node = Node::read(&db.node("n").await.unwrap().unwrap()).unwrap();
    assert_eq!(node.boot, None);
    let next = db.node_enter(&me("n", "d"), &process(), at(10)).await.unwrap();
    assert!(matches!(next, Entered::Mine));
    assert_eq!(db.orphan_ours("n", "b", at(11)).await.unwrap(), 0, "done is done");
}

#[tokio::test]
async fn of_a_foreign_node_only_old_claims_are_orphaned() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    let seconds = |date: DateTime| date.timestamp_millis() / 1000;
    let old = [
        Bson::from(at(-301)),
        Bson::from(seconds(at(-301))),
        Bson::Double(1.0),
        Bson::Int32(0),
        Bson::Int64(0),
    ];
    let not_old = [
        Bson::from(at(-300)),
        Bson::from(at(9)),
        Bson::from(seconds(at(-300))),
        Bson::from(seconds(at(9))),
        Bson::Null,
        Bson::from("2001-01-01"),
        Bson::Boolean(false),
        Bson::from(doc! {}),
    ];
    let mut gone = Vec::new();
    let mut kept = Vec::new();
    for mtime in old {
        let of = |status: i32, node: &str| {
            doc! { "status": status, "node": node, "mtime": mtime.clone() }
        };
        gone.push(task(&db, queue.id, of(-1, "f")).await);
        kept.push((-1, task(&db, queue.id, of(-1, "other")).await));
        for status in STATUSES.into_iter().filter(|status| *status != -1) {
            kept.push((status, task(&db, queue.id, of(status, "f")).await));
        }
        let mut ours = of(-1, "f");
        ours.insert("windlass", doc! { "boot": "b", "node": "f" });
        kept.push((-1, task(&db, queue.id, ours.clone()).await));
        // It was reset by hand while our node had it.
        ours.insert("windlass", doc! { "boot": "b", "node": "n" });
        gone.push(task(&db, queue.id, ours).await);
    }
    for mtime in not_old {
        let fresh = doc! { "status": -1, "node": "f", "mtime": mtime };
        kept.push((-1, task(&db, queue.id, fresh).await));
    }
    let orphaned = db.orphan_foreign_claimed("f", at(-300), at(0)).await.unwrap();
    assert_eq!(orphaned, 10);
    for id in gone {
        let task = read(&db, id).await;
        assert_eq!(
            (task.get_i32("status").ok(), task.get_datetime("mtime").ok()),
            (Some(-6), Some(&at(0)))
        );
    }
    for (was, id) in kept {
        assert_eq!(status(&db, id).await, was);
    }
}

#[tokio::test]
async fn running_tasks_of_a_foreign_node_only_when_asked() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    let mut tasks = Vec::new();
    for was in STATUSES {
        tasks.push((was, task(&db, queue.id, doc! { "status": was, "node": "f" }).await));
    }
    let with = |windlass: Document| doc! { "status": 0, "node": "f", "windlass": windlass };
    let ours = task(&db, queue.id, with(doc! { "boot": "b", "node": "f" })).await;
    // It was reset by hand while our node had it.
    tasks.push((0, task(&db, queue.id, with(doc! { "boot": "b", "node": "n" })).await));
    let other = task(&db, queue.id, doc! { "status": 0, "node": "g" }).await;
    assert_eq!(db.orphan_foreign_running("f", at(0)).await.unwrap(), 2);
    for (was, id) in tasks {
        assert_eq!(status(&db, id).await, if was == 0 { -6 } else { was });
    }
    assert_eq!((status(&db, ours).await, status(&db, other).await), (0, 0));
}

/// The node may have returned by then and claimed other tasks.
#[tokio::test]
async fn a_late_request_orphans_nothing_that_was_claimed_later() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    let seconds = |seconds| Bson::Int64(at(seconds).timestamp_millis() / 1000);
    let mut tasks = Vec::new();
    for (mtime, after) in [
        (Bson::DateTime(at(-1)), -6),
        (seconds(-1), -6),
        (Bson::Int32(0), -6),
        (Bson::Null, -6),
        (Bson::DateTime(at(1)), 0),
        (seconds(1), 0),
    ] {
        let running = doc! { "status": 0, "node": "f", "mtime": mtime };
        tasks.push((task(&db, queue.id, running).await, after));
    }
    assert_eq!(db.orphan_foreign_running("f", at(0)).await.unwrap(), 4);
    for (id, after) in tasks {
        assert_eq!(status(&db, id).await, after, "{}", read(&db, id).await);
    }
}

#[tokio::test]
async fn everybody_who_has_tasks_is_known() {
    let db = fresh().await;
    let queue = queue(&db, Dialect::Seed, 9).await;
    for status in STATUSES {
        task(&db, queue.id, doc! { "status": status, "node": "f" }).await;
        let ours = doc! { "boot": "b", "node": "n" };
        task(&db, queue.id, doc! { "status": status, "node": "n", "windlass": ours }).await;
    }
    let ours = doc! { "boot": "c", "node": "n" };
    task(&db, queue.id, doc! { "status": 0, "node": "n", "windlass": ours.clone() }).await;
    // It was reset by hand while our node had it.
    task(&db, queue.id, doc! { "status": 0, "node": "f", "windlass": ours }).await;
    for node in [Bson::Null, Bson::Int32(-1), Bson::from(doc! {})] {
        task(&db, queue.id, doc! { "status": 0, "node": node }).await;
    }
    let mut owners = db.owners().await.unwrap();
    owners.sort_by_key(|owner| (owner.node.clone(), owner.boot.clone()));
    let owner = |node: &str, boot: Option<&str>, claimed, running| Owner {
        node: node.to_owned(),
        boot: boot.map(str::to_owned),
        claimed,
        running,
    };
    let wanted = [owner("f", None, 1, 2), owner("n", Some("b"), 1, 1), owner("n", Some("c"), 0, 1)];
    assert_eq!(owners, wanted);
}
