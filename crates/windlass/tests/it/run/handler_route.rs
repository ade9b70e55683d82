//! Setting, reading and deleting handlers.

use serde_json::{Value, json};

use crate::harness::{Cluster, Config, Daemon, text};

#[test]
fn s0_36_the_seeds_route_sets_a_handler_that_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let body = daemon.home().recorder("seen");
    let answer = daemon.send_text("/a/handler/add/t/add?method=sh", &body).expect(200).json();
    assert!(!text(&answer["id"]).is_empty());
    let handler = daemon.get("/a/handler/get/t").expect(200).json();
    assert_eq!((&handler["lang"], &handler["body"]), (&json!("sh"), &json!(body)));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{id} x")]);
}

#[test]
fn s0_36_the_seeds_route_takes_the_json_form_too() {
    let daemon = Daemon::start(Config::new());
    let form = json!({"lang": "sh", "body": "true", "options": {"timeout": "7s"}});
    let path = "/a/handler/add/t/add?method=sh";
    daemon.send_json("POST", path, &form).expect(200);
    let handler = daemon.get("/a/handler/get/t").expect(200).json();
    assert_eq!((&handler["body"], &handler["options"]["timeout"]), (&json!("true"), &json!("7s")));
}

#[test]
fn s0_37_a_deleted_handler_is_gone_and_queued_jobs_wait() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let path = "/a/handler/del/t/delete";
    assert_eq!(daemon.post(path).expect(404).error_code(), "not_found");
    for method in ["POST", "DELETE"] {
        tenant.sh("t", "true");
        daemon.call(method, path, &[], b"").expect(200);
        daemon.get("/a/handler/get/t").expect(404);
        tenant.get("handlers/t").expect(404);
        daemon.call(method, path, &[], b"").expect(404);
    }
    let id = tenant.add_one("t", "x");
    tenant.sh("other", "true");
    let sentinel = tenant.add_one("other", "x");
    tenant.until_state(&sentinel, "finished");
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("queued"), &json!(0)));
    tenant.sh("t", "true");
    tenant.until_state(&id, "finished");
}

#[test]
fn deleting_a_handler_leaves_running_jobs_alone() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    assert_eq!(daemon.delete(&tenant.path("handlers/t")).status / 100, 2);
    daemon.home().let_go("hold");
    assert_eq!(tenant.until_state(&id, "finished")["attempt"], 1);
}

#[test]
fn s0_38_the_newest_handler_is_returned_also_after_a_restart_and_by_another_daemon() {
    let mut cluster = Cluster::start(2, Config::new());
    let tenant = cluster[0].tenant("a");
    let first = tenant.sh("t", "exit 1");
    let second = tenant.sh("t", "exit 2");
    assert_ne!(first, second);
    for n in 0..2 {
        let handler = cluster[n].get("/a/handler/get/t").expect(200).json();
        assert_eq!((&handler["body"], &handler["id"]), (&json!("exit 2"), &json!(second)));
    }
    let old = tenant.get(&format!("handlers/t?version={first}")).expect(200).json();
    assert_eq!(old["body"], "exit 1");
    cluster[0].kill9();
    cluster[0].restart();
    let handler = cluster[0].get("/a/handler/get/t").expect(200).json();
    assert_eq!(handler["body"], "exit 2");
}

#[test]
fn s0_45_handlers_persist_until_they_are_deleted() {
    let mut daemon = Daemon::start(Config::new());
    daemon.tenant("a").sh("t", "true");
    daemon.tenant("a").sh("u", "true");
    daemon.delete("/v1/a/handlers/u").expect(200);
    for _ in 0..2 {
        daemon.kill9();
        daemon.restart();
        let tenant = daemon.tenant("a");
        assert_eq!(tenant.get("handlers/t").expect(200).json()["body"], "true");
        tenant.get("handlers/u").expect(404);
        let id = tenant.add_one("t", "x");
        tenant.until_state(&id, "finished");
    }
}

#[test]
fn s0_53_all_fields_of_a_handler_come_back() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let handler = json!({
        "lang": "sh",
        "body": "echo 'body'\necho \"ü\"",
        "options": {
            "timeout": "90s", "batch": 7, "contexts": 3,
            "env": {"NAME": "value"},
            "retry": {"delay": "3s", "factor": 1.5, "delay_max": "2m", "attempts": 4, "age": "1h"},
        },
    });
    let id = tenant.handler("t", &handler);
    for path in ["/v1/a/handlers/t", "/a/handler/get/t"] {
        let back = daemon.get(path).expect(200).json();
        assert_eq!((&back["lang"], &back["body"]), (&handler["lang"], &handler["body"]));
        for (name, value) in handler["options"].as_object().unwrap() {
            assert_eq!(&back["options"][name], value, "{name} in {back}");
        }
        assert_eq!((&back["id"], &back["type"]), (&json!(id), &json!("t")), "{back}");
        for name in ["before", "beforeEach", "afterEach", "eid"] {
            assert_eq!(back.get(name), Some(&Value::Null), "{name} in {back}");
        }
    }
}

/// A shell script runs once per job: there is no context that could keep scripts.
#[test]
fn s0_53_fields_of_a_context_are_refused_where_there_is_none() {
    let daemon = Daemon::start(Config::new());
    for name in ["before", "beforeEach", "afterEach", "eid"] {
        let mut handler = json!({"lang": "sh", "body": "true"});
        handler[name] = json!("text");
        let answer = daemon.send_json("PUT", "/v1/a/handlers/t", &handler).expect(400);
        assert_eq!(answer.json()["error"]["field"], name);
    }
    daemon.get("/v1/a/handlers/t").expect(404);
}

#[test]
fn s0_53_handlers_are_listed_by_tenant() {
    let daemon = Daemon::start(Config::new());
    daemon.tenant("a").sh("one", "true");
    daemon.tenant("a").sh("two", "true");
    daemon.tenant("b").sh("three", "true");
    let listed = daemon.get("/v1/a/handlers").expect(200).json();
    let rows = listed.as_array().or_else(|| listed["handlers"].as_array());
    let mut types: Vec<&str> = rows
        .unwrap_or_else(|| panic!("{listed}"))
        .iter()
        .filter_map(|h| h["type"].as_str())
        .collect();
    types.sort_unstable();
    assert_eq!(types, ["one", "two"]);
}

#[test]
fn wrong_handlers_are_refused_with_the_field_at_fault() {
    let daemon = Daemon::start(Config::new());
    let cases: [(Value, &str); 10] = [
        (json!({"lang": "cobol", "body": "x"}), "lang"),
        (json!({"body": "true"}), "lang"),
        (json!({"lang": "sh"}), "body"),
        (json!({"lang": "sh", "body": 7}), "body"),
        (json!({"lang": "sh", "body": "true", "options": {"timeout": "soon"}}), "timeout"),
        (json!({"lang": "sh", "body": "true", "options": {"batch": 0}}), "batch"),
        (json!({"lang": "sh", "body": "true", "options": {"unheard_of": 1}}), "unheard_of"),
        (json!({"lang": "sh", "body": "true", "unheard_of": 1}), "unheard_of"),
        (json!({"lang": "exec", "body": "true 'no end"}), "body"),
        (json!({"lang": "exec", "body": "  "}), "body"),
    ];
    for (handler, field) in cases {
        let answer = daemon.send_json("PUT", "/v1/a/handlers/t", &handler);
        assert_eq!(answer.status, 400, "{handler}: {}", answer.text());
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], "invalid_value", "{error}");
        assert!(error.to_string().contains(field), "{error} names {field}");
    }
    daemon.get("/v1/a/handlers/t").expect(404);
}
