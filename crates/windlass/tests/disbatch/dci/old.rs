//! The older routes of tasks: `/tasks/search`, `/tasks/:queue`, `/tasks/:queue/:collection`.

use mongodb::bson::{DateTime, doc};
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, number, oid, plain};

fn old(home: &Home) -> Dci {
    home.dci_with(json!({"web_extensions": {"Disbatch::Web::Tasks": null}}))
}

fn search(dci: &Dci, body: Value) -> Value {
    dci.http.post("/tasks/search", &body).ok()
}

fn refused(dci: &Dci, path: &str, body: &Value) -> String {
    let answer = dci.http.post(path, body);
    assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    answer.json()["error"].as_str().unwrap().to_owned()
}

#[test]
fn a_search_finds_tasks_by_any_field() {
    for home in both() {
        let dci = old(&home);
        let queue = home.queue("demo");
        home.task(queue, -2);
        let done = home.task_with(queue, 1, doc! {"node": "n"});
        let other = home.queue("other");
        home.task(other, 1);
        let hex = queue.to_hex();
        for filter in [
            json!({"queue": hex, "status": 1}),
            json!({"queue": {"$oid": hex}, "status": 1}),
            json!({"_id": {"$oid": done.to_hex()}}),
            json!({"queue": hex, "status": {"$gte": 1}}),
            json!({"node": "n"}),
        ] {
            let found = search(&dci, json!({"filter": filter}));
            let found = found.as_array().unwrap_or_else(|| panic!("{filter}: {found}"));
            assert_eq!(found.len(), 1, "{filter}");
            assert_eq!(oid(&found[0]["_id"]), done.to_hex(), "{filter}");
        }
        assert_eq!(search(&dci, json!({"filter": {"status": 9}})), json!([]));
        assert_eq!(search(&dci, json!({})).as_array().unwrap().len(), 3);
    }
}

#[test]
fn a_search_counts() {
    let home = Home::released();
    let dci = old(&home);
    let queue = home.queue("demo");
    for status in [-2, -2, 1] {
        home.task(queue, status);
    }
    let filter = json!({"queue": queue.to_hex(), "status": -2});
    assert_eq!(search(&dci, json!({"filter": filter, "count": 1})), json!({"count": 2}));
    assert_eq!(search(&dci, json!({"filter": filter, "count": true})), json!({"count": 2}));
    assert_eq!(search(&dci, json!({"filter": filter, "count": 0})).as_array().unwrap().len(), 2);
}

#[test]
fn a_search_has_a_limit_of_a_hundred() {
    let home = Home::released();
    let dci = old(&home);
    let queue = home.queue("demo");
    let tasks = (0..105).map(|_| doc! {"queue": queue, "status": -2}).collect();
    home.mongo.insert_many("tasks", tasks);
    let found = |body: Value| search(&dci, body).as_array().unwrap().len();
    assert_eq!(found(json!({})), 100);
    assert_eq!(found(json!({"options": {}})), 100);
    assert_eq!(found(json!({"options": {"limit": 100}})), 100);
    assert_eq!(found(json!({"options": {"limit": 7}})), 7);
    assert_eq!(found(json!({"options": {"limit": 100, "skip": 100}})), 5);
    let told = refused(&dci, "/tasks/search", &json!({"options": {"limit": 101}}));
    assert_eq!(told, "limit cannot exceed 100");
    for limit in [json!(-1), json!("x"), json!({}), json!(1.5)] {
        let told = refused(&dci, "/tasks/search", &json!({"options": {"limit": limit}}));
        assert!(told.contains("limit"), "{limit} {told}");
    }
}

#[test]
fn a_search_whose_parts_are_no_objects_is_refused() {
    for home in both() {
        let dci = old(&home);
        let told = "filter and options must be name/value objects";
        for wrong in [json!([]), json!("x"), json!(5), json!(true)] {
            assert_eq!(refused(&dci, "/tasks/search", &json!({"filter": wrong})), told, "{wrong}");
            assert_eq!(refused(&dci, "/tasks/search", &json!({"options": wrong})), told, "{wrong}");
        }
        let none = json!({"filter": null, "options": null, "count": null, "terse": null});
        assert_eq!(search(&dci, none), json!([]), "null means the default");
    }
}

#[test]
fn a_search_with_a_bad_id_is_refused() {
    for home in both() {
        let dci = old(&home);
        home.queue("demo");
        for queue in [json!("571f"), json!("no such queue"), json!(5)] {
            let told = refused(&dci, "/tasks/search", &json!({"filter": {"queue": queue}}));
            let known = ["Bad queue passed", "Bad OID passed"];
            assert!(known.iter().any(|text| told.starts_with(text)), "{queue} {told}");
        }
        for id in [json!("x"), json!(5), json!(null), json!({})] {
            let told = refused(&dci, "/tasks/search", &json!({"filter": {"_id": {"$oid": id}}}));
            assert!(told.starts_with("Bad OID passed"), "{id} {told}");
        }
    }
}

#[test]
fn code_in_a_search_is_refused() {
    let home = Home::released();
    let dci = old(&home);
    let queue = home.queue("demo");
    home.task(queue, -2);
    for filter in [
        json!({"$where": "true"}),
        json!({"$and": [{"$where": "sleep(1000) || true"}]}),
        json!({"$expr": {"$function": {"body": "function() {}", "args": [], "lang": "js"}}}),
        json!({"status": {"$nonsense": 1}}),
    ] {
        assert!(!refused(&dci, "/tasks/search", &json!({"filter": filter})).is_empty());
    }
}

#[test]
fn large_times_in_a_search_are_milliseconds() {
    let home = Home::released();
    let dci = old(&home);
    let queue = home.queue("demo");
    let time = DateTime::from_millis(1_548_272_576_000);
    let task = home.task_with(queue, 1, doc! {"ctime": time, "mtime": time});
    for key in ["ctime", "mtime"] {
        let found = search(&dci, json!({"filter": {key: 1_548_272_576_000_i64}}));
        assert_eq!(oid(&found[0]["_id"]), task.to_hex(), "{key} {found}");
        assert_eq!(search(&dci, json!({"filter": {key: 1_548_272_577_000_i64}})), json!([]));
    }
    let numbered = home.task_with(queue, 1, doc! {"ctime": 1_461_700_773});
    let found = search(&dci, json!({"filter": {"ctime": 1_461_700_773}}));
    assert_eq!(oid(&found[0]["_id"]), numbered.to_hex(), "seconds are numbers");
}

#[test]
fn a_search_is_terse_or_whole_and_may_be_pretty() {
    for home in both() {
        let dci = old(&home);
        let queue = home.queue("demo");
        let file = home.mongo.insert("tasks.files", doc! {"filename": "stderr", "length": 5});
        home.mongo.insert("tasks.chunks", doc! {"files_id": file, "n": 0, "data": "whole"});
        home.task_with(queue, 1, doc! {"stdout": "out", "stderr": file});
        let terse = search(&dci, json!({"terse": 1}));
        assert_eq!(terse[0]["stdout"], json!("[terse mode]"));
        assert_eq!(oid(&terse[0]["stderr"]), file.to_hex());
        let whole = search(&dci, json!({"terse": 0}));
        assert_eq!(whole[0]["stdout"], json!("out"));
        assert_eq!(whole[0]["stderr"], json!("whole"));
        let pretty = dci.http.post("/tasks/search", &json!({"pretty": 1})).expect(200);
        assert!(pretty.text().lines().count() > 5);
    }
}

#[test]
fn tasks_are_made_under_the_path_of_their_queue() {
    for home in both() {
        let dci = old(&home);
        let queue = home.queue("a queue");
        for path in ["/tasks/a%20queue".to_owned(), format!("/tasks/{queue}")] {
            let answer = dci.http.post(&path, &json!([{"commands": "c"}, {"commands": "d"}])).ok();
            let inserted = &answer["MongoDB::InsertManyResult"]["inserted"];
            assert_eq!(inserted.as_array().unwrap().len(), 2, "{answer}");
        }
        let stored = home.mongo.all("tasks", doc! {"queue": queue, "status": -2});
        assert_eq!(stored.len(), 4);
        assert_eq!(plain(stored[3].get(home.dialect.params())), json!({"commands": "d"}));
    }
}

#[test]
fn what_is_no_list_of_tasks_is_refused_under_the_path_of_a_queue() {
    for home in both() {
        let dci = old(&home);
        home.queue("demo");
        for body in [json!({}), json!({"a": 1}), json!("x"), json!(5), json!([5])] {
            let told = refused(&dci, "/tasks/demo", &body);
            if body.is_array() {
                assert!(told.contains("must be a JSON array of task params"), "{body} {told}");
            } else {
                assert_eq!(told, "params must be a JSON array of task params", "{body}");
            }
        }
        assert_eq!(refused(&dci, "/tasks/none", &json!([{"a": 1}])), "queue not found");
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn tasks_are_made_under_the_path_of_a_collection() {
    for home in both() {
        let dci = old(&home);
        let queue = home.queue("demo");
        home.mongo.insert("users", doc! {"username": "foo", "migration": "test"});
        home.mongo.insert("users", doc! {"username": "bar", "migration": "test"});
        home.mongo.insert("users", doc! {"username": "baz", "migration": "other"});
        let body = json!({
            "filter": {"migration": "test"},
            "params": {"user1": "document.username", "commands": "*"},
        });
        for path in ["/tasks/demo/users".to_owned(), format!("/tasks/{queue}/users")] {
            let answer = dci.http.post(&path, &body).ok();
            let inserted = &answer["MongoDB::InsertManyResult"]["inserted"];
            assert_eq!(inserted.as_array().unwrap().len(), 2, "{answer}");
        }
        let stored = home.mongo.all("tasks", doc! {});
        assert_eq!(
            plain(stored[1].get(home.dialect.params())),
            json!({"user1": "bar", "commands": "*"})
        );
        if home.dialect == crate::harness::Dialect::Seed {
            assert_eq!(number(home.mongo.get("queues", queue).get("count_total")), Some(4));
        }
    }
}

#[test]
fn filter_and_params_are_required_under_the_path_of_a_collection() {
    for home in both() {
        let dci = old(&home);
        home.queue("demo");
        home.mongo.insert("users", doc! {"n": 1});
        let told = "filter and params required and must be name/value objects";
        for body in [
            json!({}),
            json!({"filter": {}}),
            json!({"params": {"a": 1}}),
            json!({"filter": [], "params": {"a": 1}}),
            json!({"filter": "x", "params": {"a": 1}}),
            json!({"filter": {}, "params": [{"a": 1}]}),
            json!({"filter": {}, "params": 5}),
            json!({"filter": null, "params": null}),
        ] {
            assert_eq!(refused(&dci, "/tasks/demo/users", &body), told, "{body}");
        }
        let body = json!({"filter": {}, "params": {"a": "document.n"}});
        assert_eq!(refused(&dci, "/tasks/none/users", &body), "queue not found");
        refused(&dci, "/tasks/demo/system.users", &body);
        refused(&dci, "/tasks/demo/queues", &body);
        let body = json!({"filter": {"$where": "true"}, "params": {"a": "document.n"}});
        refused(&dci, "/tasks/demo/users", &body);
        let body = json!({"filter": {"n": 5}, "params": {"a": "document.n"}});
        assert_eq!(refused(&dci, "/tasks/demo/users", &body), "Unknown error");
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}
