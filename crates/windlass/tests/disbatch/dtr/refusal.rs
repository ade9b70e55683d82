//! The stand-alone task runner: what it leaves alone, and the options of older nodes.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::harness::{Ended, Fields, Home, Program, in_both, run, status_of, windlass};

/// The foreign node.
const NODE: &str = "foreign";

fn claimed(home: &Home, queue: ObjectId) -> ObjectId {
    home.task_with(queue, -1, doc! {"node": NODE})
}

/// The runner on the config of the foreign node.
fn runner(home: &Home, words: &[&str]) -> Ended {
    let config = home.write(&home.den_config(NODE));
    run(windlass(&[&["dtr", "--config", config.to_str().unwrap()], words].concat()), "")
}

/// It runs only tasks that this node has claimed, and none of ours.
#[test]
fn a_task_that_is_not_claimed_for_it_is_left_as_it_is() {
    in_both(|home| {
        let queue = home.line(&home.plugin("default", "note ran; say 1"), 9);
        let mut tasks: Vec<ObjectId> = [-6, -5, -4, -3, -2, 0, 1, 2]
            .into_iter()
            .map(|status| home.task_with(queue, status, doc! {"node": NODE}))
            .collect();
        for fields in [
            doc! {"node": "elsewhere"},
            doc! {"node": home.dialect.nobody()},
            doc! {"node": NODE, "windlass": {"boot": "b", "node": NODE, "run": "r"}},
            doc! {"node": NODE, "status": "-1"},
            doc! {"node": NODE, "status": Bson::Null},
        ] {
            tasks.push(home.task_with(queue, -1, fields));
        }
        for task in tasks {
            let before = home.mongo.get("tasks", task);
            let ended = runner(&home, &["--task", &task.to_hex()]);
            assert_eq!(ended.code, Some(1), "{before}: {ended:?}");
            assert!(ended.stderr.contains(&task.to_hex()), "{ended:?}");
            assert_eq!(home.mongo.get("tasks", task), before);
        }
        let gone = ObjectId::new().to_hex();
        assert_eq!(runner(&home, &["--task", &gone]).code, Some(1));
        assert_eq!(home.notes(), []);
    });
}

/// A Perl package has its program elsewhere, and its task may yet be run there.
#[test]
fn a_task_whose_plugin_has_no_program_is_left_as_it_is() {
    in_both(|home| {
        let mut config = home.den_config(NODE);
        config["plugins"] = serde_json::json!({"Disbatch::Plugin::Demo": null});
        let config = home.write(&config);
        let task = claimed(&home, home.line("Disbatch::Plugin::Demo", 1));
        let before = home.mongo.get("tasks", task);
        let words = ["dtr", "--config", config.to_str().unwrap(), "--task", &task.to_hex()];
        let ended = run(windlass(&words), "");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("Disbatch::Plugin::Demo has no program"), "{ended:?}");
        assert_eq!(home.mongo.get("tasks", task), before);
    });
}

#[test]
fn wrong_words_end_it_with_1_and_are_told() {
    let home = Home::seed();
    let task = claimed(&home, home.line(&home.ok(), 1));
    let id = task.to_hex();
    for (words, told) in [
        (&[][..], "--task"),
        (&["--task"], "--task"),
        (&["--task", "5"], "--task"),
        (&["--task", &id, "--gfs", "sometimes"], "sometimes"),
        (&["--task", &id, "--nonsense"], "--nonsense"),
        (&["--task", &id, "more"], "more"),
    ] {
        let ended = runner(&home, words);
        assert_eq!(ended.code, Some(1), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(told), "{words:?}: {ended:?}");
    }
    let ended = run(windlass(&["dtr", "--task", &id]), "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("--config"), "{ended:?}");
    assert_eq!(home.status(task), -1);
}

/// `--config --plugin --task --queue [--nogfs]`: output goes to files by default.
#[test]
fn the_words_of_the_seeds_node_are_understood() {
    in_both(|home| {
        let plugin = home.ok();
        let queue = home.line(&plugin, 1);
        let call = |more: &[&str]| -> Document {
            let task = claimed(&home, queue);
            let (id, of) = (task.to_hex(), queue.to_hex());
            let words = ["--plugin", &plugin, "--task", &id, "--queue", &of];
            let ended = runner(&home, &[&words[..], more].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let task = home.mongo.get("tasks", task);
            assert_eq!(status_of(&task), 1, "{task}");
            task
        };
        let inline = call(&["--nogfs"]);
        assert_eq!((inline.text("stdout"), inline.text("stderr")), (Some("out"), Some("err")));
        let files = call(&[]);
        for name in ["stdout", "stderr"] {
            let file = home.mongo.get("tasks.files", files.oid(name).unwrap());
            assert_eq!(file.text("filename"), Some(name));
            let metadata = file.get_document("metadata").unwrap();
            assert_eq!(metadata.oid("task_id"), files.oid("_id"));
        }
    });
}

/// The options of the releases: with `--gfs` always in files, with `auto` if it is large, otherwise
/// never.
#[test]
fn where_output_goes_is_said_by_gfs() {
    let home = Home::released();
    let queue = home.line(&home.ok(), 1);
    for (more, files) in [(&[][..], false), (&["--gfs", "auto"], false), (&["--gfs"], true)] {
        let task = claimed(&home, queue);
        let ended = runner(&home, &[&["--task", &task.to_hex()], more].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let task = home.mongo.get("tasks", task);
        assert_eq!(task.oid("stdout").is_some(), files, "{more:?}: {task}");
        assert_eq!(task.text("stdout").is_some(), !files, "{more:?}: {task}");
    }
}

#[test]
fn it_writes_when_a_task_starts_and_when_it_ends() {
    in_both(|home| {
        let task = claimed(&home, home.line(&home.gated(), 1));
        let before = home.mongo.get("tasks", task);
        let config = home.write(&home.den_config(NODE));
        let id = task.to_hex();
        let words = ["dtr", "--config", config.to_str().unwrap(), "--task", &id];
        let mut runner = Program::spawn(windlass(&words), home.folder());
        home.began(task);
        let running = home.reaches(task, 0);
        assert!(running.date("mtime") > before.date("mtime"), "{running}");
        home.open(task);
        assert_eq!(runner.ended().code(), Some(0));
        let ended = home.mongo.get("tasks", task);
        assert!(ended.date("mtime") > running.date("mtime"), "{ended}");
        assert_eq!(ended.date("ctime"), before.date("ctime"));
    });
}
