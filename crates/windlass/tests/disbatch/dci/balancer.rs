//! The balancer: how many tasks each queue may run, from the balance document.

use jiff::{ToSpan, Zoned};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use serde_json::json;

use crate::harness::{Dci, Home, both, number, until};

/// A queue with this many queued and running tasks, and a limit that no step would choose.
fn queue(home: &Home, name: &str, queued: usize, running: usize) -> ObjectId {
    let id = home.queue_with(name, doc! {home.dialect.limit(): 77});
    let task = |status: i32| doc! {"queue": id, "status": status, "node": "elsewhere"};
    let mut tasks = vec![task(-2); queued];
    tasks.extend(vec![task(0); running]);
    if !tasks.is_empty() {
        home.mongo.insert_many("tasks", tasks);
    }
    id
}

fn limit(home: &Home, queue: ObjectId) -> Option<i64> {
    number(home.mongo.get("queues", queue).get(home.dialect.limit()))
}

/// An interface that balances by this document.
fn balanced(home: &Home, document: Document) -> Dci {
    home.mongo.insert("balance", document);
    home.dci_with(json!({"monitoring": true, "balance": {"enabled": true}}))
}

#[track_caller]
fn reaches(home: &Home, queues: &[ObjectId], wanted: &[i64]) {
    until(&format!("the limits are {wanted:?}"), || {
        queues.iter().zip(wanted).all(|(queue, wanted)| limit(home, *queue) == Some(*wanted))
    });
}

#[test]
fn the_first_group_shares_what_later_groups_leave() {
    for home in both() {
        let queues = [queue(&home, "a", 9, 0), queue(&home, "b", 9, 0), queue(&home, "c", 1, 0)];
        let plan = doc! {"max_tasks": {"* 00:00": 7}, "queues": [["a", "b"], ["c"]]};
        let _dci = balanced(&home, plan);
        reaches(&home, &queues, &[3, 3, 1]);
    }
}

#[test]
fn nobody_gets_more_than_is_queued() {
    let home = Home::released();
    let queues = [queue(&home, "a", 2, 0), queue(&home, "b", 1, 0)];
    let _dci = balanced(&home, doc! {"max_tasks": {"* 00:00": 50}, "queues": [["a"], ["b"]]});
    reaches(&home, &queues, &[2, 1]);
}

#[test]
fn what_runs_already_is_counted_against_later_groups() {
    let home = Home::released();
    let queues = [queue(&home, "bulk", 9, 4), queue(&home, "api", 9, 0)];
    let plan = doc! {"max_tasks": {"* 00:00": 5}, "queues": [["bulk"], ["api"]]};
    let _dci = balanced(&home, plan);
    reaches(&home, &queues, &[0, 1]);
}

#[test]
fn a_limit_of_none_stops_every_group() {
    let home = Home::released();
    let queues = [queue(&home, "a", 3, 0), queue(&home, "b", 3, 0)];
    let _dci = balanced(&home, doc! {"max_tasks": {"* 00:00": 0}, "queues": [["a"], ["b"]]});
    reaches(&home, &queues, &[0, 0]);
}

/// If no entry of the day has come yet, the original uses the last entry of the same day.
#[test]
fn the_entry_in_force_is_the_last_that_has_come() {
    let home = Home::released();
    let queues = [queue(&home, "a", 90, 0)];
    let now = Zoned::now();
    let yesterday = now.checked_sub(1.day()).unwrap();
    let later = now.checked_add(1.hour()).unwrap();
    let entry =
        |time: &Zoned, clock: &str| format!("{} {clock}", time.weekday().to_sunday_zero_offset());
    let later = entry(&later, &later.strftime("%H:%M").to_string());
    let plan = doc! {
        "max_tasks": {entry(&yesterday, "00:00"): 3, later: 50}, "queues": [["a"]],
    };
    let _dci = balanced(&home, plan);
    reaches(&home, &queues, &[3]);
}

#[test]
fn a_balance_that_is_off_moves_nothing() {
    let home = Home::released();
    let queues = [queue(&home, "a", 3, 0)];
    let off = i64::from(u32::MAX);
    let plan = doc! {"max_tasks": {"* 00:00": 5}, "queues": [["a"]], "disabled": off};
    let dci = balanced(&home, plan);
    until("the balancer tells", || {
        dci.http.get("/balance").ok().get("timestamp").is_some_and(|stamp| !stamp.is_null())
    });
    assert_eq!(limit(&home, queues[0]), Some(77));
}

#[test]
fn queues_in_no_group_are_left_alone() {
    let home = Home::released();
    let queues = [queue(&home, "a", 3, 0), queue(&home, "other", 3, 0)];
    let _dci = balanced(&home, doc! {"max_tasks": {"* 00:00": 2}, "queues": [["a"]]});
    reaches(&home, &queues[..1], &[2]);
    assert_eq!(limit(&home, queues[1]), Some(77));
}

/// One at a time: two interfaces write the same limits, and one of them logs it.
#[test]
fn two_interfaces_do_not_balance_against_each_other() {
    let home = Home::released();
    let queues = [queue(&home, "a", 9, 0), queue(&home, "b", 2, 0)];
    let plan = doc! {"max_tasks": {"* 00:00": 5}, "queues": [["a"], ["b"]]};
    let _one = balanced(&home, plan);
    let _two = home.dci_with(json!({"balance": {"enabled": true}}));
    reaches(&home, &queues, &[3, 2]);
    let changes = home.mongo.all("changelog", doc! {"collection": "queues"});
    assert!(changes.len() <= 2, "{changes:?}");
}

#[test]
fn a_document_that_cannot_be_followed_moves_nothing_and_is_told() {
    for home in both() {
        let queues = [queue(&home, "a", 3, 0)];
        let odd = doc! {"max_tasks": {"* 25:00": 5, "x": "y"}, "queues": [["a", "none"], 5]};
        let dci = balanced(&home, odd);
        until("the balancer tells", || {
            let told = dci.http.get("/balance").ok();
            told["timestamp"].is_number() && told["status"].is_string()
        });
        let told = dci.http.get("/monitoring").ok()["queuebalance"].clone();
        assert!([json!("WARNING"), json!("CRITICAL")].contains(&told["status"]), "{told}");
        assert_eq!(limit(&home, queues[0]), Some(77));
    }
}
