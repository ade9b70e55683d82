//! What jobs leave behind: results, logs with their streams, progress, and the jobs that follow.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Finished, Peer, Tenant, run, text, until, windlass};

const RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

fn cli(daemon: &Daemon, arguments: &[&str]) -> Finished {
    let url = format!("http://{}", daemon.address);
    run(windlass().args(arguments).args(["--url", &url, "--tenant", "a"]), b"")
}

/// Ends a claimed job successfully, with this JSON text as its data.
fn finish_with(tenant: &Tenant, job: &Value, data: &str) {
    let path = tenant.path(&format!("jobs/{}/finish", text(&job["id"])));
    let body = format!(r#"{{"token":{},"status":200,"data":{data}}}"#, job["token"]);
    let headers = [("Content-Type", "application/json")];
    tenant.client.call("POST", &path, &headers, body.as_bytes()).expect(200);
}

/// Answers with the body of the request.
fn echo() -> Peer {
    Peer::start(|asked| (200, "text/plain", asked.text()))
}

#[test]
fn s0_61_results_are_kept_by_id_and_shown_to_the_digit() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let values = ["null", "false", "0", "\"\"", "[]", "{\"a\":[1.50,12345678901234567890123]}"];
    for data in values.into_iter().chain([deep.as_str()]) {
        let id = tenant.add_one("t", "x");
        let job = tenant.until_claimed("t", "60s");
        let waiting = {
            let tenant = tenant.clone();
            let path = format!("jobs/{id}?wait=5m");
            thread::spawn(move || tenant.get(&path).expect(200).text())
        };
        finish_with(&tenant, &job, data);
        let answer = waiting.join().unwrap();
        assert!(answer.contains(&format!("\"result\":{data},")), "{data:.60}");
        let shown = cli(&daemon, &["jobs", "show", &id, "--json"]).ok();
        assert!(shown.contains(&format!("\"result\": {data},")), "{data:.60}");
        assert!(cli(&daemon, &["jobs", "show", &id]).ok().contains("finished"));
    }
}

#[test]
fn s0_61_a_handlers_result_has_a_bound_of_16_mb() {
    let daemon = Daemon::start(Config::new().loopback().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    let peer = Peer::start(|asked| {
        let bytes: usize = asked.text().parse().unwrap();
        (200, "application/json", format!("\"{}\"", "x".repeat(bytes - 2)))
    });
    tenant.handler("t", &json!({"lang": "http", "body": peer.url("/")}));
    let sizes = [RESULT_BYTES_MAX + 1, RESULT_BYTES_MAX, 10];
    let ids = tenant.add("t", &sizes.map(|bytes| bytes.to_string()));
    let failed = tenant.until_state(&ids[0], "failed");
    let seen = (&failed["code"], &failed["exitcode"], &failed["result"]);
    assert_eq!(seen, (&json!("error"), &json!(500), &Value::Null));
    assert!(tenant.log(&ids[0]).contains("[windlass]"), "{}", tenant.log(&ids[0]));
    assert!(tenant.log(&ids[0]).contains("16777216 bytes"), "{}", tenant.log(&ids[0]));
    for (id, bytes) in ids[1..].iter().zip(&sizes[1..]) {
        let job = tenant.until_state(id, "finished");
        assert_eq!(text(&job["result"]).len() + 2, *bytes);
    }
}

#[test]
fn s0_62_a_result_is_the_payload_of_the_job_that_follows() {
    let daemon = Daemon::start(Config::new().loopback());
    let tenant = daemon.tenant("a");
    let peer = Peer::start(|asked| match asked.path.as_str() {
        "/first" => (200, "application/json", format!("{{\"got\": \"{}\"}}", asked.text())),
        _ => (200, "text/plain", format!("then {}", asked.text())),
    });
    tenant.handler("a", &json!({"lang": "http", "body": peer.url("/first")}));
    tenant.handler("b%2F%C3%BC", &json!({"lang": "http", "body": peer.url("/second")}));
    let id = cli(&daemon, &["add", "a", "--then", "b/ü", "x"]).ok().trim().to_owned();
    tenant.until_state(&id, "finished");
    let next = tenant.until_count("b%2F%C3%BC", "finished", 1).remove(0);
    let next = tenant.job(&text(&next["id"]));
    assert_eq!(next["result"], "then {\"got\": \"x\"}");
    assert_eq!((&next["then"], &tenant.job(&id)["then"]), (&Value::Null, &json!("b/ü")));
    assert!(cli(&daemon, &["jobs", "show", &id]).ok().contains("b/ü"));
    assert!(daemon.tenant("other").list("").is_empty());

    let again = tenant.post(&format!("jobs/{id}/retry"));
    again.expect(200);
    tenant.until_count("b%2F%C3%BC", "finished", 2);
}

#[test]
fn s0_62_nothing_follows_what_did_not_end_well() {
    let daemon =
        Daemon::start(Config::new().set("retry.attempts", "2").set("retry.delay", "\"10ms\""));
    let tenant = daemon.tenant("a");
    tenant.sh("t", "exit $(cat)");
    let ids = tenant.add_with("t", "then=u", &["65", "1", "0"]);
    tenant.until_state(&ids[0], "failed");
    tenant.until_state(&ids[1], "failed");
    tenant.until_state(&ids[2], "finished");
    let next = tenant.until_claimed("u", "60s");
    assert_eq!((&next["payload"], &next["payload_bytes"]), (&json!(""), &json!(0)));
    assert_eq!(tenant.list("type=u").len(), 1);
}

#[test]
fn s0_62_a_large_result_follows_too() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.add_with("a", "then=b", &["x"]);
    let job = tenant.until_claimed("a", "60s");
    let large = "y".repeat(5_000_000);
    finish_with(&tenant, &job, &format!("\"{large}\""));
    let next = tenant.until_claimed("b", "60s");
    let payload = tenant.get(&format!("jobs/{}/payload", text(&next["id"]))).expect(200);
    assert!(payload.text() == large);
}

/// The end of a job and its follow-up job are one change of the store: after any crash, there is
/// exactly one follow-up job for each end.
#[test]
fn s0_62_kill_9_leaves_exactly_one_follower_for_each_end() {
    const JOBS: usize = 600;
    const KILLS: usize = 6;
    let config = Config::new().loopback().set("scheduler.slots", "8");
    let config = config.set("lease.duration", "\"1s\"");
    let mut daemon = Daemon::start(config);
    let peer = echo();
    let handler = json!({"lang": "http", "body": peer.url("/"), "options": {"batch": 1}});
    daemon.tenant("a").handler("a", &handler);
    let mut payloads = HashSet::new();
    for round in 0..KILLS {
        let own: Vec<String> = (0..JOBS / KILLS).map(|n| format!("{round}.{n}")).collect();
        daemon.tenant("a").add_with("a", "then=b", &own);
        payloads.extend(own);
        let ended = daemon.log.events("job_ended").len();
        until("some have ended", || daemon.log.events("job_ended").len(), |n| *n > ended + 5);
        daemon.kill9();
        daemon.restart();
    }
    let tenant = daemon.tenant("a");
    tenant.until_count("a", "finished", JOBS);
    assert_eq!(tenant.list("type=b").len(), JOBS);
    let mut followers = Vec::new();
    until(
        "all followers are taken",
        || {
            let taken = tenant.claim("b", 500, "60s");
            followers.extend(taken.iter().map(|job| text(&job["payload"])));
            followers.len()
        },
        |taken| *taken >= JOBS,
    );
    assert_eq!(followers.len(), JOBS);
    assert_eq!(followers.into_iter().collect::<HashSet<_>>(), payloads);
}

#[test]
fn what_a_job_wrote_is_told_apart_by_its_stream() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "echo out; echo '[stderr] not really'; echo err >&2; echo more >&2");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let log = tenant.get(&format!("jobs/{id}/log?format=json")).expect(200).json();
    assert_eq!(log["attempts"][0]["attempt"], 1);
    // The order in which lines of two streams are read depends on the system.
    let of = |stream: &str| -> Vec<String> {
        let lines = log["attempts"][0]["lines"].as_array().unwrap().iter();
        lines.filter(|line| line["stream"] == stream).map(|line| text(&line["text"])).collect()
    };
    assert_eq!(of("stdout"), ["out", "[stderr] not really"]);
    assert_eq!(of("stderr"), ["err", "more"]);
    assert_eq!(of("windlass"), ["exit code 0"]);
    let mut lines = String::new();
    for line in log["attempts"][0]["lines"].as_array().unwrap() {
        let mark = match text(&line["stream"]).as_str() {
            "stdout" => String::new(),
            stream => format!("[{stream}] "),
        };
        lines += &format!("{mark}{}\n", text(&line["text"]));
    }
    assert!(lines.ends_with("\n[windlass] exit code 0\n"), "{lines}");
    let shown = tenant.log(&id);
    assert_eq!(shown.split_once('\n').map(|(_, shown)| shown), Some(&*lines), "{shown}");

    let shown = cli(&daemon, &["jobs", "log", &id]);
    assert_eq!(shown.stdout, "out\n[stderr] not really\n");
    assert!(shown.stderr.ends_with("\nerr\nmore\n[windlass] exit code 0\n"), "{shown:?}");
    assert_eq!(cli(&daemon, &["jobs", "log", &id, "--follow"]).stdout, shown.stdout);
    assert_eq!(cli(&daemon, &["jobs", "log", &id, "--json"]).json(), log);
}

#[test]
fn a_handler_says_how_far_it_has_come() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let hold = daemon.home().write("hold", "");
    let body = format!(
        "for (let step = 0; step < 5000; step++) job.progress(step / 100, 'step ' + step);\n\
         while (require('fs').existsSync({:?})) await new Promise(done => setTimeout(done, 5));\n\
         job.progress(99.5, 'at the end');",
        hold.to_str().unwrap()
    );
    tenant.handler("t", &json!({"lang": "node", "body": body}));
    let id = tenant.add_one("t", "x");
    let at = |percent: f64| move |job: &Value| job["progress"]["percent"] == json!(percent);
    let running = until("half of it is done", || tenant.job(&id), at(49.99));
    assert_eq!(
        (&running["state"], &running["progress"]["message"]),
        (&json!("running"), &json!("step 4999"))
    );
    assert!(cli(&daemon, &["jobs", "show", &id]).ok().contains("49.99 % step 4999"));
    daemon.home().let_go("hold");
    let ended = tenant.until_state(&id, "finished");
    assert_eq!(ended["progress"]["message"], "at the end");
}

#[test]
fn a_handlers_emitted_jobs_have_options() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let body = "emit('u', payload, {delay: '1h', priority: 7, unique: 'k', then: 'v'});";
    tenant.handler("t", &json!({"lang": "node", "body": body}));
    let ids = tenant.add("t", &["x", "y"]);
    tenant.until_all(&ids, "finished");
    let jobs = tenant.list("type=u");
    assert_eq!(jobs.len(), 1, "the second found the key held");
    assert_eq!((&jobs[0]["priority"], &jobs[0]["then"]), (&json!(7), &json!("v")));
    assert_eq!(tenant.type_row("u")["deferred"], 1);
}
