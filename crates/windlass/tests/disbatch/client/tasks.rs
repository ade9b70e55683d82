//! `windlass disbatch`: tasks created, searched for and counted.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};
use serde_json::json;

use crate::harness::{Home, both, oid, plain};

/// The ids below `Created N tasks in queue Q`.
#[track_caller]
fn created(told: &str, queue: &str) -> Vec<ObjectId> {
    let mut lines = told.lines();
    let first = lines.next().unwrap();
    let ids: Vec<ObjectId> = lines.map(|line| ObjectId::parse_str(line).unwrap()).collect();
    assert_eq!(first, format!("Created {} tasks in queue {queue}", ids.len()));
    ids
}

#[test]
fn a_task_is_created_from_words() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let told = dci.done(&["create-task", "q", "user1", "ashley", "n", "7"]);
        let ids = created(&told, "q");
        assert_eq!(ids.len(), 1);
        let stored = home.mongo.get("tasks", ids[0]);
        let params = json!({"user1": "ashley", "n": "7"});
        assert_eq!(plain(stored.get(home.dialect.params())), params, "words are text");
        assert_eq!(stored.get_object_id("queue").unwrap(), queue);
    }
}

#[test]
fn tasks_are_created_from_a_list() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q").to_hex();
        let told = dci.done(&["create-tasks", &queue, r#"[{"fizz":1},{"buzz":[2,null]}]"#]);
        let ids = created(&told, &queue);
        assert_eq!(ids.len(), 2);
        let stored = home.mongo.get("tasks", ids[1]);
        assert_eq!(plain(stored.get(home.dialect.params())), json!({"buzz": [2, null]}));
    }
}

#[test]
fn tasks_are_created_from_a_collection() {
    for home in both() {
        let dci = home.dci();
        home.queue("q");
        for name in ["ashley", "matt"] {
            home.mongo.insert("users", doc! {"username": name, "migration": "foo"});
        }
        let object = r#"{"filter":{"migration":"foo"},"params":{"user":"document.username"}}"#;
        for arguments in [
            ["create-tasks", "q", "--collection", "users", object],
            ["--collection", "users", "create-tasks", "q", object],
            ["create-tasks", "--collection", "users", "q", object],
        ] {
            let ids = created(&dci.done(&arguments), "q");
            assert_eq!(ids.len(), 2, "{arguments:?}");
            let stored = home.mongo.get("tasks", ids[1]);
            assert_eq!(plain(stored.get(home.dialect.params())), json!({"user": "matt"}));
        }
    }
}

#[test]
fn tasks_that_cannot_be_created_are_told() {
    for home in both() {
        let dci = home.dci();
        home.queue("q");
        for (arguments, text) in [
            (&["create-tasks", "none", "[{\"a\":1}]"][..], "queue not found"),
            (&["create-task", "none", "a", "1"], "queue not found"),
            (&["create-tasks", "q", "[]"], "'params' must be a JSON array of task params objects"),
            (&["create-tasks", "q", "[5]"], "'params' must be a JSON array of task params objects"),
            (&["create-task", "q"], "with key/value pairs"),
        ] {
            let told = dci.refused(arguments);
            assert!(told.contains(text), "{arguments:?}: {told}");
        }
        for arguments in [
            &["create-task"][..],
            &["create-task", "q", "a"],
            &["create-task", "q", "a", "1", "b"],
            &["create-tasks"],
            &["create-tasks", "q", "not json"],
            &["create-tasks", "q", "{\"a\":"],
        ] {
            dci.misused(arguments);
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn tasks_are_printed_as_json() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let tasks: Vec<ObjectId> = (0..3).map(|_| home.task(queue, -2)).collect();
        home.task(queue, 1);
        let filter = format!(r#"{{"queue":"{queue}","status":-2}}"#);
        let found = dci.done_json(&["tasks", &filter]);
        let mut ids: Vec<String> =
            found.as_array().unwrap().iter().map(|task| oid(&task["_id"])).collect();
        ids.sort();
        assert_eq!(ids, tasks.iter().map(|id| id.to_hex()).collect::<Vec<_>>());
        assert_eq!(found[0]["status"], json!(-2));
        let same = dci.done_json(&["tasks", &filter, "--json"]);
        assert_eq!(same, found);
    }
}

#[test]
fn twenty_tasks_are_printed_unless_a_limit_is_given() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let tasks = (0..25).map(|_| doc! {"queue": queue, "status": -2}).collect();
        home.mongo.insert_many("tasks", tasks);
        let filter = format!(r#"{{"queue":"{queue}"}}"#);
        let found = |arguments: &[&str]| {
            let mut all = vec!["tasks", filter.as_str()];
            all.extend(arguments);
            dci.done_json(&all).as_array().unwrap().len()
        };
        assert_eq!(found(&[]), 20);
        assert_eq!(found(&["--limit", "7"]), 7);
        assert_eq!(found(&["--limit", "100"]), 25);
        assert_eq!(found(&["--skip", "10"]), 15);
        let one = dci.done_json(&["tasks", &filter, "--limit", "1"]);
        assert_eq!(one["status"], json!(-2), "one is an object");
        let any = dci.done_json(&["tasks"]);
        assert_eq!(any.as_array().unwrap().len(), 20, "no filter is none");
    }
}

#[test]
fn tasks_are_counted() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task(queue, -2);
        home.task(queue, 1);
        let filter = format!(r#"{{"queue":"{queue}"}}"#);
        assert_eq!(dci.done(&["tasks", &filter, "--count"]), "2 tasks\n");
        assert_eq!(dci.done(&["tasks", "--count", &filter]), "2 tasks\n");
        let told = dci.done_json(&["tasks", &filter, "--count", "--json"]);
        assert_eq!(told, json!({"count": 2}));
    }
}

#[test]
fn every_option_of_a_search_is_passed_on() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let file = home.mongo.insert("tasks.files", doc! {"filename": "stdout", "length": 4});
        home.mongo.insert("tasks.chunks", doc! {"files_id": file, "n": 0, "data": "long"});
        let time = DateTime::from_millis(1_548_272_576_574);
        home.task_with(queue, 1, doc! {"mtime": time, "stdout": file, "stderr": "short"});
        let filter = format!(r#"{{"queue":"{queue}"}}"#);
        let ask = |option: &[&str]| {
            let mut all = vec!["tasks", filter.as_str(), "--limit", "1"];
            all.extend(option);
            dci.done_json(&all)
        };
        assert_eq!(oid(&ask(&[])["stdout"]), file.to_hex());
        assert_eq!(ask(&["--full"])["stdout"], json!("long"));
        assert_eq!(ask(&["--terse"])["stderr"], json!("[terse mode]"));
        assert!(ask(&["--epoch"])["mtime"].is_number());
        let some = ask(&["--fields", r#"["status","node"]"#]);
        assert!(some.get("status").is_some() && some.get("mtime").is_none(), "{some}");
        let pretty = dci.done(&["tasks", &filter, "--pretty"]);
        assert!(pretty.lines().count() > 5, "{pretty}");
        let plain = dci.done(&["tasks", &filter]);
        assert_eq!(plain.trim().lines().count(), 1, "{plain}");
    }
}

#[test]
fn searches_that_cannot_be_are_told() {
    let home = Home::released();
    let dci = home.dci();
    let told = dci.refused(&["tasks", r#"{"status":-2}"#]);
    assert!(told.contains("non-indexed params given"), "{told}");
    for filter in ["[]", "5", "nonsense", "{"] {
        let told = dci.misused(&["tasks", filter]);
        assert!(told.contains("JSON"), "{filter}: {told}");
    }
    for arguments in [["--limit", "x"], ["--skip", "-1"], ["--fields", "{"]] {
        dci.misused(&["tasks", "{}", arguments[0], arguments[1]]);
    }
}

#[test]
fn tasks_are_cancelled_and_retried() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let queued = home.task(queue, -2);
        let failed = home.task(queue, 2);
        dci.done(&["cancel", &queued.to_hex()]);
        assert_eq!(home.status(queued), -5);
        dci.done(&["retry", &failed.to_hex()]);
        assert_eq!(home.status(failed), -2);
        let told = dci.refused(&["cancel", "000000000000000000000000"]);
        assert!(told.contains("no task with id 000000000000000000000000"), "{told}");
    }
}
