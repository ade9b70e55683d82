//! Handlers in processes: what they see, how they end, how they are stopped.

use std::fs;

use serde_json::json;

use crate::harness::{Config, Daemon, OWN_NS, field, is_alive, until};

#[test]
fn sh_sees_the_payload_and_the_jobs_name() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let file = daemon.home().path("seen");
    tenant.sh(
        "a%2Fb",
        &format!(
            "echo \"$WINDLASS_JOB_ID $WINDLASS_TENANT $WINDLASS_TYPE $WINDLASS_ATTEMPT $(cat)\" \
             >> '{}'",
            file.display()
        ),
    );
    let id = tenant.add_one("a%2Fb", "the payload");
    tenant.until_state(&id, "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{id} a a/b 1 the payload")]);
}

#[test]
fn exec_splits_its_command_line_without_a_shell() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let script = daemon.home().write("script", "#!/bin/sh\nprintf '%s\\n' \"$@\"; cat\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    let body = format!("{} 'two words' $HOME \"a b\" c\\ d *", script.display());
    tenant.handler("t", &json!({"lang": "exec", "body": body}));
    let id = tenant.add_one("t", "payload");
    tenant.until_state(&id, "finished");
    let log = tenant.log(&id);
    for word in ["two words", "$HOME", "a b", "c d", "*", "payload"] {
        assert!(log.lines().any(|line| line.ends_with(word)), "{word:?} in {log}");
    }
}

#[test]
fn environment_of_a_handler_has_its_options_and_not_the_daemons_settings() {
    let config = Config::new();
    let mut command = config.command();
    command.env("WINDLASS_LOG_LEVEL", "info").env("DAEMON_SECRET", "of-the-operator");
    let daemon = Daemon::start_command(config, &mut command);
    let tenant = daemon.tenant("a");
    let out = daemon.home().path("env");
    let body = format!("env > '{}'", out.display());
    let options = json!({"env": {"COLOUR": "deep blue"}});
    tenant.handler("t", &json!({"lang": "sh", "body": body, "options": options}));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let env = fs::read_to_string(out).unwrap();
    assert!(env.lines().any(|line| line == "COLOUR=deep blue"), "{env}");
    assert!(env.lines().any(|line| line == format!("WINDLASS_JOB_ID={id}")), "{env}");
    assert!(!env.contains("WINDLASS_LOG_LEVEL"), "{env}");
}

#[test]
fn a_newer_handler_is_in_force_for_jobs_that_start_later() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("old", "hold"));
    let first = tenant.add_one("t", "x");
    until("the old one runs", || daemon.home().lines("old").len(), |n| *n == 1);
    tenant.sh("t", &daemon.home().recorder("new"));
    let second = tenant.add_one("t", "y");
    tenant.until_state(&second, "finished");
    assert_eq!(tenant.job(&first)["state"], "running", "running jobs go on with theirs");
    daemon.home().let_go("hold");
    tenant.until_state(&first, "finished");
    assert_eq!(daemon.home().lines("old"), [format!("{first} x")]);
    assert_eq!(daemon.home().lines("new"), [format!("{second} y")]);
}

#[test]
fn s0_57_every_end_carries_the_jobs_own_duration() {
    const JOBS: usize = 5;
    let daemon = Daemon::start(Config::new().one_slot());
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    tenant.sh("t", "sleep 0.1");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    tenant.add("t", &payloads);
    daemon.start_picking();
    tenant.until_count("t", "finished", JOBS);
    let ends = until("all ends are logged", || daemon.log.events("job_ended"), |e| e.len() == JOBS);
    for end in ends {
        let run = field(&end, "run_ms").as_f64().unwrap_or_else(|| panic!("no run_ms in {end}"));
        assert!(run >= 99.0, "each job slept a tenth of a second: {end}");
        assert!(field(&end, "wait_ms").is_number(), "{end}");
    }
}

#[test]
fn s0_57_and_s2_30_a_hung_job_is_killed_with_its_children_and_tried_again() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    let pids = daemon.home().path("pids");
    let body = format!(
        "{OWN_NS}; (sleep 600 & echo $NS/$! >> '{0}'; wait) &
         sleep 600 & echo $NS/$! $NS/$$ >> '{0}'; wait",
        pids.display()
    );
    let options = json!({"timeout": "3s"});
    tenant.handler("t", &json!({"lang": "sh", "body": body, "options": options}));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "failed");
    assert_eq!(
        (&job["attempt"], &job["code"], &job["exitcode"]),
        (&json!(2), &json!("error"), &json!(500))
    );
    let log = tenant.log(&id);
    assert_eq!(log.matches("timed out").count(), 2, "{log}");
    let lines = daemon.home().lines("pids");
    assert_eq!(lines.len(), 4, "{lines:?}");
    for pid in lines.iter().flat_map(|line| line.split(' ')) {
        until("the process is gone", || is_alive(pid), |alive| !alive);
    }
    let next = tenant.add_one("u", "x");
    tenant.sh("u", "true");
    tenant.until_state(&next, "finished");
}

#[test]
fn s0_57_the_default_limit_of_an_attempt_comes_from_the_configuration() {
    let config = Config::new().set("job.timeout", "\"700ms\"").set("retry.attempts", "1");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "failed");
    assert!(tenant.log(&id).contains("timed out"));
}

#[test]
fn s2_5_deaths_of_handlers_cost_only_the_job_that_died() {
    const JOBS: usize = 30;
    let daemon = Daemon::start(Config::new().set("scheduler.slots", "3"));
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let body = format!(
        "{}; [ $WINDLASS_ATTEMPT = 1 ] || exit 0; case $WINDLASS_JOB_ID in \
         *[03]) kill -9 $$;; *[14]) kill -SEGV $$;; *2) exit 0;; esac",
        daemon.home().recorder("seen")
    );
    tenant.sh("t", &body);
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    daemon.start_picking();
    for id in &ids {
        let job = tenant.until_state(id, "finished");
        let died = id.ends_with(['0', '3', '1', '4']);
        assert_eq!(job["attempt"], if died { 2 } else { 1 }, "{job}");
    }
}

#[test]
fn a_handler_that_does_not_read_its_payload_is_not_stuck() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "exec 0<&-; echo done");
    let payload = "x".repeat(500_000);
    let id = tenant.add_one("t", &payload);
    assert_eq!(tenant.until_state(&id, "finished")["code"], "ok");
}

#[test]
fn a_program_that_is_not_there_is_an_error_of_the_job() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let path = tenant.path("handlers/t");
    let body = json!({"lang": "exec", "body": "/nowhere/no-such-program --flag"});
    let answer = daemon.send_json("PUT", &path, &body);
    if answer.status == 200 {
        let id = tenant.add_one("t", "x");
        let job = tenant.until_state(&id, "failed");
        assert_eq!(job["code"], "error");
        assert!(tenant.log(&id).contains("no-such-program"), "{}", tenant.log(&id));
    } else {
        assert!(answer.text().contains("no-such-program"), "{}", answer.text());
    }
}

#[test]
fn a_script_of_any_length_runs() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let filler = format!("# {}\n", "x".repeat(98)).repeat(4000);
    tenant.sh("t", &format!("{filler}{}", daemon.home().recorder("seen")));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    assert_eq!(daemon.home().lines("seen"), [format!("{id} x")]);
}

#[test]
fn a_child_left_in_the_background_does_not_hold_its_job() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let pid = daemon.home().path("pid");
    tenant.sh("t", &format!("{OWN_NS}; sleep 600 & echo $NS/$! > '{}'; exit 0", pid.display()));
    let id = tenant.add_one("t", "x");
    assert_eq!(tenant.until_state(&id, "finished")["attempt"], 1);
    let pid = daemon.home().lines("pid").remove(0);
    until("the child is gone with its job", || is_alive(&pid), |alive| !alive);
}

#[test]
fn contexts_is_the_most_processes_of_a_handler_at_once() {
    const JOBS: usize = 10;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let marks = daemon.home().path("marks");
    let body = format!("echo + >> '{0}'; sleep 0.05; echo - >> '{0}'", marks.display());
    let options = json!({"contexts": 1});
    tenant.handler("t", &json!({"lang": "sh", "body": body, "options": options}));
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    tenant.until_all(&ids, "finished");
    let marks = daemon.home().lines("marks").concat();
    assert_eq!(marks, "+-".repeat(JOBS));
}

/// Ended jobs are settled at once, so that a crash costs only what really runs.
#[test]
fn s2_5_jobs_of_a_batch_are_settled_while_the_rest_of_it_still_runs() {
    let daemon = Daemon::start(Config::new().one_slot());
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let hold = daemon.home().write("hold", "");
    let wait = format!("while [ -e '{}' ]; do sleep 0.05; done", hold.display());
    tenant.sh("t", &format!("[ \"$(cat)\" != hang ] || {wait}"));
    let ids = tenant.add("t", &["1", "2", "3", "4", "hang", "6"]);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 6);
    daemon.start_picking();
    tenant.until_all(&ids[..4], "finished");
    assert_eq!(tenant.job(&ids[4])["finished_at"], json!(null));
    daemon.home().let_go("hold");
    tenant.until_all(&ids, "finished");
}
