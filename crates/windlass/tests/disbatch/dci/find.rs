//! `GET /tasks`: allowed searches and their results.

use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use serde_json::{Value, json};

use crate::harness::{Dci, Home, both, form, oid};

const EVERYTHING: &str =
    "refusing to return everything - include one or more indexed search restrictions";

/// The ids of a list of tasks.
#[track_caller]
fn ids(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|task| oid(&task["_id"])).collect()
}

fn hex(ids: &[ObjectId]) -> Vec<String> {
    ids.iter().map(|id| id.to_hex()).collect()
}

fn count(dci: &Dci, mut filter: Value) -> Value {
    filter[".count"] = json!(1);
    dci.http.get_json("/tasks", &filter).ok()["count"].clone()
}

#[test]
fn tasks_are_found_by_every_indexed_prefix() {
    for home in both() {
        let dci = home.dci();
        let (one, two) = (home.queue("one"), home.queue("two"));
        let queued = home.task(one, -2);
        let done = home.task_with(one, 1, doc! {"node": "n1"});
        let other = home.task_with(two, 1, doc! {"node": "n1"});
        for (filter, wanted) in [
            (json!({"id": queued.to_hex()}), vec![queued]),
            (json!({"queue": one.to_hex()}), vec![queued, done]),
            (json!({"queue": one.to_hex(), "status": 1}), vec![done]),
            (json!({"node": "n1"}), vec![done, other]),
            (json!({"node": "n1", "status": 1}), vec![done, other]),
            (json!({"node": "n1", "status": 1, "queue": two.to_hex()}), vec![other]),
            (
                json!({"node": "n1", "status": 1, "queue": two.to_hex(), "id": other.to_hex()}),
                vec![other],
            ),
        ] {
            let found = dci.http.get_json("/tasks", &filter).ok();
            let mut found = ids(&found);
            found.sort();
            assert_eq!(found, hex(&wanted), "{filter}");
            let query: Vec<(&str, String)> = filter
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, value)| {
                    (key.as_str(), value.as_str().map_or(value.to_string(), str::to_owned))
                })
                .collect();
            let query: Vec<(&str, &str)> =
                query.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let found = dci.http.get(&format!("/tasks?{}", form(&query))).ok();
            let mut found = ids(&found);
            found.sort();
            assert_eq!(found, hex(&wanted), "{query:?}");
        }
    }
}

#[test]
fn a_form_in_a_get_is_read_too() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    let body = form(&[("queue", &queue.to_hex()), ("status", "-2")]);
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let found = dci.http.ask("GET", "/tasks", &kind, body.as_bytes()).ok();
    assert_eq!(ids(&found), hex(&[task]));
}

#[test]
fn what_is_not_indexed_is_refused_with_the_indexes() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q").to_hex();
        for (filter, invalid) in [
            (json!({"status": -2}), vec!["status"]),
            (json!({"params.commands": "a", "queue": queue}), vec!["params.commands"]),
            (json!({"mtime": 5}), vec!["mtime"]),
            (json!({"stdout": "x", "id": "571f8951b75bf335634ec271"}), vec!["stdout"]),
            (json!({"$where": "true"}), vec!["$where"]),
            (json!({"$or": []}), vec!["$or"]),
        ] {
            let answer = dci.http.get_json("/tasks", &filter).bad();
            let mut keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
            keys.sort();
            assert_eq!(keys, ["error", "indexes", "invalid_params", "path", "title"]);
            assert_eq!(answer["error"], json!("non-indexed params given"));
            assert_eq!(answer["invalid_params"], json!(invalid), "{filter}");
            assert_eq!(answer["path"], json!("/tasks"));
            assert!(answer["title"].is_string());
            let indexes = answer["indexes"].as_array().unwrap();
            for wanted in [json!(["id"]), json!(["queue", "status"])] {
                assert!(indexes.contains(&wanted), "{answer}");
            }
            let node = ["node", "status", "queue"].map(Value::from);
            let has = |index: &Value| index.as_array().unwrap().starts_with(&node);
            assert!(indexes.iter().any(has), "{answer}");
        }
    }
}

/// An empty parameter searches for nothing, so it is not a prefix of an index either.
#[test]
fn an_empty_value_does_not_make_another_one_indexed() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task(queue, -2);
    for query in ["queue=&status=-2&.count=1", "queue=&status=-2", "node=&status=-2&queue="] {
        let answer = dci.http.get(&format!("/tasks?{query}")).bad();
        assert_eq!(answer["invalid_params"], json!(["status"]), "{query}");
    }
    let mine = format!("/tasks?queue={queue}&status=-2&id=&node=&ctime=&.count=1");
    assert_eq!(dci.http.get(&mine).ok(), json!({"count": 1}), "nor does it forbid anything");
}

#[test]
fn an_index_that_somebody_added_may_be_asked_for() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task_with(queue, -2, doc! {"params": {"commands": "a"}});
    home.task_with(queue, -2, doc! {"params": {"commands": "b"}});
    let filter = json!({"queue": queue.to_hex(), "params.commands": "b", ".count": 1});
    let answer = dci.http.get_json("/tasks", &filter).bad();
    assert_eq!(answer["invalid_params"], json!(["params.commands"]));
    home.mongo.index("tasks", doc! {"queue": 1, "params.commands": 1}, false);
    assert_eq!(dci.http.get_json("/tasks", &filter).ok(), json!({"count": 1}));
}

#[test]
fn everything_at_once_is_refused() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task(queue, -2);
        for query in ["?.skip=1", "?.limit=0", "?.terse=1&.epoch=1", "?queue=&.skip=0"] {
            let answer = dci.http.get(&format!("/tasks{query}")).bad();
            assert_eq!(answer["error"], json!(EVERYTHING), "{query}");
        }
        let found = dci.http.get("/tasks?.limit=5").ok();
        assert_eq!(ids(&found).len(), 1, "a limit is a restriction");
        assert_eq!(dci.http.get("/tasks?.count=1").ok(), json!({"count": 1}), "so is a count");
    }
}

#[test]
fn without_any_parameter_the_schema_is_told() {
    for home in both() {
        let answer = home.dci().http.get("/tasks").ok();
        let mut keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["indexes", "schema"]);
        assert!(answer["schema"].is_object());
        assert!(answer["indexes"].as_array().unwrap().contains(&json!(["id"])), "{answer}");
    }
}

#[test]
fn several_values_mean_any_of_them() {
    for home in both() {
        let dci = home.dci();
        let (one, two) = (home.queue("one"), home.queue("two"));
        for (queue, status) in [(one, -2), (one, 1), (one, 2), (two, 2), (two, -6)] {
            home.task_with(queue, status, doc! {"node": "n"});
        }
        let all = json!([one.to_hex(), two.to_hex()]);
        assert_eq!(count(&dci, json!({"queue": all})), json!(5));
        assert_eq!(count(&dci, json!({"queue": all, "status": [1, 2]})), json!(3));
        assert_eq!(
            count(&dci, json!({"queue": one.to_hex(), "status": ["1", "2", "-2"]})),
            json!(3)
        );
        assert_eq!(count(&dci, json!({"node": ["n", "m"]})), json!(5));
        let query = format!("/tasks?queue={one}&status=1&status=2&.count=1");
        assert_eq!(dci.http.get(&query).ok(), json!({"count": 2}));
    }
}

#[test]
fn what_looks_like_a_number_is_one() {
    let home = Home::seed();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task(queue, -2);
    home.task_with(queue, 0, doc! {"node": "-1"});
    let asked =
        |query: &str| dci.http.get(&format!("/tasks?{query}&.count=1")).ok()["count"].clone();
    assert_eq!(asked("node=-1"), json!(1), "the unclaimed one, not the one on a node named -1");
    assert_eq!(asked(&format!("queue={queue}&status=-2")), json!(1));
    assert_eq!(count(&dci, json!({"queue": queue.to_hex(), "status": "-2"})), json!(1));
    assert_eq!(count(&dci, json!({"queue": queue.to_hex(), "status": -2})), json!(1));
}

#[test]
fn unclaimed_tasks_of_the_released_dialect_are_found_by_null() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    home.task(queue, -2);
    home.task(queue, 1);
    assert_eq!(count(&dci, json!({"node": null, "status": -2})), json!(1));
}

#[test]
fn limit_and_skip_page_through_the_tasks() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let tasks: Vec<ObjectId> = (0..5).map(|_| home.task(queue, -2)).collect();
        let page = |limit: u32, skip: u32| {
            let query = format!("/tasks?queue={queue}&.limit={limit}&.skip={skip}");
            dci.http.get(&query).ok()
        };
        let mut seen = [ids(&page(2, 0)), ids(&page(2, 2))].concat();
        assert_eq!(seen.len(), 4);
        seen.push(oid(&page(1, 4)["_id"]));
        seen.sort();
        assert_eq!(seen, hex(&tasks));
        assert_eq!(ids(&page(2, 4)).len(), 1, "a list of one is a list when the limit is not 1");
        assert_eq!(page(2, 5), json!({}));
        assert_eq!(ids(&page(0, 0)).len(), 5, "no limit");
    }
}

#[test]
fn a_limit_of_one_answers_an_object_and_none_an_empty_one() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let none = dci.http.get(&format!("/tasks?queue={queue}&.limit=1")).ok();
        assert_eq!(none, json!({}));
        assert_eq!(dci.http.get(&format!("/tasks?queue={queue}")).ok(), json!({}));
        let task = home.task(queue, -2);
        let one = dci.http.get(&format!("/tasks?queue={queue}&.limit=1")).ok();
        assert_eq!(oid(&one["_id"]), task.to_hex());
        let list = dci.http.get(&format!("/tasks?queue={queue}")).ok();
        assert_eq!(list, json!([one]));
    }
}

#[test]
fn a_task_shows_its_fields_in_the_dialect_in_force() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task_with(
            queue,
            1,
            doc! {
                "node": "n", "stdout": "out", "stderr": "", "log": ["a line of the Ruby port"],
            },
        );
        let read = dci.http.get(&format!("/tasks/{task}")).ok();
        assert_eq!(oid(&read["_id"]), task.to_hex());
        assert_eq!(oid(&read["queue"]), queue.to_hex());
        assert_eq!(read["status"], json!(1));
        assert_eq!(read["node"], json!("n"));
        assert_eq!(read[home.dialect.params()], json!({"commands": "a"}));
        assert_eq!(read["stdout"], json!("out"));
        assert_eq!(read["stderr"], json!(""));
        assert_eq!(read["log"], json!(["a line of the Ruby port"]), "fields of others");
        let found = dci.http.get(&format!("/tasks?id={task}&.limit=1")).ok();
        assert_eq!(found, read);
    }
}

#[test]
fn an_unclaimed_task_shows_the_dialects_word_for_nobody() {
    for (home, nobody) in both().into_iter().zip([json!(-1), Value::Null]) {
        let dci = home.dci();
        let queue = home.queue("q");
        let task = home.task(queue, -2);
        assert_eq!(dci.http.get(&format!("/tasks/{task}")).ok()["node"], nobody);
    }
}

#[test]
fn a_task_that_is_not_there_is_named() {
    for home in both() {
        let dci = home.dci();
        let id = "000000000000000000000000";
        let answer = dci.http.get(&format!("/tasks/{id}")).expect(404);
        assert_eq!(answer.json(), json!({"error": format!("no task with id {id}")}));
    }
}

#[test]
fn a_task_is_json_whatever_is_accepted() {
    let home = Home::released();
    let dci = home.dci();
    let queue = home.queue("q");
    let task = home.task(queue, -2);
    let html = dci.http.with("Accept", "text/html,*/*;q=0.8");
    assert_eq!(oid(&html.get(&format!("/tasks/{task}")).ok()["_id"]), task.to_hex());
}

#[test]
fn a_path_that_is_no_id_is_no_task() {
    let home = Home::released();
    let dci = home.dci();
    for path in ["/tasks/571f8951", "/tasks/571f8951b75bf335634ec27g", "/tasks/a/b/c"] {
        let status = dci.http.get(path).status;
        assert!([400, 404].contains(&status), "{path} {status}");
    }
}

/// Ids are hex digits and nothing else, least of all a name or an operator.
#[test]
fn ids_that_are_none_are_refused_by_name() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task(queue, -2);
        for key in ["id", "queue"] {
            let wrong = [
                json!("q"),
                json!("571f8951"),
                json!("zzzzzzzzzzzzzzzzzzzzzzzz"),
                json!(5),
                json!(true),
                json!({}),
                json!({"$ne": null}),
                json!({"$oid": "x"}),
                json!({"$in": [queue.to_hex()]}),
                json!([queue.to_hex(), "q"]),
                json!([queue.to_hex(), {"$gt": ""}]),
                json!([[queue.to_hex()]]),
            ];
            for value in wrong {
                let answer = dci.http.get_json("/tasks", &json!({key: value})).bad();
                let told = answer["error"].as_str().unwrap();
                assert!(told.contains(key), "{key} {value}: {told}");
            }
        }
    }
}

#[test]
fn operators_in_values_are_refused() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        home.task_with(queue, 1, doc! {"node": "n"});
        for (key, value) in [
            ("node", json!({"$ne": 5})),
            ("node", json!({"$gt": ""})),
            ("node", json!({"$regex": ".*"})),
            ("node", json!([{"$gt": ""}])),
            ("node", json!({"a": 1})),
            ("status", json!({"$gte": -9})),
            ("status", json!([1, {"$ne": 1}])),
        ] {
            let mut filter = json!({"node": "n", "queue": queue.to_hex()});
            if key == "status" {
                filter.as_object_mut().unwrap().remove("node");
            } else {
                filter.as_object_mut().unwrap().remove("queue");
            }
            filter[key] = value;
            let answer = dci.http.get_json("/tasks", &filter).bad();
            let told = answer["error"].as_str().unwrap();
            assert!(told.contains(key), "{filter}: {told}");
        }
    }
}

#[test]
fn options_of_a_wrong_type_are_refused_by_name() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q").to_hex();
        for (option, values) in [
            (".limit", vec![json!(-1), json!("x"), json!(1.5), json!({}), json!([1]), json!(true)]),
            (".skip", vec![json!(-1), json!("x"), json!(1.5), json!({}), json!([1]), json!(true)]),
            (".fields", vec![json!("x"), json!("{"), json!(5), json!([5]), json!("[5]")]),
        ] {
            for value in values {
                let answer = dci.http.get_json("/tasks", &json!({"queue": queue, option: value}));
                assert_eq!(answer.status, 400, "{option} {value}: {}", answer.text());
                let told = answer.json();
                assert!(told["error"].as_str().unwrap().contains(option), "{option} {told}");
            }
        }
    }
}

#[test]
fn a_filter_that_is_no_object_is_refused() {
    let home = Home::released();
    let dci = home.dci();
    for body in [json!([]), json!([{"queue": "x"}]), json!("x"), json!(5), json!(true)] {
        let answer = dci.http.get_json("/tasks", &body);
        assert_eq!(answer.status, 400, "{body}");
        assert!(answer.json()["error"].is_string(), "{body}");
    }
}

#[test]
fn the_count_is_all_that_match() {
    for home in both() {
        let dci = home.dci();
        let queue = home.queue("q");
        for _ in 0..3 {
            home.task(queue, -2);
        }
        home.task(queue, 1);
        let hex = queue.to_hex();
        assert_eq!(count(&dci, json!({"queue": hex})), json!(4));
        assert_eq!(count(&dci, json!({"queue": hex, "status": -2})), json!(3));
        assert_eq!(count(&dci, json!({"queue": hex, "status": 9})), json!(0));
        let answer = dci.http.get(&format!("/tasks?queue={hex}&.count=1&.limit=2")).ok();
        assert_eq!(answer, json!({"count": 4}));
        let list = dci.http.get(&format!("/tasks?queue={hex}&.count=0")).ok();
        assert_eq!(ids(&list).len(), 4, "0 is no count");
    }
}
