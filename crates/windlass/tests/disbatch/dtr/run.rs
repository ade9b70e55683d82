//! The stand-alone task runner, called like a foreign node calls its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Dialect, Ended, Home, Program, in_both, run, status_of, until, windlass};

/// The foreign node.
const NODE: &str = "foreign";

impl Home {
    /// A task that the foreign node has claimed, without our fields.
    fn claimed(&self, queue: ObjectId) -> ObjectId {
        self.task_with(queue, -1, doc! {"node": NODE})
    }

    fn runner(&self, task: &str, more: &[&str]) -> Command {
        let config = self.write(&self.den_config(NODE));
        let mut words = vec!["dtr", "--config", config.to_str().unwrap(), "--task", task];
        words.extend(more);
        windlass(&words)
    }

    fn dtr(&self, task: ObjectId, more: &[&str]) -> (Ended, Document) {
        let ended = run(self.runner(&task.to_hex(), more), "");
        (ended, self.mongo.get("tasks", task))
    }
}

fn text<'a>(task: &'a Document, name: &str) -> Option<&'a str> {
    task.get(name).and_then(Bson::as_str)
}

#[test]
fn a_claimed_task_is_run_to_its_end() {
    in_both(|home| {
        let queue = home.line_with(&home.ok(), doc! {"count_todo": 5, "count_total": 5});
        let before = home.mongo.get("tasks", home.claimed(queue));
        let id = before.get_object_id("_id").unwrap();
        let (ended, task) = home.dtr(id, &["--quiet", "--testing"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(status_of(&task), 1);
        assert_eq!((text(&task, "stdout"), text(&task, "stderr")), (Some("out"), Some("err")));
        assert_eq!(task.get("complete"), Some(&Bson::Boolean(true)));
        assert_eq!((task.get_i32("cmdExit").unwrap(), text(&task, "cmdErr")), (0, Some("<nil>")));
        assert_eq!(text(&task, "node"), Some(NODE));
        assert!(task.get_datetime("mtime").unwrap() >= before.get_datetime("mtime").unwrap());
        assert!(!task.contains_key("windlass"), "{task}");
        let left = fs::read_dir(home.path("temp")).unwrap().count();
        assert_eq!(left, 0, "its directory is gone");
        if home.dialect == Dialect::Seed {
            let todo = home.mongo.get("queues", queue).get("count_todo").cloned();
            assert_eq!(crate::harness::number(todo.as_ref()), Some(4));
        }
    });
}

#[test]
fn a_failure_of_the_task_is_none_of_the_runner() {
    let home = Home::released();
    let failing = home.plugin("default", "say 3 '' bad; exit 4");
    let (ended, task) = home.dtr(home.claimed(home.line(&failing, 1)), &[]);
    assert_eq!((ended.code, status_of(&task), text(&task, "stderr")), (Some(0), 3, Some("bad")));
    assert_eq!(text(&task, "cmdErr"), Some("exit status 4"));

    let unlisted = home.program("say 1 '' ''");
    let gone = ObjectId::new();
    let text_instead = home.mongo.insert("queues", doc! {"name": "odd", "plugin": 5});
    for (queue, why) in [
        (home.line(&unlisted, 1), "is not listed in the configuration"),
        (gone, "not found for task"),
        (text_instead, "no plugin for task"),
    ] {
        let (ended, task) = home.dtr(home.claimed(queue), &[]);
        assert_eq!((ended.code, status_of(&task)), (Some(0), 2), "{ended:?}");
        assert_eq!(text(&task, "stdout"), Some("Unable to start"));
        assert!(text(&task, "stderr").unwrap().contains(why), "{task}");
        assert!(!task.contains_key("cmdExit"));
    }
}

#[test]
fn a_database_that_is_away_and_a_file_that_says_nothing_end_it_with_1() {
    let home = Home::seed();
    let bad = home.write(&json!({"database": "x"}));
    let away = "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=200";
    let away = home.write(&json!({"mongohost": away, "database": "x"}));
    for file in [bad, away] {
        let words = ["dtr", "--config", file.to_str().unwrap(), "--task"];
        let ended = run(windlass(&[&words[..], &[&ObjectId::new().to_hex()]].concat()), "");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(!ended.stderr.is_empty());
    }
    let help = run(windlass(&["dtr", "--help"]), "");
    assert!(help.code == Some(0) && help.stdout.starts_with("Usage: windlass dtr "), "{help:?}");
}

/// By a name that the configuration maps to a program; the seed's files contain strings.
#[test]
fn a_plugin_has_a_name_in_the_seed() {
    let home = Home::seed();
    let program = home.program("say 1 'some text' ''");
    let mut config = home.den_config(NODE);
    config["plugins"] = json!({"Disbatch::X": {"program": program, "type": "nomongo"}});
    let config = home.write(&config);
    let queue = home.line("Disbatch::X", 1);
    let id = home.claimed(queue);
    let words = ["dtr", "--config", config.to_str().unwrap(), "--gfs", "--task", &id.to_hex()];
    assert_eq!(run(windlass(&words), "").code, Some(0));
    let file = home.mongo.get("tasks", id).get_object_id("stdout").unwrap();
    let chunks = home.mongo.all("tasks.chunks", doc! {"files_id": file});
    assert_eq!((chunks.len(), text(&chunks[0], "data")), (1, Some("some text")));
}

#[test]
fn plugins_get_the_configuration_of_their_own() {
    let home = Home::released();
    let plugin = home.plugin(
        "default",
        "cp \"$config\" $home/seen; stat -c %a \"$config\" > $home/mode; say 1 '' ''",
    );
    let queue = home.line(&plugin, 1);
    let mut config = home.den_config(NODE);
    config["tokens"] = json!(["secret-token"]);
    let file = home.write(&config);
    let narrowed = format!("{}-task_runner", file.display());
    for path in [file.to_str().unwrap(), &narrowed] {
        let task = home.claimed(queue).to_hex();
        let ended = run(windlass(&["dtr", "--config", path, "--task", &task]), "");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let seen = fs::read_to_string(home.path("seen")).unwrap();
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!((&seen["database"], &seen["tokens"]), (&config["database"], &Value::Null));
        assert_eq!(fs::read_to_string(home.path("mode")).unwrap().trim(), "600");
        fs::remove_file(home.path("seen")).unwrap();
    }
    let mode = fs::metadata(&narrowed).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_runner_can_be_the_plugin_of_another_one() {
    let home = Home::released();
    let queue = home.line(&home.ok(), 1);
    let task = home.task_with(queue, 0, doc! {"node": NODE});
    let (ended, task) = home.dtr(task, &["--handoff"]);
    assert_eq!((ended.code, status_of(&task)), (Some(0), 1), "{ended:?}");
    let (ended, _) = home.dtr(home.claimed(queue), &["--handoff"]);
    assert_eq!(ended.code, Some(1), "it does not run yet");
}

#[test]
fn a_signal_ends_the_plugin_and_says_so_in_the_task() {
    let home = Home::seed();
    let queue = home.line(&home.gated(), 1);
    let task = home.claimed(queue);
    let mut runner = Program::spawn(home.runner(&task.to_hex(), &[]), home.folder());
    let plugin = home.began(task);
    runner.signal(Signal::TERM);
    assert_eq!(runner.ended().code(), Some(143));
    let task = home.mongo.get("tasks", task);
    assert_eq!(status_of(&task), -6);
    assert!(text(&task, "stderr").unwrap().contains("was stopped"), "{task}");
    until("the plugin is dead", || !fs::exists(format!("/proc/{plugin}")).unwrap());
}
