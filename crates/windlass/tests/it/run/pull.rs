//! Pull workers: claim, renew, finish, release, progress.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, text, until};

#[test]
fn s0_48_parallel_takers_never_get_a_job_twice() {
    const TAKERS: usize = 8;
    const JOBS: usize = 2000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == JOBS);
    let takers: Vec<_> = (0..TAKERS)
        .map(|taker| {
            let tenant = tenant.clone();
            thread::spawn(move || {
                let mut taken = Vec::new();
                loop {
                    let jobs = tenant.claim("t", 1 + taker * 7, "60s");
                    if jobs.is_empty() {
                        return taken;
                    }
                    taken.extend(jobs.iter().map(|job| text(&job["id"])));
                }
            })
        })
        .collect();
    let taken: Vec<String> = takers.into_iter().flat_map(|t| t.join().unwrap()).collect();
    let distinct: HashSet<&String> = taken.iter().collect();
    assert_eq!((taken.len(), distinct.len()), (JOBS, JOBS));
    assert_eq!(distinct, ids.iter().collect());
}

#[test]
fn s0_49_a_job_goes_back_at_once_or_after_a_delay_or_never() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.settings("t", &json!({"retry": {"delay": "1h", "factor": 1}}));
    let id = tenant.add_one("t", "x");
    let release = |job: &Value, body: Value| {
        let mut body = body;
        body["token"] = job["token"].clone();
        tenant.post_json(&format!("jobs/{id}/release"), &body).expect(200);
    };
    let job = tenant.until_claimed("t", "60s");
    assert_eq!(job["attempt"], 1);
    release(&job, json!({}));
    let again = tenant.until_claimed("t", "60s");
    assert_eq!(again["attempt"], 1, "a release gives the attempt back");
    assert_ne!(again["token"], job["token"]);

    release(&again, json!({"delay": "1s"}));
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("queued"), &json!(0)));
    let again = tenant.until_claimed("t", "60s");
    assert!(text(&again["started_at"]) >= text(&job["run_at"]), "{again}");

    tenant.finish(&again, 500).expect(200);
    let job = tenant.until_state(&id, "queued");
    assert_eq!((&job["attempt"], &job["code"]), (&json!(1), &json!("error")));
    assert_eq!(tenant.type_row("t")["deferred"], 1, "a retry waits for its delay");

    let other = tenant.add_one("t", "y");
    let taken = tenant.until_claimed("t", "60s");
    assert_eq!(taken["id"], other.as_str());
    tenant.finish(&taken, 200).expect(200);
    assert!(tenant.claim("t", 10, "60s").is_empty(), "what is done never comes back");
}

#[test]
fn s0_50_a_stale_or_wrong_token_changes_nothing() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let stale = tenant.until_claimed("t", "1s");
    let fresh = tenant.until_claimed("t", "60s");
    assert_eq!(fresh["id"], stale["id"], "the lease ran out and was broken");
    assert!(fresh["token"].as_u64() > stale["token"].as_u64(), "tokens grow");
    let answer = tenant.finish(&stale, 200);
    assert_eq!(answer.expect(409).error_code(), "conflict");
    for verb in ["renew", "release", "progress"] {
        let mut body = json!({"token": stale["token"]});
        match verb {
            "renew" => body["lease"] = json!("60s"),
            "progress" => body["percent"] = json!(50),
            _ => {}
        }
        let answer = tenant.post_json(&format!("jobs/{id}/{verb}"), &body);
        assert_eq!(answer.status, 409, "{verb}: {}", answer.text());
    }
    let wrong = json!({"token": fresh["token"].as_u64().unwrap() + 1, "status": 200});
    tenant.post_json(&format!("jobs/{id}/finish"), &wrong).expect(409);
    assert_eq!(tenant.job(&id)["state"], "running");
    tenant.finish(&fresh, 200).expect(200);
    assert_eq!(tenant.until_state(&id, "finished")["code"], "ok");
    tenant.finish(&fresh, 500).expect(409);
    assert_eq!(tenant.job(&id)["code"], "ok");
}

#[test]
fn a_renewed_lease_does_not_run_out() {
    let daemon = Daemon::start(Config::new().set("lease.reap_interval", "\"100ms\""));
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "2s");
    let started = std::time::Instant::now();
    until(
        "three leases have passed",
        || {
            let renew = json!({"token": job["token"], "lease": "2s"});
            tenant.post_json(&format!("jobs/{id}/renew"), &renew).expect(200);
            started.elapsed().as_secs()
        },
        |seconds| *seconds >= 6,
    );
    assert!(tenant.claim("t", 1, "60s").is_empty());
    tenant.finish(&job, 200).expect(200);
    assert_eq!(tenant.until_state(&id, "finished")["attempt"], 1);
}

#[test]
fn a_claim_waits_for_work_and_gets_it_when_it_comes() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let waiting = {
        let tenant = tenant.clone();
        thread::spawn(move || {
            let wish = json!({"types": ["t*"], "limit": 5, "lease": "60s", "wait": "60s"});
            tenant.post_json("claim", &wish).expect(200).json()
        })
    };
    let id = tenant.add_one("type", "x");
    let answer = waiting.join().unwrap();
    assert_eq!(answer["jobs"][0]["id"], id.as_str(), "{answer}");
    assert_eq!(answer["jobs"][0]["payload"], "x");
    let wish = json!({"types": ["t*"], "limit": 5, "lease": "60s", "wait": "50ms"});
    assert_eq!(tenant.post_json("claim", &wish).expect(200).json(), json!({"jobs": []}));
}

/// Such as `nc -N`: it sends its request, closes its sending side, and reads the answer.
#[test]
fn a_worker_that_has_stopped_sending_gets_jobs_that_are_ready() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for _ in 0..20 {
        let id = tenant.add_one("t", "x");
        let body = r#"{"types":["t"],"lease":"60s"}"#;
        let head = "POST /v1/a/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        let (key, length) = (daemon.authorization(), body.len());
        let request = format!("{head}\r\n{key}Content-Length: {length}\r\n\r\n{body}");
        let mut connection = daemon.connection();
        connection.send_raw(request.as_bytes()).unwrap();
        connection.half_close().unwrap();
        let answer = connection.receive().unwrap().expect(200).json();
        assert_eq!(answer["jobs"][0]["id"], id.as_str(), "{answer}");
    }
}

#[test]
fn claims_name_types_by_patterns() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for kind in ["mail.in", "mail.out", "print"] {
        tenant.add_one(kind, kind);
    }
    let types = |jobs: Vec<Value>| -> HashSet<String> {
        jobs.iter().map(|job| text(&job["type"])).collect()
    };
    let mut mail = HashSet::new();
    until(
        "both mails come",
        || {
            mail.extend(types(tenant.claim("mail.*", 10, "60s")));
            mail.len()
        },
        |n| *n == 2,
    );
    assert!(!mail.contains("print"));
    assert_eq!(types(vec![tenant.until_claimed("*", "60s")]), HashSet::from(["print".to_owned()]));
}

#[test]
fn a_payload_that_is_not_text_comes_in_base64() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let headers = [("Content-Type", "application/octet-stream")];
    daemon.call("POST", "/v1/a/jobs/t", &headers, b"\xff\x00\xfe").expect(201);
    let job = tenant.until_claimed("t", "60s");
    assert_eq!(job["payload_base64"], "/wD+");
    assert!(job["payload"].is_null(), "{job}");
}

#[test]
fn a_finish_keeps_its_data_and_progress_shows_while_running() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    let progress = json!({"token": job["token"], "percent": 40, "message": "nearly half"});
    tenant.post_json(&format!("jobs/{id}/progress"), &progress).expect(200);
    let body = json!({"token": job["token"], "status": 201, "data": {"answer": [42, "x", null]}});
    tenant.post_json(&format!("jobs/{id}/finish"), &body).expect(200);
    let job = tenant.until_state(&id, "finished");
    assert_eq!(job["result"], json!({"answer": [42, "x", null]}));
    assert_eq!(job["exitcode"], 201);
}

#[test]
fn wrong_wishes_of_workers_are_named() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    for wish in [
        json!({"types": ["t"], "limit": 0, "lease": "60s"}),
        json!({"types": ["t"], "limit": 1001, "lease": "60s"}),
        json!({"types": ["t"], "limit": 1, "lease": "soon"}),
        json!({"types": ["t"], "limit": 1, "lease": "60s", "wait": "301s"}),
        json!({"types": "t", "limit": 1, "lease": "60s"}),
        json!({"types": ["t"], "limit": 1, "lease": "60s", "unheard_of": 1}),
    ] {
        let answer = tenant.post_json("claim", &wish);
        assert_eq!(answer.status, 400, "{wish}: {}", answer.text());
        assert_eq!(answer.error_code(), "invalid_value", "{wish}");
    }
}
