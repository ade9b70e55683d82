//! The four ways in which a task is handed to a plugin.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mongodb::bson::{Bson, DateTime, doc};
use serde_json::{Value, json};

use crate::harness::{Fields, Home, in_both, until};

/// Records its arguments and its input, and waits.
const RECORD: &str = r#"
echo "$args" > "$home/$id.args"
stat -c %a "$task" > "$home/$id.mode" 2>/dev/null
stat -c %a "$(dirname "$task")" >> "$home/$id.mode" 2>/dev/null
cp "$task" "$home/$id.json" 2>/dev/null
gate
"#;

fn args(home: &Home, task: mongodb::bson::oid::ObjectId) -> Vec<String> {
    home.began(task);
    let text = fs::read_to_string(home.path(&format!("{task}.args"))).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn by_default_a_file_holds_the_task_and_another_takes_the_result() {
    in_both(|home| {
        let plugin = home.plugin("default", &format!("{RECORD}\nsay 1 out err"));
        let queue = home.line(&plugin, 1);
        let (date, other) = (DateTime::from_millis(1_461_693_573_000), Bson::Null);
        let params = doc! {
            "user": "ashley@example.com", "n": 5, "big": 5_000_000_000_i64,
            "list": [1, "two", other],
            "at": date, "id": queue, "deep": {"a": {"b": true}}, "text": "ü \" \\ \n €",
        };
        let task = home.task_with(queue, -2, doc! {home.dialect.params(): params, "ctime": date});
        let file = home.write(&home.den_config("one"));
        let _den = home.den_of(&file);
        let args = args(&home, task);
        assert_eq!(args.len(), 4, "{args:?}");
        assert_eq!(args[0], "--config");
        assert_eq!(args[1], format!("{}-plugin", file.display()));
        assert_eq!(args[2], "--task");
        assert!(args[3].starts_with(home.path("temp").to_str().unwrap()), "{args:?}");
        assert!(args[3].ends_with(&format!("{task}.json")), "{args:?}");
        let modes = fs::read_to_string(home.path(&format!("{task}.mode"))).unwrap();
        assert_eq!(modes.lines().next(), Some("600"), "{modes}");
        let given = fs::read_to_string(home.path(&format!("{task}.json"))).unwrap();
        let given: Value = serde_json::from_str(&given).unwrap();
        assert_eq!(given["_id"], json!(task.to_hex()));
        assert_eq!(given["queue"], json!(queue.to_hex()));
        assert_eq!(given["status"], json!(-1));
        assert_eq!(given["node"], json!("one"));
        assert!(given["ctime"].as_str().unwrap().starts_with("2016-04-26T17:59:33"), "{given}");
        let params = &given[home.dialect.params()];
        assert_eq!(params["user"], "ashley@example.com");
        assert_eq!((&params["n"], &params["big"]), (&json!(5), &json!(5_000_000_000_i64)));
        assert_eq!(params["list"], json!([1, "two", null]));
        assert_eq!(params["id"], json!(queue.to_hex()));
        assert!(params["at"].as_str().unwrap().starts_with("2016-04-26T17:59:33"), "{given}");
        assert_eq!(params["deep"], json!({"a": {"b": true}}));
        assert_eq!(params["text"], "ü \" \\ \n €");
        home.open(task);
        let ended = home.reaches(task, 1);
        assert_eq!((ended.text("stdout"), ended.text("stderr")), (Some("out"), Some("err")));
        let left = std::path::Path::new(&args[3]);
        let response = args[3].replace(".json", "-response.json");
        until("the files are gone", || !left.exists() && !fs::exists(&response).unwrap());
    });
}

#[test]
fn without_mongo_only_the_task_is_named() {
    in_both(|home| {
        let plugin = home.plugin("nomongo", &format!("{RECORD}\nsay 1 out err"));
        let task = home.add(home.line(&plugin, 1), 1)[0];
        let _den = home.den("one");
        let args = args(&home, task);
        assert_eq!((args.len(), args[0].as_str()), (2, "--task"), "{args:?}");
        assert!(args[1].ends_with(&format!("{task}.json")), "{args:?}");
        home.open(task);
        assert_eq!(home.reaches(task, 1).text("stdout"), Some("out"));
    });
}

/// The test writes to the database in place of the plugin.
#[test]
fn with_mongo_the_result_is_a_document() {
    in_both(|home| {
        let plugin = home.plugin("mongo", RECORD);
        let queue = home.line(&plugin, 2);
        let (task, silent) = (home.task(queue, -2), home.task(queue, -2));
        let stale = doc! {"_id": silent, "status": 1, "stdout": "stale", "stderr": ""};
        home.mongo.insert("results", stale);
        let file = home.write(&home.den_config("one"));
        let _den = home.den_of(&file);
        let args = args(&home, task);
        let wanted = ["--config".into(), format!("{}-plugin", file.display()), "--task".into()];
        assert_eq!(args, [&wanted[..], &[task.to_hex()]].concat());
        home.reaches(task, 0);
        let result = doc! {"_id": task, "status": 4, "stdout": "out", "stderr": "err", "more": 1};
        home.mongo.insert("results", result);
        home.open(task);
        let ended = home.reaches(task, 4);
        assert_eq!((ended.text("stdout"), ended.text("stderr")), (Some("out"), Some("err")));
        home.began(silent);
        home.open(silent);
        let ended = home.reaches(silent, 2);
        let why = ended.text("stderr").unwrap_or_default();
        assert!(why.contains("plugin did not create a document in 'results'"), "{ended}");
        until("results are removed", || home.mongo.count("results", doc! {}) == 0);
    });
}

#[test]
fn a_handed_off_task_is_ended_by_its_plugin() {
    in_both(|home| {
        let plugin = home.plugin("handoff", RECORD);
        let queue = home.line(&plugin, 3);
        let (task, silent) = (home.task(queue, -2), home.task(queue, -2));
        let file = home.write(&home.den_config("one"));
        let _den = home.den_of(&file);
        let args = args(&home, task);
        assert_eq!(args[2..4], ["--task".to_owned(), task.to_hex()], "{args:?}");
        assert_eq!(args[1], format!("{}-plugin", file.display()));
        home.reaches(task, 0);
        let running = doc! {"_id": task, "status": 0, "node": "one"};
        home.mongo.update("tasks", running, doc! {"$set": {"status": 6}});
        let rest = doc! {"stdout": "own", "stderr": "hand", "complete": true};
        home.mongo.set("tasks", task, rest);
        home.open(task);
        home.began(silent);
        home.open(silent);
        let ended = home.reaches(silent, 2);
        let why = ended.text("stderr").unwrap_or_default();
        assert!(why.starts_with("plugin did not update status"), "{ended}");
        home.passes("one", 1);
        let ended = home.mongo.get("tasks", task);
        assert_eq!(ended.int("status"), Some(6), "{ended}");
        assert_eq!((ended.text("stdout"), ended.text("stderr")), (Some("own"), Some("hand")));
        assert_eq!(ended.text("node"), Some("one"));
        // Its slot is free again.
        let next = home.add(queue, 3);
        for task in next {
            home.began(task);
        }
    });
}

#[test]
fn a_quiet_node_tells_a_handoff_plugin_so() {
    let home = Home::released();
    let task = home.add(home.line(&home.plugin("handoff", RECORD), 1), 1)[0];
    let _den = home.den_with("one", json!({"quiet": true}));
    let args = args(&home, task);
    assert_eq!(args.last().map(String::as_str), Some("--quiet"), "{args:?}");
}

/// No other user of the folder can guess or plant what is read there.
#[test]
fn files_of_tasks_lie_where_nobody_else_can_plant_them() {
    let home = Home::seed();
    let plugin = home.plugin("default", &format!("{RECORD}\nsay 1 out err"));
    let queue = home.line(&plugin, 1);
    let task = home.task(queue, -2);
    fs::create_dir_all(home.path("temp")).unwrap();
    let planted = home.path("temp").join(format!("{task}-response.json"));
    fs::write(&planted, r#"{"status": 1, "stdout": "planted", "stderr": ""}"#).unwrap();
    let _den = home.den("one");
    let args = args(&home, task);
    let folder = std::path::Path::new(args.last().unwrap()).parent().unwrap().to_owned();
    assert_ne!(folder, home.path("temp"));
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    home.open(task);
    assert_eq!(home.reaches(task, 1).text("stdout"), Some("out"));
}
