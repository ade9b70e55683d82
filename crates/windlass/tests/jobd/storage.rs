//! The same table in the other databases, by `storage = URL`: section 12 of the contract.

use serde_json::{Value, json};

use crate::harness::{Base, Conf, Home, program, run, until};

fn main_path(home: &Home, conf: &Conf) {
    let mut worker = home.worker(conf);
    let mut client = worker.client();
    let ok = home.waiting("low", "echo out; echo err >&2");
    let failed = home.waiting("1/high", "printf 'a\\377😀'; exit 3");
    let killed = home.waiting("low", "kill -KILL $$");
    let strange = home.waiting("elsewhere", "echo x");
    client.ok("poll", Value::Null);
    let row = home.done(ok);
    assert_eq!((row.result.as_deref(), row.code, row.sig), (Some("ok"), Some(0), None));
    assert_eq!((row.stdout.as_deref(), row.stderr.as_deref()), (Some("out\n"), Some("err\n")));
    assert!(row.started > 1 && row.finished >= row.started);
    let row = home.done(failed);
    assert_eq!((row.result.as_deref(), row.code), (Some("fail"), Some(3)));
    assert_eq!(row.stdout.as_deref(), Some("a\u{fffd}😀"));
    let row = home.done(killed);
    assert_eq!((row.code, row.sig.as_deref()), (None, Some("SIGKILL")));
    assert_eq!(home.base.status(strange), "waiting");

    let manual = home.manual("low", "echo manual");
    let told = client.ask("run-manual", json!({"ids": [manual, ok, 99]}));
    assert_eq!(told["jobs"][manual.to_string()]["stdout"], "manual\n");
    let wanted = json!({"99": "job 99 not found", ok.to_string(): "status = done != manual"});
    assert_eq!(told["errors"], wanted);
    assert_eq!(home.base.status(ok), "ignored");

    client.ok("pause", Value::Null);
    let queued = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.reaches(queued, "accepted");
    assert!(worker.stop().success());
    assert_eq!(home.base.status(queued), "waiting");
}

fn shared_by_two(home: &Home, conf: impl Fn() -> Conf) {
    const JOBS: u64 = 60;
    let workers = [home.worker(&conf()), home.worker(&conf())];
    let ran = home.path("ran").display().to_string();
    home.many("low", JOBS, &format!("echo {{id}} >> {ran}"));
    for worker in &workers {
        worker.client().ok("poll", Value::Null);
    }
    until("all are done", || home.base.count("done") == i64::try_from(JOBS).unwrap());
    home.ran_once(JOBS);
}

fn killed_worker_strands_nothing(home: &Home, conf: impl Fn() -> Conf) {
    let mut worker = home.worker(&conf().set("lease", 3));
    let running = home.waiting("low", &home.gated("g"));
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    home.began("g");
    home.reaches(running, "running");
    client.ok("pause", Value::Null);
    let queued = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.reaches(queued, "accepted");
    worker.kill();
    let next = home.worker(&conf().set("lease", 3));
    let mut client = next.client();
    until("what was queued runs", || {
        client.ok("poll", Value::Null);
        home.base.status(queued) == "done"
    });
    let row = home.done(running);
    assert_eq!(row.result.as_deref(), Some("fail"));
    assert!(!row.stderr.unwrap().is_empty(), "a reason");
    home.open("g");
}

#[test]
fn sqlite_works_as_the_original_table_does() {
    let home = Home::sqlite();
    main_path(&home, &home.storage_conf());
}

#[test]
fn postgres_works_as_the_original_table_does() {
    let home = Home::with(Base::postgres());
    main_path(&home, &home.storage_conf());
}

#[test]
fn a_url_of_mysql_works_beside_the_keys() {
    let home = Home::new();
    let conf = home.storage_conf();
    let worker = home.worker(&conf);
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
}

#[test]
fn workers_share_a_table_of_sqlite() {
    let home = Home::sqlite();
    shared_by_two(&home, || home.storage_conf());
}

#[test]
fn workers_share_a_table_of_postgres() {
    let home = Home::with(Base::postgres());
    shared_by_two(&home, || home.storage_conf());
}

#[test]
fn a_killed_worker_strands_nothing_in_sqlite() {
    let home = Home::sqlite();
    killed_worker_strands_nothing(&home, || home.storage_conf());
}

#[test]
fn a_killed_worker_strands_nothing_in_postgres() {
    let home = Home::with(Base::postgres());
    killed_worker_strands_nothing(&home, || home.storage_conf());
}

#[test]
fn a_url_that_is_none_ends_the_worker_and_its_password_is_not_told() {
    let home = Home::sqlite();
    for url in ["nothing", "redis://u:topsecret@h/1", "mysql://u:topsecret@127.0.0.1:1/d"] {
        let conf = home.storage_conf().set("storage", url);
        let file = home.path("conf");
        conf.write(&file);
        let mut command = program("jobd");
        command.arg("--config").arg(&file);
        let ended = run(command, "");
        assert_eq!(ended.code, Some(1), "{url}: {ended:?}");
        let told = ended.stdout + &ended.stderr;
        assert!(!told.is_empty() && !told.contains("topsecret"), "{told}");
    }
}
