//! The clock of an interface's host is wrong by minutes: only the database's counts.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::json;

use crate::harness::{Dci, Home, both, oid, skewed, until};

const MINUTE: i64 = 60_000;

/// Tolerance for the rounding of dates and for a slow server.
const SLACK: i64 = MINUTE / 2;

const AHEAD: [i64; 2] = [7, -7];

fn from_now(millis: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() + millis)
}

/// An interface that sees the database's clock this many minutes ahead of this host.
fn dci(home: &Home, ahead: i64) -> Dci {
    let host = skewed(&home.mongo.host(), ahead * MINUTE);
    home.dci_with(json!({"mongohost": host, "monitoring": true}))
}

#[track_caller]
fn by_the_database(document: &Document, field: &str, began: DateTime, ahead: i64) {
    let time = *document.get_datetime(field).unwrap();
    let first = began.timestamp_millis() + ahead * MINUTE - SLACK;
    let last = from_now(ahead * MINUTE + SLACK).timestamp_millis();
    assert!((first..=last).contains(&time.timestamp_millis()), "{field} of {document}");
}

#[test]
fn every_time_that_an_interface_writes_is_the_databases() {
    for home in both() {
        home.queue("q");
        for ahead in AHEAD {
            let dci = dci(&home, ahead);
            let began = DateTime::now();
            let body = json!({"queue": "q", "params": {"a": 1}, ".delay": 3600});
            let answer = dci.http.post("/tasks", &body).ok();
            let id = oid(&answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]);
            let id = ObjectId::parse_str(id).unwrap();
            let made = home.mongo.get("tasks", id);
            for field in ["ctime", "mtime"] {
                by_the_database(&made, field, began, ahead);
            }
            let own = made.get_document("windlass").unwrap();
            by_the_database(own, "not_before", began, ahead + 60);
            for (verb, status) in [("cancel", -5), ("retry", -2)] {
                dci.http.ask("POST", &format!("/tasks/{id}/{verb}"), &[], b"").ok();
                let changed = home.mongo.get("tasks", id);
                assert_eq!(home.status(id), status);
                by_the_database(&changed, "mtime", began, ahead);
            }
        }
    }
}

/// A node whose timestamp is fresh for the database is live, and one that is old for it is not.
#[test]
fn who_lives_is_told_by_the_databases_clock() {
    let home = Home::released();
    let nodes = ["fresh", "old"]
        .map(|name| home.mongo.insert("nodes", doc! {"node": name, "timestamp": from_now(0)}));
    for ahead in AHEAD {
        let dci = dci(&home, ahead);
        // Before each look, because a look may take longer than the window.
        until("it is live", || {
            home.mongo.set("nodes", nodes[0], doc! {"timestamp": from_now(ahead * MINUTE)});
            let old = from_now((ahead - 6) * MINUTE);
            home.mongo.set("nodes", nodes[1], doc! {"timestamp": old});
            let listed = dci.http.get("/nodes").ok();
            assert_eq!(listed[1]["live"], json!(false), "{listed}");
            let told = dci.http.get("/monitoring").ok()["disbatch"].clone();
            assert!(told["nodes"]["stale"]["old"].is_i64(), "{told}");
            listed[0]["live"] == json!(true) && told["nodes"]["fresh"]["fresh"].is_i64()
        });
    }
}
