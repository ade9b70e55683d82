//! Cancelling, running again and removing single jobs.

use std::fs;

use serde_json::json;

use crate::harness::{Config, Daemon, OWN_NS, is_alive, until};

#[test]
fn a_queued_job_is_cancelled_at_once_and_never_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let other = tenant.add_one("t", "y");
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    assert_eq!(tenant.job(&id)["state"], "cancelled");
    tenant.sh("t", &daemon.home().recorder("seen"));
    tenant.until_state(&other, "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{other} y")]);
    assert_eq!(tenant.post(&format!("jobs/{id}/cancel")).expect(409).error_code(), "conflict");
}

#[test]
fn a_running_job_is_cancelled_with_its_whole_process_tree() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let pids = daemon.home().path("pids");
    let body = format!(
        "{}; {OWN_NS}; sleep 600 & echo $NS/$! $NS/$$ > '{}'; wait",
        daemon.home().recorder("seen"),
        pids.display()
    );
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    until("the job has started its child", || daemon.home().lines("pids"), |l| l.len() == 1);
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    tenant.until_state(&id, "cancelled");
    for pid in daemon.home().lines("pids")[0].split(' ') {
        until("the process is gone", || is_alive(pid), |alive| !alive);
    }
    let next = tenant.add_one("ok", "x");
    tenant.sh("ok", "true");
    tenant.until_state(&next, "finished");
    assert_eq!(tenant.job(&id)["state"], "cancelled");
    assert_eq!(daemon.home().lines("seen").len(), 1);
}

#[test]
fn a_pulled_job_that_is_cancelled_takes_no_result() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
    tenant.finish(&job, 200).expect(409);
    assert_eq!(tenant.job(&id)["state"], "cancelled");
}

#[test]
fn an_ended_job_runs_again_on_request() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let switch = daemon.home().path("switch");
    tenant.sh("t", &format!("{}; [ -e '{}' ]", daemon.home().recorder("seen"), switch.display()));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "failed");
    fs::write(switch, "").unwrap();
    tenant.post(&format!("jobs/{id}/retry")).expect(200);
    tenant.until_state(&id, "finished");
    assert_eq!(daemon.home().lines("seen"), vec![format!("{id} x"); 2]);
    let waiting = tenant.add_one("nobody", "x");
    assert_eq!(tenant.post(&format!("jobs/{waiting}/retry")).expect(409).error_code(), "conflict");
}

#[test]
fn a_job_is_removed_unless_it_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    let path = tenant.path(&format!("jobs/{id}"));
    assert_eq!(daemon.delete(&path).expect(409).error_code(), "conflict");
    tenant.finish(&job, 200).expect(200);
    assert_eq!(daemon.delete(&path).status / 100, 2);
    daemon.get(&path).expect(404);
    daemon.delete(&path).expect(404);
    let queued = tenant.add_one("t", "y");
    assert_eq!(daemon.delete(&tenant.path(&format!("jobs/{queued}"))).status / 100, 2);
    assert!(tenant.claim("t", 1, "60s").is_empty());
    assert_eq!(tenant.type_row("t")["ready"].as_u64().unwrap_or(0), 0);
    assert_eq!(json!(tenant.list("").len()), json!(0));
}
