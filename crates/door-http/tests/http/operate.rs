//! Operating the daemon, and rules that hold for all routes.

use serde_json::{Value, json};

use crate::client::{Client, request};
use crate::daemon::Daemon;

#[tokio::test]
async fn health_and_readiness() {
    let daemon = Daemon::start().await;
    let health = daemon.get("/healthz").await;
    assert_eq!((health.status, health.text()), (200, "ok"));
    let ready = daemon.get("/readyz").await;
    let ok = json!({"journal": "ok", "store": "ok", "services": "ok", "takeover": "ok"});
    assert_eq!((ready.status, ready.json()), (200, ok));
    daemon.store.set_available(false);
    let ready = daemon.get("/readyz").await;
    assert_eq!((ready.status, &ready.json()["journal"]), (200, &json!("ok")));
    assert_ne!(ready.json()["store"], "ok");
}

#[tokio::test]
async fn metrics_are_there_for_prometheus() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a\nb").await;
    let metrics = daemon.get("/metrics").await;
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((metrics.status, metrics.header("content-type")), (200, Some(content_type)));
    let line = "windlass_jobs_accepted_total{tenant=\"acme\",type=\"t\"} 2";
    assert!(metrics.text().lines().any(|seen| seen == line), "{}", metrics.text());
    assert!(metrics.text().ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_status_says_what_the_daemon_is_and_does() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a\nb").await;
    daemon.get("/v1/acme/jobs").await;
    let status = daemon.get("/v1/status").await.json();
    assert!(status["sysid"].as_u64().unwrap() >= 1);
    assert_eq!(status["version"], "1.2.3");
    assert_eq!((&status["picking"], &status["running"]), (&json!(true), &json!(0)));
    assert!(status["uptime_seconds"].is_u64() && status["uptime"].is_string());
    assert!(status["started_at"].as_str().unwrap().ends_with('Z'));
    assert!(status["store"].is_string() && status["journal"]["waiting"].is_u64());
    assert_eq!(status["tenants"]["acme"]["ready"], 2);
}

#[tokio::test]
async fn s2_1_a_stopped_daemon_accepts_and_runs_when_it_is_started() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    assert_eq!(daemon.post("/v1/control/stop").await.status, 200);
    let id = daemon.add("/v1/acme/jobs/t", "a").await.remove(0);
    assert_eq!(daemon.get("/v1/status").await.json()["picking"], false);
    assert_eq!(daemon.get(&format!("/v1/acme/jobs/{id}")).await.json()["state"], "queued");
    assert_eq!(daemon.post("/v1/control/start").await.status, 200);
    let ended = daemon.get(&format!("/v1/acme/jobs/{id}?wait=5m")).await.json();
    assert_eq!(ended["state"], "finished");
}

#[tokio::test]
async fn events_say_that_they_are_not_there_yet() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.get("/v1/events").await.refusal(), (501, "unavailable".into(), None));
}

#[tokio::test]
async fn unknown_routes_and_wrong_methods_get_the_common_refusal() {
    let daemon = Daemon::start().await;
    for path in ["/", "/nonsense", "/v1", "/v1/acme", "/v1/acme/jobs/1/nonsense", "/v1/acme/jobs/"]
    {
        assert_eq!(daemon.get(path).await.refusal(), (404, "not_found".into(), None), "{path}");
    }
    for (line, allow) in [
        ("PATCH /v1/acme/jobs/1", vec!["delete", "get", "head", "post"]),
        ("GET /v1/acme/claim", vec!["post"]),
        ("POST /healthz", vec!["get", "head"]),
        ("GET /acme/job/t/add", vec!["post"]),
    ] {
        let answer = daemon.call(line, &[], "").await;
        let expected = (405, "invalid_value".into(), Some("method".into()));
        assert_eq!(answer.refusal(), expected, "{line}");
        let mut allowed: Vec<_> = answer.header("allow").unwrap().split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed, allow, "{line}");
    }
    let mut client = Client::connect(daemon.address).await;
    client.send(&request("HEAD /healthz", &[], "")).await;
    client.send(&request("GET /healthz", &["connection: close"], "")).await;
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert_eq!(rest.matches("200 OK").count(), 2, "{rest}");
    assert_eq!(rest.matches("\r\n\r\nok").count(), 1, "{rest}");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_change_anything() {
    let daemon = Daemon::start().await;
    for site in ["sec-fetch-site: cross-site", "sec-fetch-site: same-site"] {
        for line in [
            "POST /acme/job/t/add",
            "POST /acme/handler/add/t/add?method=sh",
            "PUT /v1/acme/handlers/t",
            "DELETE /v1/acme/handlers/t",
            "POST /v1/control/stop",
        ] {
            let answer = daemon.call(line, &[site], "echo").await;
            assert_eq!(answer.refusal(), (403, "forbidden".into(), None), "{line}");
        }
        assert_eq!(daemon.call("GET /healthz", &[site], "").await.status, 200);
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
    let own = daemon.call("POST /acme/job/t/add", &["sec-fetch-site: same-origin"], "a").await;
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn every_route_of_the_document_is_served_and_refuses_unknown_parameters() {
    let daemon = Daemon::start().await;
    let document = daemon.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() >= 30, "{}", paths.len());
    for (template, item) in paths {
        let path = fill(template);
        for method in item.as_object().unwrap().keys() {
            let line = format!("{} {path}?nonsense=1", method.to_uppercase());
            let answer = daemon.call(&line, &[], valid_body(&line)).await;
            let expected = (400, "invalid_value".into(), Some("nonsense".into()));
            assert_eq!(answer.refusal(), expected, "{line}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{line}");
        }
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

pub fn fill(template: &str) -> String {
    let segments = template.split('/').map(|segment| match segment {
        "{tenant}" | "{client}" => "acme",
        "{type}" => "t",
        "{name}" => "DOOR",
        "{id}" if template.starts_with("/v1/keys") => "0123456789abcdef",
        "{id}" | "{id_or_type}" => "1",
        plain => plain,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// A body that the route would accept without the parameter.
pub fn valid_body(line: &str) -> String {
    let path = line.split('?').next().unwrap();
    let body: Value = match path.rsplit('/').next().unwrap() {
        "requeue" => json!({"type": "t", "state": "failed"}),
        "DOOR" => return "a value".to_owned(),
        "keys" => json!({"role": "metrics"}),
        "claim" | "settings" | "rotate" | "acme" => json!({}),
        "renew" | "release" => json!({"token": 1}),
        "finish" => json!({"token": 1, "status": 200}),
        "progress" => json!({"token": 1, "percent": 1}),
        _ => return String::new(),
    };
    body.to_string()
}
