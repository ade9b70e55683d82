//! Every rule for the other routes, broken once.

use serde_json::{Value, json};

use crate::daemon::Daemon;

async fn check(daemon: &Daemon, line: &str, body: &Value, field: &str) {
    let answer = daemon.json(line, body.clone()).await;
    let expected = (400, "invalid_value".to_owned(), Some(field.to_owned()));
    assert_eq!(answer.refusal(), expected, "{line} {body}\n{}", answer.text());
}

#[tokio::test]
async fn queries_that_break_the_rules() {
    let daemon = Daemon::start().await;
    let long = format!("/v1/acme/jobs?type={}", "a".repeat(256));
    for (path, code, field) in [
        ("/v1/acme/jobs?limit=0", "invalid_value", "limit"),
        ("/v1/acme/jobs?limit=1001", "invalid_value", "limit"),
        ("/v1/acme/jobs?limit=many", "invalid_value", "limit"),
        ("/v1/acme/jobs?state=done", "invalid_value", "state"),
        ("/v1/acme/jobs?state=", "invalid_value", "state"),
        ("/v1/acme/jobs?after=x", "invalid_value", "after"),
        ("/v1/acme/jobs?before=1", "invalid_value", "before"),
        ("/v1/acme/jobs?type=", "invalid_type", "type"),
        ("/v1/acme/jobs?type=a%7Cb", "invalid_type", "type"),
        (long.as_str(), "invalid_type", "type"),
        ("/v1/acme/jobs/1?wait=301s", "invalid_value", "wait"),
        ("/v1/acme/jobs/1?wait=6m", "invalid_value", "wait"),
        ("/v1/acme/jobs/1?wait=30", "invalid_value", "wait"),
        ("/v1/acme/jobs/abc", "invalid_value", "id"),
        ("/v1/acme/jobs/-1", "invalid_value", "id"),
        ("/v1/acme/jobs/0", "invalid_value", "id"),
        ("/v1/acme/jobs/99999999999999999999/log", "invalid_value", "id"),
        ("/v1/acme/jobs/x/payload", "invalid_value", "id"),
        ("/v1/acme/handlers/t?version=x", "invalid_value", "version"),
        ("/v1/acme/handlers/a%7Cb", "invalid_type", "type"),
        ("/v1/ui/handlers", "invalid_tenant", "tenant"),
        ("/v1/ui/types", "invalid_tenant", "tenant"),
        ("/ui/handler/get/t", "invalid_tenant", "tenant"),
    ] {
        let expected = (400, code.to_owned(), Some(field.to_owned()));
        assert_eq!(daemon.get(path).await.refusal(), expected, "{path}");
    }
}

#[tokio::test]
async fn commands_that_break_the_rules() {
    let daemon = Daemon::start().await;
    let claim = "POST /v1/acme/claim";
    let requeue = "POST /v1/acme/jobs/requeue";
    let many: Vec<_> = (0..1001).map(|_| "a").collect();
    let cases = [
        (claim, json!({"limit": 0}), "limit"),
        (claim, json!({"limit": 1001}), "limit"),
        (claim, json!({"limit": "1"}), "limit"),
        (claim, json!({"types": []}), "types"),
        (claim, json!({"types": [""]}), "types"),
        (claim, json!({"types": many}), "types"),
        (claim, json!({"types": "a"}), "types"),
        (claim, json!({"types": [5]}), "types[0]"),
        (claim, json!({"lease": "500ms"}), "lease"),
        (claim, json!({"lease": "25h"}), "lease"),
        (claim, json!({"lease": 60}), "lease"),
        (claim, json!({"wait": "301s"}), "wait"),
        (claim, json!({"nonsense": 1}), "nonsense"),
        (claim, json!([]), "body"),
        (requeue, json!({"type": "t"}), "state"),
        (requeue, json!({"type": "t", "state": "queued"}), "state"),
        (requeue, json!({"type": "t", "state": "done"}), "state"),
        (requeue, json!({"type": "t", "state": "failed", "limit": 0}), "limit"),
        (requeue, json!({"type": "t", "state": "failed", "limit": 10001}), "limit"),
        (requeue, json!({"type": "t", "state": "failed", "more": 1}), "more"),
        ("POST /v1/acme/jobs/1/renew", json!({}), "token"),
        ("POST /v1/acme/jobs/1/renew", json!({"token": "1"}), "token"),
        ("POST /v1/acme/jobs/1/renew", json!({"token": 1, "lease": "1ms"}), "lease"),
        ("POST /v1/acme/jobs/1/finish", json!({"token": 1}), "status"),
        ("POST /v1/acme/jobs/1/finish", json!({"status": 200}), "token"),
        ("POST /v1/acme/jobs/1/finish", json!({"token": 1, "status": 99}), "status"),
        ("POST /v1/acme/jobs/1/finish", json!({"token": 1, "status": 600}), "status"),
        ("POST /v1/acme/jobs/1/finish", json!({"token": 1, "status": 200, "x": 1}), "x"),
        ("POST /v1/acme/jobs/1/release", json!({"token": 1, "delay": "soon"}), "delay"),
        ("POST /v1/acme/jobs/1/progress", json!({"token": 1}), "percent"),
        ("POST /v1/acme/jobs/1/progress", json!({"token": 1, "percent": 101}), "percent"),
        ("POST /v1/acme/jobs/1/progress", json!({"token": 1, "percent": -0.5}), "percent"),
        ("POST /v1/acme/jobs/x/finish", json!({"token": 1, "status": 200}), "id"),
        ("POST /v1/acme/jobs/1/cancel", json!({"why": 1}), "why"),
        ("POST /v1/control/stop", json!({"now": true}), "now"),
        ("POST /v1/acme/types/t/suspend", json!({"x": 1}), "x"),
    ];
    for (line, body, field) in &cases {
        check(&daemon, line, body, field).await;
    }
    for body in [json!({"type": "a|b", "state": "failed"}), json!({"state": "failed"})] {
        let bad_type = daemon.json(requeue, body).await;
        assert_eq!(bad_type.refusal(), (400, "invalid_type".into(), Some("type".into())));
    }
    assert_eq!(daemon.get("/v1/status").await.json()["picking"], true);
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn s0_39_handlers_and_settings_that_break_the_rules() {
    let daemon = Daemon::start().await;
    let handler = "PUT /v1/acme/handlers/t";
    let settings = "PUT /v1/acme/types/t/settings";
    let with = |options: Value| json!({"lang": "sh", "body": "x", "options": options});
    let cases = [
        (handler, json!({"body": "x"}), "lang"),
        (handler, json!({"lang": "cobol", "body": "x"}), "lang"),
        (handler, json!({"lang": "php", "body": "x"}), "lang"),
        (handler, json!({"lang": "sh"}), "body"),
        (handler, json!({"lang": "sh", "body": "  "}), "body"),
        (handler, json!({"lang": "sh", "body": "x", "id": "1"}), "id"),
        (handler, json!({"lang": "sh", "body": "x", "before": 5}), "before"),
        (handler, with(json!({"timeout": "0s"})), "options.timeout"),
        (handler, with(json!({"batch": 1001})), "options.batch"),
        (handler, with(json!({"contexts": 0})), "options.contexts"),
        (handler, with(json!({"idle": 5})), "options.idle"),
        (handler, with(json!({"env": {"WINDLASS_X": "1"}})), "options.env"),
        (handler, with(json!({"retry": {"attempts": 0}})), "options.retry.attempts"),
        (handler, with(json!({"retry": {"factor": 0.9}})), "options.retry.factor"),
        (handler, with(json!({"nonsense": 1})), "options.nonsense"),
        (settings, json!({"weight": 0}), "weight"),
        (settings, json!({"weight": 1001}), "weight"),
        (settings, json!({"concurrency": 0}), "concurrency"),
        (settings, json!({"rate": 0}), "rate"),
        (settings, json!({"rate": -1}), "rate"),
        (settings, json!({"timeout": "0s"}), "timeout"),
        (settings, json!({"retention": 5}), "retention"),
        (settings, json!({"retry": {"delay": 5}}), "retry.delay"),
        (settings, json!({"nonsense": 1}), "nonsense"),
        ("POST /acme/handler/add/t/add?method=sh", json!({"lang": "node", "body": "x"}), "method"),
        ("POST /acme/handler/add/t/add", json!({"body": "x"}), "lang"),
    ];
    for (line, body, field) in &cases {
        check(&daemon, line, body, field).await;
    }
    for (line, body, field) in [
        ("POST /acme/handler/add/t/add", &b"x"[..], "method"),
        ("POST /acme/handler/add/t/add?method=cobol", b"x", "method"),
        ("POST /acme/handler/add/t/add?method=sh", b"", "body"),
        ("POST /acme/handler/add/t/add?method=sh", b"\xff", "body"),
        ("POST /acme/handler/add/t/add?lang=sh", b"x", "lang"),
    ] {
        let answer = daemon.call(line, &["content-type: text/plain"], body).await;
        let expected = (400, "invalid_value".to_owned(), Some(field.to_owned()));
        assert_eq!(answer.refusal(), expected, "{line}");
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_content_type_that_a_route_does_not_take_is_415() {
    let daemon = Daemon::start().await;
    let form = ["content-type: application/x-www-form-urlencoded"];
    for line in [
        "POST /v1/acme/claim",
        "POST /v1/acme/jobs/requeue",
        "POST /v1/acme/jobs/1/renew",
        "POST /v1/acme/jobs/1/finish",
        "POST /v1/acme/jobs/1/release",
        "POST /v1/acme/jobs/1/progress",
        "POST /v1/acme/jobs/1/cancel",
        "PUT /v1/acme/handlers/t",
        "PUT /v1/acme/types/t/settings",
    ] {
        let answer = daemon.call(line, &form, "{}").await;
        let expected = (415, "invalid_value".into(), Some("Content-Type".into()));
        assert_eq!(answer.refusal(), expected, "{line}");
    }
    let empty = daemon.call("POST /v1/control/start", &form, "").await;
    assert_eq!(empty.status, 200, "without a body its type does not matter");
}

#[tokio::test]
async fn commands_that_are_too_large() {
    let daemon = Daemon::start().await;
    let large = "x".repeat(1024 * 1024);
    let body = json!({"types": [large]});
    let answer = daemon.json("POST /v1/acme/claim", body).await;
    assert_eq!(answer.refusal(), (413, "too_large".into(), Some("body".into())));
    let data = "x".repeat(16 * 1024 * 1024);
    let body = json!({"token": 1, "status": 200, "data": data});
    let answer = daemon.json("POST /v1/acme/jobs/1/finish", body).await;
    assert_eq!(answer.refusal(), (413, "too_large".into(), Some("data".into())));
}
