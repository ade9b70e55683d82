//! Tenants that ask for more than the operator allows: of a handler, a type, a job, a worker.

use serde_json::{Value, json};

use crate::harness::{Daemon, Response};
use crate::users::as_both_users;

/// The refusal names the field, the maximum and its key.
#[track_caller]
fn assert_above(answer: Response, field: &str, max: &str, key: &str) {
    let error = answer.expect(400).json()["error"].clone();
    assert_eq!((&error["code"], &error["field"]), (&json!("invalid_value"), &json!(field)));
    let message = error["message"].as_str().unwrap_or_default();
    let expected = format!("'{field}' is at most {max} here ({key}), not ");
    assert!(message.starts_with(&expected), "{message}");
}

fn sh(options: Value) -> Value {
    json!({"lang": "sh", "body": "true", "options": options})
}

#[test]
fn a_handler_cannot_ask_for_more_than_the_default_maxima() {
    as_both_users(|config| {
        let daemon = Daemon::start(config);
        let put = |handler: Value| daemon.send_json("PUT", "/v1/a/handlers/t", &handler);
        for (option, above, max, key) in [
            ("memory", json!("1TB"), "4GB", "isolation.memory_max"),
            ("processes", json!(100_000), "4096", "isolation.processes_max"),
            ("file_size", json!("1TB"), "16GB", "isolation.file_size_max"),
            ("scratch", json!("1TB"), "4GB", "isolation.scratch_max"),
            ("timeout", json!("365d"), "1d", "job.timeout_max"),
            ("idle", json!("365d"), "1d", "contexts.idle_max"),
        ] {
            let answer = put(sh(json!({option: above})));
            assert_above(answer, &format!("options.{option}"), max, key);
        }
        daemon.get("/v1/a/handlers/t").expect(404);
        let audit = daemon.get("/v1/audit?action=handler_set").expect(200).json();
        let entries = audit["entries"].as_array().unwrap();
        assert_eq!(entries.iter().filter(|entry| entry["status"] == 400).count(), 6, "{audit}");
        let most = json!({"memory": "4GB", "processes": 4096, "file_size": "16GB", "scratch": "4GB",
                      "timeout": "24h", "idle": "24h", "batch": 1000, "contexts": 100});
        put(sh(most)).expect(200);
    });
}

#[test]
fn every_maximum_of_a_handler_is_the_operators() {
    as_both_users(|config| {
        let config = config
            .set("isolation.memory_max", "\"256MB\"")
            .set("isolation.cpu_max", "\"5s\"")
            .set("isolation.processes_max", "20")
            .set("isolation.file_size_max", "\"1MB\"")
            .set("isolation.scratch_max", "\"16MB\"")
            .set("contexts.handler_max", "3")
            .set("contexts.idle_max", "\"10s\"")
            .set("job.batch_max", "7")
            .set("job.timeout_max", "\"30s\"");
        let daemon = Daemon::start(config);
        let put =
            |route: &str, method: &str, handler: Value| daemon.send_json(method, route, &handler);
        let cases = [
            ("memory", json!("257MB"), json!("256MB"), "256MB", "isolation.memory_max"),
            ("cpu", json!("6s"), json!("5s"), "5s", "isolation.cpu_max"),
            ("processes", json!(21), json!(20), "20", "isolation.processes_max"),
            ("file_size", json!("2MB"), json!("1MB"), "1MB", "isolation.file_size_max"),
            ("scratch", json!("17MB"), json!("16MB"), "16MB", "isolation.scratch_max"),
            ("contexts", json!(4), json!(3), "3", "contexts.handler_max"),
            ("idle", json!("11s"), json!("10s"), "10s", "contexts.idle_max"),
            ("batch", json!(8), json!(7), "7", "job.batch_max"),
            ("timeout", json!("31s"), json!("30s"), "30s", "job.timeout_max"),
        ];
        for (option, above, most, max, key) in cases {
            let field = format!("options.{option}");
            for (route, method) in
                [("/v1/a/handlers/t", "PUT"), ("/a/handler/add/t/add?method=sh", "POST")]
            {
                let answer = put(route, method, sh(json!({option: above})));
                assert_above(answer, &field, max, key);
                daemon.get("/v1/a/handlers/t").expect(404);
            }
            put(&format!("/v1/a/handlers/{option}"), "PUT", sh(json!({option: most}))).expect(200);
        }
        let script = "ulimit -d; ulimit -t; ulimit -f";
        let tenant = daemon.tenant("a");
        tenant.sh("plain", script);
        let id = tenant.add_one("plain", "x");
        tenant.until_state(&id, "finished");
        // Of handlers that ask for nothing, too: in KiB, seconds, and blocks of 512 bytes.
        let log = tenant.log(&id);
        assert!(log.contains("262144\n5\n2048\n"), "{log}");
    });
}

#[test]
fn a_job_a_type_and_a_worker_cannot_ask_for_more_than_their_maxima() {
    as_both_users(|config| {
        let config = config
            .set("job.timeout_max", "\"30s\"")
            .set("job.retention_max", "\"1h\"")
            .set("lease.worker_max", "\"20s\"");
        let daemon = Daemon::start(config);
        let tenant = daemon.tenant("a");

        let add = |timeout: &str| {
            let headers = [("Content-Type", "text/plain")];
            let path = format!("/v1/a/jobs/t?timeout={timeout}");
            daemon.call("POST", &path, &headers, b"x")
        };
        assert_above(add("31s"), "timeout", "30s", "job.timeout_max");
        let jobs = |timeout: &str| {
            let second = json!({"payload": "y", "timeout": timeout});
            json!({"jobs": [{"payload": "x"}, second]})
        };
        let answer = daemon.send_json("POST", "/v1/a/jobs/t", &jobs("31s"));
        assert_above(answer, "timeout", "30s", "job.timeout_max");
        let bytes = [("Content-Type", "application/octet-stream")];
        let answer = daemon.call("POST", "/v1/a/jobs/t?timeout=31s", &bytes, &[0; 2_000_000]);
        assert_above(answer, "timeout", "30s", "job.timeout_max");
        assert_eq!(tenant.list("type=t"), Vec::<Value>::new());
        add("30s").expect(201);

        let put = |settings: Value| daemon.send_json("PUT", "/v1/a/types/t/settings", &settings);
        assert_above(put(json!({"timeout": "31s"})), "timeout", "30s", "job.timeout_max");
        assert_above(put(json!({"retention": "2h"})), "retention", "1h", "job.retention_max");
        let kept = daemon.get("/v1/a/types/t/settings").expect(200).json();
        assert_eq!((&kept["timeout"], &kept["retention"]), (&Value::Null, &Value::Null));
        put(json!({"timeout": "30s", "retention": "1h"})).expect(200);

        let claim = |lease: &str| {
            tenant.post_json("claim", &json!({"types": ["t"], "lease": lease, "wait": "0s"}))
        };
        assert_above(claim("21s"), "lease", "20s", "lease.worker_max");
        let job = tenant.until_claimed("t", "20s");
        let id = job["id"].as_str().unwrap().to_owned();
        let renew = |lease: &str| {
            let body = json!({"token": job["token"], "lease": lease});
            tenant.post_json(&format!("jobs/{id}/renew"), &body)
        };
        assert_above(renew("21s"), "lease", "20s", "lease.worker_max");
        renew("20s").expect(200);
        // The default lease of 60s is lowered.
        tenant.post_json(&format!("jobs/{id}/renew"), &json!({"token": job["token"]})).expect(200);
    });
}

#[test]
fn what_was_stored_before_a_maximum_was_lowered_runs_with_the_maximum() {
    as_both_users(|config| {
        let mut daemon = Daemon::start(config.set("retry.attempts", "1"));
        let tenant = daemon.tenant("a");
        let greedy = json!({"memory": "1GB", "timeout": "1h", "file_size": "1GB"});
        tenant.handler(
            "limits",
            &json!({"lang": "sh", "body": "ulimit -d; ulimit -f", "options": greedy}),
        );
        tenant.handler("slow", &json!({"lang": "sh", "body": "sleep 600", "options": greedy}));
        daemon.stop_picking();
        let own_timeout = tenant.add_with("slow", "timeout=1h", &["x"]).remove(0);
        daemon.terminate();

        daemon.config = daemon
            .config
            .clone()
            .set("isolation.memory_max", "\"64MB\"")
            .set("isolation.file_size_max", "\"1MB\"")
            .set("job.timeout_max", "\"1s\"");
        daemon.restart();
        let tenant = daemon.tenant("a");
        let id = tenant.add_one("limits", "x");
        tenant.until_state(&id, "finished");
        let log = tenant.log(&id);
        assert!(log.contains("65536\n2048\n"), "{log}");
        for id in [own_timeout, tenant.add_one("slow", "x")] {
            tenant.until_state(&id, "failed");
            assert!(tenant.log(&id).contains("timed out"));
        }
        // It is shown as it was set.
        let shown = daemon.get("/v1/a/handlers/limits").expect(200).json();
        assert_eq!(shown["options"]["memory"], "1GB");
    });
}
