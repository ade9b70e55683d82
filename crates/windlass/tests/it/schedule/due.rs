//! When a job may run: its time, its handler, the state of its type.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Cluster, Config, Daemon, text, until};

/// Clock ticks per second, as `/proc` counts them.
const TICKS_PER_SECOND: f64 = 100.0;

#[test]
fn s0_5_a_job_is_not_run_before_its_time() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let late = tenant.add_with("t", "delay=2s", &["late"]).remove(0);
    let early = tenant.add_one("t", "early");
    tenant.until_state(&early, "finished");
    assert_eq!(tenant.job(&late)["state"], "queued");
    assert_eq!(tenant.type_row("t")["deferred"], 1);
    let job = tenant.until_state(&late, "finished");
    assert!(text(&job["started_at"]) >= text(&job["run_at"]), "{job}");
    assert!(text(&job["run_at"]) > text(&job["created_at"]), "{job}");
    assert_eq!(daemon.home().lines("seen"), [format!("{early} early"), format!("{late} late")]);
}

#[test]
fn s0_5_a_locked_job_is_never_picked_by_a_second_daemon() {
    let cluster = Cluster::start(2, Config::new());
    let tenant = cluster[0].tenant("a");
    tenant.sh("t", &cluster.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    let others: Vec<String> =
        (0..10).map(|n| cluster[n % 2].tenant("b").add_one("t", "y")).collect();
    cluster[0].tenant("b").sh("t", &cluster.home().recorder("others"));
    cluster[1].tenant("b").until_all(&others, "finished");
    cluster.home().let_go("hold");
    tenant.until_state(&id, "finished");
    assert_eq!(cluster.home().lines("seen"), [format!("{id} x")]);
}

#[test]
fn s2_17_a_post_dated_job_survives_a_restart() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let id = tenant.add_with("t", "delay=2s", &["x"]).remove(0);
    let run_at = text(&tenant.job(&id)["run_at"]);
    assert!(daemon.terminate().success());
    daemon.restart();
    let tenant = daemon.tenant("a");
    assert_eq!(text(&tenant.job(&id)["run_at"]), run_at);
    let job = tenant.until_state(&id, "finished");
    assert!(text(&job["started_at"]) >= run_at, "{job}");
    assert_eq!(daemon.home().lines("seen").len(), 1);
}

#[test]
fn s0_46_a_job_waits_for_its_handler() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let sentinel = tenant.add_one("other", "x");
    tenant.sh("other", "true");
    tenant.until_state(&sentinel, "finished");
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("queued"), &json!(0)));
    tenant.sh("t", &daemon.home().recorder("seen"));
    tenant.until_state(&id, "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{id} x")]);
}

#[test]
fn s0_46_a_job_whose_handler_never_comes_ends_at_its_limit() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_with("t", "expires=1s", &["x"]).remove(0);
    let job = tenant.until_state(&id, "failed");
    assert_eq!((&job["code"], &job["attempt"]), (&json!("error"), &json!(0)), "{job}");
    assert!(tenant.log(&id).contains("expired"), "{}", tenant.log(&id));
    assert!(text(&job["finished_at"]) >= text(&job["expires_at"]), "{job}");
}

#[test]
fn s2_7_jobs_of_types_nobody_knows_yet_run_in_the_end() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let ids: Vec<String> = (0..20).map(|n| tenant.add_one(&format!("t{n}"), "x")).collect();
    for n in 0..20 {
        tenant.sh(&format!("t{n}"), "true");
    }
    tenant.until_all(&ids, "finished");
}

/// The window is as long as a pull worker waits for a job that comes due in it.
#[test]
fn s0_46_jobs_without_a_handler_keep_the_daemon_idle() {
    const UNHANDLED: usize = 500;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payloads: Vec<String> = (0..UNHANDLED).map(|n| n.to_string()).collect();
    for kind in ["t1", "t2", "t3"] {
        tenant.add(kind, &payloads);
        until("all are in the store", || tenant.type_row(kind), |row| row["ready"] == UNHANDLED);
    }
    tenant.add_with("bell", "delay=4s", &["x"]);
    let (ticks, started) = (daemon.cpu_ticks(), Instant::now());
    let wish = json!({"types": ["bell"], "limit": 1, "lease": "60s", "wait": "60s"});
    let rung = tenant.post_json("claim", &wish).expect(200).json();
    assert_eq!(rung["jobs"].as_array().map(Vec::len), Some(1), "{rung}");
    let used = (daemon.cpu_ticks() - ticks) as f64;
    let window = started.elapsed().as_secs_f64() * TICKS_PER_SECOND;
    assert!(used < window * 0.25, "{used} of {window} ticks: the daemon is busy with nothing");
}

#[test]
fn s2_27_a_job_without_a_handler_goes_back_unharmed_with_two_daemons() {
    let cluster = Cluster::start(2, Config::new());
    let (first, second) = (cluster[0].tenant("a"), cluster[1].tenant("a"));
    let id = first.add_one("t", "x");
    for tenant in [&first, &second] {
        let sentinel = tenant.add_one("other", "x");
        tenant.sh("other", "true");
        tenant.until_state(&sentinel, "finished");
    }
    let job = second.job(&id);
    assert_eq!(
        (&job["state"], &job["attempt"], &job["lock"]),
        (&json!("queued"), &json!(0), &Value::Null)
    );
    second.sh("t", &cluster.home().recorder("seen"));
    assert_eq!(first.until_state(&id, "finished")["attempt"], 1);
    assert_eq!(cluster.home().lines("seen"), [format!("{id} x")]);
}

#[test]
fn s2_20_a_suspended_type_takes_jobs_and_runs_none() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    tenant.sh("other", "true");
    assert_eq!(tenant.post("types/t/suspend").status / 100, 2);
    let ids = tenant.add("t", &["x", "y"]);
    let others = tenant.add("other", &["x", "y"]);
    tenant.until_all(&others, "finished");
    let row = tenant.type_row("t");
    assert_eq!((&row["suspended"], &row["running"]), (&json!(true), &json!(0)), "{row}");
    assert!(ids.iter().all(|id| tenant.job(id)["attempt"] == 0));
    assert!(tenant.claim("t", 10, "60s").is_empty(), "pulling workers get none either");

    assert!(daemon.terminate().success());
    daemon.restart();
    let tenant = daemon.tenant("a");
    let others = tenant.add("other", &["z"]);
    tenant.until_all(&others, "finished");
    assert!(daemon.home().lines("seen").is_empty(), "suspension survives a restart");
    assert_eq!(tenant.post("types/t/resume").status / 100, 2);
    tenant.until_all(&ids, "finished");
    assert_eq!(tenant.type_row("t")["suspended"], false);
}

#[test]
fn s2_26_inside_a_type_the_oldest_job_starts_first() {
    const JOBS: usize = 60;
    let daemon = Daemon::start(Config::new().one_slot());
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    tenant.sh("t", &daemon.home().recorder("seen"));
    let ids: Vec<String> = (0..JOBS).map(|n| tenant.add_one("t", &n.to_string())).collect();
    daemon.start_picking();
    tenant.until_all(&ids, "finished");
    let order: Vec<String> = daemon
        .home()
        .lines("seen")
        .iter()
        .map(|line| line[..line.find(' ').unwrap()].to_owned())
        .collect();
    assert_eq!(order, ids);
}

/// From the answer on, no further job of a suspended type starts, however busy it is.
#[test]
fn s2_20_no_job_starts_after_the_suspension_is_answered() {
    const JOBS: usize = 2000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    until("the type is busy", || daemon.log.events("job_started").len(), |n| *n > 50);
    assert_eq!(tenant.post("types/t/suspend").status / 100, 2);
    until("what ran has ended", || tenant.type_row("t"), |row| row["running"] == 0);
    let stopped = tenant.type_row("t");
    tenant.sh("other", "true");
    let other = tenant.add_one("other", "x");
    tenant.until_state(&other, "finished");
    assert_eq!(tenant.type_row("t")["finished"], stopped["finished"]);
    let left = stopped["ready"].as_u64().unwrap();
    assert!(left > 0 && left < JOBS as u64, "{stopped}");
}
