//! kill -9 of the worker, the master and the database in the middle of a load: nothing is lost, and
//! nothing runs twice without a recorded reason.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::harness::{Base, Conf, Home, until};

const JOBS: u64 = 300;

/// A worker is killed when this many are done.
const PART: i64 = 60;

/// Seconds within which a live worker can renew its lease even on a busy machine.
const LIVE_LEASE: u64 = 8;

/// Jobs that append their ids to a file.
fn load(home: &Home) {
    let ran = home.path("ran").display().to_string();
    home.many("low", JOBS, &format!("echo {{id}} >> {ran}"));
}

fn conf(home: &Home) -> Conf {
    home.conf().targets(&[("low", "8")]).set("mysql_fetch_limit", 50).set("lease", 3)
}

fn all_done(home: &Home) -> bool {
    home.base.count("done") == i64::try_from(JOBS).unwrap()
}

/// How often each id ran.
fn runs(home: &Home) -> HashMap<u64, usize> {
    let mut runs = HashMap::new();
    for line in home.lines("ran") {
        *runs.entry(line.parse().unwrap()).or_default() += 1;
    }
    runs
}

/// Every row ended, and none ran twice; rows that did not run, or failed, contain a reason.
fn count_at_most_once(home: &Home) {
    assert_eq!(home.base.number("SELECT COUNT(*) FROM jobs"), i64::try_from(JOBS).unwrap());
    let runs = runs(home);
    assert!(runs.values().all(|times| *times == 1), "{runs:?}");
    let silent = "SELECT COUNT(*) FROM jobs WHERE result <> 'ok' AND COALESCE(stderr, '') = ''";
    assert_eq!(home.base.number(silent), 0);
    let ok = home.base.sql("SELECT id FROM jobs WHERE result = 'ok'");
    for id in ok.lines() {
        assert!(runs.contains_key(&id.parse().unwrap()), "job {id} is ok but did not run");
    }
}

#[test]
fn a_killed_worker_leaves_no_row_stuck() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf().set("lease", 3));
    let mut client = worker.client();
    let running = home.waiting("low", &home.gated("g"));
    let manual = home.manual("1/high", &home.gated("m"));
    client.ok("poll", Value::Null);
    home.began("g");
    client.begin("run-manual", json!({"ids": [manual]}));
    home.began("m");
    home.reaches(running, "running");
    home.reaches(manual, "running");
    let mut other = worker.client();
    other.ok("pause", Value::Null);
    let queued = home.waiting("low", "echo x");
    let queued_manual = home.manual("low", "echo y");
    other.ok("poll", Value::Null);
    other.begin("run-manual", json!({"ids": [queued_manual]}));
    home.reaches(queued, "accepted");
    home.reaches(queued_manual, "accepted");
    worker.kill();
    let next = home.worker(&home.conf().set("lease", 3).set("name", "another"));
    home.reaches(queued_manual, "manual");
    for id in [running, manual] {
        let row = home.done(id);
        assert_eq!(row.result.as_deref(), Some("fail"));
        assert!(!row.stderr.unwrap().is_empty(), "a reason");
    }
    home.open("g");
    home.open("m");
    let mut client = next.client();
    until("what was queued runs", || {
        client.ok("poll", Value::Null);
        home.base.status(queued) == "done"
    });
    assert_eq!(home.base.row(queued).stdout.as_deref(), Some("x\n"));
    let told = client.ask("run-manual", json!({"ids": [queued_manual]}));
    assert_eq!(told["jobs"][queued_manual.to_string()]["stdout"], "y\n");
}

#[test]
fn an_interrupted_job_runs_again_when_the_config_says_so() {
    let home = Home::new();
    let conf = || home.conf().set("lease", 3).set("interrupted", "retry");
    let mut worker = home.worker(&conf());
    let ran = home.path("ran").display().to_string();
    let id = home.waiting("low", &format!("echo 1 >> {ran}\n{}", home.gated("g")));
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.reaches(id, "running");
    worker.kill();
    home.open("g");
    let next = home.worker(&conf());
    let mut client = next.client();
    until("it is done again", || {
        client.ok("poll", Value::Null);
        home.base.status(id) == "done"
    });
    assert_eq!(home.base.row(id).result.as_deref(), Some("ok"));
    assert_eq!(home.lines("ran").len(), 2);
}

#[test]
fn rows_of_a_live_worker_are_left_to_it() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("lease", LIVE_LEASE));
    let running = home.waiting("low", &home.gated("g"));
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.reaches(running, "running");
    let other = [("elsewhere", "1")];
    let mut dead = home.worker(&home.conf().set("lease", LIVE_LEASE).targets(&other));
    let mut client = dead.client();
    client.ok("pause", Value::Null);
    let accepted = home.waiting("elsewhere", "echo x");
    client.ok("poll", Value::Null);
    home.reaches(accepted, "accepted");
    dead.kill();
    let _third = home.worker(&home.conf().set("lease", LIVE_LEASE));
    // The dead one's row came back, so leases were checked; the live one's stays.
    home.reaches(accepted, "waiting");
    assert_eq!(home.base.status(running), "running");
    home.open("g");
    assert_eq!(home.done(running).result.as_deref(), Some("ok"));
}

#[test]
fn rows_without_a_mark_are_left_alone() {
    let home = Home::new();
    let foreign = [home.job("low", "accepted", "echo x"), home.job("low", "running", "echo x")];
    let worker = home.worker(&home.conf().set("lease", 3));
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
    assert_eq!(home.base.status(foreign[0]), "accepted");
    assert_eq!(home.base.status(foreign[1]), "running");
}

#[test]
fn a_worker_killed_under_load_loses_nothing_and_runs_nothing_twice() {
    let home = Home::new();
    load(&home);
    for part in 1..=2 {
        let mut worker = home.worker(&conf(&home));
        let mut client = worker.client();
        until("a part is done", || {
            client.ok("poll", Value::Null);
            home.base.count("done") >= part * PART
        });
        worker.kill();
    }
    let worker = home.worker(&conf(&home));
    let mut client = worker.client();
    until("all are done", || {
        client.ok("poll", Value::Null);
        all_done(&home)
    });
    count_at_most_once(&home);
}

#[test]
fn one_of_two_workers_killed_under_load_costs_only_what_it_ran() {
    let home = Home::new();
    load(&home);
    let mut one = home.worker(&conf(&home));
    let two = home.worker(&conf(&home));
    one.client().ok("poll", Value::Null);
    let mut client = two.client();
    client.ok("poll", Value::Null);
    until("a part is done", || home.base.count("done") >= PART);
    one.kill();
    until("all are done", || {
        client.ok("poll", Value::Null);
        all_done(&home)
    });
    count_at_most_once(&home);
}

#[test]
fn jobs_of_workers_killed_under_load_run_again_when_the_config_says_so() {
    let home = Home::new();
    load(&home);
    let conf = || conf(&home).set("interrupted", "retry");
    let mut worker = home.worker(&conf());
    worker.client().ok("poll", Value::Null);
    until("a part is done", || home.base.count("done") >= PART);
    worker.kill();
    // Including those that have ended, if the table was not updated yet.
    let running = home.base.sql("SELECT id FROM jobs WHERE status = 'running'");
    let running: HashSet<u64> = running.lines().map(|id| id.parse().unwrap()).collect();
    let worker = home.worker(&conf());
    let mut client = worker.client();
    until("all are done", || {
        client.ok("poll", Value::Null);
        all_done(&home)
    });
    let ok = "SELECT COUNT(*) FROM jobs WHERE result = 'ok' AND return_code = 0";
    assert_eq!(home.base.number(ok), i64::try_from(JOBS).unwrap());
    let runs = runs(&home);
    assert_eq!(runs.len(), usize::try_from(JOBS).unwrap());
    for (id, times) in runs {
        let may = if running.contains(&id) { 2 } else { 1 };
        assert!(times <= may, "job {id} ran {times} times, and only {running:?} may run again");
    }
}

#[test]
fn a_master_killed_under_load_costs_nothing() {
    let home = Home::new();
    load(&home);
    let master_conf = home.master_conf();
    let mut master = home.master(&master_conf);
    let linked = |name: &str| {
        conf(&home)
            .set("name", name)
            .set("master_host", "127.0.0.1")
            .set("master_port", master_conf.port())
            .set("master_reconnect_timeout", 1)
    };
    let _workers = [home.worker(&linked("one")), home.worker(&linked("two"))];
    let poke = json!({"targets": ["low"]});
    master.client().ok("poke", poke.clone());
    until("a part is done", || home.base.count("done") >= PART);
    master.kill();
    let late = home.waiting("low", "echo late");
    let master = home.master(&master_conf);
    master.client().ok("poke", poke);
    home.done(late);
    until("all are done", || home.base.count("done") == i64::try_from(JOBS).unwrap() + 1);
    home.base.sql(&format!("DELETE FROM jobs WHERE id = {late}"));
    count_at_most_once(&home);
    assert_eq!(runs(&home).len(), usize::try_from(JOBS).unwrap());
}

/// The worker is alive, so every job runs exactly once and its end is written.
#[test]
fn a_database_killed_under_load_loses_nothing_and_runs_nothing_twice() {
    let home = Home::with(Base::own_mariadb());
    load(&home);
    let worker = home.worker(&conf(&home));
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    for part in 1..=2 {
        until("a part is done", || home.base.count("done") >= part * PART);
        home.base.server().kill();
        client.ok("poll", Value::Null);
        home.base.server().restart();
    }
    until("all are done", || {
        client.ok("poll", Value::Null);
        all_done(&home)
    });
    count_at_most_once(&home);
    assert_eq!(runs(&home).len(), usize::try_from(JOBS).unwrap());
    let ok = "SELECT COUNT(*) FROM jobs WHERE result = 'ok' AND return_code = 0";
    assert_eq!(home.base.number(ok), i64::try_from(JOBS).unwrap());
}
