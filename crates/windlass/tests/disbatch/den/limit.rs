//! How many tasks run at the same time: limits of nodes and queues, increments, and fair turns.

use std::collections::HashSet;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, doc};
use serde_json::{Value, json};

use crate::harness::{Dialect, Home, in_both, until};

/// An existing entry of a node, with a limit.
fn limited(home: &Home, name: &str, limit: impl Into<Bson>) -> ObjectId {
    let past = DateTime::from_millis(0);
    home.mongo.insert("nodes", doc! {"node": name, "timestamp": past, "maxthreads": limit.into()})
}

/// The running ones among them.
fn begun(home: &Home, tasks: &[ObjectId]) -> usize {
    tasks.iter().filter(|task| home.has_begun(**task)).count()
}

/// Waits until this many run, and until the node has had the chance to start more.
fn settles(home: &Home, node: &str, tasks: &[ObjectId], count: usize) {
    until("enough of them run", || begun(home, tasks) >= count);
    home.passes(node, 1);
    assert_eq!(begun(home, tasks), count);
}

#[test]
fn a_node_runs_no_more_than_its_limit_over_all_queues() {
    in_both(|home| {
        let node = limited(&home, "one", 3);
        let plugin = home.gated();
        let queues = [(); 3].map(|()| home.line(&plugin, 5));
        let tasks: Vec<_> = queues.iter().flat_map(|queue| home.add(*queue, 3)).collect();
        let _den = home.den("one");
        settles(&home, "one", &tasks, 3);
        home.mongo.set("nodes", node, doc! {"maxthreads": 5});
        settles(&home, "one", &tasks, 5);
        // A lower limit ends nothing, and starts nothing until there is room again.
        home.mongo.set("nodes", node, doc! {"maxthreads": 1});
        home.passes("one", 1);
        for task in tasks.iter().filter(|task| home.has_begun(**task)).take(4) {
            home.open(*task);
            home.reaches(*task, 1);
        }
        home.passes("one", 1);
        assert_eq!(begun(&home, &tasks), 5);
        home.mongo.set("nodes", node, doc! {"maxthreads": Bson::Null});
        settles(&home, "one", &tasks, 9);
        home.open_all();
        home.all_reach(&tasks, 1);
    });
}

#[test]
fn a_node_with_a_limit_of_zero_runs_nothing() {
    in_both(|home| {
        let node = limited(&home, "one", 0);
        let task = home.add(home.line(&home.ok(), 5), 1)[0];
        let _den = home.den("one");
        home.passes("one", 2);
        assert_eq!(home.status(task), -2);
        home.mongo.set("nodes", node, doc! {"maxthreads": 1});
        home.reaches(task, 1);
    });
}

#[test]
fn the_limit_of_a_seed_queue_is_for_each_node() {
    let home = Home::seed();
    let queue = home.line(&home.gated(), 2);
    let tasks = home.add(queue, 6);
    let _dens = ["one", "two"].map(|name| home.den(name));
    settles(&home, "one", &tasks, 4);
    settles(&home, "two", &tasks, 4);
    for node in ["one", "two"] {
        let filter = doc! {"node": node, "status": {"$in": [-1, 0]}};
        assert_eq!(home.mongo.count_now("tasks", filter), 2);
    }
    home.open_all();
    home.all_reach(&tasks, 1);
}

#[test]
fn the_limit_of_a_released_queue_is_for_all_nodes() {
    let home = Home::released();
    let queue = home.line(&home.gated(), 3);
    let tasks = home.add(queue, 6);
    let _dens = ["one", "two"].map(|name| home.den(name));
    settles(&home, "one", &tasks, 3);
    settles(&home, "two", &tasks, 3);
    assert_eq!(home.active(queue), 3);
    home.mongo.set("queues", queue, doc! {"threads": 4});
    settles(&home, "one", &tasks, 4);
    home.open_all();
    home.all_reach(&tasks, 1);
}

#[test]
fn tasks_of_foreign_nodes_count_against_a_released_limit() {
    let home = Home::released();
    let queue = home.line(&home.gated(), 3);
    let foreign = [home.task(queue, 0), home.task(queue, -1)];
    let tasks = home.add(queue, 3);
    let _den = home.den("one");
    settles(&home, "one", &tasks, 1);
    home.mongo.set("tasks", foreign[0], doc! {"status": 1});
    settles(&home, "one", &tasks, 2);
}

/// A foreign node had the name before, and its runners outlive it.
#[test]
fn what_runs_under_a_nodes_name_counts_against_its_limit() {
    in_both(|home| {
        limited(&home, "one", 3);
        let (queue, other) = (home.line(&home.gated(), 9), home.line(&home.ok(), 9));
        let left = [-1, 0].map(|status| home.task_with(other, status, doc! {"node": "one"}));
        home.task_with(other, 0, doc! {"node": "elsewhere"});
        let tasks = home.add(queue, 3);
        let _den = home.den("one");
        settles(&home, "one", &tasks, 1);
        home.mongo.set("tasks", left[0], doc! {"status": 1});
        settles(&home, "one", &tasks, 2);
    });
}

/// Until that start is considered dead, its tasks may still run.
#[test]
fn what_another_start_of_a_node_has_counts_against_its_limits() {
    in_both(|home| {
        limited(&home, "one", 3);
        let (queue, other) = (home.line(&home.gated(), 9), home.line(&home.gated(), 1));
        let before = doc! {"boot": "before", "node": "one", "run": "r"};
        let left = doc! {"node": "one", "windlass": before};
        let left = [-1, 0].map(|status| home.task_with(other, status, left.clone()));
        let tasks = home.add(queue, 3);
        // A released queue's limit counts holds, and there are none here.
        let seed = home.dialect == Dialect::Seed;
        let held = if seed { home.add(other, 1) } else { Vec::new() };
        let _den = home.den("one");
        settles(&home, "one", &tasks, 1);
        home.mongo.set("tasks", left[0], doc! {"status": 1});
        settles(&home, "one", &tasks, 2);
        assert_eq!(begun(&home, &held), 0);
    });
}

/// In the seed the limit of a queue applies to each node: what runs elsewhere does not count.
#[test]
fn what_runs_under_a_nodes_name_counts_against_the_limit_of_its_queue() {
    in_both(|home| {
        let (queue, other) = (home.line(&home.gated(), 3), home.line(&home.ok(), 9));
        let left = [-1, 0].map(|status| home.task_with(queue, status, doc! {"node": "one"}));
        home.task_with(other, 0, doc! {"node": "one"});
        if home.dialect == Dialect::Seed {
            home.task_with(queue, 0, doc! {"node": "elsewhere"});
        }
        let tasks = home.add(queue, 3);
        let _den = home.den("one");
        settles(&home, "one", &tasks, 1);
        home.mongo.set("tasks", left[1], doc! {"status": 1});
        settles(&home, "one", &tasks, 2);
    });
}

#[test]
fn a_queue_of_zero_runs_nothing() {
    in_both(|home| {
        let plugin = home.ok();
        let (none, some) = (home.line(&plugin, 0), home.line(&plugin, 1));
        let (left, good) = (home.add(none, 1)[0], home.add(some, 1)[0]);
        let _den = home.den("one");
        home.reaches(good, 1);
        home.passes("one", 1);
        assert_eq!(home.status(left), -2);
        home.mongo.set("queues", none, doc! {home.dialect.limit(): 1});
        home.reaches(left, 1);
    });
}

#[test]
fn a_queue_without_a_limit_runs_all_in_the_seed_and_nothing_in_the_released() {
    in_both(|home| {
        let plugin = home.gated();
        let queues = [
            home.line_with(&plugin, doc! {}),
            home.line_with(&plugin, doc! {home.dialect.limit(): Bson::Null}),
        ];
        let tasks: Vec<_> = queues.iter().flat_map(|queue| home.add(*queue, 3)).collect();
        let _den = home.den("one");
        let all = if home.dialect == Dialect::Seed { 6 } else { 0 };
        settles(&home, "one", &tasks, all);
    });
}

/// The hook runs before every pass, so that no pass is missed, however slow the look is.
#[test]
fn steps_limit_what_a_pass_starts() {
    in_both(|home| {
        let (slow, quick) = (home.gated(), home.plugin("default", "note ran; say 1"));
        let queues = [home.line(&slow, 9), home.line(&quick, 9)];
        // One queue is soon empty: from then on the other one could have all of a pass.
        let tasks = [home.add(queues[0], 9), home.add(queues[1], 2)];
        let hook = home.program("echo x >> \"$home/passes\"");
        let keys = json!({"node_increase": 3, "queue_increase": 2, "pre_hook": {"name": hook}});
        let _den = home.den_with("one", keys);
        until("all have begun", || {
            let started = [usize::try_from(home.active(queues[0])).unwrap(), home.notes().len()];
            let passes = std::fs::read_to_string(home.path("passes")).unwrap_or_default();
            let passes = passes.lines().count();
            assert!(started[0] + started[1] <= 3 * passes, "{started:?} after {passes}");
            assert!(started.iter().all(|of| *of <= 2 * passes), "{started:?} after {passes}");
            started == [9, 2]
        });
        home.open_all();
        home.all_reach(&tasks[0], 1);
    });
}

#[test]
fn wrong_steps_end_the_node_at_its_start() {
    let home = Home::seed();
    let wrong = [
        json!({"node_increase": 0}),
        json!({"queue_increase": 0}),
        json!({"node_increase": -1}),
        json!({"node_increase": 1.5}),
        json!({"queue_increase": "2"}),
        json!({"node_increase": 1, "queue_increase": 2}),
    ];
    for keys in wrong {
        let key = keys.as_object().unwrap().keys().next_back().unwrap().clone();
        let mut den = home.den_unentered("one", keys);
        assert_eq!(den.ended().code(), Some(1));
        assert!(den.console().contains(&key), "{}", den.console());
    }
    assert_eq!(home.mongo.count("nodes", doc! {}), 0);
}

/// With one slot for two queues, neither is served twice while the other waits.
#[test]
fn queues_take_turns_when_the_node_is_full() {
    in_both(|home| {
        limited(&home, "one", 1);
        let plugin = home.plugin("default", "note ran; say 1");
        let queues = [(); 3].map(|()| home.line(&plugin, 5));
        let tasks = queues.map(|queue| home.add(queue, 3));
        let _den = home.den("one");
        for of_queue in &tasks {
            home.all_reach(of_queue, 1);
        }
        let ran: Vec<usize> = home
            .notes()
            .iter()
            .map(|(_, task)| tasks.iter().position(|of| of.contains(task)).unwrap())
            .collect();
        for round in ran.chunks(3) {
            assert_eq!(round.iter().collect::<HashSet<_>>().len(), 3, "{ran:?}");
        }
    });
}

/// A full queue does not block those behind it, and a long one does not take all of a node.
#[test]
fn an_early_queue_does_not_eat_the_whole_node() {
    in_both(|home| {
        limited(&home, "one", 4);
        let plugin = home.gated();
        let (long, short) = (home.line(&plugin, 9), home.line(&plugin, 9));
        let mut tasks = home.add(long, 8);
        tasks.extend(home.add(short, 2));
        let _den = home.den("one");
        settles(&home, "one", &tasks, 4);
        assert_eq!(begun(&home, &tasks[8..]), 2);
    });
}

/// Higher first; those without one come last.
#[test]
fn priorities_come_before_the_order_of_a_queue() {
    in_both(|home| {
        let plugin = home.plugin("default", "note ran; say 1");
        let sorted =
            doc! {home.dialect.limit(): 1, "sort": "fifo", "windlass": {"priorities": true}};
        let queue = home.line_with(&plugin, sorted);
        let priorities = [Value::Null, json!(5), json!(1), Value::Null, json!(5)];
        let tasks: Vec<_> = priorities
            .iter()
            .map(|priority| match priority.as_i64() {
                Some(number) => home.task_with(queue, -2, doc! {"windlass": {"priority": number}}),
                None => home.task(queue, -2),
            })
            .collect();
        let _den = home.den("one");
        home.all_reach(&tasks, 1);
        let ran: Vec<_> = home.notes().into_iter().map(|(_, task)| task).collect();
        assert_eq!(ran, [1, 4, 2, 0, 3].map(|at: usize| tasks[at]));
    });
}
