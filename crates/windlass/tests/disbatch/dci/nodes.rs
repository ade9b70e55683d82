//! `/nodes`: which nodes exist, which are live, and how many tasks a node may run.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, number, oid, until};

/// The entry of a foreign node of this age.
fn node(name: &str, age: u64) -> Document {
    let timestamp =
        DateTime::from_system_time(DateTime::now().to_system_time() - Duration::from_secs(age));
    doc! {"node": name, "timestamp": timestamp}
}

/// A window that no slow machine exceeds.
fn patient(home: &Home) -> Dci {
    home.dci_with(json!({"dashboard": {"live_window_ms": 3_600_000}}))
}

/// The list of nodes: an array in both dialects, as the current interface answers.
fn nodes(dci: &Dci) -> Vec<Value> {
    let answer = dci.http.get("/nodes").ok();
    answer.as_array().unwrap_or_else(|| panic!("no list: {answer}")).clone()
}

#[test]
fn an_empty_network_has_no_nodes() {
    for home in both() {
        assert_eq!(nodes(&home.dci()), Vec::<Value>::new());
    }
}

#[test]
fn nodes_are_listed_by_name_with_id_and_milliseconds() {
    for home in both() {
        let dci = patient(&home);
        home.mongo.insert("nodes", node("beta.example", 0));
        let mut second = node("alpha.example", 0);
        second.insert("maxthreads", 5);
        let stamp = second.get_datetime("timestamp").unwrap().timestamp_millis();
        let id = home.mongo.insert("nodes", second).to_hex();
        let listed = nodes(&dci);
        let names: Vec<&str> = listed.iter().map(|node| node["node"].as_str().unwrap()).collect();
        assert_eq!(names, ["alpha.example", "beta.example"]);
        assert_eq!(listed[0]["id"], json!(id));
        assert_eq!(oid(&listed[0]["_id"]), id);
        assert_eq!(listed[0]["timestamp"], json!(stamp));
        assert_eq!(listed[0]["maxthreads"], json!(5));
        assert_eq!(listed[0]["live"], json!(true));
        assert!(listed[1].get("maxthreads").is_none_or(Value::is_null), "{}", listed[1]);
    }
}

#[test]
fn a_node_that_is_silent_for_longer_than_the_window_is_not_live() {
    let home = Home::released();
    let fresh = home.mongo.insert("nodes", node("a", 0));
    for (name, age) in [("b", 16), ("c", 60), ("d", 864_000)] {
        home.mongo.insert("nodes", node(name, age));
    }
    let live =
        |dci: &Dci| -> Vec<Value> { nodes(dci).iter().map(|node| node["live"].clone()).collect() };
    let dci = home.dci();
    // It sends a heartbeat before each look, because a look may take longer than the window.
    until("it is live", || {
        let beat = doc! {"timestamp": node("a", 0).get_datetime("timestamp").unwrap()};
        home.mongo.set("nodes", fresh, beat);
        let live = live(&dci);
        assert_eq!(live[1..], [json!(false), json!(false), json!(false)]);
        live[0] == json!(true)
    });
    let wide = home.dci_with(json!({"dashboard": {"live_window_ms": 3_600_000}}));
    assert_eq!(live(&wide), [json!(true), json!(true), json!(true), json!(false)]);
}

#[test]
fn the_queues_of_a_first_nodes_entry_are_shown() {
    let home = Home::seed();
    let mut entry = node("mig01.example.com", 0);
    entry.insert("queues", vec![doc! {"name": "demo", "id": "571f8951b75bf335634ec271"}]);
    home.mongo.insert("nodes", entry);
    let listed = nodes(&home.dci());
    assert_eq!(listed[0]["queues"], json!([{"name": "demo", "id": "571f8951b75bf335634ec271"}]));
}

#[test]
fn a_node_is_found_by_its_id_or_its_name() {
    for home in both() {
        let dci = patient(&home);
        let id = home.mongo.insert("nodes", node("mig01.example.com", 0)).to_hex();
        home.mongo.insert("nodes", node("other", 0));
        let by_id = dci.http.get(&format!("/nodes/{id}")).ok();
        assert_eq!(by_id["node"], json!("mig01.example.com"));
        assert_eq!(by_id["id"], json!(id));
        assert_eq!(by_id["live"], json!(true));
        assert_eq!(dci.http.get("/nodes/mig01.example.com").ok(), by_id);
    }
}

#[test]
fn names_of_nodes_may_hold_anything() {
    let home = Home::released();
    let dci = home.dci();
    for name in ["a b", "ä€😀", "100%", "a+b", "a/b", "$ne", "{\"$gt\":\"\"}"] {
        home.mongo.insert("nodes", node(name, 0));
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(dci.http.get(&format!("/nodes/{path}")).ok()["node"], json!(name));
        let set = dci.http.post(&format!("/nodes/{path}"), &json!({"maxthreads": 3})).ok();
        assert_eq!(set["MongoDB::UpdateResult"]["matched_count"], json!(1), "{name}");
        let stored = home.mongo.one("nodes", doc! {"node": name}).unwrap();
        assert_eq!(number(stored.get("maxthreads")), Some(3), "{name}");
    }
}

#[test]
fn a_node_that_is_not_there_is_null() {
    for home in both() {
        let dci = home.dci();
        home.mongo.insert("nodes", node("one", 0));
        assert_eq!(dci.http.get("/nodes/two").ok(), Value::Null);
        assert_eq!(dci.http.get("/nodes/571f8951b75bf335634ec271").ok(), Value::Null);
    }
}

#[test]
fn the_limit_of_a_node_is_set_by_id_and_by_name() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.mongo.insert("nodes", node("one", 0));
    let other = home.mongo.insert("nodes", node("two", 0));
    for (path, body, stored) in [
        ("one".to_owned(), json!(5), Some(5)),
        (id.to_hex(), json!(0), Some(0)),
        ("one".to_owned(), Value::Null, None),
        (id.to_hex(), json!(2_000_000_000), Some(2_000_000_000)),
    ] {
        let answer = dci.http.post(&format!("/nodes/{path}"), &json!({"maxthreads": body})).ok();
        assert_eq!(
            answer,
            json!({"MongoDB::UpdateResult": {
                "matched_count": 1, "modified_count": 1, "upserted_id": null,
                "write_errors": [], "write_concern_errors": [],
            }})
        );
        let document = home.mongo.get("nodes", id);
        assert_eq!(number(document.get("maxthreads")), stored);
        assert_eq!(
            document.get("maxthreads").is_some_and(|value| *value == Bson::Null),
            stored.is_none()
        );
    }
    assert!(!home.mongo.get("nodes", other).contains_key("maxthreads"));
}

#[test]
fn a_limit_in_a_form_or_a_query_is_stored_as_a_number() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.mongo.insert("nodes", node("one", 0));
    dci.http.post_form("/nodes/one", &[("maxthreads", "7")]).ok();
    assert_eq!(number(home.mongo.get("nodes", id).get("maxthreads")), Some(7));
    dci.http.ask("POST", "/nodes/one?maxthreads=8", &[], b"").ok();
    assert_eq!(number(home.mongo.get("nodes", id).get("maxthreads")), Some(8));
}

#[test]
fn setting_the_same_limit_again_modifies_nothing_and_is_no_error() {
    let home = Home::released();
    let dci = home.dci();
    home.mongo.insert("nodes", node("one", 0));
    dci.http.post("/nodes/one", &json!({"maxthreads": 5})).ok();
    let again = dci.http.post("/nodes/one", &json!({"maxthreads": 5})).ok();
    assert_eq!(again["MongoDB::UpdateResult"]["matched_count"], json!(1));
    assert_eq!(again["MongoDB::UpdateResult"]["modified_count"], json!(0));
    assert_eq!(home.mongo.count("changelog", doc! {}), 1);
}

/// Weakness 12: the original read the whole entry and wrote it back.
#[test]
fn setting_a_limit_changes_nothing_else_of_the_entry() {
    for home in both() {
        let dci = home.dci();
        let mut entry = node("one", 0);
        entry.extend(doc! {"queues": [{"name": "demo"}], "windlass": {"beat": 5_i64}, "x": 1.5});
        let id = home.mongo.insert("nodes", entry);
        let before = home.mongo.get("nodes", id);
        dci.http.post("/nodes/one", &json!({"maxthreads": 5})).ok();
        let mut after = home.mongo.get("nodes", id);
        after.remove("maxthreads");
        assert_eq!(after, before);
    }
}

#[test]
fn a_changed_limit_is_in_the_changelog() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.mongo.insert("nodes", node("one", 0));
    dci.http.post("/nodes/one", &json!({"maxthreads": 5})).ok();
    let logged = home.mongo.all("changelog", doc! {});
    assert_eq!(logged.len(), 1);
    assert_eq!(logged[0].get_str("collection").unwrap(), "nodes");
    assert_eq!(logged[0].get_object_id("id").unwrap(), id);
    assert_ne!(logged[0].get_object_id("_id").unwrap(), id);
    assert_eq!(logged[0].get_str("node").unwrap(), "one");
    assert_eq!(number(logged[0].get("maxthreads")), Some(5));
}

#[test]
fn a_post_to_a_node_without_parameters_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    home.mongo.insert("nodes", node("one", 0));
    let refused = json!({"error": "No params"});
    assert_eq!(dci.http.post("/nodes/one", &json!({})).bad(), refused);
    assert_eq!(dci.http.ask("POST", "/nodes/one", &[], b"").bad(), refused);
    assert_eq!(dci.http.post_form("/nodes/one", &[]).bad(), refused);
}

#[test]
fn a_parameter_that_a_node_does_not_have_is_named() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.mongo.insert("nodes", node("one", 0));
    let before = home.mongo.get("nodes", id);
    for name in ["node", "timestamp", "_id", "maxThreads", "$set", "windlass.boot", ""] {
        let answer = dci.http.post("/nodes/one", &json!({"maxthreads": 5, name: 1})).bad();
        assert_eq!(answer, json!({"error": "Invalid param", "param": name}));
    }
    assert_eq!(home.mongo.get("nodes", id), before);
}

#[test]
fn a_limit_that_is_no_whole_number_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.mongo.insert("nodes", node("one", 0));
    let before = home.mongo.get("nodes", id);
    let refused = json!({"error": "maxthreads must be a non-negative integer or null"});
    for value in wrong_numbers() {
        let answer = dci.http.post("/nodes/one", &json!({"maxthreads": value}));
        assert_eq!(answer.bad(), refused, "{value}");
    }
    for value in ["", "-1", "1.5", "five", "1e3", " 1", "0x10", "99999999999999999999", "null"] {
        let answer = dci.http.post_form("/nodes/one", &[("maxthreads", value)]);
        assert_eq!(answer.bad(), refused, "{value}");
    }
    assert_eq!(home.mongo.get("nodes", id), before);
    assert_eq!(home.mongo.count("changelog", doc! {}), 0);
}

fn wrong_numbers() -> Vec<Value> {
    vec![
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!(true),
        json!("five"),
        json!(""),
        json!([5]),
        json!({}),
        json!({"$inc": 5}),
    ]
}

#[test]
fn a_limit_for_a_node_that_is_not_there_is_refused_with_the_result() {
    let home = Home::released();
    let dci = home.dci();
    for path in ["/nodes/nobody", "/nodes/571f8951b75bf335634ec271"] {
        let answer = dci.http.post(path, &json!({"maxthreads": 5})).bad();
        let result = json!({
            "matched_count": 0, "modified_count": 0, "upserted_id": null,
            "write_errors": [], "write_concern_errors": [],
        });
        assert_eq!(answer, json!({"MongoDB::UpdateResult": result, "error": result}));
    }
    assert_eq!(home.mongo.count("nodes", doc! {}), 0);
}

/// Whatever is in the collection, the others are still shown.
#[test]
fn entries_with_wrong_types_do_not_hide_the_others() {
    for home in both() {
        let dci = patient(&home);
        let long = DateTime::from_millis(253_402_300_799_000);
        for (name, timestamp) in [
            (Bson::from("a"), Bson::Null),
            (Bson::from("b"), Bson::from("yesterday")),
            (Bson::from("c"), Bson::from(1_700_000_000)),
            (Bson::from("d"), Bson::from(1.5)),
            (Bson::from("e"), Bson::from(long)),
            (Bson::from(5), Bson::from(DateTime::now())),
            (Bson::Null, Bson::from(doc! {})),
        ] {
            home.mongo
                .insert("nodes", doc! {"node": name, "timestamp": timestamp, "maxthreads": {}});
        }
        home.mongo.insert("nodes", doc! {});
        home.mongo.insert("nodes", node("good", 0));
        let listed = nodes(&dci);
        assert_eq!(listed.len(), 9);
        let good = listed.iter().find(|node| node["node"] == "good").unwrap();
        assert_eq!(good["live"], json!(true));
        let odd = listed.iter().find(|node| node["node"] == "b").unwrap();
        assert_eq!(odd["live"], json!(false));
        assert!(dci.http.get("/monitoring").status == 200);
    }
}
