//! Stopping the daemons as an administrator does: sections 8 and 12 of the contract.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Home, is_alive, until};

#[test]
fn idle_daemons_end_with_0() {
    let home = Home::new();
    for signal in [Signal::TERM, Signal::INT] {
        for mut daemon in [home.worker(&home.conf()), home.master(&home.master_conf())] {
            let _client = daemon.client();
            daemon.signal(signal);
            assert_eq!(daemon.ended().code(), Some(0), "{}", daemon.console());
        }
    }
}

#[test]
fn unstarted_jobs_are_handed_back_as_what_they_were() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf());
    let mut client = worker.client();
    client.ok("pause", Value::Null);
    let waiting = home.waiting("low", "echo x");
    let manual = home.manual("low", "echo y");
    client.ok("poll", Value::Null);
    worker.client().begin("run-manual", json!({"ids": [manual]}));
    let mut asker = worker.client();
    asker.begin("run-manual", json!({"ids": [manual]}));
    home.reaches(waiting, "accepted");
    home.reaches(manual, "accepted");
    assert_eq!(worker.stop().code(), Some(0));
    assert_eq!(home.base.status(waiting), "waiting");
    assert_eq!(home.base.status(manual), "manual");
    let row = home.base.row(waiting);
    assert_eq!((row.result, row.started), (None, 0));
    let worker = home.worker(&home.conf());
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    home.done(waiting);
    let told = client.ask("run-manual", json!({"ids": [manual]}));
    assert_eq!(told["jobs"][manual.to_string()]["stdout"], "y\n");
}

#[test]
fn a_running_job_gets_time_to_end_and_its_end_is_written() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf().set("shutdown_timeout", 100_000));
    let id = home.waiting("low", &format!("{}echo ended", home.gated("g")));
    let queued = [home.waiting("low", &home.gated("h")), home.waiting("low", "echo never")];
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.began("h");
    worker.signal(Signal::TERM);
    home.reaches(queued[1], "waiting");
    home.open("g");
    let row = home.done(id);
    assert_eq!((row.result.as_deref(), row.stdout.as_deref()), (Some("ok"), Some("ended\n")));
    assert!(worker.alive(), "the other one runs");
    home.open("h");
    assert_eq!(worker.ended().code(), Some(0));
    assert_eq!(home.base.status(queued[0]), "done");
    assert_eq!(home.base.status(queued[1]), "waiting");
}

#[test]
fn a_job_that_outlasts_its_time_is_ended_with_a_reason() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf().set("shutdown_timeout", 1));
    let id = home.waiting("low", &home.gated("g"));
    worker.client().ok("poll", Value::Null);
    let pid = home.began("g");
    assert_eq!(worker.stop().code(), Some(0));
    let row = home.base.row(id);
    assert_eq!((row.status.as_str(), row.result.as_deref()), ("done", Some("fail")));
    assert!(!row.stderr.unwrap().is_empty(), "a reason");
    assert!(row.finished > 0);
    until("its process is gone", || !is_alive(pid));
}

#[test]
fn a_second_signal_ends_at_once() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf().set("shutdown_timeout", 100_000));
    let id = home.waiting("low", &home.gated("g"));
    let queued = home.waiting("low", &home.gated("h"));
    let handed = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.began("h");
    worker.signal(Signal::TERM);
    home.reaches(handed, "waiting");
    // A signal right after the first counts as the same, so it is sent until it counts.
    until("it ends though its jobs do not", || {
        worker.signal(Signal::TERM);
        !worker.alive()
    });
    for id in [id, queued] {
        let row = home.base.row(id);
        assert_eq!((row.status.as_str(), row.result.as_deref()), ("done", Some("fail")));
    }
}

#[test]
fn a_client_that_waits_is_answered_before_the_end() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf().set("shutdown_timeout", 100_000));
    let id = home.manual("low", &format!("{}echo late", home.gated("g")));
    let mut client = worker.client();
    let no = client.begin("run-manual", json!({"ids": [id]}));
    home.began("g");
    worker.signal(Signal::TERM);
    home.open("g");
    let told = client.answer(no)["data"].clone();
    assert_eq!(told["jobs"][id.to_string()]["stdout"], "late\n");
    client.closed();
    assert_eq!(worker.ended().code(), Some(0));
}

#[test]
fn a_stop_under_load_loses_nothing_and_runs_nothing_twice() {
    const JOBS: u64 = 300;
    let home = Home::new();
    let conf = || home.conf().targets(&[("low", "8")]).set("mysql_fetch_limit", 50);
    let ran = home.path("ran").display().to_string();
    home.many("low", JOBS, &format!("echo {{id}} >> {ran}"));
    for part in 1..=2 {
        let mut worker = home.worker(&conf());
        worker.client().ok("poll", Value::Null);
        until("a part is done", || home.base.count("done") >= part * 60);
        assert_eq!(worker.stop().code(), Some(0));
        assert_eq!((home.base.count("accepted"), home.base.count("running")), (0, 0));
    }
    let worker = home.worker(&conf());
    worker.client().ok("poll", Value::Null);
    until("all are done", || home.base.count("done") == i64::try_from(JOBS).unwrap());
    home.ran_once(JOBS);
    let ok = "SELECT COUNT(*) FROM jobs WHERE result = 'ok' AND return_code = 0";
    assert_eq!(home.base.number(ok), i64::try_from(JOBS).unwrap());
}
