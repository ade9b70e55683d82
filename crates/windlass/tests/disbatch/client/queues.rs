//! `windlass disbatch`: queues and plugins.

use mongodb::bson::doc;
use serde_json::json;

use crate::harness::{DEMO, Home, both, number};

/// The cells of a line of the table.
fn cells(line: &str) -> Vec<String> {
    let cells = line.trim_end().trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned());
    cells.collect()
}

#[test]
fn plugins_are_one_on_a_line() {
    let home = Home::released();
    let dci = home.dci_with(json!({"plugins": ["/bin/false", "/bin/true"]}));
    let told = dci.done(&["plugins"]);
    let mut lines: Vec<&str> = told.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/bin/false", "/bin/true"]);
}

#[test]
fn queues_are_a_table() {
    for home in both() {
        let dci = home.dci();
        let first = home.queue_with("first", doc! {home.dialect.limit(): 10});
        let second = home.queue("second one");
        for status in [-2, -2, 0, 1, 1, 1] {
            home.task(first, status);
        }
        for command in ["queues", "status"] {
            let told = dci.done(&[command]);
            let lines: Vec<&str> = told.lines().filter(|line| !line.trim().is_empty()).collect();
            let head = ["ID", "Plugin", "Name", "Threads", "Queued", "Running", "Completed"];
            assert_eq!(cells(lines[0]), head, "{told}");
            assert!(lines[1].chars().all(|one| "-+".contains(one)), "{told}");
            let mut rows: Vec<Vec<String>> = lines[2..4].iter().map(|line| cells(line)).collect();
            rows.sort();
            let first = [&first.to_hex(), DEMO, "first", "10", "2", "1", "3"];
            let second = [&second.to_hex(), DEMO, "second one", "", "0", "0", "0"];
            assert_eq!(rows[0], first, "{told}");
            assert_eq!(rows[1], second, "{told}");
            assert_eq!(*lines.last().unwrap(), "2 total queues.", "{told}");
            assert_eq!(lines.len(), 5, "{told}");
        }
    }
}

#[test]
fn a_table_of_no_queues_says_so() {
    let home = Home::released();
    let told = home.dci().done(&["queues"]);
    assert!(told.trim_end().ends_with("0 total queues."), "{told}");
}

/// A name may contain characters that move the cursor or end a line.
#[test]
fn names_with_control_characters_do_not_spoil_the_table() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("evil\u{1b}[2J\nname\t|");
    let told = dci.done(&["queues"]);
    assert!(!told.contains('\u{1b}'), "{told:?}");
    assert_eq!(told.lines().filter(|line| !line.trim().is_empty()).count(), 4, "{told:?}");
}

#[test]
fn a_queue_is_created() {
    for home in both() {
        let dci = home.dci();
        let told = dci.done(&["create-queue", "fizz", DEMO]);
        let queue = home.mongo.one("queues", doc! {"name": "fizz"}).unwrap();
        let id = queue.get_object_id("_id").unwrap().to_hex();
        assert_eq!(told, format!("Created queue fizz: {id}\n"));
        assert_eq!(queue.get_str(home.dialect.plugin()).unwrap(), DEMO);
    }
}

#[test]
fn a_queue_that_cannot_be_created_is_told() {
    for home in both() {
        let dci = home.dci();
        let told = dci.refused(&["create-queue", "test", "Disbatch::Plugin::Fake"]);
        assert!(told.contains("Unknown plugin"), "{told}");
        assert!(told.contains("Disbatch::Plugin::Fake"), "{told}");
        for arguments in [&["create-queue"][..], &["create-queue", "test"]] {
            dci.misused(arguments);
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn fields_of_a_queue_are_updated() {
    for home in both() {
        let dci = home.dci();
        let id = home.queue("q");
        let told = dci.done(&["update-queue", "q", "threads", "10"]);
        assert!(told.starts_with("Updated queue q: {\"threads\":"), "{told}");
        assert_eq!(number(home.mongo.get("queues", id).get(home.dialect.limit())), Some(10));
        let told = dci.done(&["update-queue", "q", "threads", "10"]);
        assert!(told.starts_with("No change to queue q"), "{told}");
        let hex = id.to_hex();
        dci.done(&["update-queue", &hex, "name", "new name", "sort", "lifo", "threads", "0"]);
        let stored = home.mongo.get("queues", id);
        assert_eq!(stored.get_str("name").unwrap(), "new name");
        assert_eq!(stored.get_str("sort").unwrap(), "lifo");
        assert_eq!(number(stored.get(home.dialect.limit())), Some(0));
        dci.done(&["update-queue", "new name", "name", "a/b?c#d %20"]);
        assert_eq!(home.mongo.get("queues", id).get_str("name").unwrap(), "a/b?c#d %20");
        dci.done(&["update-queue", "a/b?c#d %20", "name", "12"]);
        assert_eq!(home.mongo.get("queues", id).get_str("name").unwrap(), "12", "a name is text");
    }
}

#[test]
fn updates_that_cannot_be_are_told() {
    for home in both() {
        let dci = home.dci();
        let id = home.queue("q");
        let before = home.mongo.get("queues", id);
        for (arguments, text) in [
            (&["q", "bad", "field"][..], "unknown param"),
            (&["q", "threads", "zero"], "threads must be a non-negative integer or null"),
            (&["q", "plugin", "Fake"], "unknown plugin"),
            (&["q", "sort", "up"], "sort must be"),
        ] {
            let mut all = vec!["update-queue"];
            all.extend(arguments);
            let told = dci.refused(&all);
            assert!(told.contains(text), "{arguments:?}: {told}");
        }
        dci.refused(&["update-queue", "none", "threads", "1"]);
        for arguments in [&["q"][..], &["q", "threads"], &["q", "threads", "1", "sort"], &[]] {
            let mut all = vec!["update-queue"];
            all.extend(arguments);
            dci.misused(&all);
        }
        assert_eq!(home.mongo.get("queues", id), before);
    }
}

#[test]
fn a_queue_is_deleted() {
    for home in both() {
        let dci = home.dci();
        let id = home.queue("fizz");
        home.queue("buzz");
        assert_eq!(dci.done(&["delete-queue", "fizz"]), "Deleted queue fizz\n");
        assert!(home.mongo.one("queues", doc! {"_id": id}).is_none());
        dci.refused(&["delete-queue", "fizz"]);
        dci.misused(&["delete-queue"]);
        assert_eq!(home.mongo.count("queues", doc! {}), 1);
    }
}

#[test]
fn a_queue_with_tasks_is_not_deleted_unasked() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task(queue, -2);
        let told = dci.refused(&["delete-queue", "q"]);
        assert!(told.contains("tasks"), "{told}");
        assert_eq!(home.mongo.count("queues", doc! {}), 1);
        dci.done(&["delete-queue", "q", "--tasks", "delete"]);
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
        let queue = home.queue("kept");
        home.task(queue, -2);
        dci.done(&["delete-queue", "--tasks", "keep", "kept"]);
        assert_eq!(home.mongo.count("tasks", doc! {}), 1);
    }
}

#[test]
fn json_is_printed_for_programs() {
    for home in both() {
        let dci = home.dci();
        assert_eq!(dci.done_json(&["plugins", "--json"]), json!([DEMO]));
        let made = dci.done_json(&["create-queue", "q", DEMO, "--json"]);
        assert!(
            made.to_string().contains(
                &home.mongo.one("queues", doc! {}).unwrap().get_object_id("_id").unwrap().to_hex()
            ),
            "{made}"
        );
        let queues = dci.done_json(&["--json", "queues"]);
        assert_eq!(queues, dci.http.get("/queues").ok());
        let changed = dci.done_json(&["update-queue", "q", "threads", "3", "--json"]);
        assert_eq!(changed["MongoDB::UpdateResult"]["modified_count"], json!(1), "{changed}");
        let deleted = dci.done_json(&["delete-queue", "q", "--json"]);
        assert_eq!(deleted["MongoDB::DeleteResult"]["deleted_count"], json!(1), "{deleted}");
    }
}

#[test]
fn a_failure_is_one_too_when_json_is_asked_for() {
    let home = Home::released();
    let dci = home.dci();
    let ended = dci.client(&["delete-queue", "none", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let ended = dci.client(&["create-queue", "a", "Fake", "--json"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("Unknown plugin"));
}
