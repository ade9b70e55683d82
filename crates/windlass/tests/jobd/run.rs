//! How a job is run: the command, its environment, its end. Section 5 of the contract.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Home, Row, until};

/// Runs one job with this launcher and these further keys; returns its row.
fn launched(launcher: &str, more: &[(&str, &str)]) -> Row {
    let home = Home::new();
    let mut conf = home.conf().set("launcher", launcher);
    for (key, value) in more {
        conf = conf.set(key, value);
    }
    let worker = home.worker(&conf);
    let id = home.waiting("low", "");
    worker.client().ok("poll", Value::Null);
    home.done(id)
}

#[test]
fn every_id_in_the_command_is_replaced() {
    let row = launched("/bin/echo {id} a{id}b{id} {ID} {}", &[]);
    assert_eq!(row.stdout.as_deref(), Some("1 a1b1 {ID} {}\n"));
}

#[test]
fn the_command_is_split_at_runs_of_spaces_without_quotes_or_a_shell() {
    let row = launched(r#"printf <%s> {id}   "a b" $HOME * 'c d'"#, &[]);
    assert_eq!(row.stdout.as_deref(), Some(r#"<1><"a><b"><$HOME><*><'c><d'>"#));
}

#[test]
fn the_folder_and_variables_are_those_of_the_config() {
    let home = Home::new();
    let folder = home.path("here");
    fs::create_dir(&folder).unwrap();
    let conf = home
        .conf()
        .set("launcher.cwd", folder.display())
        .set("launcher.env.FIRST", "one")
        .set("launcher.env.SECOND_2", "\"two words\"");
    let worker = home.worker(&conf);
    let id = home.waiting("low", "pwd; echo $FIRST; echo $SECOND_2; echo ${PATH:+daemon}");
    worker.client().ok("poll", Value::Null);
    let wanted = format!("{}\none\ntwo words\ndaemon\n", folder.display());
    assert_eq!(home.done(id).stdout, Some(wanted));
}

#[test]
fn codes_and_signals_are_written() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let table = [
        ("exit 0", "ok", Some(0), None),
        ("exit 1", "fail", Some(1), None),
        ("exit 255", "fail", Some(255), None),
        ("kill -TERM $$", "fail", None, Some("SIGTERM")),
        ("kill -SEGV $$", "fail", None, Some("SIGSEGV")),
        ("kill -USR1 $$", "fail", None, Some("SIGUSR1")),
    ];
    for (script, result, code, sig) in table {
        let id = home.waiting("low", script);
        worker.client().ok("poll", Value::Null);
        let row = home.done(id);
        let seen = (row.result.as_deref(), row.code, row.sig.as_deref());
        assert_eq!(seen, (Some(result), code, sig), "{script}");
    }
}

#[test]
fn a_program_that_is_not_there_fails_its_job() {
    let row = launched("/nowhere/program {id}", &[]);
    assert_eq!((row.result.as_deref(), row.code, row.sig), (Some("fail"), None, None));
    let told = row.stderr.unwrap();
    assert!(told.starts_with("spawn /nowhere/program ENOENT\n"), "{told}");
    assert_eq!(row.stdout.as_deref(), Some(""));
}

#[test]
fn a_folder_that_is_not_there_fails_its_job() {
    let row = launched("/bin/echo {id}", &[("launcher.cwd", "/nowhere/at/all")]);
    assert_eq!((row.result.as_deref(), row.code, row.sig), (Some("fail"), None, None));
    let told = row.stderr.unwrap();
    assert!(told.starts_with("spawn /bin/echo ENOENT\n"), "{told}");
}

#[test]
fn a_program_that_may_not_be_run_fails_its_job() {
    let row = launched("/etc/passwd {id}", &[]);
    assert_eq!((row.result.as_deref(), row.code, row.sig), (Some("fail"), None, None));
    assert!(row.stderr.unwrap().starts_with("spawn /etc/passwd EACCES\n"));
}

#[test]
fn a_manual_job_that_cannot_start_is_still_among_the_jobs() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("launcher", "/nowhere/program {id}"));
    let id = home.manual("low", "");
    let told = worker.client().ask("run-manual", json!({"ids": [id]}));
    let job = &told["jobs"][id.to_string()];
    assert_eq!(job["result"], "fail");
    assert!(job["code"].is_null() && job["signal"].is_null(), "{job}");
    assert!(job["stderr"].as_str().unwrap().starts_with("spawn /nowhere/program ENOENT\n"));
    assert_eq!(told.get("errors"), None);
}

#[test]
fn standard_input_is_open_and_silent() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    // Until the signal comes, reading returns neither data nor the end of the input.
    let id = home.waiting("low", &format!("touch {}/reads\ncat", home.folder().display()));
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    until("it reads", || home.path("reads").exists());
    let other = home.waiting("low", "echo x");
    client.ok("poll", Value::Null);
    home.done(other);
    assert_eq!(home.base.status(id), "running");
    client.ask("send-signal", json!({"jobs": {id.to_string(): "SIGKILL"}}));
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGKILL"));
}

#[test]
fn a_grandchild_in_the_background_holds_nothing_and_harms_nobody() {
    let home = Home::new();
    let mut worker = home.worker(&home.conf());
    let gate = home.gated("late");
    let id = home.waiting("low", &format!("( {gate} echo afterwards ) & echo now"));
    worker.client().ok("poll", Value::Null);
    home.began("late");
    let row = home.done(id);
    assert_eq!((row.result.as_deref(), row.code), (Some("ok"), Some(0)));
    assert!(row.stdout.unwrap().starts_with("now\n"));
    home.open("late");
    let next = home.waiting("low", "echo next");
    worker.client().ok("poll", Value::Null);
    home.done(next);
    assert!(worker.alive());
}

#[test]
fn a_signal_goes_to_the_direct_child_only() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let gate = home.gated("grandchild");
    let mark = home.path("survived").display().to_string();
    let script = format!("sh -c '{}' &\n{}", gate.replace('\n', ";") + "touch " + &mark, {
        home.gated("child")
    });
    let script = script.replace(";;", ";");
    let id = home.waiting("low", &script);
    let mut client = worker.client();
    client.ok("poll", Value::Null);
    home.began("child");
    home.began("grandchild");
    let key = id.to_string();
    assert_eq!(client.ask("send-signal", json!({"jobs": {&key: 9}})), json!({&key: true}));
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGKILL"));
    home.open("grandchild");
    until("the grandchild goes on", || home.path("survived").exists());
}

#[test]
fn a_time_limit_ends_a_job_with_everything_it_started_and_says_so() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("time_limit", 1));
    let script =
        format!("echo begun\nsleep 600 &\necho $! > {}/inner\nwait", { home.folder().display() });
    let id = home.waiting("low", &script);
    worker.client().ok("poll", Value::Null);
    let row = home.done(id);
    assert_eq!(row.result.as_deref(), Some("fail"));
    assert!(row.stdout.unwrap().starts_with("begun\n"));
    let reason = row.stderr.unwrap().to_lowercase();
    assert!(reason.contains("time"), "a reason: {reason}");
    let inner = home.lines("inner")[0].clone();
    until("what it started is gone", || {
        let state = fs::read_to_string(format!("/proc/{inner}/stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
    let quick = home.waiting("low", "echo quick");
    worker.client().ok("poll", Value::Null);
    assert_eq!(home.done(quick).result.as_deref(), Some("ok"));
}
