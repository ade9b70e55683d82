//! Documents that other programs change or remove while a node works with them.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};

use crate::harness::{Fields, Home, in_both, short_lease, until};

fn begun(home: &Home, tasks: &[ObjectId]) -> Vec<ObjectId> {
    tasks.iter().filter(|task| home.has_begun(**task)).copied().collect()
}

#[test]
fn a_lower_limit_of_a_queue_ends_nothing_and_starts_nothing_until_it_is_reached() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 3);
        let tasks = home.add(queue, 5);
        let _den = home.den("one");
        until("three run", || begun(&home, &tasks).len() == 3);
        let limit = home.dialect.limit();
        home.mongo.set("queues", queue, doc! {limit: 1});
        home.passes("one", 1);
        let first = begun(&home, &tasks);
        assert!(first.iter().all(|task| home.status(*task) == 0), "a limit ends nothing");
        for task in &first[..2] {
            home.open(*task);
            home.reaches(*task, 1);
        }
        home.passes("one", 1);
        assert_eq!(begun(&home, &tasks).len(), 3);
        home.open(first[2]);
        until("one more runs", || begun(&home, &tasks).len() == 4);
        home.passes("one", 1);
        assert_eq!(begun(&home, &tasks).len(), 4);
        home.open_all();
        home.all_reach(&tasks, 1);
    });
}

#[test]
fn a_queue_may_get_another_name_and_another_plugin_at_any_time() {
    in_both(|home| {
        let (old, new) = (home.gated(), home.plugin("default", "say 1 new"));
        let queue = home.line_with(&old, doc! {home.dialect.limit(): 1, "sort": "fifo"});
        let tasks = home.add(queue, 2);
        let _den = home.den("one");
        home.began(tasks[0]);
        home.mongo.set("queues", queue, doc! {"name": "renamed", home.dialect.plugin(): &new});
        home.passes("one", 1);
        home.open(tasks[0]);
        assert_eq!(home.reaches(tasks[0], 1).text("stdout"), Some("out"));
        assert_eq!(home.reaches(tasks[1], 1).text("stdout"), Some("new"));
    });
}

#[test]
fn a_task_that_is_removed_while_it_runs_gives_its_place_free() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let gone = home.add(queue, 1)[0];
        let mut den = home.den("one");
        home.began(gone);
        home.mongo.delete("tasks", gone);
        home.open(gone);
        let next = home.add(queue, 1)[0];
        home.began(next);
        home.open(next);
        home.reaches(next, 1);
        assert_eq!(home.mongo.count("tasks", doc! {}), 1, "it is not made again");
        assert!(den.alive());
    });
}

/// The entry comes back, and the task is not lost.
#[test]
fn a_node_whose_entry_is_removed_enters_again_and_keeps_its_tasks() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let task = home.add(queue, 1)[0];
        let mut den = home.den_with("one", short_lease());
        let _other = home.den_with("two", short_lease());
        home.began(task);
        home.reaches(task, 0);
        let entry = home.entry("one").oid("_id").unwrap();
        home.mongo.delete("nodes", entry);
        home.entered("one", &mut den);
        home.outlasts_a_lease("two");
        assert_eq!(home.status(task), 0);
        home.open(task);
        assert_eq!(home.reaches(task, 1).text("stdout"), Some("out"));
    });
}

/// Parked by another program while it waits: it is not claimed until it is queued again.
#[test]
fn a_task_may_be_parked_and_queued_again_by_others() {
    in_both(|home| {
        let queue = home.line_with(&home.ok(), doc! {home.dialect.limit(): 0});
        let tasks = home.add(queue, 2);
        let _den = home.den("one");
        home.mongo.set("tasks", tasks[0], doc! {"status": -3});
        home.mongo.set("queues", queue, doc! {home.dialect.limit(): 1});
        home.reaches(tasks[1], 1);
        home.passes("one", 1);
        let parked = home.mongo.get("tasks", tasks[0]);
        assert_eq!((parked.int("status"), parked.get("stdout")), (Some(-3), Some(&Bson::Null)));
        home.mongo.set("tasks", tasks[0], doc! {"status": -2});
        home.reaches(tasks[0], 1);
    });
}
