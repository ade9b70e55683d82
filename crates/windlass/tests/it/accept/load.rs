//! More work than can be done at once: accepted, kept within bounds, done later.

use std::thread;

use crate::harness::{Client, Config, Daemon, ids_of, until};

const SENDERS: usize = 16;
/// Memory that the daemon may use beyond its idle size while it buffers the load below.
const MEMORY_GROWTH_KIB_MAX: u64 = 256 * 1024;

/// Adds `count` jobs of one line through several connections; none may be refused.
fn flood(client: Client, path: &'static str, count: usize) -> Vec<String> {
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            thread::spawn(move || {
                let mut connection = client.connection();
                let mut ids = Vec::new();
                for n in 0..count / SENDERS {
                    let headers = [("Content-Type", "text/plain")];
                    let payload = format!("{n} {}", "x".repeat(200));
                    let answer = connection.call("POST", path, &headers, payload.as_bytes());
                    ids.extend(ids_of(&answer.expect("an answer").expect(201)));
                }
                ids
            })
        })
        .collect();
    senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
}

#[test]
fn s2_4_an_overload_is_accepted_in_bounded_memory_and_without_errors() {
    const JOBS: usize = 16_000;
    let daemon = Daemon::start(Config::new().set("scheduler.slots", "2"));
    let tenant = daemon.tenant("a");
    tenant.sh("t", "sleep 0.05");
    let before = daemon.memory_kib("VmHWM");
    let ids = flood(*daemon, "/v1/a/jobs/t", JOBS);
    assert_eq!(ids.len(), JOBS);
    let grown = daemon.memory_kib("VmHWM") - before;
    assert!(grown < MEMORY_GROWTH_KIB_MAX, "{grown} KiB more");
    let all = || {
        let row = tenant.type_row("t");
        ["ready", "running", "finished"].iter().map(|n| row[n].as_u64().unwrap_or(0)).sum::<u64>()
    };
    until("all are in the store", all, |n| *n == JOBS as u64);
    daemon.get("/readyz").expect(200);
}

#[test]
fn s2_40_a_burst_is_accepted_completely_and_drained_later() {
    const JOBS: usize = 1600;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", "true");
    let ids = flood(*daemon, "/v1/a/jobs/t", JOBS);
    assert_eq!(ids.len(), JOBS);
    let row = until("all are done", || tenant.type_row("t"), |row| row["finished"] == JOBS);
    assert_eq!((&row["ready"], &row["running"]), (&0.into(), &0.into()), "{row}");
    assert_eq!(tenant.list("type=t&state=finished").len(), JOBS);
}

#[test]
fn connections_beyond_the_limit_wait_or_are_refused_but_the_others_work() {
    const MOST: usize = 8;
    let daemon = Daemon::start(Config::new().set("http.connections_max", "8"));
    let mut held: Vec<_> = (0..MOST).map(|_| daemon.connection()).collect();
    for connection in &mut held {
        let headers = [("Content-Type", "text/plain")];
        connection.call("POST", "/v1/a/jobs/t", &headers, b"x").unwrap().expect(201);
    }
    let more: Vec<_> = (0..MOST).map(|_| daemon.connection()).collect();
    for connection in &mut held {
        connection.call("GET", "/healthz", &[], b"").unwrap().expect(200);
    }
    drop(more);
    drop(held);
    until(
        "a new connection is served",
        || daemon.try_call("GET", "/healthz", &[], b"").map(|answer| answer.status).ok(),
        |status| *status == Some(200),
    );
}

#[test]
fn a_client_that_never_ends_its_request_is_let_go() {
    let config =
        Config::new().set("http.header_timeout", "\"500ms\"").set("http.body_timeout", "\"500ms\"");
    let daemon = Daemon::start(config);
    let key = daemon.authorization();
    let head = format!("POST /v1/a/jobs/t HTTP/1.1\r\nHost: localhost\r\n{key}");
    let body = "Content-Type: text/plain\r\nContent-Length: 10\r\n\r\nhalf";
    for start in [head.clone(), format!("{head}{body}")] {
        let mut connection = daemon.connection();
        connection.send_raw(start.as_bytes()).unwrap();
        // The connection ends, or a 4xx arrives, without another byte from us.
        if let Ok(answer) = connection.receive() {
            assert_eq!(answer.status / 100, 4, "{}", answer.text());
        }
    }
    assert!(daemon.tenant("a").list("").is_empty());
}
