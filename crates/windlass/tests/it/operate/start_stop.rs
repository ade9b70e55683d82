//! Graceful stop, and continuing after it.

use serde_json::json;

use crate::harness::{Config, Daemon, OWN_NS, StoreLock, is_alive, until};

#[test]
fn term_lets_running_jobs_finish_and_exits_with_0() {
    let mut daemon = Daemon::start(Config::new().set("stop_grace", "\"30s\""));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("{}; sleep 1", daemon.home().recorder("seen")));
    let id = tenant.add_one("t", "x");
    until("the job runs", || daemon.home().lines("seen").len(), |n| *n == 1);
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.restart();
    let job = daemon.tenant("a").job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("finished"), &json!(1)), "{job}");
    assert_eq!(daemon.home().lines("seen").len(), 1);
}

#[test]
fn term_hands_back_what_does_not_finish_in_time() {
    let mut daemon = Daemon::start(Config::new().set("stop_grace", "\"500ms\""));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let ids = tenant.add("t", &["x", "y"]);
    until("both run", || daemon.home().lines("seen").len(), |n| *n == 2);
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.home().let_go("hold");
    daemon.restart();
    let tenant = daemon.tenant("a");
    for id in &ids {
        let job = tenant.until_state(id, "finished");
        assert_eq!(job["attempt"], 1, "a job that was handed back lost no attempt: {job}");
    }
    assert_eq!(daemon.home().lines("seen").len(), 4);
}

#[test]
fn a_restart_goes_on_with_what_was_waiting() {
    const JOBS: usize = 500;
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.restart();
    let tenant = daemon.tenant("a");
    let mut pulled: Vec<String> =
        tenant.drain("t", JOBS).iter().map(|job| crate::harness::text(&job["id"])).collect();
    pulled.sort();
    assert_eq!(pulled, ids);
}

#[test]
fn term_ends_the_daemon_also_while_the_store_is_away() {
    let mut daemon = Daemon::start(Config::new().set("stop_grace", "\"1s\""));
    let tenant = daemon.tenant("a");
    let lock = StoreLock::take(&daemon.config);
    let id = tenant.add_one("t", "x");
    daemon.terminate();
    drop(lock);
    daemon.restart();
    let job = daemon.tenant("a").until_claimed("t", "60s");
    assert_eq!(job["id"], id.as_str());
}

#[test]
fn term_ends_waiting_requests_and_refuses_new_ones() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let waiting = std::thread::spawn(move || {
        let wish = json!({"types": ["t"], "limit": 1, "lease": "60s", "wait": "60s"});
        let body = wish.to_string();
        let headers = [("Content-Type", "application/json")];
        tenant.client.try_call("POST", "/v1/a/claim", &headers, body.as_bytes())
    });
    daemon.get("/healthz").expect(200);
    assert_eq!(daemon.terminate().code(), Some(0));
    // Answered with no jobs, or with an error, or cut off: but not left hanging.
    let _ = waiting.join().unwrap();
    assert!(daemon.try_call("GET", "/healthz", &[], b"").is_err());
}

#[test]
fn interrupt_stops_like_term() {
    let mut daemon = Daemon::start(Config::new());
    daemon.signal(rustix::process::Signal::INT);
    assert_eq!(daemon.until_exit().code(), Some(0));
}

/// Several jobs, because each takes the daemon a moment to end.
#[test]
fn a_second_term_leaves_no_process_of_a_job_behind() {
    const JOBS: usize = 6;
    let mut daemon = Daemon::start(Config::new().set("stop_grace", "\"10m\""));
    let tenant = daemon.tenant("a");
    let pids = daemon.home().path("pids");
    let body = format!("{OWN_NS}; sleep 600 & echo $NS/$! $NS/$$ >> '{}'; wait", pids.display());
    tenant.sh("t", &body);
    tenant.add("t", &["x"; JOBS]);
    until("the jobs run", || daemon.home().lines("pids"), |lines| lines.len() == JOBS);
    daemon.signal(rustix::process::Signal::TERM);
    let stops = |daemon: &mut Daemon| {
        daemon.signal(rustix::process::Signal::TERM);
        daemon.has_exited()
    };
    until("it ends", || stops(&mut daemon), |ended| *ended);
    assert_eq!(daemon.until_exit().code(), Some(143));
    for line in daemon.home().lines("pids") {
        for pid in line.split(' ') {
            until("the process is gone", || is_alive(pid), |alive| !alive);
        }
    }
}

#[test]
fn term_does_not_wait_for_clients_that_never_finish() {
    let mut daemon = Daemon::start(Config::new().set("stop_grace", "\"1s\""));
    let mut half = daemon.connection();
    let key = daemon.authorization();
    let head = format!("POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\n{key}");
    half.send_raw(format!("{head}Content-Length: 9\r\n\r\nhalf").as_bytes()).unwrap();
    let idle = daemon.connection();
    daemon.get("/healthz").expect(200);
    assert_eq!(daemon.terminate().code(), Some(0));
    drop((half, idle));
}

/// An external worker does not notice that the daemon was replaced.
#[test]
fn a_pulled_job_can_be_finished_after_a_restart() {
    let mut daemon = Daemon::start(Config::new());
    let ids = daemon.tenant("a").add("t", &["x", "y"]);
    let by_stop = daemon.tenant("a").until_claimed("t", "60s");
    assert!(daemon.terminate().success());
    daemon.restart();
    daemon.tenant("a").finish(&by_stop, 200).expect(200);
    let by_crash = daemon.tenant("a").until_claimed("t", "60s");
    daemon.kill9();
    daemon.restart();
    daemon.tenant("a").finish(&by_crash, 200).expect(200);
    daemon.tenant("a").until_all(&ids, "finished");
}

#[test]
fn term_hands_back_what_was_not_started_yet() {
    let config = Config::new().one_slot().set("stop_grace", "\"500ms\"");
    let mut daemon = Daemon::start(config.set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let hold = daemon.home().holder("seen", "hold");
    tenant.sh("t", &hold);
    let ids = tenant.add("t", &["1", "2", "3", "4", "5", "6"]);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 6);
    daemon.start_picking();
    until("the first one runs", || daemon.home().lines("seen").len(), |n| *n == 1);
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.home().let_go("hold");
    daemon.restart();
    let tenant = daemon.tenant("a");
    for id in &ids {
        assert_eq!(tenant.until_state(id, "finished")["attempt"], 1);
    }
}
