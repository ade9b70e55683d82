//! Handlers, types and their settings.

use serde_json::{Value, json};

use crate::daemon::Daemon;

fn full() -> Value {
    json!({
        "lang": "node", "body": "return payload", "before": "b", "beforeEach": "e",
        "afterEach": "a", "eid": "x",
        "options": {
            "timeout": "90s", "batch": 5, "contexts": 2, "context_jobs": 100, "idle": "1m",
            "env": {"A": "b"}, "secrets": ["DOOR"],
            "memory": "512MB", "cpu": "30s", "processes": 20,
            "file_size": "1GB", "scratch": "64MB", "network": ["db.internal:5432", "8.8.8.8"],
            "retry": {"delay": "1s", "factor": 3.0, "delay_max": "2h", "attempts": 4, "age": "2d"},
        },
    })
}

#[tokio::test]
async fn s0_53_a_handler_comes_back_with_all_its_fields() {
    let daemon = Daemon::start().await;
    let set = daemon.json("PUT /v1/acme/handlers/a%2Fb", full()).await;
    assert_eq!(set.status, 200);
    let id = set.json()["id"].clone();
    let mut seen = daemon.get("/v1/acme/handlers/a%2Fb").await.json();
    assert_eq!(seen["id"], id);
    assert_eq!(seen["type"], "a/b");
    assert!(seen["created_at"].as_str().unwrap().ends_with('Z'));
    for extra in ["id", "type", "created_at"] {
        seen.as_object_mut().unwrap().remove(extra);
    }
    assert_eq!(seen, full());
    assert_eq!(daemon.get("/acme/handler/get/a%2Fb").await.json()["body"], "return payload");
}

#[tokio::test]
async fn the_newest_version_is_in_force_and_older_ones_are_kept() {
    let daemon = Daemon::start().await;
    let mut ids = Vec::new();
    for body in ["one", "two"] {
        let set = daemon.json("PUT /v1/acme/handlers/t", json!({"lang": "sh", "body": body})).await;
        ids.push(set.json()["id"].as_str().unwrap().to_owned());
    }
    let body = async |path: &str| daemon.get(path).await.json()["body"].clone();
    assert_eq!(body("/v1/acme/handlers/t").await, "two");
    assert_eq!(body(&format!("/v1/acme/handlers/t?version={}", ids[0])).await, "one");
    let none = daemon.get("/v1/acme/handlers/t?version=12345").await;
    assert_eq!(none.refusal(), (404, "not_found".into(), None));
}

#[tokio::test]
async fn handlers_are_listed_and_removed() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/b").await;
    daemon.handle("/v1/acme/handlers/a").await;
    daemon.handle("/v1/other/handlers/c").await;
    let list = daemon.get("/v1/acme/handlers").await.json();
    let types: Vec<_> = list.as_array().unwrap().iter().map(|h| h["type"].clone()).collect();
    assert_eq!(types, ["a", "b"]);
    assert_eq!(daemon.call("DELETE /v1/acme/handlers/a", &[], "").await.status, 200);
    for line in ["DELETE /v1/acme/handlers/a", "GET /v1/acme/handlers/a", "GET /acme/handler/get/a"]
    {
        let gone = daemon.call(line, &[], "").await;
        assert_eq!(gone.refusal(), (404, "not_found".into(), None), "{line}");
    }
}

#[tokio::test]
async fn s0_36_the_seeds_route_sets_a_handler_from_text_or_json() {
    let daemon = Daemon::start().await;
    let form = "content-type: application/x-www-form-urlencoded";
    for (content_type, query) in [(form, "method=node"), ("content-type: text/plain", "method=sh")]
    {
        let line = format!("POST /acme/handler/add/t/add?{query}");
        let set = daemon.call(&line, &[content_type], "return 1;\nreturn 2;\n").await;
        assert_eq!(set.status, 200, "{set:?}");
        let seen = daemon.get("/acme/handler/get/t").await.json();
        assert_eq!(seen["id"], set.json()["id"]);
        assert_eq!(seen["body"], "return 1;\nreturn 2;\n");
        assert_eq!(seen["lang"], query.strip_prefix("method=").unwrap());
    }
    let set = daemon.json("POST /acme/handler/add/t/add", full()).await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(daemon.get("/acme/handler/get/t").await.json()["eid"], "x");
    let body = json!({"body": "http://127.0.0.1:1/"});
    let set = daemon.json("POST /acme/handler/add/t/add?method=http", body).await;
    assert_eq!(set.status, 200, "{set:?}");
    assert_eq!(daemon.get("/acme/handler/get/t").await.json()["lang"], "http");
}

#[tokio::test]
async fn s0_37_the_seeds_route_removes_a_handler_with_either_verb() {
    let daemon = Daemon::start().await;
    for verb in ["POST", "DELETE"] {
        daemon.handle("/v1/acme/handlers/t").await;
        let line = format!("{verb} /acme/handler/del/t/delete");
        assert_eq!(daemon.call(&line, &[], "").await.status, 200);
        let gone = daemon.call(&line, &[], "").await;
        assert_eq!(gone.refusal(), (404, "not_found".into(), None));
    }
}

#[tokio::test]
async fn s0_59_types_show_their_numbers() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a\nb").await;
    daemon.add("/v1/acme/jobs/t?delay=1h", "c").await;
    let cancelled = daemon.add("/v1/acme/jobs/t", "d").await.remove(0);
    daemon.post(&format!("/v1/acme/jobs/{cancelled}/cancel")).await;
    let types = daemon.get("/v1/acme/types").await.json();
    let mut numbers = types[0].clone();
    let oldest = numbers.as_object_mut().unwrap().remove("oldest_ready_at").unwrap();
    assert!(oldest.as_str().unwrap().ends_with('Z'));
    let expected = json!({"type": "t", "handler": false, "suspended": false, "ready": 2,
        "deferred": 1, "running": 0, "paused": 0, "finished": 0, "failed": 0, "cancelled": 1});
    assert_eq!(numbers, expected);
}

#[tokio::test]
async fn s2_20_a_suspended_type_is_accepted_and_not_picked_until_it_is_resumed() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    daemon.handle("/v1/acme/handlers/u").await;
    assert_eq!(daemon.post("/v1/acme/types/t/suspend").await.status, 200);
    let held = daemon.add("/v1/acme/jobs/t", "a").await.remove(0);
    let other = daemon.add("/v1/acme/jobs/u", "a").await.remove(0);
    let ended = async |id: &str| {
        daemon.get(&format!("/v1/acme/jobs/{id}?wait=5m")).await.json()["state"].clone()
    };
    assert_eq!(ended(&other).await, "finished");
    let types = daemon.get("/v1/acme/types").await.json();
    assert_eq!((&types[0]["suspended"], &types[0]["ready"]), (&json!(true), &json!(1)));
    assert_eq!(daemon.post("/v1/acme/types/t/resume").await.status, 200);
    assert_eq!(ended(&held).await, "finished");
}

#[tokio::test]
async fn settings_come_back_as_they_were_put() {
    let daemon = Daemon::start().await;
    let empty = json!({"weight": null, "concurrency": null, "rate": null, "timeout": null,
        "retry": null, "retention": null});
    assert_eq!(daemon.get("/v1/acme/types/t/settings").await.json(), empty);
    let settings = json!({"weight": 7, "concurrency": 2, "rate": 0.5, "timeout": "5s",
        "retry": {"delay": "1s", "factor": 1.0, "delay_max": "1m", "attempts": 2, "age": "1h"},
        "retention": "7d"});
    let put = daemon.json("PUT /v1/acme/types/t/settings", settings.clone()).await;
    assert_eq!(put.status, 200);
    assert_eq!(daemon.get("/v1/acme/types/t/settings").await.json(), settings);
    daemon.json("PUT /v1/acme/types/t/settings", json!({})).await;
    assert_eq!(daemon.get("/v1/acme/types/t/settings").await.json(), empty);
}
