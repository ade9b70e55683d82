//! Job counts of types, and limits on what runs.

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, until};

fn numbers(row: &Value) -> [u64; 6] {
    ["ready", "deferred", "running", "paused", "finished", "failed"]
        .map(|name| row[name].as_u64().unwrap_or_else(|| panic!("no {name} in {row}")))
}

#[test]
fn s0_47_only_what_can_run_now_counts_as_ready() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.add("t", &["1", "2", "3", "4", "5"]);
    tenant.add_with("t", "delay=1h", &["later", "later too"]);
    tenant.add("suspended", &["x"]);
    assert_eq!(tenant.post("types/suspended/suspend").status / 100, 2);
    until("all are in the store", || numbers(&tenant.type_row("t")), |n| *n == [5, 2, 0, 0, 0, 0]);
    let running = tenant.until_claimed("t", "60s");
    let done = tenant.until_claimed("t", "60s");
    tenant.finish(&done, 200).expect(200);
    let bad = tenant.until_claimed("t", "60s");
    tenant.finish(&bad, 400).expect(200);
    let row = until("all is settled", || tenant.type_row("t"), |r| r["failed"] == 1);
    assert_eq!(numbers(&row), [2, 2, 1, 0, 1, 1], "{row}");
    assert!(row["oldest_ready_at"].is_string(), "{row}");
    assert_eq!((&row["handler"], &row["suspended"]), (&json!(false), &json!(false)));
    let all = tenant.claim("*", 100, "60s");
    assert_eq!(all.len(), 2, "deferred, running, ended and suspended ones are not given out");
    assert!(all.iter().all(|job| job["type"] == "t"));
    tenant.finish(&running, 200).expect(200);
}

#[test]
fn s0_59_numbers_of_running_done_and_waiting_jobs_under_a_known_load() {
    const JOBS: usize = 10;
    let config = Config::new().set("scheduler.slots", "3").set("scheduler.slots_reserved", "0");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("done", "true");
    tenant.sh("hang", &daemon.home().holder("seen", "hold"));
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let done = tenant.add("done", &payloads);
    tenant.until_all(&done, "finished");
    let hanging = tenant.add("hang", &payloads);
    until("three jobs hang", || daemon.home().lines("seen").len(), |n| *n == 3);
    assert_eq!(numbers(&tenant.type_row("done")), [0, 0, 0, 0, JOBS as u64, 0]);
    let row = tenant.type_row("hang");
    let [ready, _, running, ..] = numbers(&row);
    assert!(running >= 3 && ready + running == JOBS as u64, "{row}");
    let status = daemon.status();
    assert!(status["running"].as_u64().is_some_and(|n| n >= 3), "{status}");
    assert!(status.to_string().contains("\"a\""), "numbers of each tenant: {status}");
    for field in ["sysid", "version", "uptime", "store"] {
        let found = status.as_object().unwrap().keys().any(|key| key.starts_with(field));
        assert!(found, "{field} is missing in {status}");
    }
    daemon.home().let_go("hold");
    tenant.until_all(&hanging, "finished");
    assert_eq!(numbers(&tenant.type_row("hang")), [0, 0, 0, 0, JOBS as u64, 0]);
}

#[test]
fn s0_60_the_number_of_running_jobs_returns_to_zero() {
    const JOBS: usize = 30;
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    tenant.sh("t", "case $WINDLASS_JOB_ID in *[02468]) exit 1;; esac");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    let ended = || {
        let row = tenant.type_row("t");
        row["finished"].as_u64().unwrap_or(0) + row["failed"].as_u64().unwrap_or(0)
    };
    until("all have ended", ended, |n| *n == JOBS as u64);
    until("none runs", || daemon.status()["running"].clone(), |n| *n == 0);
    assert_eq!(tenant.type_row("t")["running"], 0);
    let gauge = || daemon.metric("windlass_jobs_running", &[("tenant", "a"), ("type", "t")]);
    until("the gauge is zero", gauge, |n| *n == 0.0);
}

#[test]
fn settings_of_a_type_are_kept_and_checked() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let settings = json!({"weight": 5, "concurrency": 3, "timeout": "7s", "retention": "2h"});
    tenant.settings("t", &settings);
    assert!(daemon.terminate().success());
    daemon.restart();
    let tenant = daemon.tenant("a");
    let kept = tenant.get("types/t/settings").expect(200).json();
    for (name, value) in settings.as_object().unwrap() {
        assert_eq!(&kept[name], value, "{name} in {kept}");
    }
    for bad in [
        json!({"weight": 0}),
        json!({"weight": "much"}),
        json!({"concurrency": -1}),
        json!({"timeout": "soon"}),
        json!({"unheard_of": 1}),
    ] {
        let path = tenant.path("types/t/settings");
        let answer = daemon.send_json("PUT", &path, &bad);
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
    assert_eq!(tenant.get("types/t/settings").expect(200).json(), kept);
}

#[test]
fn concurrency_of_a_type_is_the_most_jobs_that_run_at_once() {
    const JOBS: usize = 12;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.settings("t", &json!({"concurrency": 2}));
    let body = format!(
        "echo + >> '{0}'; sleep 0.1; echo - >> '{0}'",
        daemon.home().path("marks").display()
    );
    tenant.sh("t", &body);
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    tenant.until_all(&ids, "finished");
    let (mut now, mut most) = (0i32, 0);
    for mark in daemon.home().lines("marks") {
        now += if mark == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert!((1..=2).contains(&most), "{most} ran at once");
}

#[test]
fn concurrency_of_a_type_counts_for_pulled_jobs_too() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.settings("t", &json!({"concurrency": 2}));
    tenant.add("t", &["1", "2", "3", "4", "5"]);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 5);
    let taken = tenant.claim("t", 10, "60s");
    assert_eq!(taken.len(), 2);
    assert!(tenant.claim("t", 10, "60s").is_empty());
    tenant.finish(&taken[0], 200).expect(200);
    until("one more may run", || tenant.claim("t", 10, "60s").len(), |n| *n == 1);
}

/// Jobs per second, with at most a second's worth at once.
#[test]
fn rate_of_a_type_spreads_its_starts() {
    const JOBS: usize = 20;
    const RATE: usize = 5;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.settings("t", &json!({"rate": RATE}));
    let times = daemon.home().path("times");
    tenant.sh("t", &format!("date +%s%3N >> '{}'", times.display()));
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    tenant.until_all(&ids, "finished");
    let mut times: Vec<u64> =
        daemon.home().lines("times").iter().map(|line| line.parse().unwrap()).collect();
    times.sort_unstable();
    let spread_ms = times[JOBS - 1] - times[0];
    // The last start comes three seconds after the first burst.
    assert!(spread_ms >= 2000, "{JOBS} jobs at {RATE} a second started within {spread_ms} ms");
}

#[test]
fn rate_of_a_type_counts_for_pulled_jobs_too() {
    const RATE: usize = 5;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.settings("t", &json!({"rate": RATE}));
    let payloads: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 60);
    let taken = tenant.claim("t", 100, "60s").len();
    assert!(taken <= RATE, "{taken} jobs at once at {RATE} a second");
    until("more come with time", || tenant.claim("t", 100, "60s").len(), |n| *n >= 1);
}

#[test]
fn a_wrong_setting_says_what_is_accepted() {
    let daemon = Daemon::start(Config::new());
    let path = "/v1/a/types/t/settings";
    let answer = daemon.send_json("PUT", path, &json!({"rate": "5/s"})).expect(400).json();
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(answer["error"]["field"], "rate");
    assert!(!message.contains("f64") && !message.contains("column"), "for people: {message}");
}
