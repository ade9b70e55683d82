//! `DELETE /queues/:queue`: with its tasks, without them, or not at all.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};
use serde_json::json;

use crate::harness::{Dci, Fields, Home, both, in_both, is_alive, plain, until};

/// A file of output with one chunk, as the original's runner stores it.
fn file(home: &Home, task: ObjectId, name: &str) -> ObjectId {
    let file = home.mongo.insert(
        "tasks.files",
        doc! {"filename": name, "chunkSize": 261_120, "length": 2, "metadata": {"task_id": task}},
    );
    home.mongo.insert("tasks.chunks", doc! {"files_id": file, "n": 0, "data": "hi"});
    file
}

fn deleted(dci: &Dci, path: &str) {
    let answer = dci.http.delete(path).ok();
    assert_eq!(answer["MongoDB::DeleteResult"]["deleted_count"], json!(1), "{answer}");
    assert_eq!(answer["MongoDB::DeleteResult"]["write_errors"], json!([]), "{answer}");
    assert_eq!(answer["MongoDB::DeleteResult"]["write_concern_errors"], json!([]), "{answer}");
}

#[test]
fn a_queue_without_tasks_is_deleted_by_name_or_id() {
    for home in both() {
        let dci = home.dci();
        home.queue("a/b c");
        let id = home.queue("two");
        let other = home.queue("three");
        home.task(other, -2);
        deleted(&dci, "/queues/a%2Fb%20c");
        deleted(&dci, &format!("/queues/{id}"));
        let left = home.mongo.all("queues", doc! {});
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].get_object_id("_id").unwrap(), other);
        assert_eq!(home.mongo.count("tasks", doc! {}), 1);
    }
}

#[test]
fn a_queue_that_is_not_there_is_not_deleted() {
    for home in both() {
        let dci = home.dci();
        home.queue("one");
        for path in [
            "/queues/none",
            "/queues/571f8951b75bf335634ec271",
            "/queues/none?tasks=delete",
            "/queues/none?tasks=keep",
        ] {
            let answer = dci.http.delete(path).bad();
            assert_eq!(answer["MongoDB::DeleteResult"]["deleted_count"], json!(0), "{answer}");
            assert!(answer.get("error").is_some(), "{answer}");
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 1);
    }
}

/// Weakness 10: the original leaves the tasks of a deleted queue behind.
#[test]
fn a_queue_with_tasks_is_not_deleted_unless_asked() {
    for home in both() {
        let dci = home.dci();
        for status in [-6, -2, -1, 0, 1] {
            let name = format!("queue{status}");
            let queue = home.queue(&name);
            home.task(queue, status);
            let answer = dci.http.delete(&format!("/queues/{name}"));
            assert!((400..500).contains(&answer.status), "{status}: {}", answer.status);
            let told = answer.json();
            assert!(told["error"].as_str().unwrap().contains("tasks"), "{told}");
            assert_eq!(home.mongo.get("queues", queue).get_str("name").unwrap(), name);
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 5);
        assert_eq!(home.mongo.count("changelog", doc! {}), 0);
    }
}

#[test]
fn tasks_are_kept_when_asked() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task(queue, 1);
        let file = file(&home, task, "stdout");
        home.mongo.set("tasks", task, doc! {"stdout": file});
        let before = home.mongo.get("tasks", task);
        deleted(&dci, "/queues/q?tasks=keep");
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
        assert_eq!(home.mongo.get("tasks", task), before);
        assert_eq!(home.mongo.count("tasks.files", doc! {}), 1);
        assert_eq!(home.mongo.count("tasks.chunks", doc! {}), 1);
    }
}

#[test]
fn tasks_are_deleted_with_their_output_when_asked() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let bystander = home.queue("other");
        for status in [-6, -5, -2, 1, 2] {
            let task = home.task(queue, status);
            if status >= 1 {
                let stored = doc! {
                    "stdout": file(&home, task, "stdout"), "stderr": file(&home, task, "stderr"),
                };
                home.mongo.set("tasks", task, stored);
            }
        }
        let kept = home.task(bystander, 1);
        let kept_file = file(&home, kept, "stdout");
        home.mongo.set("tasks", kept, doc! {"stdout": kept_file});
        deleted(&dci, "/queues/q?tasks=delete");
        assert_eq!(home.mongo.count("queues", doc! {}), 1);
        let left = home.mongo.all("tasks", doc! {});
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].get_object_id("_id").unwrap(), kept);
        let files = home.mongo.all("tasks.files", doc! {});
        assert_eq!(files.len(), 1, "no file of a deleted task is left");
        assert_eq!(files[0].get_object_id("_id").unwrap(), kept_file);
        assert_eq!(home.mongo.count("tasks.chunks", doc! {}), 1, "nor a chunk");
    }
}

#[test]
fn a_word_that_is_neither_keep_nor_delete_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task(queue, -2);
    for word in ["", "yes", "DELETE", "true", "keep%20", "keep&tasks=delete"] {
        let answer = dci.http.delete(&format!("/queues/q?tasks={word}")).bad();
        assert!(answer["error"].as_str().unwrap().contains("tasks"), "{word} {answer}");
    }
    assert_eq!(home.mongo.count("queues", doc! {}), 1);
    assert_eq!(home.mongo.count("tasks", doc! {}), 1);
}

#[test]
fn a_deleted_queue_is_in_the_changelog() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.queue_with("q", doc! {"threads": 3});
    deleted(&dci, "/queues/q");
    let logged = home.mongo.all("changelog", doc! {});
    assert_eq!(logged.len(), 1);
    assert_eq!(logged[0].get_str("collection").unwrap(), "queues");
    assert_eq!(logged[0].get_object_id("id").unwrap(), id);
    assert_eq!(logged[0].get("deleted"), Some(&Bson::Boolean(true)));
    assert_eq!(logged[0].get_str("name").unwrap(), "q");
    assert_eq!(plain(logged[0].get("threads")), json!(3));
}

/// On one of our nodes: its processes are killed, and nothing of the queue remains.
#[test]
fn a_queue_is_deleted_with_tasks_that_one_of_our_nodes_runs() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 2);
        let other = home.line(&home.ok(), 1);
        let tasks = home.add(queue, 4);
        home.task(queue, 1);
        let mut den = home.den("one");
        let mut pids = Vec::new();
        until("two run", || {
            pids = tasks.iter().filter(|task| home.has_begun(**task)).copied().collect();
            pids.len() == 2
        });
        let pids: Vec<i32> = pids.into_iter().map(|task| home.began(task)).collect();
        let dci = home.dci();
        // A node that is slow to end them is waited for again.
        let path = format!("/queues/{queue}?tasks=delete");
        until("it is deleted", || dci.http.delete(&path).status == 200);
        assert_eq!(home.mongo.count("queues", doc! {"_id": queue}), 0);
        assert_eq!(home.mongo.count("tasks", doc! {"queue": queue}), 0);
        until("its processes are dead", || !pids.iter().any(|pid| is_alive(*pid)));
        let task = home.add(other, 1)[0];
        home.reaches(task, 1);
        assert!(den.alive());
    });
}

/// Running tasks keep running.
#[test]
fn a_queue_is_deleted_without_the_tasks_that_run_when_asked() {
    in_both(|home| {
        let queue = home.line_with(&home.gated(), doc! {home.dialect.limit(): 1, "sort": "fifo"});
        let tasks = home.add(queue, 2);
        let _den = home.den("one");
        home.began(tasks[0]);
        let dci = home.dci();
        deleted(&dci, &format!("/queues/{queue}?tasks=keep"));
        // A pass that began before still knows the queue.
        home.passes("one", 1);
        home.open_all();
        assert_eq!(home.reaches(tasks[0], 1).text("stdout"), Some("out"));
        home.passes("one", 1);
        assert_eq!(home.status(tasks[1]), -2);
    });
}
