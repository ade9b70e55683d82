//! Pull workers.

use serde_json::{Value, json};

use crate::client::{Client, request};
use crate::daemon::Daemon;

async fn claim(daemon: &Daemon, body: Value) -> Vec<Value> {
    let answer = daemon.json("POST /v1/acme/claim", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["jobs"].as_array().unwrap().clone()
}

async fn tell(daemon: &Daemon, job: &Value, verb: &str, mut body: Value) -> u16 {
    body["token"] = job["token"].clone();
    let line = format!("POST /v1/acme/jobs/{}/{verb}", job["id"].as_str().unwrap());
    daemon.json(&line, body).await.status
}

async fn job(daemon: &Daemon, job: &Value) -> Value {
    daemon.get(&format!("/v1/acme/jobs/{}", job["id"].as_str().unwrap())).await.json()
}

#[tokio::test]
async fn a_worker_claims_and_finishes() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/mail.out", "hello").await;
    let claimed = claim(&daemon, json!({})).await.remove(0);
    let seen = (&claimed["state"], &claimed["payload"], &claimed["attempt"], &claimed["type"]);
    assert_eq!(seen, (&json!("running"), &json!("hello"), &json!(1), &json!("mail.out")));
    assert!(claimed["token"].is_i64() && claimed.get("payload_base64").is_none());
    assert_eq!(claim(&daemon, json!({})).await, [] as [Value; 0]);
    let end = json!({"status": 200, "data": {"k": [1, null]}});
    assert_eq!(tell(&daemon, &claimed, "finish", end.clone()).await, 200);
    let ended = job(&daemon, &claimed).await;
    let seen = (&ended["state"], &ended["code"], &ended["exitcode"], &ended["result"]);
    assert_eq!(seen, (&json!("finished"), &json!("ok"), &json!(200), &json!({"k": [1, null]})));
    assert_eq!(tell(&daemon, &claimed, "finish", end).await, 409);
}

#[tokio::test]
async fn a_claim_takes_only_types_that_match_and_up_to_its_limit() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/mail.out", "1\n2\n3").await;
    daemon.add("/v1/acme/jobs/report", "1").await;
    daemon.add("/v1/other/jobs/mail.out", "1").await;
    let wish = json!({"types": ["mail.*"], "limit": 2, "lease": "24h", "wait": "0s"});
    assert_eq!(claim(&daemon, wish.clone()).await.len(), 2);
    assert_eq!(claim(&daemon, wish).await.len(), 1);
    let rest = claim(&daemon, json!({"types": ["x", "rep?rt"], "limit": 1000})).await;
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0]["type"], "report");
}

#[tokio::test]
async fn bytes_that_are_not_text_come_as_base64_and_large_ones_by_url() {
    let daemon = Daemon::start().await;
    let binary = ["content-type: application/octet-stream"];
    daemon.call("POST /v1/acme/jobs/t", &binary, b"\xff\x00").await;
    let claimed = claim(&daemon, json!({})).await.remove(0);
    assert_eq!((&claimed["payload"], &claimed["payload_base64"]), (&Value::Null, &json!("/wA=")));
    let large = vec![b'x'; 1024 * 1024 + 1];
    daemon.call("POST /v1/acme/jobs/t", &binary, &large).await;
    let claimed = claim(&daemon, json!({})).await.remove(0);
    assert_eq!(claimed["payload"], Value::Null);
    let fetched = daemon.get(claimed["payload_url"].as_str().unwrap()).await;
    assert!(fetched.body == large);
}

#[tokio::test]
async fn a_claim_waits_for_work() {
    let daemon = Daemon::start().await;
    let waiting = claim(&daemon, json!({"wait": "5m"}));
    let adding = daemon.add("/v1/acme/jobs/t", "late");
    let (claimed, _) = tokio::join!(waiting, adding);
    assert_eq!(claimed[0]["payload"], "late");
    assert_eq!(claim(&daemon, json!({"wait": "1ms"})).await.len(), 0);
}

#[tokio::test]
async fn a_released_job_gives_its_attempt_back() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a").await;
    let first = claim(&daemon, json!({})).await.remove(0);
    assert_eq!(tell(&daemon, &first, "release", json!({})).await, 200);
    let again = claim(&daemon, json!({})).await.remove(0);
    assert_eq!((&again["id"], &again["attempt"]), (&first["id"], &json!(1)));
    assert!(again["token"].as_i64() > first["token"].as_i64());
    assert_eq!(tell(&daemon, &again, "release", json!({"delay": "1h"})).await, 200);
    assert_eq!(job(&daemon, &again).await["state"], "queued");
    assert_eq!(claim(&daemon, json!({})).await.len(), 0);
}

#[tokio::test]
async fn s0_50_a_stale_token_changes_nothing() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a").await;
    let lost = claim(&daemon, json!({})).await.remove(0);
    tell(&daemon, &lost, "release", json!({})).await;
    let held = claim(&daemon, json!({})).await.remove(0);
    for (verb, body) in [
        ("renew", json!({"lease": "5s"})),
        ("finish", json!({"status": 200})),
        ("release", json!({"delay": "5s"})),
        ("progress", json!({"percent": 1})),
    ] {
        assert_eq!(tell(&daemon, &lost, verb, body.clone()).await, 409, "{verb}");
        let line = format!("POST /v1/other/jobs/{}/{verb}", held["id"].as_str().unwrap());
        let mut body = body;
        body["token"] = held["token"].clone();
        let answer = daemon.json(&line, body).await;
        assert_eq!(answer.refusal(), (404, "not_found".into(), None), "{verb}");
    }
    assert_eq!(job(&daemon, &held).await["state"], "running");
    assert_eq!(tell(&daemon, &held, "renew", json!({"lease": "5m"})).await, 200);
}

#[tokio::test]
async fn progress_is_shown_while_a_job_runs() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a").await;
    let claimed = claim(&daemon, json!({})).await.remove(0);
    let report = json!({"percent": 12.5, "message": "on the way"});
    assert_eq!(tell(&daemon, &claimed, "progress", report).await, 200);
    let progress = job(&daemon, &claimed).await["progress"].clone();
    assert_eq!(progress["percent"], 12.5);
    assert_eq!(progress["message"], "on the way");
}

#[tokio::test]
async fn a_status_that_asks_for_another_try_gets_it() {
    let daemon = Daemon::start().await;
    daemon.add("/v1/acme/jobs/t", "a").await;
    let claimed = claim(&daemon, json!({})).await.remove(0);
    assert_eq!(tell(&daemon, &claimed, "finish", json!({"status": 503})).await, 200);
    let again = job(&daemon, &claimed).await;
    let seen = (&again["state"], &again["code"], &again["exitcode"], &again["attempt"]);
    assert_eq!(seen, (&json!("queued"), &json!("error"), &json!(503), &json!(1)));
}

/// All large bodies share 512 MiB.
#[tokio::test]
async fn padded_claims_that_wait_leave_the_memory_to_others() {
    let daemon = Daemon::start().await;
    let body = r#"{"wait": "5m"}"#;
    let padded = body.to_owned() + &" ".repeat(1024 * 1024 - body.len());
    let claim = request("POST /v1/acme/claim", &["content-type: application/json"], padded);
    let mut waiting = Vec::new();
    for _ in 0..520 {
        let mut worker = Client::connect(daemon.address).await;
        worker.send(&claim).await;
        waiting.push(worker);
    }
    let large = vec![0; 1024 * 1024];
    let binary = ["content-type: application/octet-stream"];
    let added = daemon.call("POST /v1/other/jobs/t", &binary, &large).await;
    assert_eq!(added.status, 201, "{added:?}");
    // Each is still there, and gets the job that comes for it.
    daemon.add("/v1/acme/jobs/t", &"x\n".repeat(waiting.len())).await;
    for worker in &mut waiting {
        let answer = worker.receive().await.expect("an answer");
        assert_eq!(answer.json()["jobs"].as_array().map(Vec::len), Some(1), "{answer:?}");
    }
}
