//! What jobs leave behind: results, logs, progress, and the jobs that follow.

use serde_json::{Value, json};

use windlass_core::limit::RESULT_BYTES_MAX;

use crate::client::Response;
use crate::daemon::Daemon;

async fn claim(daemon: &Daemon) -> Value {
    let answer = daemon.json("POST /v1/acme/claim", json!({ "wait": "1m" })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["jobs"][0].clone()
}

/// Ends a claimed job with this JSON text as its data.
async fn finish(daemon: &Daemon, job: &Value, data: &str) -> Response {
    let line = format!("POST /v1/acme/jobs/{}/finish", job["id"].as_str().unwrap());
    let body = format!(r#"{{"token":{},"status":200,"data":{data}}}"#, job["token"]);
    daemon.call(&line, &["content-type: application/json"], body.as_bytes()).await
}

#[tokio::test]
async fn s0_61_every_json_value_comes_back_as_it_was_sent() {
    let daemon = Daemon::start().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let number = "-12345678901234567890.00100e+3";
    for data in ["null", "false", "0", "\"\"", "[]", "[1, {\"a\": 2}]", number, &deep] {
        let id = daemon.add("/v1/acme/jobs/t", "x").await.remove(0);
        let job = claim(&daemon).await;
        assert_eq!(finish(&daemon, &job, data).await.status, 200);
        let seen = daemon.get(&format!("/v1/acme/jobs/{id}?wait=1m")).await;
        assert!(seen.text().contains(&format!("\"result\":{data},\"")), "{data:.50}");
    }
}

#[tokio::test]
async fn s0_61_a_result_has_a_bound() {
    let daemon = Daemon::start().await;
    let id = daemon.add("/v1/acme/jobs/t", "x").await.remove(0);
    let job = claim(&daemon).await;
    let data = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let refused = finish(&daemon, &job, &data(RESULT_BYTES_MAX + 1)).await;
    assert_eq!(refused.refusal(), (413, "too_large".into(), Some("data".into())));
    let path = format!("/v1/acme/jobs/{id}");
    assert_eq!(daemon.get(&path).await.json()["state"], "running");
    let largest = data(RESULT_BYTES_MAX);
    assert_eq!(finish(&daemon, &job, &largest).await.status, 200);
    let ended = daemon.get(&path).await.json();
    assert_eq!(ended["state"], "finished");
    assert_eq!(ended["result"].as_str().unwrap().len() + 2, RESULT_BYTES_MAX);
}

#[tokio::test]
async fn s0_62_then_is_an_option_of_every_way_to_add() {
    let daemon = Daemon::start().await;
    let text = daemon.add("/v1/acme/jobs/t?then=next%20%C3%BC", "x").await.remove(0);
    let body = json!({ "jobs": [{ "payload": "x", "then": "next ü" }, { "payload": "y" }] });
    let json = daemon.json("POST /v1/acme/jobs/t", body).await.json();
    let binary = ["content-type: application/octet-stream"];
    let binary = daemon.call("POST /v1/acme/jobs/t?then=next+%C3%BC", &binary, b"x").await.json();
    let then = async |id: &str| daemon.get(&format!("/v1/acme/jobs/{id}")).await.json();
    for id in [&text, json["ids"][0].as_str().unwrap(), binary["ids"][0].as_str().unwrap()] {
        assert_eq!(then(id).await["then"], "next ü");
    }
    assert_eq!(then(json["ids"][1].as_str().unwrap()).await["then"], Value::Null);
    let listed = daemon.get("/v1/acme/jobs").await.json();
    let listed = listed["jobs"].as_array().unwrap();
    assert_eq!(listed.iter().filter(|job| job["then"] == "next ü").count(), 3);
}

#[tokio::test]
async fn s0_62_the_next_job_gets_the_result() {
    let daemon = Daemon::start().await;
    let cases = [
        ("\"plain ä\\n\"", "plain ä\n"),
        ("{\"a\": [1.50]}", "{\"a\": [1.50]}"),
        ("null", "null"),
        ("\"\"", ""),
    ];
    for (data, payload) in cases {
        daemon.add("/v1/acme/jobs/a?then=b&priority=700", "x").await;
        let first = claim(&daemon).await;
        assert_eq!((&first["type"], &first["then"]), (&json!("a"), &json!("b")));
        assert_eq!(finish(&daemon, &first, data).await.status, 200);
        let next = claim(&daemon).await;
        let seen = (&next["type"], &next["payload"], &next["priority"], &next["then"]);
        assert_eq!(seen, (&json!("b"), &json!(payload), &json!(700), &Value::Null));
        assert_eq!(finish(&daemon, &next, "1").await.status, 200);
    }
    let left = daemon.get("/v1/acme/jobs?state=queued").await.json();
    assert_eq!(left["jobs"], json!([]));
}

#[tokio::test]
async fn the_streams_of_a_log_are_told_apart() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let id = daemon.add("/v1/acme/jobs/t", "hello").await.remove(0);
    daemon.get(&format!("/v1/acme/jobs/{id}?wait=5m")).await;
    let text = daemon.get(&format!("/v1/acme/jobs/{id}/log")).await;
    assert!(text.text().ends_with(" ---\nsaw hello\n[stderr] no locale\n"), "{text:?}");
    let json = daemon.get(&format!("/v1/acme/jobs/{id}/log?format=json")).await.json();
    let attempts = json["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["attempt"]), (1, &json!(1)));
    let lines = json!([
        { "stream": "stdout", "text": "saw hello" },
        { "stream": "stderr", "text": "no locale" },
    ]);
    assert_eq!(attempts[0]["lines"], lines);
    let refused = daemon.get(&format!("/v1/acme/jobs/{id}/log?format=xml")).await;
    assert_eq!(refused.refusal(), (400, "invalid_value".into(), Some("format".into())));
}
