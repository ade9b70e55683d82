//! The clock of a node's own host is wrong by minutes: only the database's counts.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};
use serde_json::json;

use crate::harness::{Fields, Home, in_both, short_lease, skewed, until};

const MINUTE: i64 = 60_000;

/// Tolerance for the rounding of dates and for a slow server.
const SLACK: i64 = MINUTE / 2;

fn from_now(millis: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() + millis)
}

/// A claim of a node that is gone, this long ago by the clock of this host.
fn claimed(home: &Home, queue: ObjectId, minutes_ago: i64) -> ObjectId {
    let fields = doc! {"node": "gone", "mtime": from_now(-minutes_ago * MINUTE)};
    home.task_with(queue, -1, fields)
}

/// A node that sees the database's clock this many minutes ahead of this host.
fn node(home: &Home, name: &str, ahead: i64) -> crate::harness::Program {
    let host = skewed(&home.mongo.host(), ahead * MINUTE);
    let mut keys = short_lease();
    keys["mongohost"] = json!(host);
    home.den_with(name, keys)
}

#[test]
fn every_time_that_a_node_writes_is_the_databases() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        for (name, ahead) in [("slow", 7), ("fast", -7)] {
            let began = from_now(ahead * MINUTE - SLACK);
            let mut den = node(&home, name, ahead);
            let task = home.add(queue, 1)[0];
            let ended = home.reaches(task, 1);
            home.passes(name, 1);
            let entry = home.entry(name);
            den.stop();
            let own = ended.get_document("windlass").unwrap();
            let over = from_now(ahead * MINUTE + SLACK);
            for (document, field) in
                [(&ended, "mtime"), (own, "started"), (own, "ended"), (&entry, "timestamp")]
            {
                let time = document.date(field).unwrap();
                assert!(began <= time && time <= over, "{name}: {field} of {document}");
            }
        }
    });
}

/// Five minutes by the database's clock.
#[test]
fn a_claim_is_as_old_as_the_database_says() {
    in_both(|home| {
        let queue = home.line(&home.ok(), 9);
        let young = claimed(&home, queue, 6);
        let mut fast = node(&home, "fast", -7);
        home.outlasts_a_lease("fast");
        assert_eq!(home.status(young), -1, "for the database it is in the future");
        fast.stop();
        home.mongo.delete("tasks", young);
        let old = claimed(&home, queue, 1);
        let _slow = node(&home, "slow", 7);
        home.reaches(old, -6);
    });
}

/// Two nodes whose clocks are a quarter of an hour apart do not consider each other dead.
#[test]
fn nodes_whose_clocks_disagree_hold_nobody_dead() {
    in_both(|home| {
        let queue = home.line(&home.gated(), 9);
        let tasks = home.add(queue, 2);
        let mut one = node(&home, "one", 7);
        for task in &tasks {
            home.began(*task);
        }
        let mut two = node(&home, "two", -8);
        home.outlasts_a_lease("two");
        assert_eq!([home.status(tasks[0]), home.status(tasks[1])], [0, 0]);
        home.open_all();
        home.all_reach(&tasks, 1);
        let next = home.add(queue, 4);
        home.all_reach(&next, 1);
        until("both live", || one.alive() && two.alive());
    });
}
