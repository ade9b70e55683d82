//! `windlass disbatch`: what the original's client cannot do.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use mongodb::bson::{Bson, DateTime, doc};
use serde_json::json;

use crate::harness::{DEMO, Dci, Home, both, number, oid, run, windlass};

fn node(home: &Home, name: &str) {
    let entry = doc! {"node": name, "timestamp": DateTime::now(), "maxthreads": 5};
    home.mongo.insert("nodes", entry);
    let old = DateTime::from_millis(1_548_272_576_574);
    home.mongo.insert("nodes", doc! {"node": format!("old-{name}"), "timestamp": old});
}

#[test]
fn nodes_are_listed() {
    for home in both() {
        let dci = home.dci_with(json!({"dashboard": {"live_window_ms": 3_600_000}}));
        node(&home, "alpha.example");
        let told = dci.done(&["nodes"]);
        let line =
            told.lines().find(|line| line.contains(" alpha.example") || line.starts_with("alpha"));
        let line = line.unwrap_or_else(|| panic!("{told}"));
        assert!(line.contains('5'), "{told}");
        assert!(told.contains("old-alpha.example"), "{told}");
        let listed = dci.done_json(&["nodes", "--json"]);
        assert_eq!(listed.as_array().unwrap().len(), 2);
        assert_eq!(listed[0]["live"], json!(true));
        assert_eq!(listed[1]["live"], json!(false));
    }
}

#[test]
fn the_limit_of_a_node_is_changed() {
    for home in both() {
        let dci = home.dci();
        node(&home, "one");
        dci.done(&["update-node", "one", "maxthreads", "7"]);
        let stored = home.mongo.one("nodes", doc! {"node": "one"}).unwrap();
        assert_eq!(number(stored.get("maxthreads")), Some(7));
        dci.done(&["update-node", "one", "maxthreads", "null"]);
        let stored = home.mongo.one("nodes", doc! {"node": "one"}).unwrap();
        assert_eq!(stored.get("maxthreads"), Some(&Bson::Null));
        let told = dci.refused(&["update-node", "one", "maxthreads", "many"]);
        assert!(told.contains("maxthreads must be a non-negative integer or null"), "{told}");
        dci.refused(&["update-node", "none", "maxthreads", "7"]);
    }
}

#[test]
fn the_limit_of_a_queue_is_taken_away() {
    for home in both() {
        let dci = home.dci();
        let id = home.queue_with("q", doc! {home.dialect.limit(): 5});
        dci.done(&["update-queue", "q", "threads", "null"]);
        assert_eq!(home.mongo.get("queues", id).get(home.dialect.limit()), Some(&Bson::Null));
    }
}

#[test]
fn one_task_is_shown_with_its_output() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let output = doc! {"node": "n", "stdout": "line one\nline two", "stderr": "trouble"};
        let task = home.task_with(queue, 2, output).to_hex();
        let told = dci.done(&["task", &task]);
        for word in [task.as_str(), "line one", "line two", "trouble"] {
            assert!(told.contains(word), "{word} is not in {told}");
        }
        let shown = dci.done_json(&["task", &task, "--json"]);
        assert_eq!(oid(&shown["_id"]), task);
        assert_eq!(shown["stdout"], json!("line one\nline two"));
        let told = dci.refused(&["task", "000000000000000000000000"]);
        assert!(told.contains("no task with id 000000000000000000000000"), "{told}");
        dci.misused(&["task", "../queues"]);
        dci.misused(&["cancel", "../../queues/q"]);
    }
}

#[test]
fn tasks_are_read_from_standard_input() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("q");
    let url = dci.url();
    let command = windlass(&["disbatch", "--url", &url, "create-tasks", "q", "-"]);
    let ended = run(command, "[{\"a\": 1},\n {\"a\": 2}]\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("Created 2 tasks in queue q\n"), "{ended:?}");
    assert_eq!(home.mongo.count("tasks", doc! {}), 2);
    let command = windlass(&["disbatch", "--url", &url, "create-tasks", "q", "-"]);
    let ended = run(command, "");
    assert_ne!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn the_program_may_be_called_disbatch() {
    let home = Home::released();
    let dci = home.dci();
    let name = home.path("disbatch");
    symlink(env!("CARGO_BIN_EXE_windlass"), &name).unwrap();
    let mut command = Command::new(&name);
    command.args(["-u", &dci.url(), "plugins"]).stdin(Stdio::null());
    let ended = run(command, "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, format!("{DEMO}\n"));
}

fn guarded(home: &Home) -> Dci {
    home.dci_with(json!({"users": {"ann": "secret word"}, "tokens": ["a-token"]}))
}

#[test]
fn secrets_may_come_from_files_and_variables() {
    let home = Home::released();
    let dci = guarded(&home);
    let file = home.path("password");
    fs::write(&file, "secret word\nnot this\n").unwrap();
    let file = file.to_str().unwrap();
    dci.done(&["-n", "ann", "--password_file", file, "queues"]);
    dci.done(&["--token", "a-token", "queues"]);
    for (name, value, arguments) in [
        ("DISBATCH_PASSWORD", "secret word", &["disbatch", "--username", "ann", "queues"][..]),
        ("DISBATCH_TOKEN", "a-token", &["disbatch", "queues"]),
    ] {
        let mut command = windlass(arguments);
        command.env("DISBATCH_URL", dci.url()).env(name, value);
        let ended = run(command, "");
        assert_eq!(ended.code, Some(0), "{name} {ended:?}");
        let mut command = windlass(arguments);
        command.env("DISBATCH_URL", dci.url()).env(name, "wrong-secret");
        let ended = run(command, "");
        assert_eq!(ended.code, Some(1), "{name} {ended:?}");
        assert!(!format!("{ended:?}").contains("wrong-secret"), "{ended:?}");
    }
    let told = dci.misused(&["-n", "ann", "--password_file", "/nonexistent/file", "queues"]);
    assert!(told.contains("/nonexistent/file"), "{told}");
}
