//! Next to foreign programs: we write what they know, and our own fields are below one field.

use std::collections::BTreeSet;

use mongodb::bson::{Document, doc};

use crate::harness::{Dialect, Fields, Foreign, in_both, until};

fn keys(document: &Document) -> BTreeSet<&str> {
    document.keys().map(String::as_str).collect()
}

/// The script of the foreign node follows the seed, without any of our code.
#[test]
fn the_scripted_foreign_node_works_alone() {
    in_both(|home| {
        let queue = home.line("Any::Plugin", 2);
        let tasks = home.add(queue, 5);
        let _foreign = Foreign::start(&home, "foreign");
        home.all_reach(&tasks, 1);
        assert_eq!(home.notes().len(), 10);
        assert!(home.entry("foreign").date("timestamp").is_some());
    });
}

#[test]
fn our_documents_have_the_known_fields_and_one_of_ours() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 2);
        let tasks = home.add(queue, 2);
        let _den = home.den("one");
        home.all_reach(&tasks, 1);
        home.passes("one", 1);
        let seed = home.dialect == Dialect::Seed;
        let mut task = BTreeSet::from([
            "_id", "queue", "status", "node", "ctime", "mtime", "stdout", "stderr", "complete",
            "cmdExit", "cmdErr", "windlass",
        ]);
        task.insert(home.dialect.params());
        let mut node = BTreeSet::from(["_id", "node", "timestamp", "windlass"]);
        let mut line = BTreeSet::from(["_id", "name", "windlass"]);
        line.extend([home.dialect.plugin(), home.dialect.limit()]);
        if seed {
            node.insert("queues");
            line.extend(["count_todo", "count_total"]);
        }
        let found = home.mongo.get("tasks", tasks[0]);
        assert!(keys(&found).is_subset(&task), "{found}");
        let found = home.entry("one");
        assert!(keys(&found).is_subset(&node), "{found}");
        let found = home.mongo.get("queues", queue);
        assert!(keys(&found).is_subset(&line), "{found}");
        let collections = ["results", "tasks.files", "tasks.chunks"];
        assert_eq!(collections.map(|name| home.mongo.count(name, doc! {})), [0; 3]);
    });
}

/// A foreign node and ours at the same time, without kills: each task runs once, and both get some.
#[test]
fn ours_and_a_foreign_node_share_a_queue() {
    in_both(|home| {
        let queue = home.line(&home.plugin("default", "note start; note end; say 1 ours"), 2);
        let _den = home.den("one");
        let _foreign = Foreign::start(&home, "foreign");
        let mut tasks = Vec::new();
        until("both have had some", || {
            let more = home.add(queue, 6);
            home.all_reach(&more, 1);
            tasks.extend(more);
            [("one", "ours"), ("foreign", "foreign")].iter().all(|(node, stdout)| {
                home.mongo.count("tasks", doc! {"node": *node, "stdout": *stdout}) > 0
            })
        });
        let mut starts: Vec<_> = home
            .notes()
            .into_iter()
            .filter(|(word, _)| word == "start")
            .map(|(_, task)| task)
            .collect();
        starts.sort();
        assert_eq!(starts, tasks);
    });
}
