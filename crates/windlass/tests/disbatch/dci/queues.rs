//! `/queues`: how they are shown, created and changed.

use mongodb::bson::{Bson, doc};
use serde_json::{Value, json};

use crate::harness::{DEMO, Dialect, Home, both, number, oid, plain};

/// The answer to an update that matched one document.
fn updated(modified: u64) -> Value {
    json!({"MongoDB::UpdateResult": {
        "matched_count": 1, "modified_count": modified, "upserted_id": null,
        "write_errors": [], "write_concern_errors": [],
    }})
}

#[test]
fn a_new_database_has_no_queues() {
    for home in both() {
        assert_eq!(home.dci().http.get("/queues").ok(), json!([]));
    }
}

#[test]
fn queues_are_listed_with_their_counts_in_the_dialect_in_force() {
    for home in both() {
        let dci = home.dci();
        let first = home.queue_with("first", doc! {home.dialect.limit(): 4, "sort": "fifo"});
        let second = home.queue("second");
        for status in [-2, -2, -3, -4, -1, 0, 0, 1, 2, 2, 17] {
            home.task(first, status);
        }
        home.task(second, 1);
        let listed = dci.http.get("/queues").ok();
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len(), 2);
        let of = |id: String| listed.iter().find(|queue| queue["id"] == json!(id)).unwrap().clone();
        let wanted = |id: String, name: &str, limit: Value, counts: [u64; 3]| {
            json!({
                "id": id, "name": name, home.dialect.plugin(): DEMO, home.dialect.limit(): limit,
                "queued": counts[0], "running": counts[1], "completed": counts[2],
                "orphaned": 0,
            })
        };
        let (first, second) = (first.to_hex(), second.to_hex());
        assert_eq!(of(first.clone()), wanted(first, "first", json!(4), [4, 3, 4]));
        assert_eq!(of(second.clone()), wanted(second, "second", Value::Null, [0, 0, 1]));
    }
}

/// Weakness 7: the original counts everything below -1 as queued. The separate count is the only
/// addition to the original's list.
#[test]
fn an_orphaned_task_is_not_counted_as_queued() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task(queue, -2);
        home.task(queue, -6);
        home.task(queue, -6);
        let read = dci.http.get("/queues/q").ok();
        assert_eq!(read["queued"], json!(1));
        assert_eq!(read["orphaned"], json!(2));
    }
}

#[test]
fn a_queue_is_found_by_its_id_or_its_name() {
    for home in both() {
        let dci = home.dci();
        home.queue("other");
        let id = home.queue("a queue/of mine").to_hex();
        let by_id = dci.http.get(&format!("/queues/{id}")).ok();
        assert_eq!(by_id["id"], json!(id));
        assert_eq!(by_id["name"], json!("a queue/of mine"));
        assert_eq!(dci.http.get("/queues/a%20queue%2Fof%20mine").ok(), by_id);
        assert_eq!(dci.http.get("/queues/a%20queue/of%20mine").ok(), by_id);
    }
}

#[test]
fn a_queue_that_is_not_there_is_null() {
    for home in both() {
        let dci = home.dci();
        home.queue("571f8951b75bf335634ec271");
        assert_eq!(dci.http.get("/queues/none").ok(), Value::Null);
        assert_eq!(
            dci.http.get("/queues/571f8951b75bf335634ec271").ok(),
            Value::Null,
            "24 hex digits are an id, never a name"
        );
    }
}

#[test]
fn a_queue_is_made() {
    for home in both() {
        let dci = home.dci();
        let answer = dci.http.post("/queues", &json!({"name": "demo", "plugin": DEMO})).ok();
        let mut keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["MongoDB::InsertOneResult", "id"]);
        let id = oid(&answer["id"]);
        assert_eq!(oid(&answer["MongoDB::InsertOneResult"]["inserted_id"]), id);
        let stored = home.mongo.all("queues", doc! {});
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].get_object_id("_id").unwrap().to_hex(), id);
        assert_eq!(stored[0].get_str("name").unwrap(), "demo");
        assert_eq!(stored[0].get_str(home.dialect.plugin()).unwrap(), DEMO);
        assert_eq!(number(stored[0].get(home.dialect.limit())), None);
        let foreign = if home.dialect == Dialect::Seed { "plugin" } else { "constructor" };
        assert!(!stored[0].contains_key(foreign), "{}", stored[0]);
        assert_eq!(dci.http.get("/queues/demo").ok()["id"], json!(id));
    }
}

#[test]
fn a_queue_is_made_with_limit_and_sort() {
    for home in both() {
        let dci = home.dci();
        for (name, threads, sort) in [
            ("a", json!(0), json!("fifo")),
            ("b", json!(12), json!("lifo")),
            ("c", Value::Null, json!("default")),
            ("d", json!(1), Value::Null),
        ] {
            let body = json!({"name": name, "plugin": DEMO, "threads": threads, "sort": sort});
            dci.http.post("/queues", &body).ok();
            let stored = home.mongo.one("queues", doc! {"name": name}).unwrap();
            assert_eq!(number(stored.get(home.dialect.limit())), threads.as_i64(), "{name}");
            assert_eq!(stored.get("sort").and_then(Bson::as_str), sort.as_str(), "{name}");
            assert_eq!(
                dci.http.get(&format!("/queues/{name}")).ok()[home.dialect.limit()],
                threads
            );
        }
    }
}

#[test]
fn both_names_of_a_field_are_taken_and_written_as_the_dialect_has_them() {
    let home = Home::seed();
    let dci = home.dci();
    let bodies = [
        json!({"name": "old", "constructor": DEMO, "maxthreads": 3}),
        json!({"name": "new", "plugin": DEMO, "threads": 3}),
        json!({"name": "mixed", "plugin": DEMO, "maxthreads": 3}),
    ];
    for body in bodies {
        dci.http.post("/queues", &body).ok();
        let name = body["name"].as_str().unwrap();
        let stored = home.mongo.one("queues", doc! {"name": name}).unwrap();
        assert_eq!(stored.get_str("constructor").unwrap(), DEMO, "{name}");
        assert_eq!(number(stored.get("maxthreads")), Some(3), "{name}");
        assert!(!stored.contains_key("plugin") && !stored.contains_key("threads"), "{stored}");
    }
    for body in [json!({"maxthreads": 5}), json!({"threads": 5}), json!({"constructor": "x"})] {
        let answer = dci.http.post("/queues/old", &body);
        if body.get("constructor").is_some() {
            assert_eq!(answer.bad()["error"], json!("unknown plugin"));
        } else {
            answer.ok();
            let stored = home.mongo.one("queues", doc! {"name": "old"}).unwrap();
            assert_eq!(number(stored.get("maxthreads")), Some(5));
            assert!(!stored.contains_key("threads"), "{stored}");
        }
    }
}

#[test]
fn a_queue_of_the_other_dialect_is_read_too() {
    let home = Home::released();
    home.mongo.insert("queues", doc! {"name": "old", "constructor": DEMO, "maxthreads": 3});
    let read = home.dci().http.get("/queues/old").ok();
    assert_eq!(read["plugin"], json!(DEMO));
    let home = Home::seed();
    home.mongo.insert("queues", doc! {"name": "new", "plugin": DEMO, "threads": 3});
    let read = home.dci().http.get("/queues/new").ok();
    assert_eq!(read["constructor"], json!(DEMO));
}

#[test]
fn a_queue_is_made_from_a_form_or_a_query() {
    for home in both() {
        let dci = home.dci();
        let fields = [("name", "a+b &=ä"), ("plugin", DEMO), ("threads", "2")];
        dci.http.post_form("/queues", &fields).ok();
        let stored = home.mongo.one("queues", doc! {"name": "a+b &=ä"}).unwrap();
        assert_eq!(number(stored.get(home.dialect.limit())), Some(2), "{stored}");
        let query = format!("/queues?name=query&plugin={}&sort=lifo", DEMO.replace(':', "%3A"));
        dci.http.ask("POST", &query, &[], b"").ok();
        let stored = home.mongo.one("queues", doc! {"name": "query"}).unwrap();
        assert_eq!(stored.get_str("sort").unwrap(), "lifo");
    }
}

/// A form takes precedence over JSON, JSON over the query.
#[test]
fn the_query_is_not_read_when_there_is_a_body() {
    let home = Home::released();
    let dci = home.dci();
    let body = json!({"name": "body", "plugin": DEMO});
    dci.http.post("/queues?name=query&threads=9", &body).ok();
    let fields = [("name", "form"), ("plugin", DEMO)];
    dci.http.post_form("/queues?name=query&threads=9", &fields).ok();
    let stored = home.mongo.all("queues", doc! {});
    let names: Vec<&str> = stored.iter().map(|queue| queue.get_str("name").unwrap()).collect();
    assert_eq!(names, ["body", "form"]);
    assert!(stored.iter().all(|queue| number(queue.get("threads")).is_none()));
}

/// Keys that start with a dot are options, never parameters.
#[test]
fn options_are_no_parameters() {
    let home = Home::released();
    let dci = home.dci();
    let body = json!({"name": "q", "plugin": DEMO, ".pretty": 1, ".x": {}});
    dci.http.post("/queues", &body).ok();
    dci.http.post("/queues/q", &json!({"threads": 5, ".terse": 1})).ok();
    assert_eq!(
        dci.http.post("/queues/q", &json!({".pretty": 1})).bad()["error"],
        json!("no params")
    );
    let stored = home.mongo.one("queues", doc! {"name": "q"}).unwrap();
    assert!(stored.keys().all(|key| !key.starts_with('.')), "{stored}");
}

/// Of many concurrent requests for the same name, one succeeds.
#[test]
fn a_name_is_given_once() {
    let home = Home::released();
    home.mongo.index("queues", doc! {"name": 1}, true);
    let dci = home.dci();
    let body = json!({"name": "q", "plugin": DEMO});
    let statuses = std::thread::scope(|scope| {
        let asked: Vec<_> =
            (0..8).map(|_| scope.spawn(|| dci.http.post("/queues", &body).status)).collect();
        asked.into_iter().map(|one| one.join().unwrap()).collect::<Vec<u16>>()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 7, "{statuses:?}");
    assert_eq!(home.mongo.count("queues", doc! {}), 1);
}

#[test]
fn a_made_queue_is_in_the_changelog() {
    let home = Home::released();
    let dci = home.dci();
    let body = json!({"name": "demo", "plugin": DEMO, "threads": 3, "sort": "fifo"});
    let id = oid(&dci.http.post("/queues", &body).ok()["id"]);
    let logged = home.mongo.all("changelog", doc! {});
    assert_eq!(logged.len(), 1);
    assert_eq!(logged[0].get_str("collection").unwrap(), "queues");
    assert_eq!(logged[0].get_object_id("id").unwrap().to_hex(), id);
    assert_eq!(logged[0].get_str("name").unwrap(), "demo");
    assert_eq!(logged[0].get_str("plugin").unwrap(), DEMO);
    assert_eq!(number(logged[0].get("threads")), Some(3));
    assert!(!logged[0].contains_key("deleted"));
}

#[test]
fn name_and_plugin_are_required() {
    for home in both() {
        let dci = home.dci();
        let refused = json!({"error": "name and plugin required"});
        for body in [
            json!({}),
            json!({"name": "a"}),
            json!({"plugin": DEMO}),
            json!({"name": "", "plugin": DEMO}),
            json!({"name": "a", "plugin": ""}),
            json!({"name": null, "plugin": DEMO}),
            json!({"name": "a", "plugin": null}),
            json!({"threads": 3}),
        ] {
            assert_eq!(dci.http.post("/queues", &body).bad(), refused, "{body}");
        }
        assert_eq!(dci.http.post_form("/queues", &[("name", "a"), ("plugin", "")]).bad(), refused);
        assert_eq!(dci.http.ask("POST", "/queues", &[], b"").bad(), refused);
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn a_parameter_that_a_queue_does_not_have_is_named() {
    for home in both() {
        let dci = home.dci();
        for name in ["count_todo", "_id", "id", "$where", "windlass", "Name"] {
            let body = json!({"name": "a", "plugin": DEMO, name: 1});
            let answer = dci.http.post("/queues", &body).bad();
            assert_eq!(answer, json!({"error": "Invalid param", "param": name}));
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn a_plugin_that_is_not_allowed_is_named() {
    for home in both() {
        let dci = home.dci();
        for plugin in ["Disbatch::Plugin::Fake", "/bin/sh", "disbatch::plugin::demo"] {
            let answer = dci.http.post("/queues", &json!({"name": "a", "plugin": plugin})).bad();
            assert_eq!(answer, json!({"error": "Unknown plugin", "plugin": plugin}));
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn a_limit_that_is_no_whole_number_is_refused() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("there");
        let before = home.mongo.get("queues", queue);
        let wrong = [
            json!(-1),
            json!(0.5),
            json!(1e300),
            json!(true),
            json!("many"),
            json!(""),
            json!([1]),
            json!({"$inc": 1}),
        ];
        for value in wrong {
            let refused = json!({"error": "threads must be a non-negative integer or null"});
            let body = json!({"name": "a", "plugin": DEMO, "threads": value});
            assert_eq!(dci.http.post("/queues", &body).bad(), refused, "{value}");
            let answer = dci.http.post("/queues/there", &json!({"threads": value}));
            assert_eq!(answer.bad(), refused, "{value}");
        }
        for value in ["", "-1", "1.0", "zero", "99999999999999999999"] {
            let answer = dci.http.post_form("/queues/there", &[("threads", value)]).bad();
            assert_eq!(answer["error"], json!("threads must be a non-negative integer or null"));
        }
        assert_eq!(home.mongo.all("queues", doc! {}), [before]);
    }
}

#[test]
fn a_sort_that_is_none_is_refused() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("there");
        let before = home.mongo.get("queues", queue);
        for value in [json!("FIFO"), json!(""), json!(1), json!(true), json!(["fifo"]), json!({})] {
            let refused = json!({"error": "sort must be \"fifo\", \"lifo\", or \"default\""});
            let body = json!({"name": "a", "plugin": DEMO, "sort": value});
            assert_eq!(dci.http.post("/queues", &body).bad(), refused, "{value}");
            let answer = dci.http.post("/queues/there", &json!({"sort": value}));
            assert_eq!(answer.bad(), refused, "{value}");
        }
        assert_eq!(home.mongo.all("queues", doc! {}), [before]);
    }
}

#[test]
fn names_and_plugins_of_a_wrong_type_are_refused() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("there");
        let before = home.mongo.get("queues", queue);
        for value in [json!(5), json!(true), json!(["a"]), json!({"$gt": ""}), json!(1.5)] {
            let told = dci.http.post("/queues", &json!({"name": value, "plugin": DEMO})).bad();
            assert!(told["error"].as_str().unwrap().contains("name"), "{value} {told}");
            let told = dci.http.post("/queues", &json!({"name": "a", "plugin": value})).bad();
            assert!(told["error"].as_str().unwrap().contains("plugin"), "{value} {told}");
            let told = dci.http.post("/queues/there", &json!({"name": value})).bad();
            assert_eq!(told["error"], json!("name must be a string"), "{value}");
            let told = dci.http.post("/queues/there", &json!({"plugin": value})).bad();
            assert!(told["error"].as_str().unwrap().contains("plugin"), "{value} {told}");
        }
        for value in [json!(null), json!("")] {
            let told = dci.http.post("/queues/there", &json!({"name": value})).bad();
            assert_eq!(told["error"], json!("name must be a string"), "{value}");
        }
        assert_eq!(home.mongo.all("queues", doc! {}), [before]);
    }
}

#[test]
fn a_second_queue_of_the_same_name_is_refused() {
    for home in both() {
        // In the seed only the interface keeps names unique.
        if home.dialect == Dialect::Released {
            home.mongo.index("queues", doc! {"name": 1}, true);
        }
        let dci = home.dci();
        let body = json!({"name": "demo", "plugin": DEMO});
        dci.http.post("/queues", &body).ok();
        let answer = dci.http.post("/queues", &body).bad();
        assert_eq!(answer["id"], Value::Null);
        assert!(answer.as_object().unwrap().contains_key("id"), "{answer}");
        assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{answer}");
        assert_eq!(home.mongo.count("queues", doc! {}), 1);
        assert_eq!(home.mongo.count("changelog", doc! {}), 1);
    }
}

#[test]
fn every_field_of_a_queue_is_changed_by_name_or_id() {
    for home in both() {
        let dci = home.dci_with(json!({"plugins": {
            DEMO: {"program": "/bin/true"}, "Other": {"program": "/bin/false"},
        }}));
        let id = home.queue("demo");
        let bystander = home.queue("bystander");
        let before = home.mongo.get("queues", bystander);
        let hex = id.to_hex();
        for (path, body) in [
            ("demo", json!({"threads": 7})),
            (hex.as_str(), json!({"threads": null})),
            ("demo", json!({"sort": "lifo"})),
            ("demo", json!({"plugin": "Other"})),
            (hex.as_str(), json!({"name": "new name"})),
            ("new%20name", json!({"name": "demo", "threads": 0, "sort": "fifo", "plugin": DEMO})),
        ] {
            let answer = dci.http.post(&format!("/queues/{path}"), &body).ok();
            assert_eq!(answer, updated(1), "{body}");
            let stored = home.mongo.get("queues", id);
            for (key, value) in body.as_object().unwrap() {
                let key = match key.as_str() {
                    "threads" => home.dialect.limit(),
                    "plugin" => home.dialect.plugin(),
                    other => other,
                };
                assert_eq!(&plain(stored.get(key)), value, "{key} of {stored}");
            }
        }
        assert_eq!(home.mongo.get("queues", bystander), before);
        let same = dci.http.post("/queues/demo", &json!({"sort": "fifo"})).ok();
        assert_eq!(same, updated(0));
    }
}

#[test]
fn a_changed_queue_is_in_the_changelog() {
    let home = Home::released();
    let dci = home.dci();
    let id = home.queue("demo");
    dci.http.post("/queues/demo", &json!({"name": "other", "threads": 5})).ok();
    dci.http.post("/queues/other", &json!({"threads": 5})).ok();
    let logged = home.mongo.all("changelog", doc! {});
    assert_eq!(logged.len(), 1, "what modifies nothing is not logged");
    assert_eq!(logged[0].get_str("collection").unwrap(), "queues");
    assert_eq!(logged[0].get_object_id("id").unwrap(), id);
    assert_eq!(logged[0].get_str("name").unwrap(), "other");
    assert_eq!(number(logged[0].get("threads")), Some(5));
}

#[test]
fn a_change_of_nothing_or_of_an_unknown_field_is_refused() {
    for home in both() {
        let dci = home.dci();
        let id = home.queue("demo");
        let before = home.mongo.get("queues", id);
        assert_eq!(dci.http.post("/queues/demo", &json!({})).bad(), json!({"error": "no params"}));
        assert_eq!(dci.http.post_form("/queues/demo", &[]).bad(), json!({"error": "no params"}));
        for name in ["bad", "count_todo", "_id", "$set", "name.x", "windlass.holds"] {
            let answer = dci.http.post("/queues/demo", &json!({name: 1})).bad();
            assert_eq!(answer, json!({"error": "unknown param", "param": name}));
        }
        let answer = dci.http.post("/queues/demo", &json!({"plugin": "Fake"})).bad();
        assert_eq!(answer, json!({"error": "unknown plugin", "plugin": "Fake"}));
        assert_eq!(home.mongo.get("queues", id), before);
    }
}

#[test]
fn a_change_of_a_queue_that_is_not_there_is_refused_with_the_result() {
    for home in both() {
        let dci = home.dci();
        for path in ["/queues/none", "/queues/571f8951b75bf335634ec271"] {
            let answer = dci.http.post(path, &json!({"threads": 1})).bad();
            assert_eq!(answer["MongoDB::UpdateResult"]["matched_count"], json!(0), "{answer}");
            assert!(answer["error"].is_string() || answer["error"].is_object(), "{answer}");
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn a_queue_is_not_renamed_to_a_name_that_is_taken() {
    let home = Home::released();
    home.mongo.index("queues", doc! {"name": 1}, true);
    let dci = home.dci();
    let id = home.queue("one");
    home.queue("two");
    let answer = dci.http.post("/queues/one", &json!({"name": "two"})).bad();
    assert!(answer["error"].as_str().is_some_and(|error| !error.is_empty()), "{answer}");
    assert_eq!(home.mongo.get("queues", id).get_str("name").unwrap(), "one");
}

/// Whatever is in the collection, the others are still shown.
#[test]
fn queues_with_wrong_types_do_not_hide_the_others() {
    for home in both() {
        let dci = home.dci();
        for odd in [
            doc! {},
            doc! {"name": 5, home.dialect.plugin(): {}, home.dialect.limit(): "many"},
            doc! {"name": Bson::Null, home.dialect.plugin(): Bson::Null, home.dialect.limit(): -3},
            doc! {"name": ["a"], home.dialect.limit(): 2.5, "sort": 9, "count_todo": "x"},
            doc! {"name": {"$oid": "x"}, "windlass": 5},
        ] {
            home.mongo.insert("queues", odd);
        }
        let good = home.queue("good");
        home.mongo.insert("tasks", doc! {"queue": good, "status": "odd", "node": 7});
        home.mongo.insert("tasks", doc! {"queue": good});
        home.task(good, -2);
        let listed = dci.http.get("/queues").ok();
        assert_eq!(listed.as_array().unwrap().len(), 6);
        assert_eq!(dci.http.get("/queues/good").ok()["queued"], json!(1));
    }
}

#[test]
fn ids_are_objects_as_the_released_client_reads_them() {
    let home = Home::released();
    let dci = home.dci();
    let made = dci.http.post("/queues", &json!({"name": "demo", "plugin": DEMO})).ok();
    let id = made["id"]["$oid"].as_str().unwrap().to_owned();
    assert_eq!(made["MongoDB::InsertOneResult"]["inserted_id"], json!({"$oid": id}));
    let task = dci.http.post("/tasks", &json!({"queue": "demo", "params": {"a": 1}})).ok();
    let task = &task["MongoDB::InsertManyResult"]["inserted"][0]["_id"];
    let hex = task["$oid"].as_str().unwrap();
    let read = dci.http.get(&format!("/tasks/{hex}")).ok();
    assert_eq!(read["_id"], json!({"$oid": hex}));
    assert_eq!(read["queue"], json!({"$oid": id}));
}
