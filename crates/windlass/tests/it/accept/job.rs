//! A job as seen from outside, through its life.

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, text};

const FIELDS: [&str; 18] = [
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

fn is_time(value: &Value) -> bool {
    // 2026-01-02T03:04:05.678Z
    value
        .as_str()
        .is_some_and(|text| text.len() == 24 && text.ends_with('Z') && text.as_bytes()[19] == b'.')
}

#[test]
fn s0_9_a_job_shows_its_id_type_time_lock_and_size() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "12345");
    let job = tenant.job(&id);
    for field in FIELDS {
        assert!(job.get(field).is_some(), "{field} is missing in {job}");
    }
    assert_eq!(job["id"], json!(id));
    assert_eq!((&job["tenant"], &job["type"]), (&json!("a"), &json!("t")));
    assert_eq!((&job["payload_bytes"], &job["attempt"]), (&json!(5), &json!(0)));
    assert_eq!(job["priority"], 500);
    assert!(is_time(&job["run_at"]) && is_time(&job["created_at"]), "{job}");
    assert_eq!(tenant.get(&format!("jobs/{id}/payload")).expect(200).text(), "12345");
}

#[test]
fn s0_11_the_lock_of_a_running_job_is_the_sysid_of_its_owner() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "running");
    assert_eq!(job["lock"], daemon.sysid());
    daemon.home().let_go("hold");
    assert_eq!(tenant.until_state(&id, "finished")["lock"], Value::Null);
}

#[test]
fn s0_12_a_new_job_is_due_and_has_no_lock() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    tenant.sh("t", "true");
    let id = tenant.add_one("t", "x");
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["lock"]), (&json!("queued"), &Value::Null));
    assert!(text(&job["run_at"]) <= text(&job["created_at"]), "{job}");
    assert_eq!((&job["started_at"], &job["finished_at"]), (&Value::Null, &Value::Null));
    let later = tenant.add_with("t", "run_at=2099-01-02T03:04:05.678Z", &["x"]).remove(0);
    assert_eq!(tenant.job(&later)["run_at"], "2099-01-02T03:04:05.678Z");
}

#[test]
fn s0_13_a_picked_job_has_a_lock_and_its_first_attempt() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "running");
    assert_eq!((&job["lock"], &job["attempt"]), (&json!(daemon.sysid()), &json!(1)));
    assert!(is_time(&job["started_at"]), "{job}");
    assert!(tenant.claim("t", 10, "60s").is_empty(), "a locked job is nobody else's");
    daemon.home().let_go("hold");
    tenant.until_state(&id, "finished");
}

#[test]
fn s0_16_a_done_job_is_archived_with_its_finish_time_and_never_eligible_again() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "finished");
    assert!(is_time(&job["finished_at"]), "{job}");
    assert!(text(&job["started_at"]) <= text(&job["finished_at"]), "{job}");
    assert_eq!((&job["code"], &job["exitcode"]), (&json!("ok"), &json!(200)));
    let listed = tenant.list("state=finished&type=t");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], json!(id));
    assert!(tenant.claim("t", 10, "60s").is_empty());
    let row = tenant.type_row("t");
    assert_eq!((&row["ready"], &row["finished"]), (&json!(0), &json!(1)), "{row}");
    assert_eq!(daemon.home().lines("seen").len(), 1);
}

#[test]
fn s0_63_running_jobs_are_listed_and_stopped_ones_carry_code_and_exitcode() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let body = format!(
        "case $(cat) in ok) exit 0;; bad) exit 65;; broken) exit 9;; esac; {}",
        daemon.home().holder("seen", "hold")
    );
    tenant.sh("t", &body);
    let ids = tenant.add("t", &["ok", "bad", "broken", "hang"]);
    tenant.until_state(&ids[3], "running");
    for (id, state, code, exitcode) in [
        (&ids[0], "finished", "ok", 200),
        (&ids[1], "failed", "failed", 400),
        (&ids[2], "failed", "error", 500),
    ] {
        let job = tenant.until_state(id, state);
        assert_eq!((&job["code"], &job["exitcode"]), (&json!(code), &json!(exitcode)), "{job}");
    }
    let running = tenant.list("state=running");
    assert_eq!(running.len(), 1);
    assert_eq!(running[0]["id"], json!(ids[3]));
    daemon.home().let_go("hold");
    tenant.until_state(&ids[3], "finished");
    assert!(tenant.list("state=running").is_empty());
}

#[test]
fn lists_are_newest_first_and_come_in_pages() {
    const JOBS: usize = 25;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let mut ids: Vec<String> = (0..JOBS).map(|n| tenant.add_one("t", &n.to_string())).collect();
    tenant.add_one("other", "x");
    ids.reverse();
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = tenant.get(&format!("jobs?type=t&limit=10{after}")).expect(200).json();
        let jobs = page["jobs"].as_array().unwrap();
        assert!(jobs.len() <= 10);
        seen.extend(jobs.iter().map(|job| text(&job["id"])));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    for query in ["limit=0", "limit=x", "state=odd", "unheard_of=1", "after=x"] {
        tenant.get(&format!("jobs?{query}")).expect(400);
    }
}

#[test]
fn an_unknown_job_is_404_and_no_id_is_400_or_404() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    assert_eq!(tenant.get("jobs/123456789").expect(404).error_code(), "not_found");
    for id in ["x", "-1", "0", "99999999999999999999"] {
        let answer = tenant.get(&format!("jobs/{id}"));
        assert!(matches!(answer.status, 400 | 404), "{id}: {}", answer.status);
    }
}

#[test]
fn wait_holds_the_answer_until_the_job_has_ended() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    let short = tenant.get(&format!("jobs/{id}?wait=50ms")).expect(200).json();
    assert_eq!(short["state"], "running", "the wait ran out");
    let waiting = {
        let (tenant, id) = (tenant.clone(), id.clone());
        std::thread::spawn(move || tenant.get(&format!("jobs/{id}?wait=60s")).expect(200).json())
    };
    daemon.home().let_go("hold");
    assert_eq!(waiting.join().unwrap()["state"], "finished");
    let too_long = tenant.get(&format!("jobs/{id}?wait=301s"));
    assert_eq!(too_long.expect(400).error_code(), "invalid_value");
}
