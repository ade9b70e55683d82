//! Ended jobs: kept for a time, requeued on request, removed eventually.

use serde_json::json;

use crate::harness::{Config, Daemon, text, until};

const SHORT_RETENTION: (&str, &str) = ("job.retention", "\"1s\"");
const SHORT_PURGE: (&str, &str) = ("job.purge_interval", "\"200ms\"");

#[test]
fn s0_51_ended_jobs_are_purged_after_their_retention() {
    let config = Config::new()
        .set(SHORT_RETENTION.0, SHORT_RETENTION.1)
        .set(SHORT_PURGE.0, SHORT_PURGE.1)
        .set("retry.attempts", "1");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("good", "true");
    tenant.sh("bad", "exit 65");
    let waiting = tenant.add_one("nobody", "x");
    let ended = [tenant.add_one("good", "x"), tenant.add_one("bad", "x")];
    for id in &ended {
        let path = tenant.path(&format!("jobs/{id}"));
        until("an ended job is gone", || daemon.get(&path).status, |status| *status == 404);
    }
    assert!(tenant.list("state=finished").is_empty());
    assert!(tenant.list("state=failed").is_empty());
    assert_eq!(tenant.job(&waiting)["state"], "queued", "what has not ended stays");
}

#[test]
fn s2_34_a_type_may_keep_its_ended_jobs_for_another_time() {
    let daemon = Daemon::start(Config::new().set(SHORT_PURGE.0, SHORT_PURGE.1));
    let tenant = daemon.tenant("a");
    tenant.sh("short", "true");
    tenant.sh("long", "true");
    tenant.settings("short", &json!({"retention": "1s"}));
    let kept = tenant.add_one("long", "x");
    let purged = tenant.add_one("short", "x");
    let path = tenant.path(&format!("jobs/{purged}"));
    until("the short-lived job is gone", || daemon.get(&path).status, |status| *status == 404);
    tenant.until_state(&kept, "finished");
}

#[test]
fn s2_33_done_jobs_keep_payload_and_status_and_are_queued_again_in_bulk() {
    const JOBS: usize = 100;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payloads: Vec<String> = (0..JOBS).map(|n| format!("payload {n}")).collect();
    let ids = tenant.add("t", &payloads);
    tenant.drain("t", JOBS);
    let archived = tenant.list("type=t&state=finished");
    assert_eq!(archived.len(), JOBS);
    assert!(archived.iter().all(|job| job["code"] == "ok" && job["exitcode"] == 200));
    let payload = tenant.get(&format!("jobs/{}/payload", ids[7])).expect(200).text();
    assert_eq!(payload, "payload 7");

    let some = json!({"type": "t", "state": "finished", "limit": 10});
    assert_eq!(tenant.post_json("jobs/requeue", &some).expect(200).json()["requeued"], 10);
    let all = json!({"type": "t", "state": "finished", "limit": JOBS});
    assert_eq!(tenant.post_json("jobs/requeue", &all).expect(200).json()["requeued"], JOBS - 10);
    let mut again: Vec<String> =
        tenant.drain("t", JOBS).iter().map(|job| text(&job["payload"])).collect();
    again.sort();
    let mut wanted = payloads;
    wanted.sort();
    assert_eq!(again, wanted);
    tenant.until_count("t", "finished", JOBS);
}

#[test]
fn requeue_refuses_states_that_have_not_ended() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.add_one("t", "x");
    for wish in [
        json!({"type": "t", "state": "queued"}),
        json!({"type": "t", "state": "running"}),
        json!({"type": "t", "state": "finished", "unheard_of": 1}),
        json!({"type": "t", "state": "finished", "limit": 0}),
    ] {
        let answer = tenant.post_json("jobs/requeue", &wish);
        assert_eq!(answer.status, 400, "{wish}: {}", answer.text());
    }
}
