//! Every handler in `examples/`, run as its own comment says.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Finished, Peer, run, text, windlass};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn command(daemon: &Daemon, words: &[&str]) -> Command {
    let mut command = windlass();
    command.args(["--url", &format!("http://{}", daemon.address)]).args(words);
    command
}

fn run_example(daemon: &Daemon, name: &str, arguments: &[&str]) -> Finished {
    run(command(daemon, &["run"]).arg(example(name)).args(arguments), b"")
}

/// The result of the only job of a type.
fn result(daemon: &Daemon, kind: &str) -> Value {
    let tenant = daemon.tenant("default");
    let jobs = tenant.list(&format!("type={kind}"));
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    tenant.job(&text(&jobs[0]["id"]))["result"].clone()
}

#[test]
fn resize_text_breaks_a_text_into_lines() {
    let daemon = Daemon::start(Config::new());
    let wish = r#"{"width": 12, "text": "one long line of text"}"#;
    let out = run_example(&daemon, "resize_text.py", &["--payload", wish]).ok();
    assert_eq!(out, "one long\nline of text\n");
    assert_eq!(result(&daemon, "resize_text"), json!({"lines": ["one long", "line of text"]}));
    for wrong in ["no json", "[]", r#"{"width": 12}"#, r#"{"width": 0, "text": "x"}"#] {
        let finished = run_example(&daemon, "resize_text.py", &["--payload", wrong]);
        assert!(finished.stderr.contains("failed with 400"), "{wrong}: {finished:?}");
    }
}

#[test]
fn call_api_tries_again_until_the_api_answers() {
    let daemon = Daemon::start(Config::new().loopback());
    let calls = AtomicU16::new(0);
    let peer = Peer::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => (503, "text/plain", "away".into()),
        1 => (429, "text/plain", "slowly".into()),
        _ => (200, "application/json", "{\"order\":7}".into()),
    });
    let api = format!("API={}", peer.url("/orders"));
    let arguments = ["--env", &api, "--payload", r#"{"item": 7}"#];
    let finished = run_example(&daemon, "call_api.js", &arguments);
    assert!(finished.stdout.contains("attempt 1: the API answered 503"), "{finished:?}");
    assert!(finished.ok().contains("attempt 3: the API answered 200"));
    assert_eq!(result(&daemon, "call_api"), json!("{\"order\":7}"));
    let received = peer.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|request| request.text() == r#"{"item": 7}"#));
    let key = received[0].header("idempotency-key");
    assert!(
        key.is_some() && received.iter().all(|request| request.header("idempotency-key") == key)
    );
}

#[test]
fn call_api_takes_no_for_an_answer() {
    let daemon = Daemon::start(Config::new().loopback());
    let peer = Peer::start(|_| (404, "text/plain", "no such item".into()));
    let api = format!("API={}", peer.url("/orders"));
    let finished = run_example(&daemon, "call_api.js", &["--env", &api, "--payload", "{}"]);
    assert!(finished.stderr.contains("failed with 404"), "{finished:?}");
    assert_eq!((finished.code, peer.received().len()), (Some(1), 1));
}

#[test]
fn fan_out_counts_in_parts_and_collects_them() {
    let daemon = Daemon::start(Config::new());
    for (kind, file) in [("count_words", "count_words.py"), ("collect_words", "collect_words.php")]
    {
        run(command(&daemon, &["handler", "set", kind]).arg(example(file)), b"").ok();
    }
    let book = "one two\nthree\n\nfour\n \nfive six seven eight\n\n\n";
    let out = run_example(&daemon, "fan_out.php", &["--payload", book]).ok();
    assert_eq!(out, "3 parts\n");
    let tenant = daemon.tenant("default");
    let collected = tenant.until_count("collect_words", "finished", 3);
    let results: Vec<Value> = collected
        .iter()
        .map(|job| tenant.job(&text(&job["id"]))["result"].clone())
        .filter(|result| !result.is_null())
        .collect();
    let run = &tenant.list("type=fan_out")[0]["id"];
    assert_eq!(results, [json!({"run": run, "words": 8})]);
    let empty = run_example(&daemon, "fan_out.php", &["--payload", ""]);
    assert!(empty.stderr.contains("failed with 400"), "{empty:?}");
}

#[test]
fn access_report_counts_by_status_and_asks_for_an_alert() {
    let daemon = Daemon::start(Config::new());
    let line = |status: u16| {
        format!("::1 - - [15/Nov/2026:20:00:00 +0000] \"GET / HTTP/1.1\" {status} 12 \"-\"\n")
    };
    let log: String = [200, 503, 200, 404, 500].map(line).concat();
    let out = run_example(&daemon, "access_report.sh", &["--payload", &log]).ok();
    assert!(out.starts_with("200 2\n404 1\n500 1\n503 1\n"), "{out}");
    let tenant = daemon.tenant("default");
    let alerts = tenant.until_count("alert", "queued", 1);
    let payload = tenant.get(&format!("jobs/{}/payload", text(&alerts[0]["id"]))).text();
    assert_eq!(payload, "2 answers were errors of the server");
    let empty = run_example(&daemon, "access_report.sh", &["--payload", "nothing"]);
    assert!(empty.stderr.contains("failed with 400"), "{empty:?}");
}

#[test]
fn every_example_says_how_it_is_run() {
    for entry in std::fs::read_dir(example("")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let source = std::fs::read_to_string(&path).unwrap();
        let line = format!("windlass run examples/{name} ");
        assert!(source.contains(&line) || source.contains("see fan_out.php"), "{name}");
    }
}
