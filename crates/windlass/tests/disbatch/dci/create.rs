//! `POST /tasks`: one task, many, or one for each document of a collection.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Dialect, Home, both, number, oid, plain};

/// The ids in the answer to an insert, with the indexes 0, 1, 2, ..
#[track_caller]
fn inserted(answer: &Value) -> Vec<ObjectId> {
    let result = &answer["MongoDB::InsertManyResult"];
    assert!([json!(1), json!(true)].contains(&result["acknowledged"]), "{answer}");
    assert_eq!(result["write_errors"], json!([]), "{answer}");
    assert_eq!(result["write_concern_errors"], json!([]), "{answer}");
    let list = result["inserted"].as_array().unwrap();
    for (place, entry) in list.iter().enumerate() {
        assert_eq!(entry["index"], json!(place));
    }
    list.iter().map(|entry| ObjectId::parse_str(oid(&entry["_id"])).unwrap()).collect()
}

/// A new task has exactly these fields.
#[track_caller]
fn check_new(home: &Home, task: &Document, queue: ObjectId, params: Value) {
    assert_eq!(task.get_object_id("queue").unwrap(), queue);
    assert_eq!(number(task.get("status")), Some(-2));
    assert_eq!(plain(task.get("node")), plain(Some(&home.dialect.nobody())));
    assert!(task.contains_key("node"), "{task}");
    assert_eq!(plain(task.get(home.dialect.params())), params);
    assert_eq!(task.get("stdout"), Some(&Bson::Null));
    assert_eq!(task.get("stderr"), Some(&Bson::Null));
    for time in ["ctime", "mtime"] {
        let told = task.get_datetime(time).unwrap().timestamp_millis();
        let apart = (DateTime::now().timestamp_millis() - told).abs();
        assert!(apart < 600_000, "{time} is {apart} ms away");
    }
    let foreign = if home.dialect == Dialect::Seed { "params" } else { "parameters" };
    assert!(!task.contains_key(foreign), "{task}");
}

fn refused(dci: &Dci, body: &Value) -> Value {
    let answer = dci.http.post("/tasks", body);
    assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    answer.json()["error"].clone()
}

#[test]
fn many_tasks_are_made_by_name_or_id_of_their_queue() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let params = json!([{"commands": "a"}, {"commands": "b", "n": 5}, {"commands": "c"}]);
        let body = json!({"queue": "demo", "params": params});
        let mut ids = inserted(&dci.http.post("/tasks", &body).ok());
        assert_eq!(ids.len(), 3);
        let body = json!({"queue": queue.to_hex(), "params": [{"commands": "d"}]});
        ids.extend(inserted(&dci.http.post("/tasks", &body).ok()));
        let wanted = [
            json!({"commands": "a"}),
            params[1].clone(),
            params[2].clone(),
            json!({"commands": "d"}),
        ];
        for (id, params) in ids.iter().zip(wanted) {
            check_new(&home, &home.mongo.get("tasks", *id), queue, params);
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 4);
        assert_eq!(dci.http.get("/queues/demo").ok()["queued"], json!(4));
    }
}

#[test]
fn one_task_may_be_given_without_a_list() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let body = json!({"queue": "demo", "params": {"user": "ashley"}});
        let ids = inserted(&dci.http.post("/tasks", &body).ok());
        assert_eq!(ids.len(), 1);
        check_new(&home, &home.mongo.get("tasks", ids[0]), queue, json!({"user": "ashley"}));
    }
}

#[test]
fn the_first_dialects_name_for_params_is_taken_too() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("demo");
    let ids =
        inserted(&dci.http.post("/tasks", &json!({"queue": "demo", "parameters": {"a": 1}})).ok());
    check_new(&home, &home.mongo.get("tasks", ids[0]), queue, json!({"a": 1}));
}

#[test]
fn params_of_any_json_are_kept() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        let params = json!({
            "text": "ä€😀\u{0}\n\"", "int": -5, "big": 9_007_199_254_740_993_i64, "float": 1.5,
            "true": true, "null": null, "list": [1, "two", [3], {}],
            "deep": {"a": {"b": {"c": []}}},
            "": "empty key", "a.b": "dot", "status": 1, "_id": "mine",
        });
        let ids =
            inserted(&dci.http.post("/tasks", &json!({"queue": "demo", "params": params})).ok());
        check_new(&home, &home.mongo.get("tasks", ids[0]), queue, params.clone());
        let read = dci.http.get(&format!("/tasks/{}", ids[0])).ok();
        assert_eq!(read[home.dialect.params()], params);
    }
}

#[test]
fn a_thousand_tasks_are_made_at_once() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    let params: Vec<Value> = (0..1000).map(|number| json!({"n": number})).collect();
    let ids = inserted(&dci.http.post("/tasks", &json!({"queue": "demo", "params": params})).ok());
    assert_eq!(ids.len(), 1000);
    let stored = home.mongo.get("tasks", ids[999]);
    assert_eq!(plain(stored.get("params")), json!({"n": 999}));
    assert_eq!(dci.http.get("/queues/demo").ok()["queued"], json!(1000));
}

/// The counters of the first dialect, which a foreign node keeps too.
#[test]
fn made_tasks_are_added_to_the_counters() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue_with("demo", doc! {"count_todo": 3, "count_total": 10});
    dci.http.post("/tasks", &json!({"queue": "demo", "params": [{"a": 1}, {"a": 2}]})).ok();
    let stored = home.mongo.get("queues", queue);
    assert_eq!(number(stored.get("count_todo")), Some(5));
    assert_eq!(number(stored.get("count_total")), Some(12));
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("demo");
    dci.http.post("/tasks", &json!({"queue": "demo", "params": [{"a": 1}, {"a": 2}]})).ok();
    let stored = home.mongo.get("queues", queue);
    assert!(!stored.contains_key("count_todo") && !stored.contains_key("count_total"), "{stored}");
}

/// Weakness 8: the counters drifted in the original.
#[test]
fn counters_are_right_when_many_make_tasks_at_once() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("demo");
    let body = json!({"queue": "demo", "params": [{"a": 1}, {"a": 2}, {"a": 3}]});
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| dci.http.post("/tasks", &body).ok());
        }
    });
    let stored = home.mongo.get("queues", queue);
    assert_eq!(number(stored.get("count_todo")), Some(18));
    assert_eq!(number(stored.get("count_total")), Some(18));
}

#[test]
fn a_task_for_each_document_of_a_collection() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("demo");
        for (name, migration) in [("foo", "test"), ("bar", "test"), ("baz", "other")] {
            home.mongo.insert("users", doc! {"username": name, "migration": migration, "n": 7});
        }
        home.mongo.insert("users", doc! {"migration": "test"});
        let body = json!({
            "queue": "demo", "collection": "users", "filter": {"migration": "test"},
            "params": {
                "user1": "document.username", "migration": "document.migration", "n": "document.n",
                "commands": "*", "fixed": 5, "not": "a document.username",
            },
        });
        let ids = inserted(&dci.http.post("/tasks", &body).ok());
        assert_eq!(ids.len(), 3);
        for (id, user) in ids.iter().zip([json!("foo"), json!("bar"), Value::Null]) {
            let number = if user.is_null() { Value::Null } else { json!(7) };
            let wanted = json!({
                "user1": user, "migration": "test", "n": number,
                "commands": "*", "fixed": 5, "not": "a document.username",
            });
            check_new(&home, &home.mongo.get("tasks", *id), queue, wanted);
        }
    }
}

#[test]
fn a_filter_of_a_collection_may_have_operators() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    let users = (0..10).map(|number| doc! {"n": number}).collect();
    home.mongo.insert_many("users", users);
    let body = json!({
        "queue": "demo", "collection": "users", "params": {"n": "document.n"},
        "filter": {"n": {"$gte": 3, "$lt": 6}},
    });
    assert_eq!(inserted(&dci.http.post("/tasks", &body).ok()).len(), 3);
}

#[test]
fn an_empty_filter_means_every_document() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    home.mongo.insert_many("users", (0..5).map(|number| doc! {"n": number}).collect());
    let body = json!({
        "queue": "demo", "collection": "users", "params": {"n": "document.n"}, "filter": {},
    });
    assert_eq!(inserted(&dci.http.post("/tasks", &body).ok()).len(), 5);
}

#[test]
fn a_collection_without_a_match_makes_nothing() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let body = json!({
            "queue": "demo", "collection": "users", "filter": {"x": 1},
            "params": {"a": "document.b"},
        });
        assert_eq!(refused(&dci, &body), json!("Unknown error"));
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

/// Weakness 14: the original takes all of a collection into its memory at once.
#[test]
fn a_collection_of_many_documents_is_taken_in_parts() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("demo");
    let users = (0..3000).map(|number| doc! {"n": number, "pad": "x".repeat(200)}).collect();
    home.mongo.insert_many("users", users);
    let body = json!({
        "queue": "demo", "collection": "users", "params": {"n": "document.n"}, "filter": {},
    });
    assert_eq!(inserted(&dci.http.post("/tasks", &body).ok()).len(), 3000);
    assert_eq!(dci.http.get("/queues/demo").ok()["queued"], json!(3000));
    assert_eq!(number(home.mongo.get("queues", queue).get("count_total")), Some(3000));
}

/// Weakness 14: the original lets anyone who may create a task read any collection.
#[test]
fn collections_of_the_server_and_of_disbatch_are_not_read() {
    let home = Home::seed();
    let dci = home.dci();
    home.queue("demo");
    for collection in [
        "system.users",
        "system.js",
        "$cmd",
        "",
        "a\u{0}b",
        "nodes",
        "queues",
        "tasks",
        "config",
        "balance",
        "changelog",
        "tasks.files",
        "tasks.chunks",
        "results",
    ] {
        let body = json!({
            "queue": "demo", "collection": collection, "filter": {},
            "params": {"x": "document.name"},
        });
        let error = refused(&dci, &body);
        assert!(error.as_str().unwrap().contains("collection"), "{collection:?} {error}");
    }
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
}

#[test]
fn the_config_may_name_the_collections_that_are_read() {
    let home = Home::released();
    let dci = home.dci_with(json!({"task_collections": ["users"]}));
    home.queue("demo");
    let from = |collection: &str| {
        home.mongo.insert(collection, doc! {"n": 1});
        json!({
            "queue": "demo", "collection": collection, "filter": {}, "params": {"n": "document.n"},
        })
    };
    assert_eq!(inserted(&dci.http.post("/tasks", &from("users")).ok()).len(), 1);
    assert!(refused(&dci, &from("salaries")).as_str().unwrap().contains("collection"));
    let none = home.dci_with(json!({"task_collections": []}));
    refused(&none, &from("users"));
    assert_eq!(home.mongo.count("tasks", doc! {}), 1);
}

#[test]
fn code_in_the_filter_of_a_collection_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    home.mongo.insert("users", doc! {"n": 1});
    for filter in [
        json!({"$where": "true"}),
        json!({"$or": [{"n": 1}, {"$where": "true"}]}),
        json!({"$expr": {"$function": {"body": "function() {}", "args": [], "lang": "js"}}}),
    ] {
        let body = json!({
            "queue": "demo", "collection": "users", "filter": filter, "params": {"x": "document.n"},
        });
        assert!(refused(&dci, &body).is_string(), "{filter}");
    }
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
}

#[test]
fn a_queue_that_is_not_there_gets_no_tasks() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let absent = [
            json!("none"),
            json!("571f8951b75bf335634ec271"),
            json!(""),
            json!(null),
            json!(5),
            json!(["demo"]),
            json!({"$gt": ""}),
            json!({"$oid": "571f8951b75bf335634ec271"}),
            json!(true),
        ];
        for queue in absent {
            let body = json!({"queue": queue, "params": [{"a": 1}]});
            assert_eq!(refused(&dci, &body), json!("queue not found"), "{queue}");
        }
        assert_eq!(refused(&dci, &json!({"params": [{"a": 1}]})), json!("queue not found"));
        assert_eq!(refused(&dci, &json!({})), json!("queue not found"));
        assert_eq!(refused(&dci, &json!([{"a": 1}])), json!("queue not found"));
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn params_that_are_no_list_of_objects_are_refused() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let told = "'params' must be a JSON array of task params objects";
        for params in [
            json!([]),
            json!([5]),
            json!(["a"]),
            json!([{"a": 1}, null]),
            json!([{"a": 1}, []]),
            json!([[{"a": 1}]]),
        ] {
            let body = json!({"queue": "demo", "params": params});
            assert_eq!(refused(&dci, &body), json!(told), "{params}");
        }
        for params in [json!([{}]), json!({}), json!([{"a": 1}, {}])] {
            let body = json!({"queue": "demo", "params": params});
            let told = format!("{told} with key/value pairs");
            assert_eq!(refused(&dci, &body), json!(told), "{params}");
        }
        for params in [json!(5), json!("x"), json!(null), json!(true)] {
            let body = json!({"queue": "demo", "params": params});
            let error = refused(&dci, &body);
            let told = [json!("invalid parameters passed"), json!(told)];
            assert!(told.contains(&error), "{params} {error}");
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn a_form_cannot_carry_params() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    dci.http.post_form("/tasks", &[("queue", "demo"), ("params", "x")]).bad();
    dci.http.post_form("/tasks", &[("queue", "demo")]).bad();
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
}

#[test]
fn parameters_that_do_not_go_together_are_refused() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        for body in [
            json!({"queue": "demo"}),
            json!({"queue": "demo", "params": [{"a": 1}], "x": 1}),
            json!({"queue": "demo", "params": {"a": 1}, "collection": "users"}),
            json!({"queue": "demo", "params": {"a": 1}, "filter": {}}),
            json!({"queue": "demo", "collection": "users", "filter": {}}),
            json!({"queue": "demo", "params": [{"a": 1}], "collection": "users", "filter": {}}),
        ] {
            assert_eq!(refused(&dci, &body), json!("invalid parameters passed"), "{body}");
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn filters_and_collections_of_a_wrong_type_are_refused() {
    for home in both() {
        let dci = home.dci();
        home.queue("demo");
        let with = |filter: Value, collection: Value| {
            json!({
                "queue": "demo", "params": {"a": "document.b"},
                "filter": filter, "collection": collection,
            })
        };
        for filter in [json!([]), json!("x"), json!(5), json!(null), json!(true)] {
            let error = refused(&dci, &with(filter.clone(), json!("users")));
            assert_eq!(error, json!("'filter' must be a JSON object"), "{filter}");
        }
        for collection in [json!([]), json!({}), json!(5), json!(null), json!(true), json!("")] {
            let error = refused(&dci, &with(json!({}), collection.clone()));
            let told = "'collection' required and must be a scalar (string)'";
            assert_eq!(error, json!(told), "{collection}");
        }
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn an_operator_that_the_database_does_not_know_is_an_error_of_the_request() {
    let home = Home::released();
    let dci = home.dci();
    home.queue("demo");
    home.mongo.insert("users", doc! {"n": 1});
    let body = json!({
        "queue": "demo", "params": {"a": "document.n"}, "collection": "users",
        "filter": {"n": {"$nonsense": 1}},
    });
    assert!(refused(&dci, &body).is_string());
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
}

#[test]
fn tasks_may_be_made_for_an_inactive_queue() {
    let home = Home::seed();
    let dci = home.dci();
    home.mongo
        .insert("queues", doc! {"name": "odd", "constructor": "Not::Allowed", "maxthreads": 0});
    let body = json!({"queue": "odd", "params": {"a": 1}});
    assert_eq!(inserted(&dci.http.post("/tasks", &body).ok()).len(), 1);
}
