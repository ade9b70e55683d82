//! Leases of running jobs: renewed while their owner is alive, broken when it is gone.

use serde_json::json;

use crate::harness::{Cluster, Config, Daemon, StoreLock, text, until};

#[test]
fn s0_14_a_job_of_five_leases_runs_exactly_once_with_two_daemons() {
    let config = Config::new().set("lease.duration", "\"3s\"");
    let cluster = Cluster::start(2, config);
    let tenant = cluster[0].tenant("a");
    let body = format!("{}; sleep 15", cluster.home().recorder("seen"));
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "finished");
    assert_eq!(job["attempt"], 1);
    assert_eq!(cluster.home().lines("seen"), [format!("{id} x")]);
    assert_eq!(cluster.starts().iter().sum::<usize>(), 1);
    let expired: f64 =
        cluster.daemons.iter().map(|d| d.metric("windlass_leases_expired_total", &[])).sum();
    assert_eq!(expired, 0.0);
}

#[test]
fn s0_15_the_jobs_of_a_killed_daemon_run_on_another() {
    let mut cluster = Cluster::start(2, Config::new());
    let tenant = cluster[1].tenant("a");
    // Only the first attempt hangs.
    let hold = cluster.home().write("hold", "");
    let body = format!(
        "{}; [ $WINDLASS_ATTEMPT = 1 ] && while [ -e '{}' ]; do sleep 0.05; done; exit 0",
        cluster.home().recorder("seen"),
        hold.display()
    );
    cluster[1].stop_picking();
    tenant.sh("t", &body);
    let ids = tenant.add("t", &["x", "y"]);
    until("both run", || cluster.home().lines("seen").len(), |n| *n == 2);
    assert!(ids.iter().all(|id| tenant.job(id)["lock"] == cluster[0].sysid()));
    cluster[1].start_picking();
    cluster[0].kill9();
    for id in &ids {
        let job = tenant.until_state(id, "finished");
        assert_eq!(job["attempt"], 2, "{job}");
    }
    assert_eq!(cluster[1].log.events("job_started").len(), 2);
    assert!(cluster[1].metric("windlass_leases_expired_total", &[]) >= 2.0);
}

/// A daemon that was frozen for longer than its leases comes back to jobs that others own.
#[test]
fn s0_50_a_daemon_that_lost_its_lock_cannot_end_the_job_of_another() {
    let cluster = Cluster::start(2, Config::new());
    let tenant = cluster[1].tenant("a");
    cluster[1].stop_picking();
    let (hold, go) = (cluster.home().write("hold", ""), cluster.home().path("go"));
    // The first attempt ends with 400 when the test says so, the second one waits.
    let body = format!(
        "{}; while [ -e '{}' ]; do [ $WINDLASS_ATTEMPT = 1 ] && [ -e '{}' ] && exit 65; \
         sleep 0.05; done; exit 0",
        cluster.home().recorder("seen"),
        hold.display(),
        go.display()
    );
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    until("the first attempt runs", || cluster.home().lines("seen").len(), |n| *n == 1);
    cluster[0].pause();
    cluster[1].start_picking();
    until("the second attempt runs", || cluster.home().lines("seen").len(), |n| *n == 2);
    assert_eq!(tenant.job(&id)["lock"], cluster[1].sysid());
    cluster.home().write("go", "");
    cluster[0].resume();
    // By the time it has run another job, its late 400 has been refused.
    cluster[1].stop_picking();
    let other = cluster[0].tenant("b");
    let sentinel = other.add_one("t", "x");
    other.sh("t", "true");
    other.until_state(&sentinel, "finished");
    let job = tenant.job(&id);
    assert_eq!((&job["state"], &job["attempt"]), (&json!("running"), &json!(2)), "{job}");
    cluster.home().let_go("hold");
    assert_eq!(tenant.until_state(&id, "finished")["code"], "ok");
}

/// Jobs that a daemon's handlers emitted while it was frozen: they enter with the attempt that
/// ended its job, and with no other.
#[test]
fn s0_50_jobs_that_a_late_attempt_asked_for_do_not_enter() {
    const JOBS: usize = 6;
    let cluster = Cluster::start(2, Config::new().set("lease.duration", "\"6s\""));
    let tenant = cluster[1].tenant("a");
    cluster[1].stop_picking();
    let (hold, go) = (cluster.home().write("hold", ""), cluster.home().path("go"));
    // The first attempts end when the test says so, the second ones wait.
    let body = format!(
        "{}; echo \"J: out|$WINDLASS_JOB_ID\"; while [ -e '{}' ]; do \
         [ $WINDLASS_ATTEMPT = 1 ] && [ -e '{}' ] && {{ {}; exit 0; }}; sleep 0.05; done",
        cluster.home().recorder("seen"),
        hold.display(),
        go.display(),
        cluster.home().recorder("over"),
    );
    tenant.sh("t", &body);
    let ids: Vec<String> = (0..JOBS).map(|n| tenant.add_one("t", &n.to_string())).collect();
    let seen = || cluster.home().lines("seen").len();
    until("the first attempts run", seen, |n| *n == JOBS);
    cluster[0].pause();
    cluster[1].start_picking();
    until("the second attempts run", seen, |n| *n == 2 * JOBS);
    cluster.home().write("go", "");
    until("the first attempts end", || cluster.home().lines("over").len(), |n| *n == JOBS);
    // It reads the ends of its attempts before it can learn that it lost their leases.
    let lock = StoreLock::take(&cluster.config);
    cluster[0].resume();
    let running = || cluster[0].metric("windlass_jobs_running", &[]);
    until("the late ends are taken", running, |n| *n == 0.0);
    drop(lock);
    let refused = || cluster[0].log.events("job_returned").len();
    until("the late ends are refused", refused, |n| *n == JOBS);
    assert_eq!(tenant.list("type=out").len(), 0);
    cluster.home().let_go("hold");
    tenant.until_all(&ids, "finished");
    let mut entered: Vec<String> =
        tenant.drain("out", JOBS).iter().map(|job| text(&job["payload"])).collect();
    entered.sort();
    assert_eq!(entered, ids);
    assert_eq!(tenant.list("type=out").len(), JOBS);
}

#[test]
fn s2_38_an_expired_lock_is_broken_while_the_queue_is_idle() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "1s");
    assert_eq!(job["id"], id.as_str());
    let job = tenant.until_state(&id, "queued");
    assert_eq!((&job["lock"], &job["attempt"]), (&json!(null), &json!(1)), "{job}");
    assert_eq!(daemon.metric("windlass_leases_expired_total", &[]), 1.0);
}

#[test]
fn s2_38_ended_jobs_are_pruned_while_the_queue_is_idle() {
    let config =
        Config::new().set("job.retention", "\"1s\"").set("job.purge_interval", "\"200ms\"");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    tenant.finish(&job, 200).expect(200);
    let path = tenant.path(&format!("jobs/{id}"));
    until("the job is pruned", || daemon.get(&path).status, |status| *status == 404);
}

/// The store is unavailable for longer than the leases of running jobs; their owner is alive all
/// the time.
#[test]
fn s0_14_a_job_that_outlasts_an_absent_store_is_finished_by_its_owner() {
    let daemon = Daemon::start(Config::new().set("lease.duration", "\"1s\""));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    until("the job runs", || daemon.home().lines("seen").len(), |n| *n == 1);
    let lock = StoreLock::take(&daemon.config);
    let started = std::time::Instant::now();
    until("three leases have passed", || started.elapsed().as_secs(), |s| *s >= 3);
    daemon.home().let_go("hold");
    drop(lock);
    assert_eq!(tenant.until_state(&id, "finished")["attempt"], 1, "a live lock does not expire");
    assert_eq!(daemon.home().lines("seen").len(), 1);
}
