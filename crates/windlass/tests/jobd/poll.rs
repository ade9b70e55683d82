//! Which jobs are fetched and when they start: section 4 of the contract.

use serde_json::{Value, json};

use crate::harness::{Client, Home, until, until_some};

fn length(client: &mut Client, target: &str) -> i64 {
    client.ask("status", Value::Null)["targets"][target]["length"].as_i64().unwrap()
}

#[test]
fn a_poll_without_targets_means_all_of_them() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let low = home.waiting("low", "echo low");
    let high = home.waiting("1/high", "echo high");
    worker.client().ok("poll", Value::Null);
    assert_eq!(home.done(low).stdout.as_deref(), Some("low\n"));
    assert_eq!(home.done(high).stdout.as_deref(), Some("high\n"));
}

#[test]
fn a_poll_fetches_only_its_targets() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let low = home.waiting("low", "echo low");
    let high = home.waiting("1/high", "echo high");
    let strange = home.waiting("elsewhere", "echo strange");
    let manual = home.manual("1/high", "echo manual");
    worker.client().ok("poll", json!({"targets": ["1/high"]}));
    home.done(high);
    assert_eq!(home.base.status(low), "waiting");
    assert_eq!(home.base.status(strange), "waiting");
    assert_eq!(home.base.status(manual), "manual");
}

#[test]
fn nothing_is_fetched_unasked() {
    let home = Home::new();
    let before = home.waiting("low", "echo x");
    let worker = home.worker(&home.conf());
    let manual = home.manual("low", "echo x");
    let told = worker.client().ask("run-manual", json!({"ids": [manual]}));
    assert_eq!(told["jobs"][manual.to_string()]["result"], "ok");
    home.done(manual);
    assert_eq!(home.base.status(before), "waiting");
}

#[test]
fn a_row_tells_every_step() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let id = home.waiting("low", &format!("{}echo out", home.gated("g")));
    let row = home.base.row(id);
    assert_eq!((row.started, row.finished, row.result.as_deref()), (0, 0, None));
    let mut client = worker.client();
    client.ok("pause", Value::Null);
    client.ok("poll", Value::Null);
    home.reaches(id, "accepted");
    assert_eq!(home.base.row(id).started, 0);
    let before = home.base.number("SELECT UNIX_TIMESTAMP()");
    client.ok("continue", Value::Null);
    home.began("g");
    home.reaches(id, "running");
    let row = home.base.row(id);
    assert_eq!(row.result.as_deref(), Some("ok"), "as the original sets it at the start");
    assert!(row.started >= before && row.finished == 0, "{row:?}");
    home.open("g");
    let row = home.done(id);
    let after = home.base.number("SELECT UNIX_TIMESTAMP()");
    assert!(before <= row.started && row.started <= row.finished, "{row:?}");
    assert!(row.finished <= after, "{row:?}");
    assert_eq!((row.result.as_deref(), row.code, row.sig), (Some("ok"), Some(0), None));
    assert_eq!((row.stdout.as_deref(), row.stderr.as_deref()), (Some("out\n"), Some("")));
}

#[test]
fn jobs_of_a_target_start_in_the_order_of_their_ids() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("low", "1")]));
    let order = home.path("order").display().to_string();
    let first = home.many("low", 30, &format!("echo {{id}} >> {order}"));
    worker.client().ok("poll", Value::Null);
    until("all ran", || home.base.count("done") == 30);
    let wanted: Vec<String> = (first..first + 30).map(|id| id.to_string()).collect();
    assert_eq!(home.lines("order"), wanted);
}

/// 25 jobs, concurrency 2, limit 10: ten are fetched, the next ten when one is left running.
#[test]
fn the_fetch_limit_counts_and_more_is_fetched_when_a_place_is_free() {
    let home = Home::new();
    let conf = home.conf().targets(&[("low", "2")]).set("mysql_fetch_limit", 10);
    let worker = home.worker(&conf);
    for n in 1..=25 {
        home.waiting("low", &home.gated(&format!("g{n}")));
    }
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    home.began("g1");
    home.began("g2");
    until("two run", || home.base.count("running") == 2);
    assert_eq!((home.base.count("accepted"), home.base.count("waiting")), (8, 15));
    assert_eq!(length(&mut client, "low"), 10);
    (1..=8).for_each(|n| home.open(&format!("g{n}")));
    home.began("g9");
    home.began("g10");
    until("eight are done", || home.base.count("done") == 8);
    assert_eq!(home.base.count("waiting"), 15);
    home.open("g9");
    until("ten more are taken", || home.base.count("waiting") == 5);
    (10..=25).for_each(|n| home.open(&format!("g{n}")));
    until("all are done", || home.base.count("done") == 25);
}

#[test]
fn a_poll_of_a_full_target_is_kept_until_a_job_ends() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("low", "1")]));
    let mut client = worker.client();
    let first = home.waiting("low", &home.gated("first"));
    client.ok("poll", Value::Null);
    home.began("first");
    let second = home.waiting("low", "echo second");
    client.ok("poll", json!({"targets": ["low"]}));
    assert_eq!(home.base.status(second), "waiting");
    home.open("first");
    home.done(first);
    assert_eq!(home.done(second).stdout.as_deref(), Some("second\n"));
}

#[test]
fn when_one_target_is_free_jobs_of_all_wanted_ones_are_fetched() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("full", "1"), ("free", "1")]));
    let mut client = worker.client();
    home.waiting("full", &home.gated("g"));
    client.ok("poll", Value::Null);
    home.began("g");
    let more = home.waiting("full", "echo more");
    let quick = home.waiting("free", "echo quick");
    client.ok("poll", Value::Null);
    home.done(quick);
    home.reaches(more, "accepted");
    assert_eq!(length(&mut client, "full"), 2);
    home.open("g");
    home.done(more);
}

#[test]
fn a_paused_target_holds_what_is_queued_and_what_is_fetched() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("low", "2"), ("other", "1")]));
    let mut client = worker.client();
    let running = home.waiting("low", &home.gated("g"));
    client.ok("poll", Value::Null);
    home.began("g");
    client.ok("pause", json!({"targets": ["low"]}));
    let fetched = home.waiting("low", &home.gated("held"));
    let other = home.waiting("other", "echo x");
    client.ok("poll", Value::Null);
    home.reaches(fetched, "accepted");
    home.done(other);
    home.open("g");
    home.done(running);
    let manual = home.manual("low", &home.gated("manual"));
    let mut waiter = worker.client();
    let run = waiter.begin("run-manual", json!({"ids": [manual]}));
    home.reaches(manual, "accepted");
    let again = home.waiting("other", "echo x");
    client.ok("poll", Value::Null);
    home.done(again);
    assert!(!home.has_begun("held") && !home.has_begun("manual"));
    assert_eq!(client.ask("status", Value::Null)["targets"]["low"], {
        json!({"paused": true, "concurrency": 2, "length": 2})
    });
    client.ok("continue", json!({"targets": ["low"]}));
    home.began("held");
    home.began("manual");
    home.open("held");
    home.open("manual");
    home.done(fetched);
    waiter.answer(run);
}

#[test]
fn a_target_that_matches_only_by_collation_is_ignored() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let loud = home.waiting("LOW", "echo x");
    let low = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(low);
    home.reaches(loud, "ignored");
    let row = home.base.row(loud);
    assert_eq!((row.started, row.stdout), (0, None));
}

#[test]
fn a_fetch_limit_of_zero_is_the_default() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("mysql_fetch_limit", 0));
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
}

#[test]
fn concurrency_is_never_exceeded_and_may_be_changed() {
    let home = Home::new();
    let worker = home.worker(&home.conf().targets(&[("low", "2")]));
    let mut client = worker.client();
    let ids: Vec<u64> =
        (0..5).map(|n| home.waiting("low", &home.gated(&format!("g{n}")))).collect();
    client.ok("poll", Value::Null);
    home.began("g0");
    home.began("g1");
    until("the others are queued", || length(&mut client, "low") == 5);
    assert!(!home.has_begun("g2"));
    client.ok("set-target-concurrency", json!({"target": "low", "concurrency": 3}));
    home.open("g0");
    home.began("g2");
    home.began("g3");
    assert!(!home.has_begun("g4"));
    client.ok("set-target-concurrency", json!({"target": "low", "concurrency": 1}));
    until("three run", || home.base.count("running") == 3);
    home.open("g1");
    home.open("g2");
    home.done(ids[2]);
    assert!(!home.has_begun("g4"), "one runs, and one is the limit now");
    home.open("g3");
    home.began("g4");
    home.open("g4");
    home.done(ids[4]);
}

#[test]
fn several_workers_share_a_table_and_run_each_job_once() {
    const JOBS: u64 = 200;
    let home = Home::new();
    let workers: Vec<_> = (0..3)
        .map(|_| home.worker(&home.conf().targets(&[("low", "4")]).set("mysql_fetch_limit", 7)))
        .collect();
    let ran = home.path("ran").display().to_string();
    home.many("low", JOBS, &format!("echo {{id}} >> {ran}"));
    for worker in &workers {
        worker.client().ok("poll", Value::Null);
    }
    until("all are done", || home.base.count("done") == i64::try_from(JOBS).unwrap());
    let mut lines = home.lines("ran");
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), usize::try_from(JOBS).unwrap());
    assert_eq!(home.lines("ran").len(), lines.len());
}

#[test]
fn a_row_that_somebody_else_holds_does_not_stop_the_others() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let held = home.waiting("low", "echo held");
    let free = home.waiting("low", "echo free");
    let name = home.base.name().to_owned();
    let holder = |lock: &str| {
        let told = home.base.sql(&format!("SELECT IS_USED_LOCK('{name}.{lock}')"));
        told.trim().parse::<u64>().ok()
    };
    // One connection holds the lock that another waits for while that holds the row.
    let keep = format!("SELECT GET_LOCK('{name}.go', 0), SLEEP(600)");
    let hold = format!(
        "BEGIN; SELECT id FROM jobs WHERE id = {held} FOR UPDATE; \
         SELECT GET_LOCK('{name}.held', 0); SELECT GET_LOCK('{name}.go', 600); COMMIT"
    );
    std::thread::scope(|scope| {
        scope.spawn(|| home.base.server().try_sql(&name, &keep));
        let keeper = until_some("the lock is kept", || holder("go"));
        scope.spawn(|| home.base.sql(&hold));
        until("the row is held", || holder("held").is_some());
        worker.client().ok("poll", Value::Null);
        home.done(free);
        assert_eq!(home.base.status(held), "waiting");
        home.base.sql(&format!("KILL {keeper}"));
    });
    worker.client().ok("poll", Value::Null);
    home.done(held);
}

#[test]
fn columns_and_rows_of_the_user_are_left_alone() {
    let home = Home::new();
    home.base
        .sql("ALTER TABLE jobs ADD job_name varchar(20) NOT NULL DEFAULT 'mine', ADD note text");
    let worker = home.worker(&home.conf());
    let ids = [home.waiting("low", "echo x"), home.waiting("low", "exit 1")];
    home.base.sql("UPDATE jobs SET note = 'kept', job_name = 'n'");
    worker.client().ok("poll", Value::Null);
    for id in ids {
        home.done(id);
    }
    assert_eq!(home.base.sql("SELECT id, time_created, job_name, note FROM jobs ORDER BY id"), {
        "1\t1\tn\tkept\n2\t1\tn\tkept\n"
    });
}
