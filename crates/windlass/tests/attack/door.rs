//! Attacks from outside on the doors themselves: who may come in, and who keeps others out.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::sync::mpsc;

use serde_json::json;
use windlass_test_kit::http::Connection;
use windlass_test_kit::wait::PATIENCE;

use crate::harness::{Config, Daemon, field, refused_start, run, until_some};
use crate::users::{NOBODY, as_both_users, wrapped};

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
    as_both_users(|config| {
        let daemon = Daemon::start(config.set("http.connections_max", &connections));
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
            // Those without room are told at once that there is nothing, and to leave.
            let answer = answers.recv_timeout(PATIENCE).unwrap().expect(200);
            assert_eq!(answer.json()["jobs"], json!([]));
            assert_eq!(answer.header("connection"), Some("close"));
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(tenant.get(&format!("jobs/{id}?wait=5m")).expect(200).json()["id"], id);
        }
    });
}

/// Clients without a key take all connections, again and again, and say nothing or half of a head.
#[test]
fn clients_without_keys_leave_connections_to_those_with_one() {
    as_both_users(|config| {
        let config = config
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
    });
}

#[test]
fn a_worker_that_waits_gets_the_next_job() {
    let daemon = Daemon::start(Config::new().set("http.connections_max", "8"));
    let mut waiting = claims_for_ever(&daemon);
    daemon.tenant("a").add_one("nothing", "x");
    let jobs = waiting.receive().unwrap().expect(200).json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
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

/// Not loopback, and of this machine in a network of its own, which leads nowhere.
const OUTER: &str = "192.0.2.7";
const OWN_NETWORK: &str = "exec unshare -n sh -c 'ip link set lo up && \
    ip addr add 192.0.2.7/32 dev lo && \
    exec setpriv --reuid $0 --regid $0 --clear-groups -- \"$@\"' $0 \"$@\"";
/// Prints what the door answers.
const PING: &str = "import socket, sys\n\
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)\n\
    try: s.sendall(b'Ping\\r\\n\\r\\n'); s.shutdown(1); print('answer:', s.makefile().readline())\n\
    except OSError: print('answer:')";

/// A daemon in a network of its own, whose Bedrock door is open at all addresses, and its port.
fn in_own_network(user: u32, allow: &str) -> (Daemon, u16) {
    let config = Config::new().set("bedrock.allow", allow).flag("--bedrock").flag("0.0.0.0:0");
    config.home.give_to(user);
    let mut command = wrapped(&config.command(), OWN_NETWORK, &user.to_string());
    let daemon = Daemon::start_command(config, &mut command);
    let port = until_some("the Bedrock door listens", || {
        let entries = daemon.log.entries();
        let address = entries.iter().find_map(|entry| field(entry, "bedrock").as_str())?;
        address.rsplit(':').next()?.parse().ok()
    });
    (daemon, port)
}

/// What a client in that network gets that connects to this address.
fn ping(daemon: &Daemon, address: &str, port: u16) -> String {
    let mut client = Command::new("nsenter");
    client.arg("--net").args(["-t", &daemon.pid().to_string(), "python3", "-c", PING]);
    run(client.args([address, &port.to_string()]), b"").ok().trim().to_owned()
}

#[test]
fn strangers_are_disconnected_from_the_bedrock_door() {
    for user in [0, NOBODY] {
        let (daemon, port) = in_own_network(user, r#"["203.0.113.0/24"]"#);
        assert_eq!(ping(&daemon, OUTER, port), "answer:");
        // Clients on this machine, and those in the list, come in.
        assert_eq!(ping(&daemon, "127.0.0.1", port), "answer: 200 OK");
        let (daemon, port) = in_own_network(user, &format!(r#"["203.0.113.0/24", "{OUTER}"]"#));
        assert_eq!(ping(&daemon, OUTER, port), "answer: 200 OK");
    }
}
