//! `changelog`: a copy of each document after its change.

use std::collections::BTreeMap;

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::json;

use crate::harness::{DEMO, Home, both};

type Fields = BTreeMap<String, Bson>;

fn fields(document: Document) -> Fields {
    document.into_iter().collect()
}

/// The newest entry, without its own id.
#[track_caller]
fn newest(home: &Home, count: usize) -> Fields {
    let mut all = home.mongo.all("changelog", doc! {});
    assert_eq!(all.len(), count, "{all:?}");
    let mut entry = fields(all.pop().unwrap());
    entry.remove("_id").unwrap();
    entry
}

/// What must be recorded of a document.
fn copy(mut document: Document, collection: &str) -> Fields {
    let id = document.remove("_id").unwrap();
    document.insert("id", id);
    document.insert("collection", collection);
    fields(document)
}

fn only(home: &Home, collection: &str) -> Document {
    let mut all = home.mongo.all(collection, doc! {});
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn every_change_is_written_down_with_the_whole_document() {
    for home in both() {
        let dci = home.dci();
        let body = json!({"name": "q", "plugin": DEMO, "threads": 3, "sort": "fifo"});
        dci.http.post("/queues", &body).ok();
        assert_eq!(newest(&home, 1), copy(only(&home, "queues"), "queues"));
        dci.http.post("/queues/q", &json!({"name": "r", "threads": null, "sort": null})).ok();
        assert_eq!(newest(&home, 2), copy(only(&home, "queues"), "queues"));
        let id = only(&home, "queues").get_object_id("_id").unwrap();
        home.mongo.set("queues", id, doc! {"mine": {"kept": [1, 2]}});
        let mut last = copy(only(&home, "queues"), "queues");
        last.insert("deleted".to_owned(), Bson::Boolean(true));
        dci.http.delete("/queues/r").ok();
        assert_eq!(newest(&home, 3), last);

        let entry = doc! {"node": "one", "timestamp": DateTime::now(), "rack": "b4"};
        home.mongo.insert("nodes", entry);
        dci.http.post("/nodes/one", &json!({"maxthreads": 5})).ok();
        assert_eq!(newest(&home, 4), copy(only(&home, "nodes"), "nodes"));
        dci.http.post("/nodes/one", &json!({"maxthreads": null})).ok();
        assert_eq!(newest(&home, 5), copy(only(&home, "nodes"), "nodes"));

        home.queue("bulk");
        let plan = json!({"max_tasks": {"* 07:00": 1}, "queues": [["bulk"]]});
        dci.http.post("/balance", &plan).ok();
        assert_eq!(newest(&home, 6), copy(only(&home, "balance"), "balance"));
    }
}

/// A refused request, or one without effect, is not a change.
#[test]
fn what_is_no_change_is_not_written_down() {
    for home in both() {
        let dci = home.dci();
        home.queue_with("q", doc! {home.dialect.limit(): 1_i64});
        home.mongo.insert("nodes", doc! {"node": "one", "timestamp": DateTime::now()});
        dci.http.post("/queues", &json!({"name": "a", "plugin": "Fake"})).bad();
        dci.http.post("/queues/q", &json!({"threads": -1})).bad();
        dci.http.post("/queues/none", &json!({"threads": 1})).bad();
        dci.http.post("/queues/q", &json!({"threads": 1})).ok();
        dci.http.delete("/queues/none").bad();
        dci.http.post("/nodes/one", &json!({"maxthreads": -1})).bad();
        dci.http.post("/nodes/none", &json!({"maxthreads": 1})).bad();
        dci.http.post("/balance", &json!({})).bad();
        assert_eq!(home.mongo.all("changelog", doc! {}), []);
    }
}
