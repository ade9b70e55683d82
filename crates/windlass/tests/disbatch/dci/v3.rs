//! The routes of Disbatch 3 and of the first drafts of 4, most of them with forms.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, doc};
use serde_json::{Value, json};

use crate::harness::{Answer, DEMO, Dci, Dialect, Home, both, number, oid, plain};

fn v3(home: &Home) -> Dci {
    home.dci_with(json!({"web_extensions": {"Disbatch::Web::V3": null}}))
}

/// The second of `[0, "text"]`.
#[track_caller]
fn told(answer: Answer, status: u16) -> String {
    let answer = answer.expect(status).json();
    assert_eq!(answer[0], json!(0), "{answer}");
    answer[1].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Success as number or truth.
#[track_caller]
fn succeeded(value: &Value) {
    assert!([json!(1), json!(true)].contains(value), "{value}");
}

#[test]
fn the_scheduler_reports_its_queues() {
    for home in both() {
        let dci = v3(&home);
        let counters = match home.dialect {
            Dialect::Seed => doc! {"count_todo": 4, "count_total": 6, "maxthreads": 5},
            Dialect::Released => doc! {"threads": 5},
        };
        let queue = home.queue_with("demo", counters);
        for status in [-2, -2, -1, 0, 1, 2] {
            home.task(queue, status);
        }
        let report = dci.http.get("/scheduler-json").ok();
        let report = report.as_array().unwrap();
        assert_eq!(report.len(), 1);
        let entry = &report[0];
        assert_eq!(entry["id"], json!(queue.to_hex()));
        assert_eq!(entry["name"], json!("demo"));
        assert_eq!(entry[home.dialect.plugin()], json!(DEMO));
        assert_eq!(entry[home.dialect.limit()], json!(5));
        if home.dialect == Dialect::Released {
            // The released interface returned its own counts under the old path.
            let counts = [&entry["queued"], &entry["running"], &entry["completed"]];
            assert_eq!(counts, [&json!(2); 3], "{entry}");
            continue;
        }
        assert_eq!(entry["tasks_todo"], json!(2));
        assert_eq!(entry["tasks_doing"], json!(2));
        assert_eq!(entry["tasks_done"], json!(2));
        assert_eq!(entry["preemptive"], json!(1));
        assert_eq!(entry["tasks_backfill"], json!(0));
    }
}

/// Weakness 8: a drifted counter does not lead to negative numbers.
#[test]
fn counters_that_drifted_are_not_reported() {
    let home = Home::seed();
    let dci = v3(&home);
    let queue = home.queue_with("demo", doc! {"count_todo": -3, "count_total": -9});
    home.task(queue, 0);
    home.task(queue, -2);
    home.task(queue, 1);
    let entry = dci.http.get("/scheduler-json").ok()[0].clone();
    assert_eq!(entry["tasks_todo"], json!(1), "{entry}");
    assert_eq!(entry["tasks_doing"], json!(1), "{entry}");
    assert_eq!(entry["tasks_done"], json!(1), "{entry}");
}

#[test]
fn an_attribute_of_a_queue_is_set() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        for (attr, value) in [("threads", 3), ("maxthreads", 4)] {
            if attr == "maxthreads" && home.dialect == Dialect::Released {
                continue;
            }
            let value = value.to_string();
            let fields = [("queueid", &*queue.to_hex()), ("attr", attr), ("value", &value)]
                .map(|(key, value)| (key, value.to_owned()));
            let fields: Vec<(&str, &str)> =
                fields.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let answer = dci.http.post_form("/set-queue-attr-json", &fields).ok();
            succeeded(&answer["success"]);
            assert_eq!(answer["MongoDB::UpdateResult"]["matched_count"], json!(1), "{answer}");
            let stored = home.mongo.get("queues", queue);
            assert_eq!(number(stored.get(home.dialect.limit())), value.parse().ok(), "{stored}");
        }
    }
}

/// The first drafts had it; it never did anything.
#[test]
fn the_attribute_preemptive_is_taken_by_the_first_dialect() {
    let home = Home::seed();
    let dci = v3(&home);
    let queue = home.queue_with("demo", doc! {"maxthreads": 3}).to_hex();
    let fields = [("queueid", queue.as_str()), ("attr", "preemptive"), ("value", "1")];
    succeeded(&dci.http.post_form("/set-queue-attr-json", &fields).ok()["success"]);
    let stored = home.mongo.one("queues", doc! {"name": "demo"}).unwrap();
    assert_eq!(number(stored.get("maxthreads")), Some(3));
}

#[test]
fn attributes_that_cannot_be_set_are_refused() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        let before = home.mongo.get("queues", queue);
        let hex = queue.to_hex();
        for (body, error) in [
            (json!({"queueid": hex, "attr": "name", "value": "x"}), "Invalid attr"),
            (json!({"queueid": hex, "attr": "$where", "value": "x"}), "Invalid attr"),
            (json!({"queueid": hex, "attr": ["threads"], "value": 1}), "Invalid attr"),
            (json!({"queueid": hex, "value": 1}), "Invalid attr"),
            (json!({}), "Invalid attr"),
            (json!({"queueid": hex, "attr": "threads"}), "You must supply a value"),
            (json!({"queueid": hex, "attr": "threads", "value": null}), "You must supply a value"),
            (json!({"attr": "threads", "value": 1}), "You must supply a queueid"),
        ] {
            let answer = dci.http.post("/set-queue-attr-json", &body).bad();
            assert_eq!(answer["error"], json!(error), "{body}");
            assert!([json!(0), json!(false)].contains(&answer["success"]), "{answer}");
        }
        for value in [json!("x"), json!(-1), json!({"$inc": 1}), json!([1]), json!(1.5)] {
            let body = json!({"queueid": hex, "attr": "threads", "value": value});
            dci.http.post("/set-queue-attr-json", &body).bad();
        }
        for id in ["571f8951b75bf335634ec271", "none"] {
            let body = json!({"queueid": id, "attr": "threads", "value": 1});
            let answer = dci.http.post("/set-queue-attr-json", &body).bad();
            assert!([json!(0), json!(false)].contains(&answer["success"]), "{answer}");
        }
        assert_eq!(home.mongo.all("queues", doc! {}), [before]);
    }
}

#[test]
fn a_queue_is_started() {
    for home in both() {
        let dci = v3(&home);
        let answer = dci.http.post_form("/start-queue-json", &[("type", DEMO), ("name", "q")]).ok();
        succeeded(&answer[0]);
        assert_eq!(answer.as_array().unwrap().len(), 3, "{answer}");
        assert!(answer[2]["MongoDB::InsertOneResult"].is_object(), "{answer}");
        let stored = home.mongo.one("queues", doc! {"name": "q"}).unwrap();
        assert_eq!(stored.get_object_id("_id").unwrap().to_hex(), oid(&answer[1]));
        assert_eq!(stored.get_str(home.dialect.plugin()).unwrap(), DEMO);
    }
}

#[test]
fn a_queue_without_type_or_name_is_not_started() {
    for home in both() {
        let dci = v3(&home);
        for body in [json!({}), json!({"type": DEMO}), json!({"name": "q"}), json!({"name": null})]
        {
            let answer = dci.http.post("/start-queue-json", &body);
            assert_eq!(told(answer, 400), "type and name required", "{body}");
        }
        let body = json!({"type": "Fake", "name": "q"});
        assert_eq!(told(dci.http.post("/start-queue-json", &body), 400), "unknown type");
        for body in [json!({"type": DEMO, "name": {}}), json!({"type": [DEMO], "name": "q"})] {
            told(dci.http.post("/start-queue-json", &body), 400);
        }
        assert_eq!(home.mongo.count("queues", doc! {}), 0);
    }
}

#[test]
fn a_queue_is_deleted_only_without_tasks() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("q");
        let full = home.queue("full");
        home.task(full, -2);
        let answer = dci.http.post_form("/delete-queue-json", &[("id", &queue.to_hex())]).ok();
        succeeded(&answer[0]);
        assert_eq!(answer[1]["MongoDB::DeleteResult"]["deleted_count"], json!(1), "{answer}");
        assert_eq!(told(dci.http.post("/delete-queue-json", &json!({})), 400), "id required");
        for (what, id) in [
            ("deleted before", queue.to_hex()),
            ("with tasks", full.to_hex()),
            ("no id", "none".to_owned()),
        ] {
            let answer = dci.http.post("/delete-queue-json", &json!({"id": id}));
            assert!([200, 400, 409].contains(&answer.status), "{what} {}", answer.status);
            assert_eq!(answer.json()[0], json!(0), "{what}");
        }
        assert_eq!(home.mongo.all("queues", doc! {}).len(), 1);
        assert_eq!(home.mongo.count("tasks", doc! {}), 1);
    }
}

#[test]
fn prototypes_are_the_plugins_by_name() {
    for home in both() {
        let dci = v3(&home);
        assert_eq!(dci.http.get("/queue-prototypes-json").ok()[DEMO], json!(DEMO));
        assert_eq!(dci.http.post_form("/queue-prototypes-json", &[]).ok()[DEMO], json!(DEMO));
    }
}

#[test]
fn queues_are_reloaded_by_doing_nothing() {
    for home in both() {
        assert_eq!(v3(&home).http.get("/reload-queues-json").ok(), json!([1]));
    }
}

#[test]
fn tasks_are_made_from_text_or_from_a_list() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        let hex = queue.to_hex();
        let text = r#"[{"user":"a"},{"user":"b"}]"#;
        let fields = [("queueid", hex.as_str()), ("object", text)];
        let answer = dci.http.post_form("/queue-create-tasks-json", &fields).ok();
        let answer = answer.as_array().unwrap();
        succeeded(&answer[0]);
        assert_eq!(answer[1], json!(2));
        assert_eq!(answer.len(), 5, "success, count, two ids, and the result: {answer:?}");
        assert!(answer[4]["MongoDB::InsertManyResult"].is_object(), "{answer:?}");
        let ids = answer[2..4]
            .iter()
            .map(|id| if id["_id"].is_null() { oid(id) } else { oid(&id["_id"]) });
        for (id, user) in ids.zip(["a", "b"]) {
            let task = home.mongo.get("tasks", ObjectId::parse_str(id).unwrap());
            assert_eq!(plain(task.get(home.dialect.params())), json!({"user": user}));
            assert_eq!(task.get_object_id("queue").unwrap(), queue);
            assert_eq!(number(task.get("status")), Some(-2));
            assert_eq!(task.get("node"), Some(&home.dialect.nobody()));
        }
        let body = json!({"queueid": "demo", "object": [{"user": "c"}]});
        assert_eq!(dci.http.post("/queue-create-tasks-json", &body).ok()[1], json!(1));
    }
}

#[test]
fn tasks_that_cannot_be_made_are_refused_with_status_200() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo").to_hex();
        for body in [json!({}), json!({"queueid": queue}), json!({"object": "[]"})] {
            let answer = dci.http.post("/queue-create-tasks-json", &body);
            assert_eq!(told(answer, 400), "queueid and object required", "{body}");
        }
        for object in [json!("{}"), json!({}), json!({"a": 1})] {
            let body = json!({"queueid": queue, "object": object});
            let answer = dci.http.post("/queue-create-tasks-json", &body);
            assert_eq!(told(answer, 200), "object param must be a JSON array", "{object}");
        }
        let body = json!({"queueid": queue, "object": "[{"});
        assert!(!told(dci.http.post("/queue-create-tasks-json", &body), 200).is_empty());
        let body = json!({"queueid": "none", "object": "[{\"a\":1}]"});
        let answer = dci.http.post("/queue-create-tasks-json", &body);
        assert_eq!(told(answer, 200), "Queue not found");
        assert_eq!(home.mongo.count("tasks", doc! {}), 0);
    }
}

#[test]
fn tasks_are_made_from_a_query() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo").to_hex();
        home.mongo.insert("users", doc! {"username": "foo", "migration": "test"});
        home.mongo.insert("users", doc! {"username": "bar", "migration": "test"});
        home.mongo.insert("users", doc! {"username": "baz", "migration": "other"});
        let params = r#"{"user1":"document.username","commands":"*"}"#;
        let fields = [
            ("queueid", queue.as_str()),
            ("collection", "users"),
            ("jsonfilter", r#"{"migration":"test"}"#),
            ("params", params),
        ];
        let answer = dci.http.post_form("/queue-create-tasks-from-query-json", &fields).ok();
        succeeded(&answer[0]);
        assert_eq!(answer, json!([answer[0], 2]));
        let mut fields = fields;
        fields[3].0 = "parameters";
        if home.dialect == Dialect::Seed {
            let answer = dci.http.post_form("/queue-create-tasks-from-query-json", &fields).ok();
            assert_eq!(answer[1], json!(2), "the first drafts' name for params");
        }
        let stored = home.mongo.all("tasks", doc! {});
        let wanted = json!({"user1": "foo", "commands": "*"});
        assert_eq!(plain(stored[0].get(home.dialect.params())), wanted);
    }
}

#[test]
fn tasks_that_cannot_be_made_from_a_query_are_refused() {
    let home = Home::released();
    let dci = v3(&home);
    let queue = home.queue("demo").to_hex();
    home.mongo.insert("users", doc! {"n": 1});
    let whole = json!({
        "queueid": queue, "collection": "users", "jsonfilter": "{}",
        "params": "{\"n\":\"document.n\"}",
    });
    for key in ["queueid", "collection", "jsonfilter", "params"] {
        let mut body = whole.clone();
        body.as_object_mut().unwrap().remove(key);
        told(dci.http.post("/queue-create-tasks-from-query-json", &body), 400);
    }
    for (key, value, status) in [
        ("queueid", json!("none"), 200),
        ("jsonfilter", json!("{"), 200),
        ("params", json!("{"), 200),
    ] {
        let mut body = whole.clone();
        body[key] = value;
        told(dci.http.post("/queue-create-tasks-from-query-json", &body), status);
    }
    for (key, value) in [
        ("collection", json!("system.users")),
        ("jsonfilter", json!("{\"$where\":\"true\"}")),
        ("jsonfilter", json!([])),
        ("params", json!([1])),
    ] {
        let mut body = whole.clone();
        body[key] = value;
        let answer = dci.http.post("/queue-create-tasks-from-query-json", &body);
        assert!([200, 400].contains(&answer.status), "{body}");
        assert_eq!(answer.json()[0], json!(0), "{body}");
    }
    assert_eq!(home.mongo.count("tasks", doc! {}), 0);
}

#[test]
fn tasks_are_searched_for_with_times_as_text() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        let time = DateTime::from_millis(1_548_272_576_000);
        let task = home.task_with(queue, 1, doc! {"ctime": time, "mtime": time, "stdout": "out"});
        home.task(queue, -2);
        let hex = queue.to_hex();
        for fields in [
            vec![("queue", hex.as_str()), ("filter", r#"{"status":1}"#)],
            vec![("queue", hex.as_str()), ("filter", r#"{"status":"1"}"#), ("json", "1")],
            vec![("filter", &*format!(r#"{{"id":"{task}"}}"#))],
        ] {
            let found = dci.http.post_form("/search-tasks-json", &fields).ok();
            let found = found.as_array().unwrap();
            assert_eq!(found.len(), 1, "{fields:?}");
            assert_eq!(oid(&found[0]["_id"]), task.to_hex());
            assert_eq!(found[0]["stdout"], json!("out"));
            for key in ["ctime", "mtime"] {
                assert_eq!(found[0][key].as_f64(), Some(1_548_272_576.0), "{fields:?}");
                let text = found[0][format!("{key}_str")].as_str().unwrap();
                assert!(text.starts_with("2019-01-23") && text.contains("19:42:56"), "{text}");
            }
        }
        let query = format!("/search-tasks-json?queue={queue}&filter=%7B%22status%22%3A1%7D");
        assert_eq!(dci.http.get(&query).ok().as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_search_counts_limits_skips_and_is_terse() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        for _ in 0..3 {
            home.task_with(queue, 1, doc! {"stdout": "out"});
        }
        let hex = queue.to_hex();
        let ask = |more: Value| {
            let mut body = json!({"queue": hex, "filter": {"status": 1}});
            for (key, value) in more.as_object().unwrap() {
                body[key] = value.clone();
            }
            dci.http.post("/search-tasks-json", &body).ok()
        };
        assert_eq!(ask(json!({"count": 1})), json!([1, 3]));
        assert_eq!(ask(json!({"limit": 2})).as_array().unwrap().len(), 2);
        assert_eq!(ask(json!({"skip": 2})).as_array().unwrap().len(), 1);
        assert_eq!(ask(json!({"terse": 1}))[0]["stdout"], json!("[terse mode]"));
        assert_eq!(ask(json!({"filter": {"status": 7}})), json!([]));
    }
}

#[test]
fn a_search_that_cannot_be_is_refused_with_a_reason() {
    for home in both() {
        let dci = v3(&home);
        let queue = home.queue("demo");
        home.task(queue, -2);
        for body in [
            json!({"filter": "["}),
            json!({"filter": []}),
            json!({"filter": 5}),
            json!({"queue": "not an id"}),
            json!({"filter": {"id": "not an id"}}),
            json!({"filter": {"$where": "true"}}),
        ] {
            let answer = dci.http.post("/search-tasks-json", &body);
            assert!([200, 400].contains(&answer.status), "{body} {}", answer.status);
            let answer = answer.json();
            assert_eq!(answer[0], json!(0), "{body} {answer}");
            assert!(answer[1].is_string(), "{body} {answer}");
        }
    }
}

#[test]
fn the_page_of_version_3_is_a_folder_of_web_root() {
    let home = Home::seed();
    let dci = v3(&home);
    let moved = dci.http.get("/legacy").expect(302);
    assert_eq!(moved.header("location"), Some("/legacy/"));
    dci.http.get("/legacy/").expect(404);
    std::fs::create_dir_all(home.path("root/legacy")).unwrap();
    std::fs::write(home.path("root/legacy/index.html"), "<p>old").unwrap();
    let root = home.path("root");
    let dci = home.dci_with(json!({"web_root": root.to_str().unwrap()}));
    let page = dci.http.get("/legacy/").expect(200);
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    assert_eq!(page.text(), "<p>old");
}

/// A repeated request would create them twice.
#[test]
fn what_was_made_before_something_went_wrong_is_told() {
    let home = Home::seed();
    let dci = v3(&home);
    let queue = home.queue("demo");
    home.mongo.insert_many("users", (0..600).map(|number| doc! {"n": number}).collect());
    home.mongo.insert("users", doc! {"n": {"$oid": "x"}});
    let body = json!({
        "queueid": queue.to_hex(), "collection": "users", "jsonfilter": {},
        "params": {"n": "document.n"},
    });
    let told = dci.http.post("/queue-create-tasks-from-query-json", &body).bad();
    assert_eq!(told[0], json!(0));
    assert!(told[1].as_str().unwrap().contains("$oid"), "{told}");
    let made = told[2]["MongoDB::InsertManyResult"]["inserted_count"].as_u64().unwrap();
    assert_eq!(home.mongo.count_now("tasks", doc! {}), made);
    assert!(made > 0);
}
