//! `POST /tasks/:id/cancel` and `POST /tasks/:id/retry`.

use std::path::Path;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::json;

use crate::harness::{Answer, Dci, Dialect, Home, both, number, plain, status_of, until};

const LONG_AGO: DateTime = DateTime::from_millis(1_461_700_773_000);

fn act(dci: &Dci, task: ObjectId, verb: &str) -> Answer {
    dci.http.ask("POST", &format!("/tasks/{task}/{verb}"), &[], b"")
}

fn recent(task: &Document, key: &str) -> bool {
    let told = task.get_datetime(key).unwrap().timestamp_millis();
    (DateTime::now().timestamp_millis() - told).abs() < 600_000
}

/// A conflict is reported and nothing is changed.
#[track_caller]
fn conflicts(home: &Home, dci: &Dci, task: ObjectId, verb: &str) {
    let before = home.mongo.get("tasks", task);
    let answer = act(dci, task, verb);
    assert!([400, 409].contains(&answer.status), "{verb} {before}: {}", answer.status);
    let told = answer.json();
    assert!(told["error"].as_str().is_some_and(|text| !text.is_empty()), "{told}");
    assert_eq!(home.mongo.get("tasks", task), before);
}

#[test]
fn a_queued_task_is_cancelled() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue_with("q", doc! {"count_todo": 2, "count_total": 2});
        let before = home.mongo.get("queues", queue);
        let task = home.task_with(queue, -2, doc! {"mtime": LONG_AGO});
        let other = home.task(queue, -2);
        act(&dci, task, "cancel").ok();
        let stored = home.mongo.get("tasks", task);
        assert_eq!(status_of(&stored), -5);
        assert!(recent(&stored, "mtime"), "{stored}");
        assert_eq!(stored.get("node"), Some(&home.dialect.nobody()));
        assert_eq!(home.status(other), -2);
        let after = home.mongo.get("queues", queue);
        assert_eq!(after.get("count_todo"), before.get("count_todo"), "-5 is still to do");
    }
}

#[test]
fn a_task_that_waits_for_its_time_is_cancelled() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let later = DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000);
        let task = home.task_with(queue, -4, doc! {"windlass": {"not_before": later}});
        act(&dci, task, "cancel").ok();
        assert_eq!(home.status(task), -5);
    }
}

#[test]
fn a_cancelled_task_is_not_queued() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task(queue, -2);
        act(&dci, task, "cancel").ok();
        let read = dci.http.get(&format!("/tasks/{task}")).ok();
        assert_eq!(read["status"], json!(-5));
        let queued = format!("/tasks?queue={queue}&status=-2&.count=1");
        assert_eq!(dci.http.get(&queued).ok(), json!({"count": 0}));
    }
}

#[test]
fn an_ended_task_cannot_be_cancelled() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for status in [1, 2, 17] {
            let task = home.task(queue, status);
            conflicts(&home, &dci, task, "cancel");
        }
    }
}

/// Its process is not ours to end.
#[test]
fn a_task_that_a_foreign_node_runs_cannot_be_cancelled() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for status in [-1, 0] {
            let task = home.task_with(queue, status, doc! {"node": "foreign.example"});
            conflicts(&home, &dci, task, "cancel");
        }
    }
}

#[test]
fn a_running_task_is_cancelled_with_its_processes() {
    for home in both() {
        let plugin = home.gated();
        let queue = home.line(&plugin, 1);
        let task = home.add(queue, 1)[0];
        let den = home.den("one");
        let dci = home.dci();
        let process = home.began(task);
        let answer = act(&dci, task, "cancel");
        assert!([200, 202].contains(&answer.status), "{} {}", answer.status, answer.text());
        home.reaches(task, -5);
        until("the process ends", || !Path::new(&format!("/proc/{process}")).exists());
        drop(den);
    }
}

/// Each task has one end, whichever was faster, and the counters reflect it.
#[test]
fn cancels_while_tasks_are_claimed_and_run_lose_nothing() {
    for home in both() {
        let plugin = home.plugin("default", "note ran; say 1 out err");
        let queue = home.line_with(&plugin, doc! {home.dialect.limit(): 2});
        let dci = home.dci();
        let hex = queue.to_hex();
        let params: Vec<_> = (0..24).map(|number| json!({"n": number})).collect();
        dci.http.post("/tasks", &json!({"queue": hex, "params": params})).ok();
        let tasks = home.mongo.all("tasks", doc! {});
        let tasks: Vec<ObjectId> =
            tasks.iter().map(|task| task.get_object_id("_id").unwrap()).collect();
        let _den = home.den("one");
        let mut cancelled = Vec::new();
        for task in tasks.iter().rev().step_by(2) {
            let answer = act(&dci, *task, "cancel");
            assert!([200, 202, 409].contains(&answer.status), "{}", answer.text());
            if answer.status == 200 {
                cancelled.push(*task);
            }
        }
        for task in &tasks {
            let status = status_of(&home.ends(*task));
            assert!([1, -5].contains(&status), "{task} is {status}");
            if cancelled.contains(task) {
                assert_eq!(status, -5, "{task} was said to be cancelled");
            }
        }
        let done = home.mongo.count("tasks", doc! {"status": 1});
        let notes = home.notes();
        for task in &tasks {
            let runs = notes.iter().filter(|(_, noted)| noted == task).count();
            assert!(runs <= 1, "{task} ran {runs} times");
        }
        assert!(notes.len() >= done, "{} ran, {done} are done", notes.len());
        if home.dialect == Dialect::Seed {
            let left = i64::try_from(tasks.len() - done).unwrap();
            until("the counter is right", || {
                number(home.mongo.get("queues", queue).get("count_todo")) == Some(left)
            });
        }
    }
}

#[test]
fn a_task_that_is_not_there_cannot_be_cancelled_or_retried() {
    for home in both() {
        let dci = home.dci();
        for verb in ["cancel", "retry"] {
            let id = ObjectId::new();
            let answer = act(&dci, id, verb).expect(404).json();
            assert_eq!(answer, json!({"error": format!("no task with id {id}")}));
            for path in ["/tasks/x/cancel", "/tasks/x/retry"] {
                let status = dci.http.ask("POST", path, &[], b"").status;
                assert!([400, 404].contains(&status), "{path} {status}");
            }
        }
    }
}

/// `cancel` and `retry` are not collections if the queue's name is not an id.
#[test]
fn actions_are_posts() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    for verb in ["cancel", "retry"] {
        let status = dci.http.get(&format!("/tasks/{task}/{verb}")).status;
        assert!([404, 405].contains(&status), "{status}");
    }
    assert_eq!(home.status(task), -2);
}

#[test]
fn ended_cancelled_and_orphaned_tasks_are_retried() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue_with("q", doc! {"count_todo": 10, "count_total": 20});
        for status in [1, 2, 17, -5, -6] {
            let ended = doc! {
                "node": "n", "stdout": "out", "stderr": "err", "complete": true, "cmdExit": 3,
                "cmdErr": "exit status 3", "mtime": LONG_AGO, "ctime": LONG_AGO, "mine": 5,
            };
            let task = home.task_with(queue, status, ended);
            act(&dci, task, "retry").ok();
            let stored = home.mongo.get("tasks", task);
            assert_eq!(status_of(&stored), -2, "{status}");
            assert_eq!(plain(stored.get("node")), plain(Some(&home.dialect.nobody())), "{stored}");
            assert_eq!(stored.get("stdout"), Some(&Bson::Null), "{stored}");
            assert_eq!(stored.get("stderr"), Some(&Bson::Null), "{stored}");
            for key in ["complete", "cmdExit", "cmdErr"] {
                assert!(!stored.contains_key(key), "{key} of {stored}");
            }
            assert!(recent(&stored, "mtime"), "{stored}");
            assert_eq!(stored.get_datetime("ctime").unwrap(), &LONG_AGO);
            assert_eq!(plain(stored.get(home.dialect.params())), json!({"commands": "a"}));
            assert_eq!(number(stored.get("mine")), Some(5), "fields of others are kept");
        }
        if home.dialect == Dialect::Seed {
            let stored = home.mongo.get("queues", queue);
            assert_eq!(number(stored.get("count_todo")), Some(13), "three of them had ended");
            assert_eq!(number(stored.get("count_total")), Some(20));
        }
    }
}

/// Of many concurrent requests for the same, one succeeds.
#[test]
fn a_task_is_retried_once() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue_with("q", doc! {"count_todo": 0, "count_total": 1});
    let task = home.task(queue, 2);
    let statuses = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..6).map(|_| scope.spawn(|| act(&dci, task, "retry").status)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect::<Vec<u16>>()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    let stored = home.mongo.get("queues", queue);
    assert_eq!(number(stored.get("count_todo")), Some(1), "{statuses:?}");
    assert_eq!(home.status(task), -2);
}

#[test]
fn a_retry_takes_the_old_files_away() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task(queue, 1);
        let mut stored = doc! {};
        for name in ["stdout", "stderr"] {
            let document = doc! {"filename": name, "length": 2, "metadata": {"task_id": task}};
            let file = home.mongo.insert("tasks.files", document);
            home.mongo.insert("tasks.chunks", doc! {"files_id": file, "n": 0, "data": "hi"});
            stored.insert(name, file);
        }
        home.mongo.set("tasks", task, stored);
        let other = home.mongo.insert("tasks.files", doc! {"filename": "stdout"});
        act(&dci, task, "retry").ok();
        let files = home.mongo.all("tasks.files", doc! {});
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].get_object_id("_id").unwrap(), other);
        assert_eq!(home.mongo.count("tasks.chunks", doc! {}), 0);
    }
}

#[test]
fn a_task_that_is_queued_or_runs_cannot_be_retried() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for status in [-2, -1, 0] {
            let task = home.task(queue, status);
            conflicts(&home, &dci, task, "retry");
        }
    }
}

#[test]
fn a_retried_task_runs_again() {
    for home in both() {
        let plugin = home.ok();
        let queue = home.line(&plugin, 1);
        let task = home.task_with(queue, -6, doc! {"node": "gone", "stderr": "orphaned"});
        let dci = home.dci();
        act(&dci, task, "retry").ok();
        let _den = home.den("one");
        let stored = home.reaches(task, 1);
        assert_eq!(plain(stored.get("stdout")), json!("out"));
        assert_eq!(plain(stored.get("node")), json!("one"));
    }
}

#[test]
fn tasks_with_wrong_types_are_left_alone() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for status in [Bson::from("queued"), Bson::Null, Bson::from(1.5), Bson::from(doc! {})] {
            let task = home.mongo.insert("tasks", doc! {"queue": queue, "status": status});
            conflicts(&home, &dci, task, "cancel");
            conflicts(&home, &dci, task, "retry");
        }
    }
}
