//! Showing and changing jobs.

use serde_json::{Value, json};

use crate::daemon::Daemon;

async fn ended(daemon: &Daemon, id: &str) -> Value {
    let answer = daemon.get(&format!("/v1/acme/jobs/{id}?wait=5m")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[tokio::test]
async fn s0_9_a_job_shows_every_field_of_the_contract() {
    let daemon = Daemon::start().await;
    let ids = daemon.add("/v1/acme/jobs/t", "hello").await;
    let job = daemon.get(&format!("/v1/acme/jobs/{}", ids[0])).await.json();
    let names = [
        "id",
        "tenant",
        "type",
        "state",
        "priority",
        "attempt",
        "run_at",
        "created_at",
        "started_at",
        "finished_at",
        "expires_at",
        "lock",
        "code",
        "exitcode",
        "result",
        "parent",
        "repeat",
        "payload_bytes",
    ];
    for name in names {
        assert!(job.get(name).is_some(), "{name}");
    }
    assert_eq!(job["id"], ids[0].as_str());
    let present = (&job["state"], &job["attempt"], &job["payload_bytes"], &job["priority"]);
    assert_eq!(present, (&json!("queued"), &json!(0), &json!(5), &json!(500)));
    for name in ["started_at", "finished_at", "expires_at", "lock", "code", "exitcode", "result"] {
        assert_eq!(job[name], Value::Null, "{name}");
    }
    let created_at = job["created_at"].as_str().unwrap();
    assert!(created_at.len() == 24 && created_at.ends_with('Z'), "{created_at}");
}

#[tokio::test]
async fn s0_61_a_wait_answers_when_the_job_has_ended_with_its_result() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let ids = daemon.add("/v1/acme/jobs/t", "hello\n404").await;
    let job = ended(&daemon, &ids[0]).await;
    let seen = (&job["state"], &job["code"], &job["exitcode"], &job["result"], &job["attempt"]);
    let hello = (&json!("finished"), &json!("ok"), &json!(200), &json!("hello"), &json!(1));
    assert_eq!(seen, hello);
    let job = ended(&daemon, &ids[1]).await;
    let seen = (&job["state"], &job["code"], &job["exitcode"]);
    assert_eq!(seen, (&json!("failed"), &json!("failed"), &json!(404)));
}

#[tokio::test]
async fn s0_11_a_running_job_is_locked_by_the_daemon_that_runs_it() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let ids = daemon.add("/v1/acme/jobs/t", "hang").await;
    daemon.runner.hangs(&ids[0]).await;
    let job = daemon.get(&format!("/v1/acme/jobs/{}?wait=1ms", ids[0])).await.json();
    assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(1)));
    assert_eq!(job["lock"], daemon.get("/v1/status").await.json()["sysid"]);
}

#[tokio::test]
async fn a_log_goes_attempt_by_attempt() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let ids = daemon.add("/v1/acme/jobs/t", "hello").await;
    ended(&daemon, &ids[0]).await;
    let answer = daemon.get(&format!("/v1/acme/jobs/{}/log", ids[0])).await;
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    let lines: Vec<_> = answer.text().lines().collect();
    assert!(lines[0].starts_with("--- attempt 1, ended 20"), "{lines:?}");
    assert_eq!(lines[1], "saw hello");
}

#[tokio::test]
async fn lists_go_newest_first_page_by_page() {
    let daemon = Daemon::start().await;
    let mut ids = daemon.add("/v1/acme/jobs/t", "1\n2\n3\n4\n5").await;
    daemon.add("/v1/other/jobs/t", "1").await;
    ids.reverse();
    let mut seen = Vec::new();
    let mut path = "/v1/acme/jobs?limit=2".to_owned();
    loop {
        let page = daemon.get(&path).await.json();
        let jobs = page["jobs"].as_array().unwrap().clone();
        assert!(jobs.len() <= 2);
        seen.extend(jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/acme/jobs?limit=2&after={next}");
    }
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn lists_are_narrowed_by_type_and_state() {
    let daemon = Daemon::start().await;
    let a = daemon.add("/v1/acme/jobs/a%2Fb", "1\n2").await;
    daemon.add("/v1/acme/jobs/c", "1").await;
    daemon.post(&format!("/v1/acme/jobs/{}/cancel", a[0])).await;
    let count = async |query: &str| {
        let page = daemon.get(&format!("/v1/acme/jobs?{query}")).await.json();
        page["jobs"].as_array().unwrap().len()
    };
    assert_eq!(count("type=a%2Fb").await, 2);
    assert_eq!(count("state=queued").await, 2);
    assert_eq!(count("type=a%2Fb&state=cancelled").await, 1);
    assert_eq!(count("type=none").await, 0);
}

#[tokio::test]
async fn cancel_works_until_a_job_has_ended() {
    let daemon = Daemon::start().await;
    let queued = daemon.add("/v1/acme/jobs/t", "a").await.remove(0);
    assert_eq!(daemon.post(&format!("/v1/acme/jobs/{queued}/cancel")).await.status, 200);
    assert_eq!(ended(&daemon, &queued).await["state"], "cancelled");
    let again = daemon.post(&format!("/v1/acme/jobs/{queued}/cancel")).await;
    assert_eq!(again.refusal(), (409, "conflict".into(), None));

    daemon.handle("/v1/acme/handlers/u").await;
    let running = daemon.add("/v1/acme/jobs/u", "hang").await.remove(0);
    daemon.runner.hangs(&running).await;
    let refused = daemon.call(&format!("DELETE /v1/acme/jobs/{running}"), &[], "").await;
    assert_eq!(refused.refusal(), (409, "conflict".into(), None));
    assert_eq!(daemon.post(&format!("/v1/acme/jobs/{running}/cancel")).await.status, 200);
    assert_eq!(ended(&daemon, &running).await["state"], "cancelled");
}

#[tokio::test]
async fn retry_runs_an_ended_job_again_and_no_other() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let id = daemon.add("/v1/acme/jobs/t", "404").await.remove(0);
    ended(&daemon, &id).await;
    assert_eq!(daemon.post(&format!("/v1/acme/jobs/{id}/retry")).await.status, 200);
    assert_eq!(ended(&daemon, &id).await["state"], "failed");
    let log = daemon.get(&format!("/v1/acme/jobs/{id}/log")).await;
    assert_eq!(log.text().matches("saw 404").count(), 2, "{}", log.text());
    let waiting = daemon.add("/v1/acme/jobs/none", "a").await.remove(0);
    let refused = daemon.post(&format!("/v1/acme/jobs/{waiting}/retry")).await;
    assert_eq!(refused.refusal(), (409, "conflict".into(), None));
}

#[tokio::test]
async fn s2_33_ended_jobs_are_requeued_in_bulk() {
    let daemon = Daemon::start().await;
    daemon.handle("/v1/acme/handlers/t").await;
    let ids = daemon.add("/v1/acme/jobs/t", "404\n404\n404").await;
    for id in &ids {
        ended(&daemon, id).await;
    }
    let requeue = async |limit: u32| {
        let body = json!({"type": "t", "state": "failed", "limit": limit});
        daemon.json("POST /v1/acme/jobs/requeue", body).await.json()["requeued"].clone()
    };
    daemon.post("/v1/control/stop").await;
    assert_eq!(requeue(2).await, 2);
    assert_eq!(requeue(100).await, 1);
    assert_eq!(requeue(100).await, 0);
    daemon.post("/v1/control/start").await;
    for id in &ids {
        assert_eq!(ended(&daemon, id).await["state"], "failed");
    }
}

#[tokio::test]
async fn a_removed_job_is_gone() {
    let daemon = Daemon::start().await;
    let id = daemon.add("/v1/acme/jobs/t", "a").await.remove(0);
    assert_eq!(daemon.call(&format!("DELETE /v1/acme/jobs/{id}"), &[], "").await.status, 200);
    let gone = daemon.get(&format!("/v1/acme/jobs/{id}")).await;
    assert_eq!(gone.refusal(), (404, "not_found".into(), None));
}

#[tokio::test]
async fn nothing_of_one_tenant_is_seen_by_another() {
    let daemon = Daemon::start().await;
    let id = daemon.add("/v1/acme/jobs/t", "secret").await.remove(0);
    for call in [
        format!("GET /v1/other/jobs/{id}"),
        format!("GET /v1/other/jobs/{id}?wait=1s"),
        format!("GET /v1/other/jobs/{id}/payload"),
        format!("GET /v1/other/jobs/{id}/log"),
        format!("POST /v1/other/jobs/{id}/cancel"),
        format!("POST /v1/other/jobs/{id}/retry"),
        format!("DELETE /v1/other/jobs/{id}"),
        "GET /v1/acme/jobs/9223372036854775807".to_owned(),
        "POST /v1/acme/jobs/9223372036854775807/cancel".to_owned(),
        "GET /v1/acme/jobs/1".to_owned(),
    ] {
        let answer = daemon.call(&call, &[], "").await;
        assert_eq!(answer.refusal(), (404, "not_found".into(), None), "{call}");
    }
    assert_eq!(daemon.get("/v1/other/jobs").await.json()["jobs"], json!([]));
    assert_eq!(daemon.get("/v1/other/types").await.json(), json!([]));
}
