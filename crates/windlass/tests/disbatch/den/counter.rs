//! The seed's counters in queues: set if missing, kept up to date, and corrected if they drift.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, doc};

use crate::harness::{Fields, Home, short_lease, until};

fn counters(home: &Home, queue: ObjectId) -> (Option<i64>, Option<i64>) {
    let queue = home.mongo.get("queues", queue);
    (queue.int("count_todo"), queue.int("count_total"))
}

fn become_counters(home: &Home, queue: ObjectId, todo: i64, total: i64) {
    let wanted = (Some(todo), Some(total));
    let mut seen = (None, None);
    until("the counters are right", || {
        seen = counters(home, queue);
        seen == wanted
    });
}

#[test]
fn missing_counters_are_set_and_ends_are_counted() {
    let home = Home::seed();
    let plugin = home.gated();
    let unset = home.line(&plugin, 1);
    let null = doc! {"maxthreads": 1, "count_todo": Bson::Null, "count_total": Bson::Null};
    let null = home.line_with(&plugin, null);
    for queue in [unset, null] {
        home.task(queue, 1);
        home.task(queue, 5);
        home.task(queue, -4);
        home.task(queue, -6);
    }
    let tasks: Vec<ObjectId> = [unset, null].iter().flat_map(|queue| home.add(*queue, 2)).collect();
    let _den = home.den("one");
    for queue in [unset, null] {
        become_counters(&home, queue, 4, 6);
    }
    home.open_all();
    home.all_reach(&tasks, 1);
    for queue in [unset, null] {
        become_counters(&home, queue, 2, 6);
    }
}

/// Like a foreign interface creates tasks: it inserts them first, and increments both counters
/// afterwards.
#[test]
fn tasks_that_others_make_and_count_stay_counted() {
    let home = Home::seed();
    let queue = home.line_with(&home.ok(), doc! {"count_todo": 0, "count_total": 0});
    let _den = home.den("one");
    for _ in 0..3 {
        let tasks = home.add(queue, 4);
        let more = doc! {"$inc": {"count_todo": 4, "count_total": 4}};
        home.mongo.update("queues", doc! {"_id": queue}, more);
        home.all_reach(&tasks, 1);
    }
    become_counters(&home, queue, 0, 12);
}

#[test]
fn an_orphan_stays_to_be_done() {
    let home = Home::seed();
    let queue = home.line(&home.gated(), 1);
    let task = home.add(queue, 1)[0];
    let mut one = home.den_with("one", short_lease());
    home.reaches(task, 0);
    become_counters(&home, queue, 1, 1);
    one.kill();
    let _two = home.den_with("two", short_lease());
    home.reaches(task, -6);
    home.passes("two", 1);
    assert_eq!(counters(&home, queue), (Some(1), Some(1)));
}

#[test]
fn counters_that_drifted_are_put_right() {
    let home = Home::seed();
    let queue = home.line_with(&home.ok(), doc! {"count_todo": 40, "count_total": -3});
    home.task(queue, 1);
    home.task(queue, -4);
    let _den = home.den("one");
    become_counters(&home, queue, 1, 2);
}

#[test]
fn a_released_queue_has_no_counters() {
    let home = Home::released();
    let queue = home.line(&home.ok(), 1);
    let task = home.add(queue, 1)[0];
    let _den = home.den("one");
    home.reaches(task, 1);
    home.passes("one", 1);
    assert_eq!(counters(&home, queue), (None, None));
}
