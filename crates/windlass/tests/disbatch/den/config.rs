//! The configuration file, the files that a node derives from it, and the seed's `config`
//! collection.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::harness::{Home, in_both, is_alive, run, short_lease, until, until_some, windlass};

#[test]
fn comments_and_trailing_commas_are_read() {
    let home = Home::seed();
    let task = home.add(home.line(&home.ok(), 1), 1)[0];
    let config = home.den_config("one");
    let mut text = String::from("# of the tests\n{\n");
    for (key, value) in config.as_object().unwrap() {
        text.push_str(&format!("  # {key}\n  \"{key}\": {value}, # it is \"{key}\"\n"));
    }
    text.push_str("}\n");
    let file = home.path("relaxed.json");
    fs::write(&file, text).unwrap();
    let _den = home.den_of(&file);
    home.reaches(task, 1);
}

#[test]
fn a_wrong_file_is_told_and_ends_the_node() {
    let home = Home::seed();
    let told = |text: &str| {
        let file = home.path("wrong.json");
        fs::write(&file, text).unwrap();
        let ended = run(windlass(&["den", "--config", file.to_str().unwrap()]), "");
        assert_eq!(ended.code, Some(1), "{text}: {}", ended.stderr);
        ended.stderr + &ended.stdout
    };
    assert!(told("").contains("wrong.json"));
    assert!(told("{\"mongohost\": ").contains("wrong.json"));
    assert!(told("[]").contains("wrong.json"));
    assert!(told(r#"{"database": "d"}"#).contains("mongohost"));
    assert!(told(r#"{"mongohost": "mongodb://127.0.0.1:1"}"#).contains("database"));
    let with = |key: &str, value: Value| {
        let mut config = home.den_config("one");
        config[key] = value;
        told(&config.to_string())
    };
    for (key, value) in [
        ("gfs", json!("sometimes")),
        ("dialect", json!("french")),
        ("heartbeat", json!(0)),
        ("orphan_after", json!("30")),
        ("plugins", json!("all")),
        ("plugins", json!({"/bin/true": {"type": "telepathy"}})),
        ("activequeues", json!("all")),
        ("temp_dir_mode", json!("many")),
        ("node", json!(5)),
    ] {
        let told = with(key, value);
        assert!(told.contains(key), "{key}: {told}");
    }
    let missing = run(windlass(&["den", "--config", "/nonexistent/config.json"]), "");
    assert_eq!(missing.code, Some(1));
    assert!(missing.stderr.contains("/nonexistent/config.json"), "{}", missing.stderr);
}

#[test]
fn files_for_runner_and_plugins_are_made_for_their_owner_only() {
    in_both(|home| {
        let config = home.den_config("one");
        let file = home.write(&config);
        let mut den = home.den_of(&file);
        home.entered("one", &mut den);
        for suffix in ["-plugin", "-task_runner"] {
            let made = format!("{}{suffix}", file.display());
            let mode = fs::metadata(&made).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{made}");
            let read: Value = serde_json::from_str(&fs::read_to_string(&made).unwrap()).unwrap();
            assert_eq!(read["mongohost"], config["mongohost"]);
            assert_eq!(read["database"], config["database"]);
        }
    });
}

/// Each with only the password of its own user.
#[test]
fn files_for_runner_and_plugins_hold_no_password_of_others() {
    let home = Home::seed();
    let users = ["disbatchd", "disbatch_web", "task_runner", "queuebalance", "plugin"];
    let auth: serde_json::Map<String, Value> =
        users.iter().map(|user| ((*user).to_owned(), json!(format!("word-of-{user}")))).collect();
    let mut config = home.den_config("one");
    config["auth"] = Value::Object(auth);
    config["users"] = json!({"ann": "word-of-ann"});
    config["tokens"] = json!(["word-of-token"]);
    let file = home.write(&config);
    // The server knows none of these users: what the node does about that does not matter here.
    let _den = home.den_of(&file);
    for (suffix, user) in [("-plugin", "plugin"), ("-task_runner", "task_runner")] {
        let made = format!("{}{suffix}", file.display());
        until("the file is there", || fs::exists(&made).unwrap());
        let text = fs::read_to_string(&made).unwrap();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["auth"], json!({user: format!("word-of-{user}")}));
        assert_eq!(text.matches("word-of-").count(), 1, "{text}");
    }
}

#[test]
fn without_a_name_the_file_of_the_original_is_read() {
    let file = "/etc/disbatch/config.json";
    assert!(!fs::exists(file).unwrap(), "this machine has a file that the test would use");
    for program in ["den", "dci"] {
        let ended = run(windlass(&[program]), "");
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(file), "{ended:?}");
    }
}

/// Every key that the original's programs know.
#[test]
fn a_config_of_the_original_is_taken() {
    let home = Home::released();
    let task = home.add(home.line(&home.ok(), 1), 1)[0];
    // Since 4.4, a Perl package is listed like this.
    let mut plugins = home.den_config("one")["plugins"].clone();
    plugins["Disbatch::Plugin::Demo"] = json!(1);
    let keys = json!({
        "plugins": plugins, "attributes": {}, "auth": {}, "monitoring": 1,
        "balance": {"log": 1, "verbose": 0, "pretend": 0, "enabled": 0},
        "web_extensions": {"Disbatch::Web::V3": null}, "pre_hook": null, "node_increase": 5,
        "queue_increase": 2, "task_runner": "/usr/bin/task_runner",
        "plugin_runner": "/usr/bin/task_runner", "temp_dir_mode": "0755", "gfs": "auto",
        "quiet": 0, "testing": 1, "web_root": "/etc/disbatch/htdocs/",
        "views_dir": "/etc/disbatch/views/", "activequeues": [], "ignorequeues": [],
        "dashboard": {"refresh_ms": 30_000, "live_window_ms": 15_000},
        "log4perl": {"level": "TRACE", "appenders": {"filelog": {"type": "x", "args": {}}}},
    });
    let _den = home.den_with("one", keys);
    home.reaches(task, 1);
}

#[test]
fn the_folder_for_temporary_files_is_made_with_its_mode() {
    let home = Home::seed();
    let mut first = home.den("one");
    let mode = |name: &str| fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("temp"), 0o755);
    first.stop();
    let keys = json!({"temp_dir": home.path("private"), "temp_dir_mode": "0700"});
    let _second = home.den_with("two", keys);
    assert_eq!(mode("private"), 0o700);
}

/// Plugins of 4.4 that look for their task themselves look under the name of the host.
#[test]
fn another_name_than_the_hosts_is_told_where_plugins_look_for_their_task() {
    let home = Home::released();
    let told = |name: &str| {
        let den = home.den(name);
        den.console().contains("looks for its task under the name of the host")
    };
    home.plugin("nomongo", "say 1 out err");
    assert!(!told("one"));
    home.plugin("handoff", "exit 0");
    assert!(told("two"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!told(host.trim()));
}

/// An unknown key does not prevent the start, but is logged.
#[test]
fn an_unknown_key_is_told() {
    let home = Home::seed();
    let den = home.den_with("one", json!({"activequeue": []}));
    assert!(den.console().contains("activequeue"), "{}", den.console());
}

#[test]
fn a_program_may_be_run_before_every_pass() {
    let home = Home::seed();
    let hook = home.path("hook");
    let count = home.path("count");
    fs::write(&hook, format!("#!/bin/sh\necho x >> {}\n", count.display())).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let _den = home.den_with("one", json!({"pre_hook": {"name": hook}}));
    let runs = || fs::read_to_string(&count).unwrap_or_default().lines().count();
    until("it is run again and again", || runs() >= 3);
}

#[test]
fn nothing_is_claimed_while_the_hook_runs() {
    in_both(|home| {
        let task = home.add(home.line(&home.ok(), 5), 1)[0];
        let waits = "echo $$ > \"$home/hook\"; until [ -e \"$home/go\" ]; do sleep 0.05; done";
        let hook = home.program(waits);
        let _den = home.den_with("one", json!({"pre_hook": {"name": hook}}));
        let pid = || fs::read_to_string(home.path("hook")).ok()?.trim().parse().ok();
        let pid = until_some("the hook runs", pid);
        home.passes("one", 1);
        let status = home.status(task);
        assert!(status == -2 || !is_alive(pid), "{status}");
        fs::write(home.path("go"), "").unwrap();
        home.reaches(task, 1);
    });
}

/// If a node looked only between two runs of such a hook, it would never notice silent nodes.
#[test]
fn a_slow_hook_keeps_no_dead_node_from_being_found() {
    let home = Home::seed();
    let hook = home.program("sleep 8");
    let mut keys = short_lease();
    keys["pre_hook"] = json!({"name": hook});
    let _den = home.den_with("one", keys);
    home.outlasts_a_lease("one");
}

#[test]
fn a_hook_that_fails_ends_the_node_only_when_it_is_fatal() {
    let home = Home::seed();
    let hook = |fatal: bool| json!({"pre_hook": {"name": "/bin/false", "fatal": fatal}});
    let mut den = home.den_with("one", hook(false));
    until("it is told", || den.console().contains("/bin/false"));
    assert!(den.alive());
    let mut fatal = home.den_unentered("two", hook(true));
    assert!(!fatal.ended().success());
    assert!(fatal.console().contains("/bin/false"), "{}", fatal.console());
}

/// It is read again in every pass.
#[test]
fn the_active_document_of_the_config_collection_says_which_queues_are_served() {
    let home = Home::seed();
    let plugin = home.ok();
    let (one, two) = (home.line(&plugin, 5), home.line(&plugin, 5));
    home.mongo.insert("config", doc! {"label": "development", "activequeues": [two.to_hex()]});
    let active = doc! {"label": "production", "active": true, "activequeues": [one.to_hex()]};
    let active = home.mongo.insert("config", active);
    let (first, second) = (home.add(one, 1)[0], home.add(two, 1)[0]);
    let _den = home.den("one");
    home.reaches(first, 1);
    home.passes("one", 1);
    assert_eq!(home.status(second), -2);
    home.mongo.set("config", active, doc! {"activequeues": [], "ignorequeues": [one.to_hex()]});
    home.reaches(second, 1);
    home.passes("one", 1);
    let third = home.add(one, 1)[0];
    home.passes("one", 1);
    assert_eq!(home.status(third), -2);
    home.mongo.delete("config", active);
    home.reaches(third, 1);
}

/// Write access to the database does not allow adding programs.
#[test]
fn the_config_collection_takes_plugins_away_but_adds_none() {
    let home = Home::seed();
    let (listed, other) = (home.ok(), home.ok());
    let unlisted = home.program("note ran; say 1");
    let lines = [&listed, &other, &unlisted].map(|plugin| home.line(plugin, 5));
    let tasks = lines.map(|queue| home.add(queue, 1)[0]);
    let plugins = [listed.as_str(), unlisted.as_str()];
    let active = doc! {"label": "production", "active": true, "plugins": plugins.to_vec()};
    home.mongo.insert("config", active);
    let _den = home.den("one");
    home.reaches(tasks[0], 1);
    home.passes("one", 1);
    assert_eq!([home.status(tasks[1]), home.status(tasks[2])], [-2, -2]);
    assert_eq!(home.notes(), []);
}

#[test]
fn a_released_node_reads_its_file_only() {
    let home = Home::released();
    let queue = home.line(&home.ok(), 5);
    let active = doc! {"label": "production", "active": true, "ignorequeues": [queue.to_hex()]};
    home.mongo.insert("config", active);
    let task = home.add(queue, 1)[0];
    let _den = home.den("one");
    home.reaches(task, 1);
}
