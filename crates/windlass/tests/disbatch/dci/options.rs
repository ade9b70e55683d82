//! What Windlass adds to `POST /tasks`: priority, waiting, time limits and retries, in fields that
//! no foreign program reads.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, number, oid, plain};

/// The tasks created by a request with these options, one after the other.
fn made(home: &Home, dci: &Dci, options: Value) -> Vec<Document> {
    let mut body = json!({"queue": "demo", "params": [{"n": 1}, {"n": 2}]});
    for (name, value) in options.as_object().unwrap() {
        body[name] = value.clone();
    }
    let answer = dci.http.post("/tasks", &body).ok();
    let inserted = answer["MongoDB::InsertManyResult"]["inserted"].as_array().unwrap().clone();
    let task =
        |entry: &Value| home.mongo.get("tasks", ObjectId::parse_str(oid(&entry["_id"])).unwrap());
    inserted.iter().map(task).collect()
}

#[test]
fn a_task_without_options_has_no_field_of_ours() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        for task in made(&home, &dci, json!({})) {
            assert!(!task.contains_key("windlass"), "{task}");
        }
        assert!(!home.mongo.get("queues", queue).contains_key("windlass"));
    }
}

#[test]
fn priority_time_limit_and_retries_stand_in_each_task() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let options = json!({".priority": 5, ".timeout": "60", ".retries": 2});
        for task in made(&home, &dci, options) {
            let ours = json!({"priority": 5, "timeout": 60, "retries": 2});
            assert_eq!(plain(task.get("windlass")), ours);
            assert_eq!(number(task.get("status")), Some(-2));
        }
        let stored = home.mongo.get("queues", queue);
        assert_eq!(plain(stored.get("windlass")), json!({"priorities": true}));
    }
}

#[test]
fn a_task_that_waits_is_parked() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let other = home.task(queue, -2);
        let later = DateTime::from_millis(4_102_444_800_000);
        for (option, value, field, expected) in [
            (".not_before", json!("2100-01-01T00:00:00Z"), "not_before", doc! {"x": later}),
            (".not_before", json!(4_102_444_800_i64), "not_before", doc! {"x": later}),
            (".after", json!([other.to_hex()]), "after", doc! {"x": [other]}),
            (".after", json!(other.to_hex()), "after", doc! {"x": [other]}),
        ] {
            for task in made(&home, &dci, json!({option: value})) {
                assert_eq!(number(task.get("status")), Some(-4), "{option} {value}");
                assert_eq!(plain(task.get("node")), plain(Some(&home.dialect.nobody())));
                let ours = task.get_document("windlass").unwrap();
                assert_eq!(ours.get(field), expected.get("x"), "{option} {value}");
            }
        }
    }
}

#[test]
fn a_delay_counts_from_now() {
    let home = Home::seed();
    let dci = home.dci();
    home.queue("demo");
    for task in made(&home, &dci, json!({".delay": 3600})) {
        let ctime = task.get_datetime("ctime").unwrap().timestamp_millis();
        let due = task.get_document("windlass").unwrap().get_datetime("not_before").unwrap();
        let wait = due.timestamp_millis() - ctime;
        assert!((3_500_000..=3_600_000).contains(&wait), "{wait}");
    }
}

#[test]
fn what_is_due_already_does_not_wait() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    for options in [json!({".delay": 0}), json!({".not_before": 1}), json!({".after": []})] {
        for task in made(&home, &dci, options) {
            assert_eq!(number(task.get("status")), Some(-2));
            assert!(!task.contains_key("windlass"), "{task}");
        }
    }
}

#[test]
fn tasks_of_a_collection_have_the_options_too() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("demo");
    home.mongo.insert_many("users", vec![doc! {"n": 1}, doc! {"n": 2}]);
    let body = json!({
        "queue": "demo", "collection": "users", "filter": {}, "params": {"n": "document.n"},
        ".priority": 7,
    });
    dci.http.post("/tasks", &body).ok();
    for task in home.mongo.all("tasks", doc! {"queue": queue}) {
        assert_eq!(plain(task.get("windlass")), json!({"priority": 7}));
    }
}

#[test]
fn options_that_mean_nothing_are_refused_and_nothing_is_made() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let missing = ObjectId::new().to_hex();
        for (name, value) in [
            (".priority", json!("high")),
            (".priority", json!(-1)),
            (".priority", json!(1_000_001)),
            (".delay", json!(-1)),
            (".delay", json!("soon")),
            (".not_before", json!("tomorrow")),
            (".not_before", json!({"$gt": 1})),
            (".after", json!("x")),
            (".after", json!([{"$gt": 1}])),
            (".timeout", json!(0)),
            (".timeout", json!(1.5)),
            (".retries", json!(-1)),
            (".retries", json!(1001)),
            (".prio", json!(1)),
        ] {
            let body = json!({"queue": "demo", "params": {"n": 1}, name: value});
            let told = dci.http.post("/tasks", &body).bad();
            let told = told["error"].as_str().unwrap();
            assert!(told.contains(name) || told.starts_with("Bad OID passed"), "{body}: {told}");
        }
        let body = json!({"queue": "demo", "params": {"n": 1}, ".after": [missing]});
        let told = dci.http.post("/tasks", &body).bad();
        assert_eq!(told["error"], json!(format!("no task with id {missing}")));
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}
