//! The command line against a running daemon: for people and, with `--json`, for programs.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Finished, run, text, until, windlass};

/// `windlass --url … --tenant a <arguments>`, with `input` on standard input.
fn cli_with(daemon: &Daemon, arguments: &[&str], input: &str) -> Finished {
    run(&mut command(daemon, arguments), input.as_bytes())
}

fn cli(daemon: &Daemon, arguments: &[&str]) -> Finished {
    cli_with(daemon, arguments, "")
}

fn command(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = windlass();
    command.args(arguments);
    command.args(["--url", &format!("http://{}", daemon.address), "--tenant", "a"]);
    command
}

/// All digit sequences in the output that are job ids.
fn ids_in(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_digit());
    words.filter(|word| word.len() >= 15).map(str::to_owned).collect()
}

#[track_caller]
fn assert_refused(finished: &Finished) {
    assert_eq!(finished.code, Some(1), "{finished:?}");
    assert_eq!(finished.stderr.trim().lines().count(), 1, "one sentence: {finished:?}");
}

#[test]
fn add_takes_payloads_as_arguments_or_lines() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let ids = ids_in(&cli(&daemon, &["add", "t", "first payload", "second"]).ok());
    assert_eq!(ids.len(), 2);
    let payload = |id: &str| tenant.get(&format!("jobs/{id}/payload")).expect(200).text();
    assert_eq!([payload(&ids[0]), payload(&ids[1])], ["first payload", "second"]);
    let ids = ids_in(&cli_with(&daemon, &["add", "t"], "one\ntwo\nthree").ok());
    assert_eq!(ids.len(), 3);
    assert_eq!(payload(&ids[2]), "three");
    let json = cli(&daemon, &["add", "t", "x", "--json"]).json();
    assert_eq!(json["ids"].as_array().map(Vec::len), Some(1), "{json}");
    assert_eq!(tenant.list("type=t").len(), 6);
    assert_refused(&cli(&daemon, &["add", "a|b", "x"]));
}

#[test]
fn handlers_are_set_shown_listed_and_removed() {
    let daemon = Daemon::start(Config::new());
    let script = daemon.home().write("hello.sh", "echo hello\n");
    let script = script.to_str().unwrap();
    cli(&daemon, &["handler", "set", "t", script]).ok();
    let shown = cli(&daemon, &["handler", "get", "t"]).ok();
    assert!(shown.contains("echo hello"), "{shown}");
    let json = cli(&daemon, &["handler", "get", "t", "--json"]).json();
    assert_eq!((&json["lang"], &json["body"]), (&json!("sh"), &json!("echo hello\n")));
    let plain = daemon.home().write("plain", "true");
    cli(&daemon, &["handler", "set", "u", plain.to_str().unwrap(), "--lang", "sh"]).ok();
    let listed = cli(&daemon, &["handler", "list"]).ok();
    assert!(listed.contains('t') && listed.contains('u') && listed.contains("sh"), "{listed}");
    let json = cli(&daemon, &["handler", "list", "--json"]).json();
    assert!(json.to_string().contains("\"u\""), "{json}");
    cli(&daemon, &["handler", "rm", "t"]).ok();
    assert_refused(&cli(&daemon, &["handler", "rm", "t"]));
    assert_refused(&cli(&daemon, &["handler", "get", "t"]));
    assert_refused(&cli(&daemon, &["handler", "set", "t", "/nowhere/missing.sh"]));
}

#[test]
fn jobs_are_listed_and_shown() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let ids = tenant.add("t", &["x", "y", "z"]);
    tenant.add_one("other", "x");
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 3);
    let all = cli(&daemon, &["jobs", "list"]).ok();
    assert!(ids.iter().all(|id| all.contains(id)) && all.contains("other"), "{all}");
    let some = cli(&daemon, &["jobs", "list", "--type", "t", "--limit", "2", "--json"]).json();
    let rows = some["jobs"].as_array().unwrap_or_else(|| panic!("{some}"));
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["id"], ids[2].as_str(), "newest first");
    let none = cli(&daemon, &["jobs", "list", "--state", "finished", "--json"]).json();
    assert_eq!(none["jobs"], json!([]));
    let shown = cli(&daemon, &["jobs", "show", &ids[0]]).ok();
    assert!(shown.contains(&ids[0]) && shown.contains("queued"), "{shown}");
    let json = cli(&daemon, &["jobs", "show", &ids[0], "--json"]).json();
    assert_eq!((&json["id"], &json["state"]), (&json!(ids[0]), &json!("queued")));
    assert_refused(&cli(&daemon, &["jobs", "show", "123456789"]));
    assert_eq!(cli(&daemon, &["jobs", "list", "--state", "odd"]).code, Some(2));
}

#[test]
fn the_log_of_a_job_is_printed_and_followed() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("echo printed; {}", daemon.home().holder("seen", "hold")));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "running");
    let following = {
        let mut command = command(&daemon, &["jobs", "log", &id, "--follow"]);
        std::thread::spawn(move || run(&mut command, b""))
    };
    daemon.home().let_go("hold");
    tenant.until_state(&id, "finished");
    assert!(following.join().unwrap().ok().contains("printed"));
    assert!(cli(&daemon, &["jobs", "log", &id]).ok().contains("printed"));
    assert_refused(&cli(&daemon, &["jobs", "log", "123456789"]));
}

#[test]
fn jobs_are_cancelled_retried_removed_and_requeued() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let ids = tenant.add("t", &["x", "y", "z"]);
    cli(&daemon, &["jobs", "cancel", &ids[0], &ids[1]]).ok();
    assert_eq!(tenant.job(&ids[0])["state"], "cancelled");
    assert_eq!(tenant.job(&ids[1])["state"], "cancelled");
    assert_refused(&cli(&daemon, &["jobs", "cancel", &ids[0]]));
    cli(&daemon, &["jobs", "retry", &ids[0]]).ok();
    assert_eq!(tenant.job(&ids[0])["state"], "queued");
    assert_refused(&cli(&daemon, &["jobs", "retry", &ids[2]]));
    cli(&daemon, &["jobs", "rm", &ids[1]]).ok();
    tenant.get(&format!("jobs/{}", ids[1])).expect(404);
    assert_refused(&cli(&daemon, &["jobs", "rm", &ids[1]]));
    for job in tenant.drain("t", 2) {
        assert!(ids.contains(&text(&job["id"])));
    }
    let id = tenant.add_one("t", "bad");
    let job = tenant.until_claimed("t", "60s");
    tenant.finish(&job, 400).expect(200);
    tenant.until_state(&id, "failed");
    let said = cli(&daemon, &["jobs", "requeue", "t", "--state", "failed"]).ok();
    assert!(said.contains('1'), "{said}");
    let json = cli(&daemon, &["jobs", "requeue", "t", "--state", "finished", "--json"]).json();
    assert_eq!(json["requeued"], 2, "{json}");
    assert_eq!(tenant.drain("t", 3).len(), 3);
}

#[test]
fn types_are_listed_suspended_and_resumed() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.add("some-type", &["x", "y"]);
    until("all are in the store", || tenant.type_row("some-type"), |row| row["ready"] == 2);
    let listed = cli(&daemon, &["types", "list"]).ok();
    assert!(listed.contains("some-type"), "{listed}");
    cli(&daemon, &["types", "suspend", "some-type"]).ok();
    assert_eq!(tenant.type_row("some-type")["suspended"], true);
    assert!(tenant.claim("some-type", 1, "60s").is_empty());
    cli(&daemon, &["types", "resume", "some-type"]).ok();
    let json = cli(&daemon, &["types", "list", "--json"]).json();
    let rows = json.as_array().unwrap_or_else(|| panic!("{json}"));
    assert_eq!((&rows[0]["type"], &rows[0]["suspended"]), (&json!("some-type"), &json!(false)));
}

#[test]
fn settings_of_a_tenant_are_shown_and_changed() {
    let daemon = Daemon::start(Config::new());
    let show = || cli(&daemon, &["tenant", "show", "--json"]).json();
    let set = |flags: &[&str]| cli(&daemon, &[&["tenant", "set"], flags].concat());
    set(&["--weight", "3", "--slots-max", "8"]).ok();
    set(&["--slots-min", "2", "--slots-max", "default"]).ok();
    assert_eq!(show(), json!({"weight": 3, "slots_min": 2, "slots_max": null}));
    let shown = cli(&daemon, &["tenant", "show"]).ok();
    assert!(shown.contains("weight") && shown.contains("default"), "{shown}");
    assert_refused(&set(&["--slots-max", "1"]));
    for wrong in [&["--weight", "much"] as &[&str], &[]] {
        assert_eq!(set(wrong).code, Some(2), "{wrong:?}");
    }
    assert_eq!(show()["slots_max"], Value::Null, "nothing is changed by a refused one");
}

#[test]
fn status_shows_the_daemon() {
    let daemon = Daemon::start(Config::new());
    let shown = cli(&daemon, &["status"]).ok();
    assert!(shown.contains(&daemon.sysid().to_string()), "{shown}");
    let json = cli(&daemon, &["status", "--json"]).json();
    assert_eq!(json["sysid"], daemon.sysid());
}

#[test]
fn a_daemon_that_is_not_there_is_refused_in_one_sentence() {
    let mut daemon = Daemon::start(Config::new());
    let address = daemon.address.to_string();
    daemon.kill9();
    for arguments in [&["status"][..], &["add", "t", "x"], &["jobs", "list"]] {
        let finished = cli(&daemon, arguments);
        assert_refused(&finished);
        assert!(finished.stderr.contains(&address), "{finished:?}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    for arguments in [&["no-such-command"][..], &["jobs", "show"], &["add"], &["serve", "--port"]] {
        let finished = run(windlass().args(arguments), b"");
        assert_eq!(finished.code, Some(2), "{arguments:?}: {finished:?}");
        assert!(finished.stderr.contains("Usage"), "{finished:?}");
    }
    assert!(run(windlass().arg("--help"), b"").ok().contains("serve"));
    let version = run(windlass().arg("--version"), b"").ok();
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
}

#[test]
fn demo_exits_with_0() {
    let home = Config::new().home;
    let output = run(windlass().arg("demo").current_dir(home.path(".")), b"");
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn json_output_is_one_document() {
    let daemon = Daemon::start(Config::new());
    daemon.tenant("a").add_one("t", "x");
    let lists = [&["jobs", "list"][..], &["types", "list"], &["handler", "list"], &["status"]];
    for arguments in lists {
        let with_json: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        let value: Value = cli(&daemon, &with_json).json();
        assert!(value.is_object() || value.is_array(), "{arguments:?}: {value}");
    }
}

#[test]
fn the_daemon_and_the_tenant_may_be_named_by_the_environment() {
    let daemon = Daemon::start(Config::new());
    let mut command = windlass();
    command.args(["add", "t", "x"]);
    command.env("WINDLASS_URL", format!("http://{}", daemon.address)).env("WINDLASS_TENANT", "b");
    run(&mut command, b"").ok();
    assert_eq!(daemon.tenant("b").list("type=t").len(), 1);
    let mut command = command_without_tenant(&daemon);
    command.args(["add", "t", "x"]);
    run(&mut command, b"").ok();
    assert_eq!(daemon.tenant("default").list("type=t").len(), 1);
}

fn command_without_tenant(daemon: &Daemon) -> Command {
    let mut command = windlass();
    command.args(["--url", &format!("http://{}", daemon.address)]);
    command
}

#[test]
fn completions_are_printed_for_the_usual_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(windlass().args(["completions", shell]), b"").ok();
        assert!(script.contains("windlass") && script.contains("serve"), "{shell}");
    }
}
