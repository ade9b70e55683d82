//! `http` handlers: the payload is posted to a URL.

use std::net::TcpListener;

use serde_json::json;

use crate::harness::{Config, Daemon, Peer, until};

#[test]
fn s0_56_the_payload_is_posted_and_the_status_is_the_exit_code() {
    let daemon = Daemon::start(Config::new().loopback());
    let peer = Peer::start(|_| (202, "application/json", "{\"echo\": [1, 2]}".to_owned()));
    let tenant = daemon.tenant("a");
    tenant.handler("t", &json!({"lang": "http", "body": peer.url("/hook?x=1")}));
    let id = tenant.add_one("t", "the payload");
    let job = tenant.until_state(&id, "finished");
    assert_eq!((&job["exitcode"], &job["code"]), (&json!(202), &json!("ok")));
    assert_eq!(job["result"], json!({"echo": [1, 2]}));
    let received = peer.received();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].method.as_str(), received[0].path.as_str()), ("POST", "/hook?x=1"));
    assert_eq!(received[0].text(), "the payload");
    for (name, value) in [
        ("Windlass-Job-Id", id.as_str()),
        ("Windlass-Tenant", "a"),
        ("Windlass-Type", "t"),
        ("Windlass-Attempt", "1"),
    ] {
        assert_eq!(received[0].header(name), Some(value), "{name} in {:?}", received[0].headers);
    }
}

#[test]
fn s0_56_an_answer_that_is_not_json_is_a_string() {
    let daemon = Daemon::start(Config::new().loopback());
    let peer = Peer::start(|_| (200, "text/plain", "plain {text}".to_owned()));
    let tenant = daemon.tenant("a");
    tenant.handler("t", &json!({"lang": "http", "body": peer.url("/")}));
    let id = tenant.add_one("t", "x");
    assert_eq!(tenant.until_state(&id, "finished")["result"], "plain {text}");
}

#[test]
fn s0_56_no_connection_and_no_answer_in_time_are_errors() {
    let daemon = Daemon::start(Config::new().loopback().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    // The kernel accepts connections for it, but no answer ever comes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("http://{}/", silent.local_addr().unwrap());
    for (kind, url) in [("closed", closed), ("mute", mute)] {
        let options = json!({"timeout": "1s"});
        tenant.handler(kind, &json!({"lang": "http", "body": url, "options": options}));
        let id = tenant.add_one(kind, "x");
        let job = tenant.until_state(&id, "failed");
        assert_eq!(
            (&job["code"], &job["exitcode"], &job["attempt"]),
            (&json!("error"), &json!(500), &json!(2)),
            "{kind}"
        );
    }
}

#[test]
fn s0_56_a_batch_is_one_request_with_one_answer_line_a_job() {
    const JOBS: usize = 6;
    let daemon = Daemon::start(Config::new().loopback().one_slot().set("retry.attempts", "1"));
    let peer = Peer::start(|request| {
        let text = request.text();
        let answer = |line: &str| match line {
            "missing" => "".to_owned(),
            "bad" => "400 bad data\n".to_owned(),
            "odd" => "no status\n".to_owned(),
            other => format!("200 did {other}\n"),
        };
        (200, "text/plain", text.lines().map(answer).collect())
    });
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let handler = json!({"lang": "http", "body": peer.url("/"), "options": {"batch": 100}});
    tenant.handler("t", &handler);
    let payloads = ["one", "two", "bad", "odd", "three", "missing"];
    let ids = tenant.add("t", &payloads);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == JOBS);
    daemon.start_picking();
    for (id, (state, status)) in ids.iter().zip([
        ("finished", 200),
        ("finished", 200),
        ("failed", 400),
        ("failed", 500),
        ("finished", 200),
        ("failed", 500),
    ]) {
        assert_eq!(tenant.until_state(id, state)["exitcode"], status);
    }
    let received = peer.received();
    assert!(received.len() < JOBS, "jobs are posted together: {} requests", received.len());
    let lines: Vec<String> = received
        .iter()
        .flat_map(|a| a.text().lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(lines, payloads);
}

#[test]
fn s0_56_a_url_that_is_none_is_refused_when_it_is_set() {
    let daemon = Daemon::start(Config::new());
    for url in ["", "not a url", "ftp://example/x"] {
        let path = "/v1/a/handlers/t";
        let body = json!({"lang": "http", "body": url});
        let answer = daemon.send_json("PUT", path, &body);
        assert_eq!(answer.status, 400, "{url:?}: {}", answer.text());
    }
    daemon.get("/v1/a/handlers/t").expect(404);
}

#[test]
fn s0_56_large_payloads_and_answers_pass() {
    let daemon = Daemon::start(Config::new().loopback());
    let peer = Peer::start(|request| (200, "text/plain", "r".repeat(request.body.len() / 2)));
    let tenant = daemon.tenant("a");
    tenant.handler("t", &json!({"lang": "http", "body": peer.url("/")}));
    let headers = [("Content-Type", "application/octet-stream")];
    let body = vec![b'p'; 3_000_000];
    let answer = daemon.call("POST", "/v1/a/jobs/t", &headers, &body).expect(201);
    let id = crate::harness::ids_of(&answer).remove(0);
    let job = tenant.until_state(&id, "finished");
    assert!(peer.received()[0].body == body);
    assert_eq!(job["result"].as_str().map(str::len), Some(1_500_000));
}
