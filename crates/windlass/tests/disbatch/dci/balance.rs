//! `/balance` and `/monitoring`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, number, plain, until_some};

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

fn network(home: &Home) -> Dci {
    for name in ["oneoff", "bulk", "api"] {
        home.queue(name);
    }
    home.dci_with(json!({"balance": {"enabled": false, "log": 1, "verbose": 0, "pretend": 0}}))
}

fn good() -> Value {
    json!({
        "max_tasks": {"* 07:00": 1, "* 19:00": 5, "0 00:00": 0, "6 23:59": 100},
        "queues": [["bulk"], ["api"], ["oneoff"]],
    })
}

#[test]
fn a_balance_that_nobody_made_is_reported() {
    for home in both() {
        let dci = network(&home);
        let mut told = dci.http.get("/balance").ok();
        told["known_queues"].as_array_mut().unwrap().sort_by_key(ToString::to_string);
        assert_eq!(
            told,
            json!({
                "known_queues": ["api", "bulk", "oneoff"],
                "notice": "balance document not found",
                "settings": {"enabled": false, "log": 1, "verbose": 0, "pretend": 0},
            })
        );
    }
}

#[test]
fn a_balance_is_set_and_shown() {
    for home in both() {
        let dci = network(&home);
        let done = dci.http.post("/balance", &good()).ok();
        assert_eq!(done, json!({"status": "success: queuebalance modified"}));
        let stored = home.mongo.all("balance", doc! {});
        assert_eq!(stored.len(), 1);
        assert_eq!(plain(stored[0].get("max_tasks")), good()["max_tasks"]);
        assert_eq!(plain(stored[0].get("queues")), good()["queues"]);
        let told = dci.http.get("/balance").ok();
        assert_eq!(told["max_tasks"], good()["max_tasks"]);
        assert_eq!(told["queues"], good()["queues"]);
        assert!(told.get("notice").is_none() && told.get("_id").is_none(), "{told}");
        let other = json!({"max_tasks": {"* 00:00": 3}, "queues": [["bulk", "api"]]});
        dci.http.post("/balance", &other).ok();
        assert_eq!(home.mongo.count("balance", doc! {}), 1);
        assert_eq!(dci.http.get("/balance").ok()["queues"], other["queues"]);
        assert_eq!(dci.http.get("/balance").ok()["max_tasks"], other["max_tasks"]);
    }
}

#[test]
fn what_the_balancer_wrote_is_kept_and_shown() {
    let home = Home::released();
    let dci = network(&home);
    let stamp = now();
    home.mongo.insert("balance", doc! {"status": "OK", "message": "fine", "timestamp": stamp});
    dci.http.post("/balance", &good()).ok();
    let told = dci.http.get("/balance").ok();
    assert_eq!(told["status"], json!("OK"));
    assert_eq!(told["message"], json!("fine"));
    assert_eq!(told["timestamp"], json!(stamp));
}

#[test]
fn a_balance_may_be_off_until_later() {
    let home = Home::released();
    let dci = network(&home);
    let mut body = good();
    body["disabled"] = json!(now() + 3600);
    dci.http.post("/balance", &body).ok();
    assert_eq!(dci.http.get("/balance").ok()["disabled"], body["disabled"]);
    for wrong in [json!(now() - 3600), json!("later"), json!(-1), json!(1.5), json!({}), json!([])]
    {
        body["disabled"] = wrong.clone();
        let told = dci.http.post("/balance", &body).bad();
        assert!(
            told["status"].as_str().unwrap().starts_with("failed: invalid json passed"),
            "{wrong}"
        );
    }
}

#[test]
fn numbers_of_tasks_may_be_text() {
    let home = Home::released();
    let dci = network(&home);
    let body = json!({"max_tasks": {"* 07:00": "5"}, "queues": [["bulk"]]});
    dci.http.post("/balance", &body).ok();
    let stored = home.mongo.all("balance", doc! {});
    assert_eq!(plain(stored[0].get("max_tasks")), json!({"* 07:00": 5}));
}

#[test]
fn a_balance_that_cannot_be_is_refused() {
    for home in both() {
        let dci = network(&home);
        dci.http.post("/balance", &good()).ok();
        let before = home.mongo.all("balance", doc! {});
        let times = good()["max_tasks"].clone();
        let queues = good()["queues"].clone();
        for body in [
            json!({}),
            json!([]),
            json!("x"),
            json!({"max_tasks": times}),
            json!({"queues": queues}),
            json!({"max_tasks": times, "queues": queues, "foo": "bar"}),
            json!({"max_tasks": times, "queues": queues, "status": "OK"}),
            json!({"max_tasks": "foo", "queues": queues}),
            json!({"max_tasks": [], "queues": queues}),
            json!({"max_tasks": null, "queues": queues}),
            json!({"max_tasks": times, "queues": "bulk"}),
            json!({"max_tasks": times, "queues": {"a": ["bulk"]}}),
            json!({"max_tasks": times, "queues": ["bulk", ["api"]]}),
            json!({"max_tasks": times, "queues": [["bulk"], ["FOOBAR"]]}),
            json!({"max_tasks": times, "queues": [["bu lk"]]}),
            json!({"max_tasks": times, "queues": [["bulk,api"]]}),
            json!({"max_tasks": times, "queues": [["b.*"]]}),
            json!({"max_tasks": times, "queues": [["bulk"], ["api", "bulk"]]}),
            json!({"max_tasks": times, "queues": [["bulk", "bulk"]]}),
            json!({"max_tasks": times, "queues": [[5]]}),
            json!({"max_tasks": times, "queues": [[{"$gt": ""}]]}),
            json!({"max_tasks": times, "queues": [[["bulk"]]]}),
            json!({"max_tasks": {"7 07:00": 1}, "queues": queues}),
            json!({"max_tasks": {"* 24:00": 1}, "queues": queues}),
            json!({"max_tasks": {"* 07:60": 1}, "queues": queues}),
            json!({"max_tasks": {"* 7:00": 1}, "queues": queues}),
            json!({"max_tasks": {"*  07:00": 1}, "queues": queues}),
            json!({"max_tasks": {"07:00": 1}, "queues": queues}),
            json!({"max_tasks": {"* 07:00\n": 1}, "queues": queues}),
            json!({"max_tasks": {"$set": 1}, "queues": queues}),
            json!({"max_tasks": {"": 1}, "queues": queues}),
            json!({"max_tasks": {"* 07:00": 1.1}, "queues": queues}),
            json!({"max_tasks": {"* 07:00": -1}, "queues": queues}),
            json!({"max_tasks": {"* 07:00": "x"}, "queues": queues}),
            json!({"max_tasks": {"* 07:00": null}, "queues": queues}),
            json!({"max_tasks": {"* 07:00": []}, "queues": queues}),
        ] {
            let told = dci.http.post("/balance", &body);
            assert_eq!(told.status, 400, "{body}: {}", told.text());
            let told = told.json();
            let keys: Vec<&String> = told.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["status"], "{body}");
            let text = told["status"].as_str().unwrap();
            assert!(text.starts_with("failed: invalid json passed"), "{body} {text}");
        }
        assert_eq!(home.mongo.all("balance", doc! {}), before);
    }
}

#[test]
fn a_changed_balance_is_in_the_changelog() {
    let home = Home::released();
    let dci = network(&home);
    dci.http.post("/balance", &good()).ok();
    let id = home.mongo.all("balance", doc! {})[0].get_object_id("_id").unwrap();
    let mut other = good();
    other["queues"] = json!([["bulk"]]);
    dci.http.post("/balance", &other).ok();
    let logged = home.mongo.all("changelog", doc! {});
    assert_eq!(logged.len(), 2);
    for (entry, queues) in logged.iter().zip([good()["queues"].clone(), json!([["bulk"]])]) {
        assert_eq!(entry.get_str("collection").unwrap(), "balance");
        assert_eq!(entry.get_object_id("id").unwrap(), id);
        assert_eq!(plain(entry.get("queues")), queues);
    }
}

fn monitored(home: &Home, balance: bool) -> Dci {
    home.dci_with(json!({"monitoring": true, "balance": {"enabled": balance}}))
}

fn node(home: &Home, name: &str, age: u64) {
    let stamp = DateTime::now().to_system_time() - Duration::from_secs(age);
    home.mongo.insert("nodes", doc! {"node": name, "timestamp": DateTime::from_system_time(stamp)});
}

#[test]
fn monitoring_that_is_off_is_ok() {
    for home in both() {
        for keys in [json!({}), json!({"monitoring": false, "balance": {"enabled": true}})] {
            let off = json!({"status": "OK", "message": "monitoring disabled"});
            let told = home.dci_with(keys).http.get("/monitoring").ok();
            assert_eq!(told, json!({"disbatch": off, "queuebalance": off}));
        }
    }
}

#[test]
fn a_network_without_nodes_is_a_warning() {
    for home in both() {
        let told = monitored(&home, false).http.get("/monitoring").ok();
        assert_eq!(told["disbatch"]["status"], json!("WARNING"));
        assert_eq!(told["disbatch"]["message"], json!("No Disbatch nodes found"));
        let off = json!({"status": "OK", "message": "queuebalance disabled"});
        assert_eq!(told["queuebalance"], off);
    }
}

#[test]
fn a_network_with_a_fresh_node_is_ok() {
    for home in both() {
        node(&home, "stale.example", 3600);
        let dci = monitored(&home, false);
        // It sends a heartbeat before each look, because a look may take longer than the window.
        let told = until_some("a node is fresh", || {
            let gone = doc! {"node": "fresh.example"};
            if let Some(before) = home.mongo.one("nodes", gone) {
                home.mongo.delete("nodes", before.get_object_id("_id").unwrap());
            }
            node(&home, "fresh.example", 0);
            let told = dci.http.get("/monitoring").ok()["disbatch"].clone();
            (told["status"] == json!("OK")).then_some(told)
        });
        assert_eq!(told["message"], json!("Disbatch is running on one or more nodes"));
        let nodes = &told["nodes"];
        assert_eq!(nodes["fresh"].as_object().unwrap().len(), 1, "{told}");
        assert!(nodes["fresh"]["fresh.example"].as_i64().unwrap() < 15, "{told}");
        assert_eq!(nodes["stale"].as_object().unwrap().len(), 1, "{told}");
        let age = nodes["stale"]["stale.example"].as_i64().unwrap();
        assert!((3600..7200).contains(&age), "{age} seconds");
    }
}

#[test]
fn a_network_of_silent_nodes_is_critical() {
    for home in both() {
        node(&home, "stale.example", 3600);
        let told = monitored(&home, false).http.get("/monitoring").ok()["disbatch"].clone();
        assert_eq!(told["status"], json!("CRITICAL"));
        assert_eq!(told["message"], json!("No active Disbatch nodes found"));
        assert!(told["nodes"]["stale"]["stale.example"].is_i64(), "{told}");
        assert!(told["nodes"].get("fresh").is_none_or(|fresh| *fresh == json!({})), "{told}");
    }
}

/// A network whose balance is managed by another interface, so that this one leaves it alone.
fn followed_elsewhere(home: &Home, fields: Document) -> Dci {
    let until = DateTime::now().to_system_time() + Duration::from_secs(3600);
    let mut document = fields;
    let lease = doc! {"balancer": "another", "until": DateTime::from_system_time(until)};
    document.insert("windlass", lease);
    home.mongo.insert("balance", document);
    monitored(home, true)
}

#[test]
fn a_balancer_that_is_silent_is_critical() {
    let home = Home::released();
    let dci = followed_elsewhere(&home, doc! {});
    let told = || dci.http.get("/monitoring").ok()["queuebalance"].clone();
    assert_eq!(told()["status"], json!("CRITICAL"), "it never ran");
    let silent = doc! {"status": "OK", "message": "fine", "timestamp": now() - 120};
    home.mongo.update("balance", doc! {}, doc! {"$set": silent});
    let silent = told();
    assert_eq!(silent["status"], json!("CRITICAL"));
    let text = silent["message"].as_str().unwrap();
    let seconds = text.strip_prefix("queuebalanced not running for ").unwrap();
    let seconds: i64 = seconds.strip_suffix('s').unwrap().parse().unwrap();
    assert!((120..3600).contains(&seconds), "{text}");
}

#[test]
fn a_balancer_that_runs_is_what_it_says() {
    let home = Home::released();
    let dci = followed_elsewhere(&home, doc! {});
    for status in ["OK", "WARNING", "CRITICAL"] {
        let document = doc! {"status": status, "message": "as it says", "timestamp": now()};
        home.mongo.update("balance", doc! {}, doc! {"$set": document});
        let told = dci.http.get("/monitoring").ok()["queuebalance"].clone();
        assert_eq!(told["status"], json!(status));
        assert_eq!(told["message"], json!("as it says"));
    }
    for status in [Bson::from("fine"), Bson::Null, Bson::from(5)] {
        home.mongo.update(
            "balance",
            doc! {},
            doc! {"$set": {"status": status, "timestamp": now()}},
        );
        let told = dci.http.get("/monitoring").ok()["queuebalance"].clone();
        assert_eq!(told["status"], json!("CRITICAL"));
    }
}

#[test]
fn a_balance_document_with_wrong_types_is_shown() {
    for home in both() {
        let odd =
            doc! {"queues": 5, "max_tasks": "x", "timestamp": "x", "status": {}, "message": []};
        let dci = followed_elsewhere(&home, odd);
        let told = dci.http.get("/balance").ok();
        assert!(told["queues"] == json!(5) && told.get("windlass").is_none(), "{told}");
        assert_eq!(dci.http.get("/monitoring").ok()["queuebalance"]["status"], json!("CRITICAL"));
    }
}

#[test]
fn queues_are_balanced_by_the_interface() {
    for home in both() {
        let limit = home.dialect.limit();
        let bulk = home.queue_with("bulk", doc! {limit: 1});
        let api = home.queue_with("api", doc! {limit: 1});
        home.add(bulk, 9);
        home.add(api, 2);
        let plan = doc! {"max_tasks": {"* 00:00": 5}, "queues": [["bulk"], ["api"]]};
        home.mongo.insert("balance", plan);
        let dci = monitored(&home, true);
        crate::harness::until("the limits are moved", || {
            let limit_of = |queue| number(home.mongo.get("queues", queue).get(limit));
            limit_of(bulk) == Some(3) && limit_of(api) == Some(2)
        });
        crate::harness::until("the balancer tells", || {
            let running = json!({"status": "OK", "message": "QueueBalance is running"});
            dci.http.get("/monitoring").ok()["queuebalance"] == running
        });
    }
}

#[test]
fn a_balance_that_only_the_balancer_began_is_reported() {
    for home in both() {
        let dci = monitored(&home, true);
        crate::harness::until("the balancer has told", || {
            let running = json!({"status": "OK", "message": "QueueBalance is running"});
            dci.http.get("/monitoring").ok()["queuebalance"] == running
        });
        let told = dci.http.get("/balance").ok();
        assert_eq!(told["notice"], json!("balance document not found"), "{told}");
        assert!(told.get("queues").is_none(), "{told}");
        dci.http.post("/balance", &json!({"max_tasks": {}, "queues": []})).ok();
        let told = dci.http.get("/balance").ok();
        assert!(told.get("notice").is_none(), "{told}");
        assert_eq!(told["queues"], json!([]));
    }
}

#[test]
fn in_pretence_no_limit_is_moved() {
    let home = Home::released();
    let bulk = home.queue_with("bulk", doc! {"threads": 1});
    home.task(bulk, -2);
    home.task(bulk, -2);
    let plan = doc! {"max_tasks": {"* 00:00": 5}, "queues": [["bulk"]]};
    home.mongo.insert("balance", plan);
    let dci =
        home.dci_with(json!({"monitoring": true, "balance": {"enabled": true, "pretend": true}}));
    crate::harness::until("the balancer tells", || {
        dci.http.get("/monitoring").ok()["queuebalance"]["status"] == json!("OK")
    });
    assert_eq!(number(home.mongo.get("queues", bulk).get("threads")), Some(1));
}
