//! The config file of an interface, and its dialect.

use std::fs;

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::harness::{DEMO, Dci, Home, Program, windlass};

/// A home whose config leaves the dialect to the contents of the database.
fn undecided(home: &Home) -> Dci {
    let mut config = home.config();
    config.as_object_mut().unwrap().remove("dialect");
    home.dci_of(&config)
}

/// The fields of a queue that this interface creates.
fn made(home: &Home, dci: &Dci) -> Vec<String> {
    let name = format!("made-{:08x}", fastrand::u32(..));
    let body = json!({"name": name, "plugin": DEMO, "threads": 1});
    dci.http.post("/queues", &body).ok();
    let queue = home.mongo.one("queues", doc! {"name": name}).unwrap();
    let known = ["constructor", "plugin", "maxthreads", "threads"];
    known.into_iter().filter(|key| queue.contains_key(key)).map(str::to_owned).collect()
}

#[test]
fn a_new_database_has_the_first_dialect() {
    let home = Home::seed();
    let dci = undecided(&home);
    assert_eq!(made(&home, &dci), ["constructor", "maxthreads"]);
    let queue = home.queue("q");
    let task = dci.http.post("/tasks", &json!({"queue": "q", "params": {"a": 1}})).ok();
    assert!(task["MongoDB::InsertManyResult"].is_object());
    let task = home.mongo.one("tasks", doc! {"queue": queue}).unwrap();
    assert!(task.contains_key("parameters"), "{task}");
}

#[test]
fn the_dialect_is_told_by_what_stands_in_the_database() {
    for (queue, wanted) in [
        (doc! {"name": "q", "constructor": DEMO}, ["constructor", "maxthreads"]),
        (doc! {"name": "q", "count_todo": 0, "plugin": DEMO}, ["constructor", "maxthreads"]),
        (doc! {"name": "q", "plugin": DEMO, "threads": 5}, ["plugin", "threads"]),
        (doc! {"name": "q", "plugin": DEMO}, ["plugin", "threads"]),
    ] {
        let home = Home::released();
        home.mongo.insert("queues", queue.clone());
        let dci = undecided(&home);
        assert_eq!(made(&home, &dci), wanted, "{queue}");
    }
}

/// A foreign interface may fill a database that was empty when ours started.
#[test]
fn the_dialect_is_told_anew_when_an_empty_database_is_filled() {
    let home = Home::released();
    let dci = undecided(&home);
    dci.http.get("/queues").ok();
    home.mongo.insert("queues", doc! {"name": "q", "plugin": DEMO, "threads": 5});
    crate::harness::until("the dialect is seen", || {
        let read = dci.http.get("/queues/q").ok();
        read["threads"] == json!(5) && read.get("maxthreads").is_none()
    });
    assert_eq!(made(&home, &dci), ["plugin", "threads"]);
}

#[test]
fn the_config_decides_against_the_database() {
    let home = Home::released();
    home.mongo.insert("queues", doc! {"name": "q", "constructor": DEMO, "count_todo": 0});
    assert_eq!(made(&home, &home.dci()), ["plugin", "threads"]);
}

#[test]
fn comments_and_trailing_commas_are_taken() {
    let home = Home::released();
    let config = home.config();
    let file = home.path("relaxed.json");
    let text = format!(
        "# a comment\n{{\n  \"mongohost\": {}, # another, with \"quotes\"\n  \"database\": {},\n  \
         \"listen\": {},\n  \"dialect\": \"released\",\n  \
         \"plugins\": [\"/bin/true\", \"/bin/#false\",],\n}}\n# the end",
        config["mongohost"], config["database"], config["listen"],
    );
    fs::write(&file, text).unwrap();
    let command = windlass(&["dci", "--config", file.to_str().unwrap()]);
    let mut program = Program::spawn(command, home.folder());
    let port = config["listen"].as_str().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    crate::harness::until("the interface listens", || {
        assert!(program.alive(), "it ended: {}", program.console());
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let mut plugins = crate::harness::Http::new(port).get("/plugins").ok();
    plugins.as_array_mut().unwrap().sort_by_key(ToString::to_string);
    assert_eq!(plugins, json!(["/bin/#false", "/bin/true"]));
}

#[test]
fn a_config_of_the_original_is_taken() {
    // A list before 4.4, and an object since then.
    for plugins in [json!(["Disbatch::Plugin::Demo"]), json!({"Disbatch::Plugin::Demo": 1})] {
        let home = Home::released();
        let dci = home.dci_with(json!({
            "attributes": {},
            "auth": null,
            "plugins": plugins,
            "monitoring": 1,
            "balance": {"log": 1, "verbose": 0, "pretend": 0, "enabled": 0},
            "web_extensions": {"Disbatch::Web::V3": null},
            "pre_hook": null,
            "node_increase": 5,
            "queue_increase": 2,
            "task_runner": "/usr/bin/task_runner",
            "plugin_runner": "/usr/bin/task_runner",
            "temp_dir": home.path("temp"),
            "temp_dir_mode": "0755",
            "gfs": "auto",
            "quiet": false,
            "testing": 1,
            "views_dir": "/etc/disbatch/views/",
            "activequeues": [],
            "ignorequeues": [],
            "log4perl": {"level": "TRACE", "appenders": {"filelog": {"type": "x", "args": {}}}},
        }));
        assert_eq!(dci.http.get("/plugins").ok(), json!(["Disbatch::Plugin::Demo"]));
    }
}

#[test]
fn mandatory_keys_are_asked_for_by_name() {
    let home = Home::released();
    for key in ["mongohost", "database"] {
        let mut config = home.config();
        config.as_object_mut().unwrap().remove(key);
        let told = home.dci_refused(&config);
        assert!(told.contains(key), "{key}: {told}");
    }
}

#[test]
fn keys_of_a_wrong_type_are_named() {
    let home = Home::released();
    for (key, value) in [
        ("mongohost", json!(5)),
        ("mongohost", json!("http://example.com")),
        ("mongohost", json!("")),
        ("database", json!([])),
        ("database", json!("")),
        ("database", json!("a b/c")),
        ("listen", json!(8080)),
        ("listen", json!("nonsense")),
        ("listen", json!("127.0.0.1:99999")),
        ("dialect", json!("perl")),
        ("dialect", json!(4)),
        ("plugins", json!("Demo")),
        ("plugins", json!([5])),
        ("plugins", json!({"Demo": 5})),
        ("plugins", json!({"Demo": {"program": "relative/path"}})),
        ("plugins", json!({"Demo": {"program": "/bin/true", "type": "perl"}})),
        ("plugins", json!({"Demo": {"program": "/bin/true", "timeout": -5}})),
        ("web_root", json!(5)),
        ("dashboard", json!("x")),
        ("dashboard", json!({"live_window_ms": -1})),
        ("balance", json!("x")),
        ("web_extensions", json!("x")),
        ("task_collections", json!("users")),
    ] {
        let mut config = home.config();
        config[key] = value.clone();
        let told = home.dci_refused(&config);
        assert!(told.contains(key), "{key} {value}: {told}");
        assert!(!told.contains("panicked"), "{told}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let home = Home::released();
    let broken = home.path("broken.json");
    fs::write(&broken, "{\"mongohost\": ").unwrap();
    let list = home.path("list.json");
    fs::write(&list, "[]").unwrap();
    for file in ["/nonexistent/config.json", broken.to_str().unwrap(), list.to_str().unwrap()] {
        let mut program = Program::spawn(windlass(&["dci", "--config", file]), home.folder());
        assert!(!program.ended().success());
        let told = program.console();
        assert!(told.contains(file), "{told}");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let home = Home::released();
    let first = home.dci();
    let mut config = home.config();
    config["listen"] = json!(format!("127.0.0.1:{}", first.port));
    let told = home.dci_refused(&config);
    assert!(told.contains(&first.port.to_string()), "{told}");
}

#[test]
fn several_interfaces_share_a_database() {
    let home = Home::released();
    let (one, two) = (home.dci(), home.dci());
    one.http.post("/queues", &json!({"name": "q", "plugin": DEMO})).ok();
    let read: Value = two.http.get("/queues").ok();
    assert_eq!(read, one.http.get("/queues").ok());
    assert_eq!(read.as_array().unwrap().len(), 1);
}
