//! A node's entry in the network: its document, its indexes, its name, the detected dialect.

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::json;

use crate::harness::{DEMO, Dialect, Fields, Home, in_both, until};

/// The indexes that every node needs: the collection, its keys, whether they are unique.
fn wanted() -> Vec<(&'static str, Document, bool)> {
    vec![
        ("tasks", doc! {"node": 1, "status": 1, "queue": 1}, false),
        ("tasks", doc! {"node": 1, "status": 1, "queue": 1, "_id": 1}, false),
        ("tasks", doc! {"node": 1, "status": 1, "queue": 1, "_id": -1}, false),
        ("tasks", doc! {"queue": 1, "status": 1}, false),
        ("nodes", doc! {"node": 1}, true),
        ("changelog", doc! {"collection": 1}, false),
        ("tasks.chunks", doc! {"files_id": 1, "n": 1}, true),
        ("tasks.files", doc! {"filename": 1, "metadata.task_id": 1}, false),
        ("tasks.files", doc! {"filename": 1, "uploadDate": 1}, false),
    ]
}

/// Numbers of any type as they are written.
fn plain(keys: &Document) -> Vec<(String, i64)> {
    let number = |value: &Bson| match value {
        Bson::Int32(number) => i64::from(*number),
        Bson::Int64(number) => *number,
        Bson::Double(number) if *number > 0.0 => 1,
        Bson::Double(_) => -1,
        other => panic!("{other:?}"),
    };
    keys.iter().map(|(key, value)| (key.clone(), number(value))).collect()
}

#[test]
fn a_node_enters_and_renews_its_entry() {
    in_both(|home| {
        let began = DateTime::now();
        let _den = home.den("one");
        let entry = home.entry("one");
        let first = *entry.get_datetime("timestamp").unwrap();
        assert!(first.timestamp_millis() >= began.timestamp_millis() - 60_000, "{entry}");
        until("the timestamp is renewed", || {
            home.entry("one").get_datetime("timestamp").unwrap() > &first
        });
        assert_eq!(home.mongo.count("nodes", doc! {}), 1);
        assert!(!home.entry("one").contains_key("maxthreads"));
    });
}

#[test]
fn the_first_entry_goes_to_the_changelog() {
    let home = Home::released();
    let _den = home.den("one");
    home.passes("one", 1);
    let logged = home.mongo.all("changelog", doc! {"collection": "nodes"});
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert_eq!(logged[0].text("node"), Some("one"));
    let id = home.entry("one").get_object_id("_id").unwrap();
    assert_eq!(logged[0].oid("id"), Some(id));
}

#[test]
fn a_seed_node_reports_its_queues() {
    let home = Home::seed();
    let gated = home.gated();
    let counts = doc! {"name": "demo", "maxthreads": 1, "sort": "fifo"};
    let queue = home.line_with(&gated, counts);
    let tasks = home.add(queue, 3);
    let _den = home.den("one");
    home.began(tasks[0]);
    home.open(tasks[0]);
    home.began(tasks[1]);
    let texts = [("name", "demo"), ("id", &queue.to_hex()), ("constructor", &gated)];
    let numbers = [
        ("maxthreads", 1),
        ("tasks_todo", 1),
        ("tasks_doing", 1),
        ("tasks_done", 1),
        ("preemptive", 1),
        ("tasks_backfill", 0),
    ];
    until("the report is right", || {
        let entry = home.entry("one");
        let Ok(reports) = entry.get_array("queues") else { return false };
        let [Bson::Document(report)] = &reports[..] else { return false };
        assert_eq!(report.len(), texts.len() + numbers.len(), "{report}");
        texts.iter().all(|(key, text)| report.text(key) == Some(text))
            && numbers.iter().all(|(key, number)| report.int(key) == Some(*number))
    });
    home.open_all();
}

#[test]
fn a_released_node_reports_no_queues() {
    let home = Home::released();
    home.line(&home.ok(), 1);
    let _den = home.den("one");
    home.passes("one", 1);
    assert!(!home.entry("one").contains_key("queues"));
}

#[test]
fn what_others_write_into_an_entry_is_kept() {
    in_both(|home| {
        let _den = home.den("one");
        let id = home.entry("one").get_object_id("_id").unwrap();
        home.mongo.set("nodes", id, doc! {"maxthreads": 7, "rack": "b4"});
        home.passes("one", 2);
        let entry = home.entry("one");
        assert_eq!(entry.int("maxthreads"), Some(7));
        assert_eq!(entry.text("rack"), Some("b4"));
        assert_eq!(entry.oid("_id"), Some(id));
    });
}

#[test]
fn an_old_entry_of_the_same_name_is_taken_over_with_its_limit() {
    in_both(|home| {
        let old = doc! {"node": "one", "timestamp": DateTime::from_millis(0), "maxthreads": 3};
        let id = home.mongo.insert("nodes", old);
        let _den = home.den("one");
        let entry = home.entry("one");
        assert_eq!(entry.oid("_id"), Some(id));
        assert_eq!(entry.int("maxthreads"), Some(3));
        assert!(entry.get_datetime("timestamp").unwrap().timestamp_millis() > 0);
    });
}

#[test]
fn the_name_of_a_node_is_that_of_its_host_unless_it_has_one() {
    let home = Home::seed();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut den = home.den_unentered("", json!({"node": null}));
    home.entered(host.trim(), &mut den);
}

#[test]
fn two_processes_never_have_the_same_name() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 5);
        let mut first = home.den("one");
        let mut second = home.den_unentered("one", json!({}));
        let tasks = home.add(queue, 2);
        home.began(tasks[0]);
        home.began(tasks[1]);
        home.passes("one", 2);
        assert!(first.alive());
        let pid = home.entry("one").get_document("windlass").unwrap().get("pid").cloned();
        let pid = pid.and_then(|pid| pid.as_i64().or(pid.as_i32().map(i64::from)));
        assert_eq!(pid, Some(i64::from(first.pid())), "{}", second.console());
        home.open_all();
        home.all_reach(&tasks, 1);
        first.stop();
        if second.alive() {
            home.entered("one", &mut second);
        } else {
            assert!(second.console().contains("one"), "{}", second.console());
        }
    });
}

#[test]
fn the_name_of_a_dead_node_is_taken_over_whatever_its_entry_lacks() {
    in_both(|home| {
        home.den("one").kill();
        let beat = doc! {"$unset": {"windlass.beat": ""}};
        home.mongo.update_many("nodes", doc! {"node": "one"}, beat);
        let _again = home.den("one");
    });
}

#[test]
fn the_indexes_are_made() {
    in_both(|home| {
        home.queue("one");
        let _den = home.den("one");
        for (collection, keys, unique) in wanted() {
            let found = home.mongo.indexes(collection);
            let wanted = (plain(&keys), unique);
            assert!(
                found.iter().any(|(keys, unique)| (plain(keys), *unique) == wanted),
                "{collection} has no {keys}: {found:?}"
            );
        }
        let names = home.mongo.indexes("queues");
        let unique = names.iter().any(|(keys, unique)| keys.contains_key("name") && *unique);
        assert_eq!(unique, home.dialect == Dialect::Released, "{names:?}");
    });
}

#[test]
fn names_of_seed_queues_need_not_be_unique() {
    let home = Home::seed();
    let plugin = home.ok();
    let queues = [(); 2].map(|()| home.line_with(&plugin, doc! {"name": "same", "maxthreads": 1}));
    let tasks = queues.map(|queue| home.add(queue, 1)[0]);
    let _den = home.den("one");
    home.all_reach(&tasks, 1);
}

#[test]
fn an_index_that_cannot_be_made_ends_the_node() {
    in_both(|home| {
        home.mongo.insert_many("nodes", vec![doc! {"node": "twice"}, doc! {"node": "twice"}]);
        let mut den = home.den_unentered("one", json!({}));
        assert_eq!(den.ended().code(), Some(1));
        assert!(den.console().contains("nodes"), "{}", den.console());
        assert_eq!(home.mongo.count("nodes", doc! {"node": "one"}), 0);
    });
}

#[test]
fn the_dialect_is_told_by_what_is_there() {
    let home = Home::new(Dialect::Seed);
    let unset = json!({"dialect": null});
    let queue = doc! {"name": "q", "constructor": DEMO};
    home.mongo.insert("queues", queue);
    let _seed = home.den_with("one", unset.clone());
    until("it reports", || home.entry("one").contains_key("queues"));
    let home = Home::new(Dialect::Released);
    home.mongo.insert("queues", doc! {"name": "q", "plugin": DEMO, "threads": 1});
    let _released = home.den_with("one", unset.clone());
    home.passes("one", 1);
    assert!(!home.entry("one").contains_key("queues"));
    // An empty database counts as the seed's until a program writes something else.
    let home = Home::new(Dialect::Released);
    let plugin = home.ok();
    let _empty = home.den_with("one", unset);
    until("it reports", || home.entry("one").contains_key("queues"));
    let queue = home.line(&plugin, 1);
    let task = home.add(queue, 1)[0];
    let ended = home.reaches(task, 1);
    assert!(!home.mongo.get("queues", queue).contains_key("count_todo"), "{ended}");
}
