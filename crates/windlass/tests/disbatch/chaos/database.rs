//! The database is killed, frozen and lost while nodes work: results wait, nothing is lost, nothing
//! runs twice, and no live node is considered dead.

use std::collections::HashMap;

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use serde_json::json;

use crate::harness::{
    Dialect, Fields, Home, PATIENCE, Program, Proxy, is_alive, longer_lease, short_lease, until,
};

fn runs(home: &Home) -> HashMap<ObjectId, usize> {
    let mut runs = HashMap::new();
    for (_, task) in home.notes() {
        *runs.entry(task).or_default() += 1;
    }
    runs
}

/// A node next to the others that is cut off rather than refused, so that its lease expires: by the
/// time its fence has killed what it ran, more time has passed than any of the others may be
/// silent.
struct Control {
    way: Proxy,
    pid: i32,
    _den: Program,
}

impl Control {
    fn start(home: &Home) -> Self {
        let way = Proxy::to(&home.mongo.host());
        // Created after the others were started: they do not know its plugin.
        let task = home.add(home.line(&home.gated(), 1), 1)[0];
        let mut keys = longer_lease();
        keys["mongohost"] = json!(way.mongohost());
        let den = home.den_with("control", keys);
        Self { way, pid: home.began(task), _den: den }
    }

    fn dies(&self) {
        until("its fence has ended what it ran", || !is_alive(self.pid));
    }
}

/// Ends of tasks that occur while the database is down are written when it is back, and the tasks
/// that kept running are not orphaned.
#[test]
fn results_wait_for_a_database_that_was_killed() {
    let seed = Home::own(Dialect::Seed);
    let homes = [seed.beside(), seed];
    let queues = [0, 1].map(|at: usize| homes[at].line(&homes[at].gated(), 4));
    let tasks = [0, 1].map(|at: usize| homes[at].add(queues[at], 2));
    let mut dens: Vec<Program> = homes
        .iter()
        .flat_map(|home| ["one", "two"].map(|name| home.den_with(name, short_lease())))
        .collect();
    for (home, tasks) in homes.iter().zip(&tasks) {
        for task in tasks {
            home.began(*task);
            home.reaches(*task, 0);
        }
    }
    let control = Control::start(&homes[0]);
    let server = homes[1].mongo.server();
    control.way.cut();
    server.kill();
    homes.iter().zip(&tasks).for_each(|(home, tasks)| home.open(tasks[0]));
    until("it is told", || dens.iter().all(|den| den.console().contains("database")));
    control.dies();
    server.restart();
    for ((home, queue), tasks) in homes.iter().zip(queues).zip(&tasks) {
        assert_eq!(home.reaches(tasks[0], 1).text("stdout"), Some("out"));
        home.passes("one", 4);
        assert_eq!(home.status(tasks[1]), 0);
        home.open_all();
        home.reaches(tasks[1], 1);
        let next = home.add(queue, 2);
        home.all_reach(&next, 1);
    }
    assert!(dens.iter_mut().all(|den| den.alive()));
}

/// Under load, whatever the moment of a claim, a start or an end.
#[test]
fn a_database_killed_under_load_loses_nothing_and_runs_nothing_twice() {
    let home = Home::own(Dialect::Released);
    let queue = home.line(&home.plugin("default", "note ran; say 1"), 6);
    let tasks = home.add(queue, 60);
    let _dens = ["one", "two"].map(|name| home.den_with(name, short_lease()));
    for part in [10, 25, 40] {
        until("some have run", || runs(&home).len() >= part);
        home.mongo.server().kill();
        home.mongo.server().restart();
    }
    home.all_reach(&tasks, 1);
    let runs = runs(&home);
    assert!(runs.len() == tasks.len() && runs.values().all(|times| *times == 1), "{runs:?}");
    until("no place is held any more", || {
        let queue = home.mongo.get("queues", queue);
        let own = queue.get_document("windlass").cloned().unwrap_or_default();
        own.get_array("holds").is_ok_and(Vec::is_empty)
    });
}

/// It keeps its connections and does nothing; then it continues.
#[test]
fn a_database_that_hangs_is_waited_for() {
    let home = Home::own(Dialect::Seed);
    let queue = home.line(&home.gated(), 4);
    let task = home.add(queue, 1)[0];
    let mut den = home.den_with("one", json!({"orphan_after": PATIENCE.as_secs()}));
    home.reaches(task, 0);
    home.began(task);
    home.mongo.server().freeze();
    home.open(task);
    until("it gives up a renewal", || den.console().contains("cannot renew the lease"));
    home.mongo.server().thaw();
    assert_eq!(home.reaches(task, 1).text("stdout"), Some("out"));
    assert!(den.alive());
}

/// A node that cannot reach its database at start waits for a while.
#[test]
fn a_node_that_starts_before_its_database_waits() {
    let home = Home::seed();
    let task = home.add(home.line(&home.ok(), 1), 1)[0];
    let way = Proxy::to(&home.mongo.host());
    way.cut();
    let mut den = home.den_unentered("one", json!({"mongohost": way.mongohost()}));
    until("it says so", || !den.console().is_empty());
    assert!(den.alive(), "{}", den.console());
    way.mend();
    home.reaches(task, 1);
}

/// Its answers are lost, again and again, under load.
#[test]
fn connections_that_break_lose_nothing_and_run_nothing_twice() {
    let home = Home::seed();
    let queue = home.line(&home.plugin("default", "note ran; say 1"), 3);
    let tasks = home.add(queue, 40);
    let way = Proxy::to(&home.mongo.host());
    let keys = json!({"mongohost": way.mongohost(), "orphan_after": 30});
    let _den = home.den_with("one", keys);
    for part in (4..36).step_by(4) {
        until("some have run", || runs(&home).len() >= part);
        way.cut();
        way.mend();
    }
    home.all_reach(&tasks, 1);
    let runs = runs(&home);
    assert!(runs.len() == tasks.len() && runs.values().all(|times| *times == 1), "{runs:?}");
    until("the counter is right", || {
        home.mongo.one("queues", doc! {"_id": queue, "count_todo": 0}).is_some()
    });
}
