//! `windlass run`: a file becomes a handler, its jobs are added and followed to their end.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use windlass_test_kit::process::Begun;

use crate::harness::{Config, Daemon, Finished, run, until, windlass};

fn command(daemon: &Daemon, file: &Path, arguments: &[&str]) -> Command {
    let mut command = windlass();
    command.args(["--url", &format!("http://{}", daemon.address), "run"]);
    command.arg(file).args(arguments);
    command
}

/// Runs a file of this name and text.
fn run_file(daemon: &Daemon, name: &str, text: &str, arguments: &[&str]) -> Finished {
    let file = daemon.home().write(name, text);
    run(&mut command(daemon, &file, arguments), b"")
}

#[test]
fn a_file_is_set_its_job_is_run_and_its_output_shown() {
    let daemon = Daemon::start(Config::new());
    let text = "echo \"hello, $(cat)\"; echo careful >&2\n";
    let finished = run_file(&daemon, "hello.sh", text, &["--payload", "world"]);
    assert!(finished.stderr.contains("careful"), "{finished:?}");
    assert_eq!(finished.ok(), "hello, world\n");
    let handler = daemon.tenant("default").get("handlers/hello").expect(200).json();
    assert_eq!((&handler["lang"], &handler["body"]), (&"sh".into(), &text.into()));
}

#[test]
fn a_handler_that_is_in_force_keeps_its_version() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("acme");
    let text = "# windlass: timeout=60s retry.attempts=2 env.A=b\ntrue\n";
    let arguments = ["--tenant", "acme", "--type", "t", "--payload", "x"];
    let version = || tenant.get("handlers/t").expect(200).json()["id"].clone();
    run_file(&daemon, "a.sh", text, &arguments).ok();
    let first = version();
    run_file(&daemon, "a.sh", text, &arguments).ok();
    assert_eq!(version(), first);
    run_file(&daemon, "a.sh", &text.replace("60s", "61s"), &arguments).ok();
    assert_ne!(version(), first);
}

#[test]
fn lines_of_standard_input_are_jobs_and_their_output_is_told_apart() {
    let daemon = Daemon::start(Config::new());
    let file = daemon.home().write("shout.sh", "tr a-z A-Z; echo\n");
    let out = run(&mut command(&daemon, &file, &[]), b"one\n\ntwo\r\nthree").ok();
    let mut lines: Vec<&str> = out.lines().filter(|line| !line.ends_with("] ")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[1] ONE", "[2] TWO", "[3] THREE"]);
    let none = run(&mut command(&daemon, &file, &[]), b"");
    assert!(none.stderr.contains("no lines"), "{none:?}");
    assert_eq!(none.ok(), "");
    assert_eq!(daemon.tenant("default").list("type=shout").len(), 3);
}

#[test]
fn the_worst_outcome_decides_and_each_failure_is_one_sentence() {
    let daemon = Daemon::start(Config::new());
    let text = "# windlass: retry.attempts=2 retry.delay=1ms\nexit \"$(cat)\"\n";
    let payloads = |all: &[&str]| -> Vec<String> {
        all.iter().flat_map(|one| ["--payload".into(), (*one).to_owned()]).collect()
    };
    let run_with = |all: &[&str]| {
        let arguments = payloads(all);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run_file(&daemon, "exit.sh", text, &arguments)
    };
    run_with(&["0", "0"]).ok();
    let one = run_with(&["65"]);
    assert_eq!(one.code, Some(1));
    assert!(one.stderr.ends_with("failed with 400\n"), "{one:?}");
    let some = run_with(&["0", "65", "1"]);
    assert_eq!(some.code, Some(1));
    let said = |what: &str| some.stderr.lines().filter(|line| line.contains(what)).count();
    assert_eq!(said("failed with 400"), 1, "{some:?}");
    assert_eq!(said("[3] job") + said("failed with 500, after 2 attempts"), 2, "{some:?}");
    assert!(some.stderr.ends_with("windlass: 2 of 3 jobs did not succeed\n"), "{some:?}");
}

#[test]
fn with_json_each_ended_job_is_one_line() {
    let daemon = Daemon::start(Config::new());
    let text = "echo noise; exit \"$(cat)\"\n";
    let arguments = ["--json", "--payload", "0", "--payload", "65"];
    let finished = run_file(&daemon, "exit.sh", text, &arguments);
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert!(finished.stderr.contains("noise"), "{finished:?}");
    let jobs: Vec<Value> =
        finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut codes: Vec<_> = jobs.iter().map(|job| job["exitcode"].as_u64().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 400]);
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_line_and_nothing_is_set() {
    let daemon = Daemon::start(Config::new());
    let wrong = run_file(&daemon, "a.sh", "#!/bin/sh\n# windlass: timeot=3s\n", &["--payload", ""]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("a.sh:2: ") && wrong.stderr.contains("timeout"), "{wrong:?}");
    let unknown = run_file(&daemon, "a.txt", "true\n", &["--payload", ""]);
    assert_eq!(unknown.code, Some(2));
    for ending in [".js", ".py", ".php", ".sh"] {
        assert!(unknown.stderr.contains(ending), "{unknown:?}");
    }
    let absent = run(&mut command(&daemon, Path::new("no-such.sh"), &["--payload", ""]), b"");
    assert!(absent.code == Some(1) && absent.stderr.contains("no-such.sh"), "{absent:?}");
    assert!(daemon.tenant("default").get("handlers").expect(200).json() == Value::Array(vec![]));
}

#[test]
fn parts_of_a_file_and_flags_reach_the_handler() {
    let daemon = Daemon::start(Config::new());
    let text = "# windlass: env.A=1 env.B=2\necho \"$A $B $WINDLASS_TYPE\"\n";
    let arguments = ["--type", "named", "--env", "B=3", "--payload", ""];
    assert_eq!(run_file(&daemon, "env.sh", text, &arguments).ok(), "1 3 named\n");
    let file = daemon.home().write("env.sh", text);
    let mut set = windlass();
    set.args(["--url", &format!("http://{}", daemon.address), "handler", "set", "other"]);
    run(set.arg(&file).args(["--timeout", "5s"]), b"").ok();
    let options = &daemon.tenant("default").get("handlers/other").expect(200).json()["options"];
    assert_eq!((&options["env"]["B"], &options["timeout"]), (&"2".into(), &"5s".into()));
}

#[test]
fn without_a_daemon_the_sentence_says_how_to_start_one() {
    let home = Config::new().home;
    let file = home.write("hello.sh", "true\n");
    // Nothing listens on port 1 of this machine.
    let mut command = windlass();
    command.args(["--url", "http://127.0.0.1:1", "run"]).arg(&file).args(["--payload", "x"]);
    let finished = run(&mut command, b"");
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("windlass serve"), "{finished:?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:?}");
}

#[test]
fn lines_are_shown_while_the_job_runs() {
    let daemon = Daemon::start(Config::new());
    let hold = daemon.home().write("hold", "");
    let hold = hold.display();
    let sh = format!("echo first; echo second >&2; while [ -e '{hold}' ]; do sleep 0.05; done");
    let node = format!(
        "console.log('first'); console.error('second')
         while (require('fs').existsSync('{hold}')) await new Promise(r => setTimeout(r, 50))"
    );
    let files = [("slow.sh", sh), ("slow.js", node)]
        .map(|(name, text)| (name, daemon.home().write(name, text)));
    let runs = files.map(|(name, file)| {
        let arguments = ["--type", name, "--payload", "x"];
        let child = Begun::new(&mut command(&daemon, &file, &arguments), "");
        let said = || (child.stdout(), child.stderr());
        let both = |said: &(String, String)| said.0.contains('\n') && said.1.contains('\n');
        let (out, err) = until("both lines are shown", said, both);
        assert_eq!((out.as_str(), err.as_str()), ("first\n", "second\n"), "{name}");
        assert_eq!(daemon.tenant("default").list(&format!("type={name}&state=running")).len(), 1);
        child
    });
    std::fs::remove_file(daemon.home().path("hold")).unwrap();
    for child in runs {
        let ended = child.ended();
        assert!(ended.code == Some(0) && ended.stdout == "first\n", "{ended:?}");
    }
}

#[test]
fn ctrl_c_leaves_the_jobs_running() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("default");
    let hold = daemon.home().holder("ran", "hold");
    let file = daemon.home().write("slow.sh", hold);
    let mut command = command(&daemon, &file, &["--payload", "x"]);
    let child = Begun::new(&mut command, "");
    until("the job runs", || daemon.home().lines("ran").len(), |lines| *lines == 1);
    child.signal(Signal::INT);
    let ended = child.ended();
    assert_eq!(ended.code, Some(130));
    assert!(ended.stderr.contains("windlass jobs list --type slow"), "{ended:?}");
    let running = tenant.list("type=slow&state=running");
    assert_eq!(running.len(), 1);
    std::fs::remove_file(daemon.home().path("hold")).unwrap();
    tenant.until_state(running[0]["id"].as_str().unwrap(), "finished");
}

#[test]
fn progress_is_shown_while_a_job_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("default");
    // A pull worker is faster than the handler, which is suspended.
    tenant.client.post("/v1/control/stop").expect(200);
    let file = daemon.home().write("slow.sh", "true\n");
    let mut command = command(&daemon, &file, &["--payload", "x"]);
    let child = Begun::new(&mut command, "");
    let job = tenant.until_claimed("slow", "30s");
    let id = job["id"].as_str().unwrap();
    let report = serde_json::json!({"token": job["token"], "percent": 40, "message": "nearly"});
    tenant.post_json(&format!("jobs/{id}/progress"), &report).expect(200);
    tenant.finish(&job, 200).expect(200);
    let ended = child.ended();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("40 % nearly"), "{ended:?}");
}
