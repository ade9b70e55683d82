//! Features that Disbatch never had: tasks that wait for a time or for others, are retried, or are
//! cancelled while they run. Observed in the database.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::harness::{Fields, Home, in_both, is_alive, until};

fn from_now(millis: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() + millis)
}

fn with(home: &Home, queue: ObjectId, status: i32, own: Document) -> ObjectId {
    home.task_with(queue, status, doc! {"windlass": own})
}

#[test]
fn a_task_with_a_delay_runs_when_it_is_due() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        let due = from_now(2500);
        let soon = with(&home, queue, -4, doc! {"not_before": due});
        let late = with(&home, queue, -4, doc! {"not_before": from_now(3_600_000)});
        let parked = home.task(queue, -4);
        let _den = home.den("one");
        let ended = home.reaches(soon, 1);
        assert!(ended.date("mtime") >= Some(due), "{ended}");
        home.passes("one", 1);
        assert_eq!([home.status(late), home.status(parked)], [-4, -4]);
    });
}

#[test]
fn a_task_waits_for_those_before_it_and_a_failure_stops_it_with_a_reason() {
    in_both(|home| {
        let good = home.line(&home.plugin("default", "note ran; say 1"), 5);
        let bad = home.line(&home.plugin("default", "say 2"), 5);
        let last = with(&home, good, -4, doc! {"after": []});
        let (first, fails) = (home.task(good, -2), home.task(bad, -2));
        home.mongo.set("tasks", last, doc! {"windlass.after": [first]});
        let never = with(&home, good, -4, doc! {"after": [first, fails]});
        let gone = with(&home, good, -4, doc! {"after": [ObjectId::new()]});
        let _den = home.den("one");
        home.reaches(last, 1);
        let order: Vec<_> = home.notes().into_iter().map(|(_, task)| task).collect();
        assert_eq!(order, [first, last]);
        home.reaches(fails, 2);
        for task in [never, gone] {
            until("it says why it waits", || {
                let task = home.mongo.get("tasks", task);
                task.int("status") == Some(-4)
                    && !task.text("stderr").unwrap_or_default().is_empty()
            });
        }
    });
}

#[test]
fn a_failed_task_is_tried_again_as_often_as_it_may() {
    in_both(|home| {
        let plugin = home.plugin("default", "note ran; say 2 out err");
        let later = "note ran; n=$(grep -c $id \"$home/notes\"); [ $n -ge 3 ] && say 1 || say 7";
        let later = home.plugin("default", later);
        let (never, third) = (home.line(&plugin, 1), home.line(&later, 1));
        let never = with(&home, never, -2, doc! {"retries": 2});
        let third = with(&home, third, -2, doc! {"retries": 5});
        let _den = home.den("one");
        home.reaches(third, 1);
        let ended = home.reaches(never, 2);
        let count = |task| home.notes().iter().filter(|(_, who)| *who == task).count();
        until("both have had their tries", || (count(never), count(third)) == (3, 3));
        home.passes("one", 1);
        assert_eq!((count(never), count(third)), (3, 3));
        assert_eq!(home.status(never), 2, "{ended}");
    });
}

#[test]
fn a_running_task_is_cancelled_with_its_tree_and_its_output_is_kept() {
    in_both(|home| {
        let tree = "sleep 1000 & echo $! > \"$home/child\"; gate; say 1";
        let task = home.add(home.line(&home.plugin("default", tree), 1), 1)[0];
        let _den = home.den("one");
        let parent = home.began(task);
        let child = std::fs::read_to_string(home.path("child")).unwrap().trim().parse().unwrap();
        home.reaches(task, 0);
        home.mongo.set("tasks", task, doc! {"windlass.cancel": true});
        let cancelled = home.reaches(task, -5);
        assert!(!is_alive(parent) && !is_alive(child));
        assert_eq!(cancelled.text("node"), Some("one"), "{cancelled}");
        // Its slot is free.
        home.open_all();
        let queue = cancelled.oid("queue").unwrap();
        let next = home.add(queue, 1)[0];
        home.reaches(next, 1);
    });
}

/// Requeues an ended task like the interface does.
#[test]
fn a_task_that_is_put_back_runs_again() {
    in_both(|home| {
        let queue = home.line(&home.plugin("default", "note ran; say 3 out err"), 1);
        let task = home.add(queue, 1)[0];
        let _den = home.den("one");
        home.reaches(task, 3);
        let back = doc! {
            "status": -2, "node": home.dialect.nobody(), "stdout": Bson::Null,
            "stderr": Bson::Null, "mtime": DateTime::now(),
        };
        home.mongo.set("tasks", task, back);
        until("it runs again", || home.notes().len() == 2);
        let again = home.reaches(task, 3);
        assert_eq!(again.text("stdout"), Some("out"));
    });
}
