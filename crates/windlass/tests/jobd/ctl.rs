//! The command line: section 7 of the contract, and its new commands.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Client, Daemon, Ended, Home, free_port, program, run, until};

fn ctl(port: u16, arguments: &[&str]) -> Ended {
    let mut command = program("jobctl");
    command.args(["--port", &port.to_string()]).args(arguments);
    run(command, "")
}

fn ctl_master(port: u16, arguments: &[&str]) -> Ended {
    let mut command = program("jobctl");
    command.args(["--master", "--port", &port.to_string()]).args(arguments);
    run(command, "")
}

/// A line of the log: ANSI colour around `ERROR [jobctl]`, then the text.
fn check_error(ended: &Ended, text: &str) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = ended.stdout.trim_end();
    assert!(line.ends_with(&format!(" {text}")), "{ended:?}");
    let mark = line.strip_suffix(&format!(" {text}")).unwrap();
    assert!(mark.contains("ERROR [jobctl]") && mark.contains('\u{1b}'), "{mark:?}");
    assert_eq!(plain(mark), "ERROR [jobctl]");
}

/// Without its colours.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut pieces = text.split('\u{1b}');
    plain.push_str(pieces.next().unwrap());
    for piece in pieces {
        plain.push_str(piece.split_once('m').unwrap().1);
    }
    plain
}

fn check_ok(ended: &Ended) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ok\n"), "{ended:?}");
}

fn register(master: &Daemon, name: &str, targets: &[&str]) -> Client {
    let mut worker = master.client();
    worker.ok("register-worker", json!({"name": name, "targets": targets}));
    worker
}

/// Answers one request for its status.
fn tell_status(worker: &mut Client, targets: &[(&str, u32)]) {
    let asked = worker.receive_json();
    assert_eq!(asked[1]["type"], "status");
    let targets: serde_json::Map<String, Value> = targets
        .iter()
        .map(|(name, n)| {
            ((*name).to_owned(), json!({"paused": false, "concurrency": n, "length": 0}))
        })
        .collect();
    let data = json!({"targets": targets, "jobPromisesCount": 0, "memoryUsage": {"rss": 1}});
    worker.send_json(&json!([1, {"no": asked[1]["no"], "data": data}]));
}

#[test]
fn list_targets_prints_a_table() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    worker.client().ok("pause", json!({"targets": ["1/high"]}));
    let ended = ctl(worker.port(), &["list-targets"]);
    let wanted = "\
TARGET | CONCURRENCY | LENGTH | PAUSED
------ | ----------- | ------ | ------
low    | 2           | 0      | no    \n\
1/high | 3           | 0      | yes   \n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), wanted));
}

#[test]
fn list_workers_prints_a_table_of_many_lines_a_row() {
    let home = Home::new();
    let master = home.master(&home.master_conf());
    let mut one = register(&master, "srv-1", &["a", "b"]);
    let mut two = register(&master, "srv-2-long-name", &["a"]);
    let port = master.port();
    let asking = std::thread::spawn(move || ctl_master(port, &["list-workers"]));
    tell_status(&mut one, &[("a", 2), ("b", 3)]);
    tell_status(&mut two, &[("a", 2)]);
    let ended = asking.join().unwrap();
    let wanted = "\
WORKER          | TARGETS | CONCURRENCY | LENGTH | PAUSED
--------------- | ------- | ----------- | ------ | ------
srv-1           | a       | 2           | 0      | no    \n\
(127.0.0.1)     | b       | 3           | 0      | no    \n\
srv-2-long-name | a       | 2           | 0      | no    \n\
(127.0.0.1)     |         |             |        |       \n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), wanted));
}

#[test]
fn memory_usage_prints_what_status_tells() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let master = home.master(&home.master_conf());
    let keys = ["rss", "heapTotal", "heapUsed", "external", "arrayBuffers"];
    for (ended, more) in [
        (ctl(worker.port(), &["memory-usage"]), true),
        (ctl_master(master.port(), &["memory-usage"]), false),
    ] {
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let rows: Vec<Vec<&str>> =
            ended.stdout.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[0], ["WHAT", "VALUE"]);
        let names: Vec<&str> = rows[2..].iter().map(|row| row[0]).collect();
        assert_eq!(names.contains(&"pendingJobPromises"), more, "{names:?}");
        assert!(keys.iter().all(|key| names.contains(key)), "{names:?}");
    }
}

#[test]
fn actions_of_a_worker_print_ok() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let port = worker.port();
    let id = home.waiting("low", "echo x");
    check_ok(&ctl(port, &["poll", "low"]));
    home.done(id);
    check_ok(&ctl(port, &["pause", "low", "1/high"]));
    let status = worker.client().ask("status", Value::Null);
    assert_eq!(status["targets"]["1/high"]["paused"], true);
    check_ok(&ctl(port, &["continue", "1/high"]));
    check_ok(&ctl(port, &["set-target-concurrency", "low", "7"]));
    let status = worker.client().ask("status", Value::Null);
    assert_eq!(status["targets"]["1/high"]["paused"], false);
    assert_eq!(status["targets"]["low"]["concurrency"], 7);
}

#[test]
fn actions_of_a_master_print_ok() {
    let home = Home::new();
    let master = home.master(&home.master_conf());
    let conf = home.conf().set("master_host", "127.0.0.1").set("master_port", master.port());
    let _worker = home.worker(&conf);
    let mut client = master.client();
    until("it is registered", || {
        client.ask("status", Value::Null)["workers"].as_array().unwrap().len() == 1
    });
    let id = home.waiting("low", "echo x");
    check_ok(&ctl_master(master.port(), &["poke", "low"]));
    home.done(id);
    check_ok(&ctl_master(master.port(), &["pause", "low"]));
    check_ok(&ctl_master(master.port(), &["continue", "low"]));
}

#[test]
fn wrong_arguments_are_told_with_exit_code_1() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let master = home.master(&home.master_conf());
    for command in ["poll", "pause", "continue"] {
        check_error(&ctl(worker.port(), &[command]), "No targets specified.");
    }
    for command in ["poke", "pause", "continue"] {
        check_error(&ctl_master(master.port(), &[command]), "No targets specified.");
    }
    for arguments in [&["set-target-concurrency"][..], &["set-target-concurrency", "low"]] {
        check_error(&ctl(worker.port(), arguments), "Invalid number of arguments.");
    }
    let three = ["set-target-concurrency", "low", "1", "2"];
    check_error(&ctl(worker.port(), &three), "Invalid number of arguments.");
    let word = ["set-target-concurrency", "low", "many"];
    check_error(&ctl(worker.port(), &word), "'concurrency' must be a number.");
}

#[test]
fn what_the_server_refuses_is_told_with_exit_code_1() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let told = ctl(worker.port(), &["poll", "nobody"]);
    check_error(&told, "Worker error: invalid target 'nobody'");
    let told = ctl(worker.port(), &["set-target-concurrency", "nobody", "1"]);
    check_error(&told, "Worker error: target 'nobody' not found");
    // Options after the command are arguments.
    let told = ctl(worker.port(), &["poll", "--master"]);
    check_error(&told, "Worker error: invalid target '--master'");
}

#[test]
fn unsupported_commands_are_named() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let master = home.master(&home.master_conf());
    for (ended, name) in [
        (ctl(worker.port(), &["nonsense"]), "nonsense"),
        (ctl(worker.port(), &["list-workers"]), "list-workers"),
        (ctl(worker.port(), &["poke", "low"]), "poke"),
        (ctl_master(master.port(), &["list-targets"]), "list-targets"),
        (ctl_master(master.port(), &["poll", "low"]), "poll"),
        (ctl(worker.port(), &["toString"]), "toString"),
    ] {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let told = ended.stdout + &ended.stderr;
        assert!(told.contains(&format!("Unsupported command: '{name}'")), "{told}");
    }
}

#[test]
fn a_server_that_is_not_there_is_a_connection_failure() {
    let ended = ctl(free_port(), &["list-targets"]);
    assert_eq!(ended.code, Some(1));
    assert!((ended.stdout + &ended.stderr).contains("Connection failure: "));
}

#[test]
fn a_server_that_leaves_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asking = std::thread::spawn(move || ctl(port, &["list-targets"]));
    let mut server = Client::accept(&listener);
    let request = server.receive();
    assert!(request.starts_with(r#"[0,{"no":"#), "{request}");
    assert!(request.ends_with(r#","type":"status"}]"#), "{request}");
    drop(server);
    check_error(&asking.join().unwrap(), "Socket is closed");
}

#[test]
fn bad_options_levels_and_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ctl.conf");
    fs::write(&file, "port = soon\n").unwrap();
    let file = file.display().to_string();
    let mut command = program("jobctl");
    command.args(["--config", &file, "list-targets"]);
    let ended = run(command, "");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("'port' must be an integer"));
    let ended = ctl(free_port(), &["--log-level", "loud", "list-targets"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("Level loud is not allowed."));
}

#[test]
fn the_password_is_asked_for() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", "secret"));
    let asked = |input: &str| {
        let mut command = program("jobctl");
        command.args(["--port", &worker.port().to_string(), "--password", "pause", "low"]);
        run(command, input)
    };
    let ended = asked("secret\n");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("Enter password: "), "{ended:?}");
    assert!(ended.stdout.ends_with("ok\n"), "{ended:?}");
    let ended = asked("wrong\n");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.ends_with("Worker error: invalid password\n"), "{ended:?}");
    let none = ctl(worker.port(), &["pause", "low"]);
    check_error(&none, "Worker error: invalid password");
}

#[test]
fn the_file_has_the_options_and_the_command_line_wins() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", "secret"));
    let master = home.master(&home.master_conf());
    let place = tempfile::tempdir().unwrap();
    let write = |text: String| fs::write(place.path().join(".jobctl.conf"), text).unwrap();
    let at_home = |arguments: &[&str]| {
        let mut command = program("jobctl");
        command.env("HOME", place.path()).args(arguments);
        run(command, "")
    };
    write(format!("host = 127.0.0.1\nport = {}\npassword = secret\n", worker.port()));
    check_ok(&at_home(&["pause", "low"]));
    write(format!("master = true\nport = {}\n", master.port()));
    check_ok(&at_home(&["pause", "low"]));
    write("port = 1\npassword = secret\n".into());
    let port = worker.port().to_string();
    check_ok(&at_home(&["--host", "127.0.0.1", "--port", &port, "continue", "low"]));
}

#[test]
fn the_new_commands_reach_everything_a_worker_can_do() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let port = worker.port();
    check_ok(&ctl(port, &["add-target", "new", "4"]));
    let told = ctl(port, &["add-target", "new", "4"]);
    check_error(&told, "Worker error: target 'new' already added");
    check_error(&ctl(port, &["add-target", "new"]), "Invalid number of arguments.");
    check_error(&ctl(port, &["add-target", "x", "y"]), "'concurrency' must be a number.");
    check_ok(&ctl(port, &["remove-target", "new"]));
    let told = ctl(port, &["remove-target", "new"]);
    check_error(&told, "Worker error: target 'new' not found");
    let good = home.manual("low", "echo from the job").to_string();
    let ended = ctl(port, &["run-manual", &good]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("from the job"), "{ended:?}");
    let bad = home.manual("low", "exit 3").to_string();
    assert_eq!(ctl(port, &["run-manual", &bad]).code, Some(1));
    assert_eq!(ctl(port, &["run-manual", "99"]).code, Some(1));
    let id = home.waiting("low", &home.gated("g"));
    worker.client().ok("poll", Value::Null);
    home.began("g");
    assert_eq!(ctl(port, &["send-signal", "SIGTERM", &id.to_string()]).code, Some(0));
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGTERM"));
    assert_eq!(ctl(port, &["send-signal", "15", "99"]).code, Some(1));
}

#[test]
fn the_new_commands_reach_a_worker_through_its_master() {
    let home = Home::new();
    let master = home.master(&home.master_conf());
    let conf = home.conf().set("master_host", "127.0.0.1").set("master_port", master.port());
    let worker = home.worker(&conf);
    let mut client = master.client();
    until("it is registered", || {
        client.ask("status", Value::Null)["workers"].as_array().unwrap().len() == 1
    });
    let manual = home.manual("low", "echo from the job").to_string();
    let ended = ctl_master(master.port(), &["run-manual", "low", &manual]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("from the job"), "{ended:?}");
    let id = home.waiting("low", &home.gated("g"));
    worker.client().ok("poll", Value::Null);
    home.began("g");
    let key = id.to_string();
    let ended = ctl_master(master.port(), &["send-signal", "SIGKILL", "low", &key]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(home.done(id).sig.as_deref(), Some("SIGKILL"));
    let ended = ctl_master(master.port(), &["run-manual", "nobody", "5"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
}

#[test]
fn json_is_printed_for_programs() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let json = |arguments: &[&str]| {
        let ended = ctl(worker.port(), &[&["--json"], arguments].concat());
        let value: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (ended.code, value)
    };
    let (code, listed) = json(&["list-targets"]);
    assert_eq!(code, Some(0));
    assert!(listed.to_string().contains("\"low\""), "{listed}");
    assert_eq!(json(&["pause", "low"]), (Some(0), json!("ok")));
    let refused = (Some(1), json!({"error": "invalid target 'x'"}));
    let (code, told) = json(&["poll", "x"]);
    assert_eq!(code, refused.0);
    assert!(told["error"].as_str().unwrap().contains("invalid target 'x'"), "{told}");
}
