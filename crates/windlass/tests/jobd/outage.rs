//! The database is down for a while: polls are kept, results are kept and written. Sections 8, 12.

use serde_json::{Value, json};

use crate::harness::{Base, Daemon, Home, is_alive, until};

fn start() -> (Home, Daemon) {
    let home = Home::with(Base::own_mariadb());
    let worker = home.worker(&home.conf());
    (home, worker)
}

#[test]
fn a_poll_while_it_is_away_is_kept() {
    let (home, worker) = start();
    let id = home.waiting("low", "echo x");
    home.base.server().stop();
    let mut client = worker.client();
    client.ok("poll", json!({"targets": ["low"]}));
    assert!(client.ask("status", Value::Null).is_object());
    home.base.server().restart();
    home.done(id);
}

#[test]
fn the_end_of_a_job_while_it_is_away_is_written_when_it_is_back() {
    let (home, worker) = start();
    let id = home.waiting("low", &format!("{}echo kept; exit 5", home.gated("g")));
    worker.client().ok("poll", Value::Null);
    let pid = home.began("g");
    home.reaches(id, "running");
    home.base.server().kill();
    home.open("g");
    until("it ended", || !is_alive(pid));
    home.base.server().restart();
    let row = home.done(id);
    assert_eq!((row.result.as_deref(), row.code), (Some("fail"), Some(5)));
    assert_eq!(row.stdout.as_deref(), Some("kept\n"));
}

#[test]
fn queued_jobs_run_when_it_is_back() {
    let home = Home::with(Base::own_mariadb());
    let worker = home.worker(&home.conf().targets(&[("low", "1")]));
    let ran = home.path("ran").display().to_string();
    let first = home.waiting("low", &home.gated("g"));
    let queued: Vec<u64> =
        (0..5).map(|n| home.waiting("low", &format!("echo {n} >> {ran}"))).collect();
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.reaches(queued[4], "accepted");
    home.base.server().kill();
    home.open("g");
    home.base.server().restart();
    home.done(first);
    for id in &queued {
        assert_eq!(home.done(*id).result.as_deref(), Some("ok"));
    }
    assert_eq!(home.lines("ran"), ["0", "1", "2", "3", "4"]);
}

#[test]
fn a_manual_job_asked_for_while_it_is_away_is_not_blocked_for_ever() {
    let (home, worker) = start();
    let ran = home.path("ran").display().to_string();
    let id = home.manual("low", &format!("echo x >> {ran}"));
    home.base.server().stop();
    let mut client = worker.client();
    let no = client.begin("run-manual", json!({"ids": [id]}));
    assert!(worker.client().ask("status", Value::Null).is_object());
    home.base.server().restart();
    let answer = client.answer(no);
    if answer.get("error").is_some() {
        let told = client.ask("run-manual", json!({"ids": [id]}));
        assert_eq!(told["jobs"][id.to_string()]["result"], "ok");
    } else {
        assert_eq!(answer["data"]["jobs"][id.to_string()]["result"], "ok", "{answer}");
    }
    home.done(id);
    assert_eq!(home.lines("ran").len(), 1);
}

#[test]
fn the_answer_of_a_manual_job_comes_when_its_end_is_written() {
    let (home, worker) = start();
    let id = home.manual("low", &format!("{}echo out", home.gated("g")));
    let mut client = worker.client();
    let no = client.begin("run-manual", json!({"ids": [id]}));
    let pid = home.began("g");
    home.reaches(id, "running");
    home.base.server().kill();
    home.open("g");
    until("it ended", || !is_alive(pid));
    let status = worker.client().ask("status", Value::Null);
    assert_eq!(status["jobPromisesCount"], 1, "{status}");
    home.base.server().restart();
    assert_eq!(client.answer(no)["data"]["jobs"][id.to_string()]["stdout"], "out\n");
    assert_eq!(home.base.status(id), "done");
}

#[test]
fn a_database_that_hangs_holds_no_client_and_nothing_is_lost() {
    let (home, worker) = start();
    let running = home.waiting("low", &format!("{}echo kept", home.gated("g")));
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    let pid = home.began("g");
    home.reaches(running, "running");
    let waiting = home.waiting("low", "echo x");
    home.base.server().freeze();
    client.ok("poll", Value::Null);
    home.open("g");
    until("it ended", || !is_alive(pid));
    assert!(client.ask("status", Value::Null).is_object());
    home.base.server().thaw();
    assert_eq!(home.done(running).stdout.as_deref(), Some("kept\n"));
    home.done(waiting);
}

#[test]
fn connections_that_are_killed_are_opened_again() {
    let (home, worker) = start();
    let mut client = worker.client();
    for _ in 0..5 {
        let own = home.base.sql(&format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{}' \
             AND id <> CONNECTION_ID()",
            home.base.name()
        ));
        for connection in own.lines() {
            let _ = home.base.server().try_sql(home.base.name(), &format!("KILL {connection}"));
        }
        let id = home.waiting("low", "echo x");
        client.ok("poll", Value::Null);
        home.done(id);
    }
    let open = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{}'",
        home.base.name()
    );
    assert!(home.base.number(&open) < 20, "connections are not left behind");
}

#[test]
fn a_worker_stops_though_the_database_is_away() {
    let home = Home::with(Base::own_mariadb());
    let mut worker = home.worker(&home.conf().set("shutdown_timeout", 1).set("lease", 3));
    let id = home.waiting("low", &home.gated("g"));
    worker.client().ok("poll", Value::Null);
    home.began("g");
    home.reaches(id, "running");
    home.base.server().kill();
    worker.stop();
    home.base.server().restart();
    let _next = home.worker(&home.conf().set("lease", 3));
    let row = home.done(id);
    assert_eq!(row.result.as_deref(), Some("fail"));
    assert!(!row.stderr.unwrap().is_empty(), "a reason");
}
