//! Attacks from outside on the doors themselves: what their errors show, who may come in, and who
//! keeps others out.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;

use serde_json::json;
use windlass_test_kit::wait::PATIENCE;

use windlass_test_kit::http::Connection;

use crate::harness::{Config, Daemon, Door, Link, StoreLock, refused_start};

#[test]
fn no_error_shows_where_the_data_is() {
    let door = Door::start();
    let tenant = door.tenant("default");
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "queued");
    let data = door.home().data();
    let path = data.to_str().unwrap();
    let lock = StoreLock::take(&door.daemon.config);
    let told = tenant.post(&format!("jobs/{id}/cancel")).expect(503).text();
    assert!(told.contains("lock of store.db"), "it says what is wrong: {told}");
    let put = json!({"lang": "sh", "body": "exit 0"});
    let handler = door.daemon.send_json("PUT", &tenant.path("handlers/t"), &put).expect(503);
    let bedrock = door.about("DeleteJob", id.parse().unwrap());
    assert!(bedrock.line.starts_with("503"), "{bedrock:?}");
    let query = door.call("Query", &[("query", "DELETE FROM jobs WHERE 1;")]);
    assert!(query.line.starts_with("503"), "{query:?}");
    let ready = door.daemon.get("/readyz");
    let status = door.daemon.get("/v1/status");
    let replies = [bedrock, query].map(|reply| format!("{reply:?} {}", reply.text()));
    for shown in [told, handler.text(), ready.text(), status.text()].into_iter().chain(replies) {
        assert!(!shown.contains(path), "{shown}");
    }
    drop(lock);
    tenant.post(&format!("jobs/{id}/cancel")).expect(200);
}

const CONNECTIONS_MAX: usize = 8;

/// A claim that waits longer than any test.
fn claims_for_ever(daemon: &Daemon) -> Connection {
    let mut connection = daemon.connection();
    claim_for_ever(&mut connection);
    connection
}

fn claim_for_ever(connection: &mut Connection) {
    let wish = json!({"types": ["nothing"], "wait": "5m"}).to_string();
    let headers = [("Content-Type", "application/json")];
    connection.send("POST", "/v1/a/claim", &headers, wish.as_bytes()).unwrap();
}

#[test]
fn workers_that_wait_leave_room_for_others() {
    let connections = CONNECTIONS_MAX.to_string();
    let daemon = Daemon::start(Config::new().set("http.connections_max", &connections));
    let tenant = daemon.tenant("a");
    let id = tenant.add_with("t", "delay=1h", &["x"]).remove(0);
    for _ in 0..3 {
        let (sender, answers) = mpsc::channel();
        for _ in 0..CONNECTIONS_MAX {
            let (mut waiting, sender) = (claims_for_ever(&daemon), sender.clone());
            std::thread::spawn(move || waiting.receive().map(|answer| sender.send(answer)));
        }
        assert_eq!(daemon.get("/healthz").status, 200);
        assert_eq!(tenant.add("t", &["y"]).len(), 1);
        // Those for which there was no room are told at once that there is nothing, and to leave.
        let answer = answers.recv_timeout(PATIENCE).unwrap().expect(200);
        assert_eq!(answer.json()["jobs"], json!([]));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(tenant.get(&format!("jobs/{id}?wait=5m")).expect(200).json()["id"], id);
    }
}

/// Clients without a key take all connections, again and again, and say nothing or half of a head.
#[test]
fn clients_without_keys_leave_connections_to_those_with_one() {
    let config = Config::new()
        .set("http.connections_max", &CONNECTIONS_MAX.to_string())
        .set("http.header_timeout", "\"1h\"");
    let daemon = Daemon::start(config);
    let mut waiting = daemon.connection();
    waiting.call("GET", "/v1/status", &[], b"").unwrap().expect(200);
    claim_for_ever(&mut waiting);
    let mut strangers: Vec<TcpStream> = Vec::new();
    for round in 0..2 {
        for number in 0..2 * CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(daemon.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"POST /v1/a/t HTTP/1.1\r\nHost: loc").unwrap();
            }
            strangers.push(stream);
        }
        let added = daemon.tenant("a").add(&format!("other{round}"), &["x"]);
        assert_eq!(added.len(), 1);
    }
    // The worker that has waited meanwhile has a key, and so still has its connection.
    daemon.tenant("a").add_one("nothing", "x");
    let jobs = waiting.receive().unwrap().expect(200).json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    drop(strangers);
}

#[test]
fn a_worker_that_waits_gets_the_next_job() {
    let daemon = Daemon::start(Config::new().set("http.connections_max", "8"));
    let mut waiting = claims_for_ever(&daemon);
    daemon.tenant("a").add_one("nothing", "x");
    let jobs = waiting.receive().unwrap().expect(200).json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
}

/// An address of this machine that is not loopback.
fn outer_address() -> Option<Ipv4Addr> {
    // Nothing is sent: the system only chooses the address that it would send from.
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) if !address.ip().is_loopback() => Some(*address.ip()),
        _ => None,
    }
}

/// The door is opened to all addresses, and so is the test's other end.
fn open_door(allow: &str) -> Door {
    Door::start_at(Config::new().set("bedrock.allow", allow), "0.0.0.0:0")
}

#[test]
fn the_bedrock_door_is_not_opened_to_everybody() {
    for config in [
        Config::new(),
        Config::new().flag("--insecure"),
        Config::new().flag("--insecure").set("bedrock.allow", "[]"),
    ] {
        let refused = refused_start(&config.flag("--bedrock").flag("0.0.0.0:0"));
        assert!(refused.stderr.contains("bedrock.allow"), "{refused:?}");
    }
    for wrong in [r#"["10.0.0.0/33"]"#, r#"["example.org"]"#, r#"["10.0.0.1/8"]"#] {
        let refused = refused_start(&Config::new().set("bedrock.allow", wrong));
        assert!(refused.stderr.contains("bedrock.allow"), "{wrong}: {refused:?}");
    }
}

#[test]
fn strangers_are_disconnected_from_the_bedrock_door() {
    let Some(outer) = outer_address() else { return };
    if TcpListener::bind((outer, 0)).is_err() {
        return;
    }
    let door = open_door(r#"["203.0.113.0/24"]"#);
    let port = door.address.port();
    let connect = || TcpStream::connect((outer, port)).and_then(Link::over).unwrap();
    let mut stranger = connect();
    // The door may have closed before this is sent.
    let _ = stranger.try_raw(b"Ping\r\n\r\n");
    stranger.assert_closed();
    // Clients on this machine, and those in the list, come in.
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Link::open(local).unwrap().call("Ping", &[]).ok();
    let door = open_door(&format!(r#"["203.0.113.0/24", "{outer}"]"#));
    let listed = TcpStream::connect((outer, door.address.port())).and_then(Link::over);
    listed.unwrap().call("Ping", &[]).ok();
}
