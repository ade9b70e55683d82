//! Foreign documents with a wrong type in every field: a clear log line, and the work continues.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};

use crate::harness::{Dialect, Fields, Home, in_both, short_lease, until};

/// A value of each type.
fn odd() -> Vec<Bson> {
    vec![
        Bson::Null,
        Bson::Boolean(true),
        Bson::String("x".into()),
        Bson::String(String::new()),
        Bson::Int32(-7),
        Bson::Int64(i64::MAX),
        Bson::Double(1.5),
        Bson::Double(f64::NAN),
        Bson::Double(f64::INFINITY),
        Bson::Array(vec![Bson::Int32(1)]),
        Bson::Document(doc! {"$gt": ""}),
        Bson::Document(doc! {"$oid": "x"}),
        Bson::Document(doc! {"$date": []}),
        Bson::ObjectId(ObjectId::new()),
        Bson::DateTime(DateTime::from_millis(253_402_300_799_999)),
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0, 255] }),
        Bson::Undefined,
    ]
}

/// Each field of a document in turn gets each odd value, and is missing once. Fields separated by a
/// space get it together.
fn damaged(document: &Document, fields: &[&str]) -> Vec<Document> {
    let mut all = Vec::new();
    for fields in fields {
        for value in odd() {
            let mut one = document.clone();
            for field in fields.split(' ') {
                one.insert(field, value.clone());
            }
            all.push(one);
        }
        let mut without = document.clone();
        for field in fields.split(' ') {
            without.remove(field);
        }
        all.push(without);
    }
    all
}

/// The node is alive and works.
fn still_works(home: &Home, queue: ObjectId) {
    let task = home.add(queue, 1)[0];
    home.reaches(task, 1);
    home.passes("one", 1);
}

#[test]
fn odd_queues_hold_nobody() {
    in_both(|home| {
        let plugin = home.ok();
        let good = home.line(&plugin, 5);
        let whole = doc! {
            "name": "odd", home.dialect.plugin(): &plugin, home.dialect.limit(): 1, "sort": "fifo",
            "windlass": {"holds": [], "priorities": false},
        };
        let fields = [
            "name",
            home.dialect.plugin(),
            home.dialect.limit(),
            "sort",
            "windlass",
            "count_todo count_total",
        ];
        let mut queues = damaged(&whole, &fields);
        for (at, queue) in queues.iter_mut().enumerate() {
            // Names are unique in the released dialect.
            if queue.text("name") == Some("odd") {
                queue.insert("name", format!("odd-{at}"));
            }
        }
        let mut named = std::collections::HashSet::new();
        queues.retain(|queue| {
            let name = queue.get("name").filter(|name| !matches!(name, Bson::Undefined));
            let name = name.unwrap_or(&Bson::Null);
            home.dialect == Dialect::Seed || named.insert(format!("{name:?}"))
        });
        let queues: Vec<ObjectId> =
            queues.into_iter().map(|queue| home.mongo.insert("queues", queue)).collect();
        let tasks: Vec<ObjectId> = queues.iter().map(|queue| home.task(*queue, -2)).collect();
        let mut den = home.den("one");
        still_works(&home, good);
        until("every task is queued or done", || {
            let left = home.mongo.count_now("tasks", doc! {"status": {"$in": [-1, 0]}});
            left == 0
        });
        let done = tasks.iter().filter(|task| home.status(**task) == 1).count();
        assert!(done > 0, "a queue whose `sort` is odd runs");
        assert!(den.alive());
        // A limit that is not a number is ignored.
        for (queue, task) in queues.iter().zip(&tasks) {
            let queue = home.mongo.get("queues", *queue);
            let limit = queue.get(home.dialect.limit());
            if matches!(limit, Some(Bson::String(_) | Bson::Array(_) | Bson::Document(_))) {
                assert_eq!(home.status(*task), -2, "{queue}");
            }
        }
        assert!(den.console().contains(home.dialect.limit()), "{}", den.console());
    });
}

#[test]
fn odd_tasks_hold_nobody_and_none_is_stuck() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let good = home.line(&home.ok(), 1);
        let whole = doc! {
            "queue": queue, "status": -2, "node": home.dialect.nobody(),
            home.dialect.params(): {"a": 1}, "ctime": DateTime::now(), "mtime": DateTime::now(),
            "stdout": null, "stderr": null, "windlass": {"priority": 1},
        };
        let fields = [
            "queue",
            "status",
            "node",
            home.dialect.params(),
            "ctime mtime stdout stderr",
            "windlass",
        ];
        let tasks = damaged(&whole, &fields);
        let tasks: Vec<ObjectId> =
            tasks.into_iter().map(|task| home.mongo.insert("tasks", task)).collect();
        let mut den = home.den("one");
        still_works(&home, good);
        until("none is being worked on", || home.active(queue) == 0);
        home.passes("one", 1);
        // A task whose `windlass` is not a document cannot be claimed, and that is logged.
        let open = doc! {"queue": queue, "status": -2, "node": home.dialect.nobody()};
        let is_ours = |task: &Document| {
            let own = task.get("windlass");
            own.is_some() && own.and_then(Bson::as_document).is_none()
        };
        until("all that can be claimed have ended", || {
            home.mongo.all("tasks", open.clone()).iter().all(is_ours)
        });
        for task in home.mongo.all("tasks", open) {
            let id = task.oid("_id").unwrap().to_hex();
            assert!(den.console().contains(&id), "{task}");
        }
        assert!(den.alive());
        // Invalid parameters end their task with a reason; dates and outputs do not matter.
        for task in tasks {
            let task = home.mongo.get("tasks", task);
            let (status, params) = (task.int("status"), task.get(home.dialect.params()));
            let none = matches!(params, None | Some(Bson::Null | Bson::Undefined));
            if matches!(status, Some(1 | 2)) && !none {
                let good = matches!(params, Some(Bson::Document(_)));
                assert_eq!(status, Some(if good { 1 } else { 2 }), "{task}");
            }
            if status == Some(2) {
                assert_eq!(task.text("stdout"), Some("Unable to start"), "{task}");
                assert!(!task.text("stderr").unwrap_or_default().is_empty(), "{task}");
            }
        }
        let done = home.mongo.count_now("tasks", doc! {"queue": queue, "status": 1});
        assert!(done > odd().len() as u64, "{done}");
    });
}

#[test]
fn odd_tasks_of_other_nodes_are_left_alone() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let whole = doc! {
            "queue": queue, "status": 0, "node": "elsewhere", home.dialect.params(): {"a": 1},
            "ctime": DateTime::now(), "mtime": DateTime::now(), "stdout": null, "stderr": null,
        };
        let fields = ["queue", "node", home.dialect.params(), "ctime mtime stdout", "windlass"];
        let tasks: Vec<ObjectId> = damaged(&whole, &fields)
            .into_iter()
            .map(|task| home.mongo.insert("tasks", task))
            .collect();
        let before: Vec<Document> = tasks.iter().map(|id| home.mongo.get("tasks", *id)).collect();
        // Foreign running tasks count against the limit of a released queue.
        let free = home.line(&home.ok(), 9);
        let _den = home.den("one");
        still_works(&home, free);
        home.passes("one", 2);
        let after: Vec<Document> = tasks.iter().map(|id| home.mongo.get("tasks", *id)).collect();
        assert_eq!(format!("{after:?}"), format!("{before:?}"));
    });
}

#[test]
fn odd_nodes_hold_nobody() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let whole = doc! {
            "timestamp": DateTime::now(), "maxthreads": 1, "queues": [],
            "windlass": {"boot": "x", "beat": 1, "pid": 1, "host": "y"},
        };
        let fields = ["timestamp", "maxthreads", "queues", "windlass"];
        for (at, mut node) in damaged(&whole, &fields).into_iter().enumerate() {
            node.insert("node", format!("odd-{at}"));
            home.mongo.insert("nodes", node);
        }
        for value in odd() {
            if value != Bson::Undefined {
                home.mongo.insert("nodes", doc! {"node": value});
            }
        }
        let mut den = home.den("one");
        still_works(&home, queue);
        home.passes("one", 2);
        assert!(den.alive());
    });
}

/// Our fields in entries of nodes that are gone: their tasks are found anyway.
#[test]
fn odd_fields_of_ours_in_entries_hide_no_dead_node() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 99);
        let whole = doc! {
            "boot": "x", "beat": 1, "pid": 1, "fence": 1, "host": "y", "orphan_after": 1.0,
            "version": "1",
        };
        let fields = ["beat", "pid fence host version"];
        let mut dead = Vec::new();
        for (at, mut own) in damaged(&whole, &fields).into_iter().enumerate() {
            let (node, boot) = (format!("odd-{at}"), format!("boot-{at}"));
            own.insert("boot", &boot);
            let entry = doc! {"node": &node, "timestamp": DateTime::now(), "windlass": own};
            home.mongo.insert("nodes", entry);
            let held = doc! {"node": &node, "windlass": {"boot": &boot, "node": &node, "run": "r"}};
            dead.push(home.task_with(queue, 0, held));
        }
        // How long they may be silent is up to them, if it is a valid time.
        for (at, own) in damaged(&whole, &["orphan_after"]).into_iter().enumerate() {
            let entry = doc! {"node": format!("slow-{at}"), "windlass": own};
            home.mongo.insert("nodes", entry);
        }
        let free = home.line(&home.ok(), 9);
        let mut den = home.den_with("one", short_lease());
        home.all_reach(&dead, -6);
        still_works(&home, free);
        assert!(den.alive());
    });
}

/// Its own entry: an invalid limit is logged, and nothing runs that might be too much.
#[test]
fn an_odd_limit_of_the_node_itself_is_told() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let entry = doc! {"node": "one", "timestamp": "yesterday", "maxthreads": "many"};
        let entry = home.mongo.insert("nodes", entry);
        let task = home.add(queue, 1)[0];
        let mut den = home.den("one");
        home.passes("one", 1);
        assert_eq!(home.status(task), -2);
        assert!(den.console().contains("maxthreads"), "{}", den.console());
        home.mongo.set("nodes", entry, doc! {"maxthreads": Bson::Null});
        home.reaches(task, 1);
        assert!(den.alive());
    });
}

#[test]
fn a_limit_may_be_any_type_of_number() {
    in_both(|home| {
        let plugin = home.ok();
        let limits = [Bson::Int32(1), Bson::Int64(1), Bson::Double(1.0)];
        let queues =
            limits.map(|limit| home.line_with(&plugin, doc! {home.dialect.limit(): limit}));
        let tasks = queues.map(|queue| home.add(queue, 2));
        let entry = doc! {"node": "one", "timestamp": DateTime::now(), "maxthreads": 2.0};
        home.mongo.insert("nodes", entry);
        let _den = home.den("one");
        for of_queue in tasks {
            home.all_reach(&of_queue, 1);
        }
    });
}

#[test]
fn odd_documents_of_the_config_collection_hold_nobody() {
    let home = Home::seed();
    let queue = home.line(&home.ok(), 9);
    let whole = doc! {
        "label": "production", "activequeues": [], "ignorequeues": [], "plugins": [],
    };
    for mut document in damaged(&whole, &["activequeues", "ignorequeues", "plugins", "log4perl"]) {
        document.insert("label", format!("label-{}", fastrand::u64(..)));
        home.mongo.insert("config", document);
    }
    let active = doc! {
        "label": "odd", "active": true, "activequeues": "all", "ignorequeues": 5, "plugins": true,
    };
    home.mongo.insert("config", active);
    let mut den = home.den("one");
    still_works(&home, queue);
    assert!(den.alive());
}

/// It is as large as a document may be, so not even a claim can be written into it.
#[test]
fn a_task_that_cannot_be_changed_keeps_no_other_queue_waiting() {
    const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;
    in_both(|home| {
        let [full, good] = [(); 2].map(|()| home.line(&home.ok(), 1));
        let small = home.task(full, -2);
        let bytes = home.mongo.get("tasks", small).to_vec().unwrap().len();
        let pad = "x".repeat(DOCUMENT_BYTES_MAX - bytes - 30);
        home.mongo.set("tasks", small, doc! {"pad": pad});
        let mut den = home.den("one");
        let tasks = home.add(good, 2);
        home.all_reach(&tasks, 1);
        assert_eq!(home.status(small), -2);
        assert!(den.alive());
        until("it is told", || den.console().contains("cannot claim tasks of the queue"));
    });
}
