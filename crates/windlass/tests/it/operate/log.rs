//! The daemon's own log: the story of each job, and no secrets.

use std::collections::HashMap;

use serde_json::json;

use crate::harness::{Config, Daemon, StoreLock, field, text, until};

#[test]
fn s0_7_a_job_has_exactly_three_lines_in_order() {
    const JOBS: usize = 20;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    tenant.until_all(&ids, "finished");
    until("all ends are logged", || daemon.log.events("job_ended").len(), |n| *n == JOBS);
    for id in &ids {
        assert_eq!(daemon.log.story(id), ["job_entered", "job_started", "job_ended"]);
        let lines = daemon.log.lines();
        assert_eq!(lines.iter().filter(|line| line.contains(id)).count(), 3, "three lines a job");
    }
    let end = daemon.log.events("job_ended").remove(0);
    assert_eq!((field(&end, "tenant"), field(&end, "type")), (&json!("a"), &json!("t")));
    assert_eq!((field(&end, "attempt"), field(&end, "code")), (&json!(1), &json!("ok")));
    assert_eq!(field(&end, "exitcode"), 200);
    for name in ["run_ms", "wait_ms"] {
        assert!(field(&end, name).is_number(), "{name} in {end}");
    }
    let start = daemon.log.events("job_started").remove(0);
    assert_eq!((field(&start, "tenant"), field(&start, "attempt")), (&json!("a"), &json!(1)));
}

#[test]
fn s0_7_pulled_jobs_are_logged_too() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    tenant.finish(&job, 200).expect(200);
    let wanted = ["job_entered", "job_started", "job_ended"];
    until("the whole story is there", || daemon.log.story(&id), |story| story == &wanted);
}

#[test]
fn s0_7_the_story_is_in_order_also_when_the_store_was_away() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    let lock = StoreLock::take(&daemon.config);
    let id = tenant.add_one("t", "x");
    drop(lock);
    tenant.until_state(&id, "finished");
    let wanted = ["job_entered", "job_started", "job_ended"];
    until("the whole story is there", || daemon.log.story(&id), |story| story == &wanted);
}

#[test]
fn s0_8_counts_from_the_log_are_the_counts_of_the_jobs() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    tenant
        .sh("t", "case $(cat) in ok) exit 0;; failed) exit 65;; retry) exit 75;; *) exit 1;; esac");
    let load = [("ok", 5, 5), ("failed", 4, 4), ("retry", 3, 6), ("error", 2, 4)];
    for (payload, jobs, _) in load {
        tenant.add("t", &vec![payload; jobs]);
    }
    let ended = || {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for event in daemon.log.events("job_ended") {
            *counts.entry(text(field(&event, "code"))).or_default() += 1;
        }
        counts
    };
    let wanted: HashMap<String, usize> =
        load.iter().map(|(code, _, attempts)| ((*code).to_owned(), *attempts)).collect();
    until("the log has all ends", ended, |counts| *counts == wanted);
    let entered = daemon.log.events("job_entered").len();
    let started = daemon.log.events("job_started").len();
    assert_eq!((entered, started), (14, 19));
}

#[test]
fn no_payload_key_or_environment_value_is_ever_logged() {
    const MARK: &str = "hush-hush";
    let config = Config::new().set("log.level", "\"debug\"").set("retry.attempts", "2");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    let handler = json!({
        "lang": "sh",
        "body": format!("cat; cat >&2; echo {MARK}; exit 1"),
        "options": {"env": {"TOKEN": MARK}},
    });
    tenant.handler("t", &handler);
    let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", MARK)];
    let path = format!("/v1/a/jobs/t?unique={MARK}");
    let answer = daemon.call("POST", &path, &headers, MARK.as_bytes()).expect(201);
    let id = crate::harness::ids_of(&answer).remove(0);
    tenant.until_state(&id, "failed");
    daemon.call("POST", &path, &headers, MARK.as_bytes()).expect(200);
    let body = json!({"jobs": [{"payload": MARK, "priority": MARK}]});
    tenant.post_json("jobs/t", &body).expect(400);
    tenant.add_one("pulled", MARK);
    let job = tenant.until_claimed("pulled", "60s");
    let finish = json!({"token": job["token"], "status": 200, "data": MARK});
    tenant.post_json(&format!("jobs/{}/finish", text(&job["id"])), &finish).expect(200);
    until("both ends are logged", || daemon.log.events("job_ended").len(), |n| *n == 3);
    for line in daemon.log.lines() {
        assert!(!line.contains(MARK), "a secret is in the log: {line}");
    }
}

#[test]
fn every_line_is_json_and_says_when() {
    let mut daemon = Daemon::start(Config::new());
    daemon.tenant("a").add_one("t", "x");
    assert!(daemon.terminate().success());
    let lines = daemon.log.lines();
    assert!(!lines.is_empty());
    for line in lines {
        let entry: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert!(entry["timestamp"].is_string() || entry["time"].is_string(), "{line}");
        assert!(entry["level"].is_string(), "{line}");
    }
}
