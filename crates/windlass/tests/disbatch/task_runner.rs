//! The task runner by itself, as a foreign node starts it: `--config FILE --task ID`.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use serde_json::json;

use crate::harness::{Dialect, Ended, Fields, Home, in_both, run, windlass};

/// A task that the foreign node `one` has claimed.
fn claimed(home: &Home, plugin: &str) -> ObjectId {
    let queue = home.line(plugin, 1);
    home.task_with(queue, -1, doc! {"node": "one"})
}

fn runner(file: &Path, task: &str, more: &[&str]) -> Ended {
    let words = ["dtr", "--config", file.to_str().unwrap(), "--task", task];
    run(windlass(&[&words[..], more].concat()), "")
}

#[test]
fn a_claimed_task_is_run_and_the_runner_ends_with_0() {
    in_both(|home| {
        let plugins =
            [home.ok(), home.plugin("default", "say 7 out err"), "Not::Listed".to_owned()];
        let [good, bad, unlisted] = plugins.map(|plugin| claimed(&home, &plugin));
        let file = home.write(&home.den_config("one"));
        for (task, status) in [(good, 1), (bad, 7), (unlisted, 2)] {
            let ended = runner(&file, &task.to_hex(), &[]);
            assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
            let task = home.mongo.get("tasks", task);
            assert_eq!(task.int("status"), Some(status), "{task}");
            assert_eq!(task.text("node"), Some("one"), "{task}");
            let wanted = if status == 2 { "Unable to start" } else { "out" };
            assert_eq!(task.text("stdout"), Some(wanted), "{task}");
        }
    });
}

#[test]
fn a_task_that_is_not_this_nodes_claim_is_left_as_it_is() {
    in_both(|home| {
        let queue = home.line(&home.plugin("default", "note ran; say 1"), 1);
        let others = [(-2, "one"), (0, "one"), (1, "one"), (-1, "two")];
        let tasks = others.map(|(status, node)| home.task_with(queue, status, doc! {"node": node}));
        let file = home.write(&home.den_config("one"));
        for task in tasks {
            let before = home.mongo.get("tasks", task);
            assert_eq!(runner(&file, &task.to_hex(), &[]).code, Some(1));
            assert_eq!(home.mongo.get("tasks", task), before);
        }
        let unknown = runner(&file, &ObjectId::new().to_hex(), &[]);
        assert_eq!(unknown.code, Some(1));
        assert!(!unknown.stderr.is_empty());
        assert_eq!(home.notes(), []);
    });
}

#[test]
fn wrong_words_and_files_end_the_runner_with_1() {
    let home = Home::seed();
    let file = home.write(&home.den_config("one"));
    let file = file.to_str().unwrap();
    let id = ObjectId::new().to_hex();
    let wrong: [&[&str]; 6] = [
        &["dtr"],
        &["dtr", "--config", file],
        &["dtr", "--task", &id],
        &["dtr", "--config", file, "--task", "5"],
        &["dtr", "--config", "/nonexistent", "--task", &id],
        &["dtr", "--config", file, "--task", &id, "--unknown"],
    ];
    for words in wrong {
        let ended = run(windlass(words), "");
        assert_eq!(ended.code, Some(1), "{words:?}");
        assert!(!ended.stderr.is_empty(), "{words:?}");
    }
}

#[test]
fn files_are_used_as_the_command_line_says() {
    let home = Home::released();
    let plugin = home.ok();
    let file = home.write(&home.den_config("one"));
    for (words, in_file) in [(&["--gfs"][..], true), (&["--gfs", "auto"], false), (&[], false)] {
        let task = claimed(&home, &plugin);
        assert_eq!(runner(&file, &task.to_hex(), words).code, Some(0), "{words:?}");
        let task = home.mongo.get("tasks", task);
        assert_eq!(task.oid("stdout").is_some(), in_file, "{words:?}: {task}");
    }
}

/// The seed's words; files are its default.
#[test]
fn the_words_of_the_seed_are_understood() {
    let home = Home::new(Dialect::Seed);
    let plugin = home.ok();
    let queue = home.line(&plugin, 1);
    let file = home.write(&home.den_config("one"));
    for (more, in_file) in [(&["--nogfs"][..], false), (&[], true)] {
        let task = home.task_with(queue, -1, doc! {"node": "one"});
        let words = ["--plugin", &plugin, "--queue", &queue.to_hex()];
        let ended = runner(&file, &task.to_hex(), &[&words[..], more].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let task = home.mongo.get("tasks", task);
        assert_eq!(task.int("status"), Some(1), "{task}");
        assert_eq!(task.oid("stdout").is_some(), in_file, "{more:?}: {task}");
    }
}

/// Where a foreign node's config names a `task_runner`, a link to ours does.
#[test]
fn it_is_known_by_the_name_of_the_original() {
    let home = Home::released();
    let link = home.path("task_runner");
    symlink(env!("CARGO_BIN_EXE_windlass"), &link).unwrap();
    let task = claimed(&home, &home.ok());
    let mut config = home.den_config("one");
    config["quiet"] = json!(true);
    let file = home.write(&config);
    let mut command = Command::new(link);
    command.arg("--config").arg(file).args(["--task", &task.to_hex(), "--quiet"]);
    assert_eq!(run(command, "").code, Some(0));
    assert_eq!(home.status(task), 1);
}
