//! What an operator sees: health, status, metrics, events.

use serde_json::Value;

use crate::harness::{Cluster, Config, Daemon, text, until};

#[test]
fn s2_21_each_number_counts_what_was_provoked() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    tenant
        .sh("t", "case $(cat) in ok) exit 0;; failed) exit 65;; retry) exit 75;; *) exit 1;; esac");
    tenant.add("t", &["ok", "ok", "ok", "failed", "failed", "retry", "error"]);
    let own = [("tenant", "a"), ("type", "t")];
    let ended =
        |code: &str| daemon.metric("windlass_jobs_ended_total", &[own[0], own[1], ("code", code)]);
    let counts = || ["ok", "failed", "retry", "error"].map(ended);
    until("all ends are counted", counts, |counts| *counts == [3.0, 2.0, 2.0, 2.0]);
    assert_eq!(daemon.metric("windlass_jobs_accepted_total", &own), 7.0);
    assert_eq!(daemon.metric("windlass_jobs_started_total", &own), 9.0);
    assert_eq!(daemon.metric("windlass_jobs_retried_total", &own), 2.0);
    assert_eq!(daemon.metric("windlass_jobs_running", &own), 0.0);

    // Expired leases: two claimed jobs whose workers never come back.
    assert_eq!(daemon.metric("windlass_leases_expired_total", &[]), 0.0);
    tenant.add("pulled", &["x", "y"]);
    tenant.until_claimed("pulled", "1s");
    tenant.until_claimed("pulled", "1s");
    let expired = || daemon.metric("windlass_leases_expired_total", &[]);
    until("both leases are broken", expired, |n| *n == 2.0);

    // Lease durations: one value for each attempt that was held.
    let held = || daemon.metric("windlass_lease_seconds_count", &[]);
    until("all locks are measured", held, |n| *n >= 9.0);
    assert!(daemon.metric("windlass_lease_seconds_sum", &[]) > 0.0);
}

#[test]
fn s2_21_running_jobs_and_the_queue_are_gauges() {
    let config = Config::new().set("scheduler.slots", "2").set("scheduler.slots_reserved", "0");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    tenant.add("t", &["1", "2"]);
    let own = [("tenant", "a"), ("type", "t")];
    let running = || daemon.metric("windlass_jobs_running", &own);
    until("two jobs run", running, |n| *n == 2.0);
    tenant.add("waiting", &["1", "2", "3"]);
    let depth = || daemon.metric("windlass_queue_depth", &[("tenant", "a"), ("type", "waiting")]);
    until("three jobs wait", depth, |n| *n == 3.0);
    let oldest =
        || daemon.metric("windlass_queue_oldest_seconds", &[("tenant", "a"), ("type", "waiting")]);
    until("the oldest has an age", oldest, |age| *age > 0.0);
    daemon.home().let_go("hold");
    until("none runs", running, |n| *n == 0.0);
}

#[test]
fn s2_21_metrics_are_prometheus_text() {
    let daemon = Daemon::start(Config::new());
    let id = daemon.tenant("a").add_one("t", "x");
    assert!(!id.is_empty());
    let text = daemon.get("/metrics").expect(200).text();
    for name in [
        "windlass_jobs_accepted",
        "windlass_leases_expired",
        "windlass_lease_seconds",
        "windlass_accept_seconds",
        "windlass_journal_sync_seconds",
        "windlass_store_commit_seconds",
    ] {
        assert!(text.contains(&format!("# TYPE {name}")), "{name} in {text}");
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(daemon.metric("windlass_accept_seconds_count", &[]) >= 1.0);
}

#[test]
fn s2_21_there_is_a_bound_on_labels() {
    const TYPES: usize = 1500;
    let daemon = Daemon::start(Config::new());
    let mut connection = daemon.connection();
    for n in 0..TYPES {
        let headers = [("Content-Type", "text/plain")];
        let path = format!("/v1/a/jobs/type-{n}");
        connection.call("POST", &path, &headers, b"x").unwrap().expect(201);
    }
    assert_eq!(daemon.metric("windlass_jobs_accepted_total", &[]), TYPES as f64);
    let text = daemon.get("/metrics").expect(200).text();
    let lines = text.lines().filter(|l| l.starts_with("windlass_jobs_accepted_total")).count();
    assert!(lines < TYPES, "{lines} lines");
}

#[test]
fn status_names_the_daemon_and_its_numbers() {
    let cluster = Cluster::start(2, Config::new());
    let status: Vec<Value> = cluster.daemons.iter().map(|daemon| daemon.status()).collect();
    assert_ne!(status[0]["sysid"], status[1]["sysid"]);
    assert_eq!(status[0]["running"], 0);
    assert_eq!(text(&status[0]["version"]), env!("CARGO_PKG_VERSION"));
}

#[test]
fn health_readiness_and_the_openapi_document_answer() {
    let daemon = Daemon::start(Config::new());
    assert_eq!(daemon.get("/healthz").expect(200).text().trim(), "ok");
    daemon.get("/readyz").expect(200);
    let openapi = daemon.get("/openapi.json").expect(200).json();
    assert!(text(&openapi["openapi"]).starts_with("3.1"), "{}", openapi["openapi"]);
    let paths = openapi["paths"].as_object().unwrap();
    for path in [
        "/v1/{tenant}/jobs",
        "/v1/{tenant}/jobs/{id}/payload",
        "/v1/{tenant}/claim",
        "/v1/{tenant}/handlers/{type}",
        "/v1/status",
        "/metrics",
    ] {
        assert!(paths.contains_key(path), "{path} is not in the document");
    }
}

#[test]
fn unknown_routes_and_methods_have_error_answers() {
    let daemon = Daemon::start(Config::new());
    assert_eq!(daemon.get("/v1/a/nothing").expect(404).error_code(), "not_found");
    assert_eq!(daemon.get("/").status / 100, 4);
    let answer = daemon.call("PATCH", "/v1/a/jobs/t", &[], b"x");
    assert_eq!(answer.status, 405, "{}", answer.text());
}

#[test]
fn s2_21_odd_names_do_not_break_the_metrics() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.add_one("say%20%22hi%22%5C%7B%7D", "x");
    let text = daemon.get("/metrics").expect(200).text();
    let line = text.lines().find(|line| line.starts_with("windlass_jobs_accepted_total{"));
    let line = line.unwrap_or_else(|| panic!("no accepted jobs in {text}"));
    assert!(line.contains("type=\"say \\\"hi\\\"\\\\{}\""), "{line}");
    assert!(line.ends_with(" 1"), "{line}");
}
