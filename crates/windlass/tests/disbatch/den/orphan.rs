//! Tasks whose node is gone are found; tasks whose node is alive are never touched.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Beating, Fields, Home, in_both, is_alive, short_lease, until};

const MINUTE: i64 = 60_000;

fn ago(millis: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - millis)
}

/// A task as a foreign node left it.
fn foreign(
    home: &Home,
    queue: ObjectId,
    status: i32,
    node: &str,
    mtime: impl Into<Bson>,
) -> ObjectId {
    home.task_with(queue, status, doc! {"node": node, "mtime": mtime.into()})
}

#[test]
fn a_killed_nodes_tasks_are_orphaned_by_another_and_nothing_of_them_is_left_alive() {
    in_both(|home| {
        let tree = "sleep 1000 & echo $! > \"$home/child\"; gate; note survived; say 1";
        let queue = home.line(&home.plugin("default", tree), 1);
        let task = home.add(queue, 1)[0];
        let mut one = home.den_with("one", short_lease());
        let parent = home.began(task);
        let child = std::fs::read_to_string(home.path("child")).unwrap().trim().parse().unwrap();
        let running = home.reaches(task, 0);
        let _two = home.den_with("two", short_lease());
        one.kill();
        let orphan = home.reaches(task, -6);
        assert!(!is_alive(parent) && !is_alive(child));
        assert_eq!(orphan.text("node"), Some("one"));
        assert!(orphan.date("mtime") > running.date("mtime"), "{orphan}");
        assert_eq!(home.active(queue), 0);
        // Its slot is free again.
        home.open_all();
        let next = home.add(queue, 1)[0];
        home.reaches(next, 1);
        assert!(home.notes().iter().all(|(_, who)| *who != task));
    });
}

#[test]
fn a_node_that_starts_again_finds_its_own_tasks() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 2);
        let tasks = home.add(queue, 2);
        let mut one = home.den_with("one", short_lease());
        let pids = [home.began(tasks[0]), home.began(tasks[1])];
        home.all_reach(&tasks, 0);
        one.kill();
        let _again = home.den_with("one", short_lease());
        home.all_reach(&tasks, -6);
        assert!(!pids.iter().any(|pid| is_alive(*pid)));
        home.open_all();
        let next = home.add(queue, 1)[0];
        home.reaches(next, 1);
    });
}

#[test]
fn a_long_task_of_a_living_node_is_never_orphaned() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let task = home.add(queue, 1)[0];
        let _one = home.den_with("one", short_lease());
        home.began(task);
        let _two = home.den_with("two", short_lease());
        // As old as its `mtime` may ever get.
        home.mongo.set("tasks", task, doc! {"mtime": ago(600 * MINUTE)});
        home.outlasts_a_lease("two");
        assert_eq!(home.status(task), 0);
        home.open(task);
        assert_eq!(home.reaches(task, 1).text("stdout"), Some("out"));
    });
}

/// It hangs: others take over, what it started is killed, and when it continues it does no harm.
#[test]
fn a_node_that_hangs_loses_its_tasks_and_does_no_harm_when_it_goes_on() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let task = home.add(queue, 1)[0];
        let mut one = home.den_with("one", short_lease());
        let pid = home.began(task);
        home.reaches(task, 0);
        let _two = home.den_with("two", short_lease());
        one.signal(Signal::STOP);
        home.reaches(task, -6);
        assert!(!is_alive(pid));
        home.open(task);
        one.signal(Signal::CONT);
        let next = home.add(queue, 3);
        home.open_all();
        home.all_reach(&next, 1);
        home.passes("two", 1);
        assert_eq!(home.status(task), -6);
        // It is back at work, or it has ended with a reason.
        if one.alive() {
            home.passes("one", 1);
        } else {
            assert!(one.console().contains("one"), "{}", one.console());
        }
    });
}

#[test]
fn foreign_running_tasks_are_never_orphaned() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        home.mongo.insert("nodes", doc! {"node": "old", "timestamp": ago(9000 * MINUTE)});
        let nodes = ["old", "absent", "one"];
        let tasks = nodes.map(|node| foreign(&home, queue, 0, node, ago(9000 * MINUTE)));
        let before = tasks.map(|task| home.mongo.get("tasks", task));
        let _den = home.den_with("one", short_lease());
        home.outlasts_a_lease("one");
        assert_eq!(tasks.map(|task| home.mongo.get("tasks", task)), before);
    });
}

/// It was put back by hand while one of ours had it, and kept our fields.
#[test]
fn a_task_that_one_of_ours_had_before_stays_with_a_living_foreign_node() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        let _beating = Beating::start(&home, "living", 0);
        let before = doc! {"boot": "gone", "node": "before", "run": "r"};
        let tasks = [-1, 0].map(|status| {
            home.task_with(queue, status, doc! {"node": "living", "windlass": before.clone()})
        });
        let _den = home.den_with("one", short_lease());
        home.outlasts_a_lease("one");
        assert_eq!(tasks.map(|task| home.status(task)), [-1, 0]);
    });
}

#[test]
fn running_tasks_of_silent_foreign_nodes_are_orphaned_when_the_config_says_so() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 5);
        home.mongo.insert("nodes", doc! {"node": "old", "timestamp": ago(9000 * MINUTE)});
        let beating = Beating::start(&home, "living", 0);
        let dead = foreign(&home, queue, 0, "old", ago(9000 * MINUTE));
        let alive = foreign(&home, queue, 0, "living", ago(9000 * MINUTE));
        let mut keys = short_lease();
        keys["orphan_foreign"] = keys["orphan_after"].clone();
        let _den = home.den_with("one", keys);
        home.reaches(dead, -6);
        home.outlasts_a_lease("one");
        assert_eq!(home.status(alive), 0);
        drop(beating);
    });
}

#[test]
fn foreign_claims_are_orphaned_when_they_are_old_and_their_node_is_silent() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        home.mongo.insert("nodes", doc! {"node": "old", "timestamp": ago(9 * MINUTE)});
        let beating = Beating::start(&home, "living", 0);
        let seconds = |millis: i64| ago(millis).timestamp_millis() / 1000;
        let dead: Vec<ObjectId> = vec![
            foreign(&home, queue, -1, "old", ago(6 * MINUTE)),
            foreign(&home, queue, -1, "absent", ago(6 * MINUTE)),
            foreign(&home, queue, -1, "one", ago(6 * MINUTE)),
            foreign(&home, queue, -1, "old", seconds(6 * MINUTE)),
            foreign(&home, queue, -1, "old", i32::try_from(seconds(6 * MINUTE)).unwrap()),
            foreign(&home, queue, -1, "old", 0),
        ];
        let alive = [
            foreign(&home, queue, -1, "living", ago(60 * MINUTE)),
            foreign(&home, queue, -1, "old", ago(MINUTE)),
            foreign(&home, queue, -1, "one", ago(MINUTE)),
            foreign(&home, queue, -1, "old", seconds(MINUTE)),
        ];
        let before = alive.map(|task| home.mongo.get("tasks", task));
        let began = DateTime::now();
        let _den = home.den_with("one", short_lease());
        for task in &dead {
            let orphan = home.reaches(*task, -6);
            assert!(orphan.date("mtime") >= Some(ago(MINUTE).min(began)), "{orphan}");
        }
        home.outlasts_a_lease("one");
        assert_eq!(alive.map(|task| home.mongo.get("tasks", task)), before);
        drop(beating);
    });
}

/// Clocks of hosts that disagree by hours: only a moving timestamp shows that a node is alive.
#[test]
fn a_clock_that_is_hours_off_makes_nobody_dead_or_alive() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let behind = Beating::start(&home, "behind", -120 * MINUTE);
        let ahead = Beating::start(&home, "ahead", 120 * MINUTE);
        let future = ago(-120 * MINUTE);
        home.mongo.insert("nodes", doc! {"node": "dead-ahead", "timestamp": future});
        let alive = [
            foreign(&home, queue, -1, "behind", ago(120 * MINUTE)),
            foreign(&home, queue, -1, "ahead", ago(120 * MINUTE)),
            foreign(&home, queue, -1, "ahead", future),
        ];
        let dead = foreign(&home, queue, -1, "dead-ahead", ago(6 * MINUTE));
        let good = home.add(queue, 2);
        home.mongo.set("tasks", good[0], doc! {"ctime": future, "mtime": future});
        let _dens = ["one", "two"].map(|name| home.den_with(name, short_lease()));
        home.all_reach(&good, 1);
        home.reaches(dead, -6);
        home.outlasts_a_lease("one");
        assert_eq!(alive.map(|task| home.status(task)), [-1; 3]);
        for task in good {
            let ended: Document = home.mongo.get("tasks", task);
            assert!(
                ended.date("mtime") < Some(ago(-10 * MINUTE)),
                "by the database's clock: {ended}"
            );
        }
        drop((behind, ahead));
    });
}

/// One node loses its connection to the database while the other continues: what it ran is killed
/// and orphaned; it comes back and works.
#[test]
fn a_node_that_is_cut_off_is_dead_for_the_others_and_comes_back() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 1);
        let way = crate::harness::Proxy::to(&home.mongo.host());
        let mut keys = short_lease();
        keys["mongohost"] = json!(way.mongohost());
        let mut one = home.den_with("one", keys);
        let task = home.add(queue, 1)[0];
        let pid = home.began(task);
        home.reaches(task, 0);
        let mut two = home.den_with("two", short_lease());
        way.cut();
        home.reaches(task, -6);
        assert!(!is_alive(pid));
        two.stop();
        home.open_all();
        let stamp = || home.entry("one").get("timestamp").cloned();
        let before = stamp();
        way.mend();
        let next = home.add(queue, 2);
        home.all_reach(&next, 1);
        assert!(one.alive());
        assert_eq!(home.status(task), -6);
        until("it says that it is back", || stamp().is_some() && stamp() != before);
    });
}
