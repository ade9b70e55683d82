//! Which tasks a node claims, in which order, and what it leaves alone.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, doc};
use serde_json::json;

use crate::harness::{Dialect, Fields, Home, in_both};

/// The tasks in the order in which they ran.
fn order(home: &Home) -> Vec<ObjectId> {
    home.notes().into_iter().map(|(_, task)| task).collect()
}

#[test]
fn a_claimed_task_is_the_nodes_and_runs() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let task = home.add(queue, 1)[0];
        let before = home.mongo.get("tasks", task);
        let _den = home.den("one");
        home.began(task);
        let running = home.reaches(task, 0);
        assert_eq!(running.text("node"), Some("one"));
        assert_eq!(running.date("ctime"), before.date("ctime"));
        let params = home.dialect.params();
        assert_eq!(running.get(params), before.get(params));
        assert_eq!(running.get("stdout"), Some(&Bson::Null));
        home.open(task);
        let ended = home.reaches(task, 1);
        assert_eq!(ended.text("node"), Some("one"));
        assert_eq!(ended.text("stdout"), Some("out"));
        assert_eq!(ended.text("stderr"), Some("err"));
    });
}

#[test]
fn fifo_and_lifo_are_kept() {
    in_both(|home| {
        let plugin = home.plugin("default", "note ran; say 1");
        let limit = home.dialect.limit();
        for (sort, turned) in [("fifo", false), ("lifo", true)] {
            let queue = home.line_with(&plugin, doc! {limit: 1, "sort": sort});
            let mut tasks = home.add(queue, 4);
            let mut den = home.den(sort);
            home.all_reach(&tasks, 1);
            den.stop();
            if turned {
                tasks.reverse();
            }
            let ran: Vec<_> = order(&home).into_iter().filter(|id| tasks.contains(id)).collect();
            assert_eq!(ran, tasks, "{sort}");
        }
    });
}

#[test]
fn any_other_order_runs_all_and_an_unknown_one_is_told() {
    in_both(|home| {
        let plugin = home.ok();
        let limit = home.dialect.limit();
        let sorts: [Bson; 4] = ["default".into(), Bson::Null, "random".into(), Bson::Int32(3)];
        let queues = sorts.map(|sort| home.line_with(&plugin, doc! {limit: 1, "sort": sort}));
        let tasks: Vec<_> = queues.iter().flat_map(|queue| home.add(*queue, 2)).collect();
        let den = home.den("one");
        home.all_reach(&tasks, 1);
        assert!(den.console().contains("random"), "{}", den.console());
    });
}

#[test]
fn both_marks_of_an_unclaimed_task_are_taken() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        let marks = [Bson::Null, Bson::Int32(-1), Bson::Int64(-1), Bson::Double(-1.0)];
        let tasks = marks.map(|node| home.task_with(queue, -2, doc! {"node": node}));
        let _den = home.den("one");
        home.all_reach(&tasks, 1);
    });
}

#[test]
fn parked_tasks_and_those_of_others_are_left_alone() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        let mut left: Vec<_> = [-3, -4, -5, -6, -7, -100]
            .into_iter()
            .map(|status| (home.task(queue, status), status))
            .collect();
        left.push((home.task_with(queue, -2, doc! {"node": "elsewhere"}), -2));
        left.push((home.task(queue, 0), 0));
        left.push((home.task(queue, 1), 1));
        left.push((home.task(queue, 7), 7));
        left.push((home.task(ObjectId::new(), -2), -2));
        let before: Vec<_> = left.iter().map(|(id, _)| home.mongo.get("tasks", *id)).collect();
        let good = home.add(queue, 1)[0];
        let _den = home.den("one");
        home.reaches(good, 1);
        home.passes("one", 1);
        let after: Vec<_> = left.iter().map(|(id, _)| home.mongo.get("tasks", *id)).collect();
        assert_eq!(after, before);
    });
}

#[test]
fn active_queues_are_the_only_ones_and_ignored_ones_are_not() {
    in_both(|home| {
        let plugin = home.ok();
        let (one, two) = (home.line(&plugin, 5), home.line(&plugin, 5));
        let serves = |keys: serde_json::Value, good: ObjectId, other: ObjectId| {
            let (wanted, left) = (home.add(good, 1)[0], home.add(other, 1)[0]);
            let name = format!("node-{wanted}");
            let mut den = home.den_with(&name, keys);
            home.reaches(wanted, 1);
            home.passes(&name, 1);
            assert_eq!(home.status(left), -2);
            home.mongo.delete("tasks", left);
            den.stop();
        };
        let (first, second) = (one.to_hex(), two.to_hex());
        serves(json!({"activequeues": [first]}), one, two);
        serves(json!({"ignorequeues": [first]}), two, one);
        serves(json!({"activequeues": [second], "ignorequeues": [second]}), two, one);
    });
}

#[test]
fn a_plugin_that_is_not_listed_leaves_its_tasks_queued() {
    in_both(|home| {
        let unlisted = home.program("note ran; say 1");
        let plugins = [&unlisted, "Disbatch::Plugin::Unknown", "rm -rf /", "", "../../bin/true"];
        let left = plugins.map(|plugin| home.add(home.line(plugin, 5), 1)[0]);
        let good = home.add(home.line(&home.ok(), 5), 1)[0];
        let den = home.den("one");
        home.reaches(good, 1);
        home.passes("one", 1);
        assert_eq!(left.map(|task| home.status(task)), [-2; 5]);
        assert_eq!(home.notes(), []);
        assert!(den.console().contains("Disbatch::Plugin::Unknown"), "{}", den.console());
        // Logged once, not in every pass.
        let said = den.console().matches("Disbatch::Plugin::Unknown").count();
        assert!(said <= 2, "{}", den.console());
    });
}

#[test]
fn a_program_that_is_not_there_leaves_its_tasks_queued_until_it_is() {
    in_both(|home| {
        let plugin = home.ok();
        let away = format!("{plugin}-away");
        std::fs::rename(&plugin, &away).unwrap();
        let task = home.add(home.line(&plugin, 5), 1)[0];
        let _den = home.den("one");
        home.passes("one", 1);
        assert_eq!(home.status(task), -2);
        std::fs::rename(&away, &plugin).unwrap();
        home.reaches(task, 1);
    });
}

#[test]
fn plugins_are_listed_as_paths_or_by_names_that_stand_for_programs() {
    in_both(|home| {
        let (listed, other) = (home.program("say 1 listed"), home.program("say 1 other"));
        let task = home.add(home.line(&listed, 5), 1)[0];
        let left = home.add(home.line(&other, 5), 1)[0];
        let mut den = home.den_with("list", json!({"plugins": [listed]}));
        assert_eq!(home.reaches(task, 1).text("stdout"), Some("listed"));
        home.passes("list", 1);
        assert_eq!(home.status(left), -2);
        den.stop();
        let named = home.add(home.line("Disbatch::Plugin::Demo", 5), 1)[0];
        let map = json!({"Disbatch::Plugin::Demo": {"program": other, "type": "nomongo"}});
        let _den = home.den_with("map", json!({"plugins": map}));
        assert_eq!(home.reaches(named, 1).text("stdout"), Some("other"));
        assert_eq!(home.status(left), -2);
    });
}

#[test]
fn a_queue_in_the_other_dialects_words_is_read() {
    in_both(|home| {
        let other = match home.dialect {
            Dialect::Seed => Dialect::Released,
            Dialect::Released => Dialect::Seed,
        };
        let plugin = home.plugin("default", "cp \"$task\" \"$home/$id.json\"; gate; say 1");
        let queue = doc! {
            "name": "q", other.plugin(): &plugin, other.limit(): 1, "sort": "fifo",
        };
        let queue = home.mongo.insert("queues", queue);
        let task = doc! {
            "queue": queue, "status": -2, "node": other.nobody(), other.params(): {"a": 1},
            "ctime": DateTime::now(), "mtime": DateTime::now(), "stdout": null, "stderr": null,
        };
        let tasks = [(); 2].map(|()| home.mongo.insert("tasks", task.clone()));
        let _den = home.den("one");
        home.began(tasks[0]);
        home.passes("one", 1);
        assert_eq!(home.status(tasks[1]), -2, "its limit is read too");
        let given = std::fs::read_to_string(home.path(&format!("{}.json", tasks[0]))).unwrap();
        let given: serde_json::Value = serde_json::from_str(&given).unwrap();
        assert_eq!(given[other.params()], json!({"a": 1}));
        home.open_all();
        home.all_reach(&tasks, 1);
    });
}

#[test]
fn a_queue_that_is_made_while_a_node_runs_is_served() {
    in_both(|home| {
        let plugin = home.ok();
        let _den = home.den("one");
        let tasks = home.add(home.line(&plugin, 2), 3);
        home.all_reach(&tasks, 1);
    });
}

#[test]
fn a_queue_deleted_while_its_task_runs_loses_nothing() {
    in_both(|home| {
        let fifo = doc! {home.dialect.limit(): 1, "sort": "fifo"};
        let (gone, stays) = (home.line_with(&home.gated(), fifo), home.line(&home.ok(), 1));
        let tasks = home.add(gone, 2);
        let (running, waiting) = (tasks[0], tasks[1]);
        let mut den = home.den("one");
        home.began(running);
        home.mongo.delete("queues", gone);
        let good = home.add(stays, 1)[0];
        home.reaches(good, 1);
        home.open_all();
        let ended = home.reaches(running, 1);
        assert_eq!(ended.text("stdout"), Some("out"));
        home.passes("one", 1);
        assert_eq!(home.status(waiting), -2);
        assert!(den.alive());
    });
}
