//! The options of an add, one by one.

use serde_json::json;

use crate::harness::{Config, Daemon, ids_of, text};

#[test]
fn s2_35_timeout_limits_one_attempt() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_with("t", "timeout=500ms", &["x"]).remove(0);
    let job = tenant.until_state(&id, "failed");
    assert_eq!((&job["code"], &job["exitcode"]), (&json!("error"), &json!(500)));
    assert!(tenant.log(&id).contains("timed out"), "{}", tenant.log(&id));
}

#[test]
fn s2_35_run_at_names_the_earliest_time() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    let past = tenant.add_with("t", "run_at=2001-02-03T04:05:06Z", &["x"]).remove(0);
    tenant.until_state(&past, "finished");
    let future = tenant.add_with("t", "run_at=2099-02-03T04:05:06%2B01:00", &["x"]).remove(0);
    let sentinel = tenant.add_one("t", "x");
    tenant.until_state(&sentinel, "finished");
    let job = tenant.job(&future);
    assert_eq!(
        (&job["state"], &job["run_at"]),
        (&json!("queued"), &json!("2099-02-03T03:05:06.000Z"))
    );
}

#[test]
fn s2_35_priority_puts_urgent_jobs_of_a_type_first() {
    const JOBS: usize = 20;
    let daemon = Daemon::start(Config::new().one_slot());
    let tenant = daemon.tenant("a");
    let mut ids = Vec::new();
    for priority in [0, 500, 1000] {
        let payloads: Vec<String> = (0..JOBS).map(|n| format!("{priority}-{n}")).collect();
        ids.extend(tenant.add_with("t", &format!("priority={priority}"), &payloads));
    }
    let claimed: Vec<String> =
        (0..JOBS).map(|_| text(&tenant.until_claimed("t", "60s")["payload"])).collect();
    let urgent = claimed.iter().filter(|payload| payload.starts_with("1000-")).count();
    // Less urgent jobs get a share too, so that they do not starve.
    assert!(urgent > JOBS / 2, "{claimed:?}");
    assert!(claimed[0].starts_with("1000-"), "{claimed:?}");
    assert_eq!(tenant.job(&ids[0])["priority"], 0);
}

#[test]
fn s2_35_expires_gives_a_waiting_job_up() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let ids = tenant.add_with("t", "expires=1s&delay=1h", &["x"]);
    let job = tenant.until_state(&ids[0], "failed");
    assert_eq!((&job["code"], &job["attempt"]), (&json!("error"), &json!(0)));
    assert!(tenant.log(&ids[0]).contains("expired"));
    let unlimited = tenant.add_one("t", "x");
    assert!(tenant.job(&unlimited)["expires_at"].is_null());
}

#[test]
fn s2_35_unique_returns_the_job_that_holds_the_key() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let add = |name: &str, key: &str| {
        daemon.tenant(name).add_with("t", &format!("unique={key}"), &["x"]).remove(0)
    };
    let first = add("a", "k1");
    assert_eq!(add("a", "k1"), first);
    assert_ne!(add("a", "k2"), first);
    assert_ne!(add("b", "k1"), first);
    assert_eq!(tenant.list("type=t").len(), 2);
    let job = tenant.until_claimed("t", "60s");
    assert_eq!(job["id"], first.as_str());
    assert_eq!(add("a", "k1"), first, "also while it runs");
    tenant.finish(&job, 200).expect(200);
    tenant.until_state(&first, "finished");
    assert_ne!(add("a", "k1"), first, "free after its end");
}

#[test]
fn s2_35_the_same_options_are_fields_of_a_json_add() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let body = json!({"jobs": [
        {"payload": "a", "priority": 3, "delay": "1h", "expires": "2h", "timeout": "5s"},
        {"payload": "b", "run_at": "2099-01-01T00:00:00Z", "unique": "k"},
        {"payload": "c", "unique": "k"},
    ]});
    let ids = ids_of(&tenant.post_json("jobs/t", &body).expect(201));
    assert_eq!(ids.len(), 3);
    assert_eq!(ids[1], ids[2], "a key is held from its add on");
    let first = tenant.job(&ids[0]);
    assert_eq!(first["priority"], 3);
    assert!(text(&first["expires_at"]) > text(&first["run_at"]), "{first}");
    assert_eq!(tenant.job(&ids[1])["run_at"], "2099-01-01T00:00:00.000Z");
}

#[test]
fn s2_35_expires_stops_a_running_job_and_ends_a_retried_one() {
    let daemon = Daemon::start(Config::new().set("retry.delay", "\"1h\""));
    let tenant = daemon.tenant("a");
    tenant.sh("hangs", &daemon.home().holder("seen", "hold"));
    tenant.sh("fails", "exit 1");
    let hangs = tenant.add_with("hangs", "expires=1s", &["x"]).remove(0);
    let fails = tenant.add_with("fails", "expires=1s", &["x"]).remove(0);
    for id in [&hangs, &fails] {
        let job = tenant.until_state(id, "failed");
        assert_eq!(job["code"], "error");
        assert!(tenant.log(id).contains("expired"), "{}", tenant.log(id));
    }
}
