//! Clients that are slow, silent, or do not speak TLS.

use std::io::{Read, Write};
use std::net::TcpStream;

use windlass_test_kit::http::until_closed;
use windlass_test_kit::wait::PATIENCE;

use super::session::BOTH;
use super::{Speaks, Stage};
use crate::harness::{Config, Daemon, refused_start, until};

fn silent(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn slow_handshakes_do_not_keep_others_out() {
    const CONNECTIONS_MAX: usize = 4;
    let stage = Stage::new()
        .set("http.connections_max", &CONNECTIONS_MAX.to_string())
        .set("http.header_timeout", "\"1h\"");
    let daemon = stage.start();
    let mut slow: Vec<TcpStream> = (0..5 * CONNECTIONS_MAX).map(|_| silent(&daemon)).collect();
    // Half of them have begun to speak.
    for stream in slow.iter_mut().step_by(2) {
        let _ = stream.write_all(b"\x16\x03\x01");
    }
    for speaks in BOTH {
        stage.connect(&daemon, speaks).ok("GET", "/v1/status", "");
    }
    // The oldest had to make room.
    assert_eq!(until_closed(&mut slow[0]), b"");
}

#[test]
fn a_handshake_has_the_time_of_a_request_head() {
    let stage = Stage::new().set("http.header_timeout", "\"300ms\"");
    let daemon = stage.start();
    let mut slow = silent(&daemon);
    slow.write_all(b"\x16\x03\x01\x02").unwrap();
    assert_eq!(until_closed(&mut slow), b"");
    assert_eq!(until_closed(&mut silent(&daemon)), b"");
}

#[test]
fn an_idle_connection_of_http2_ends() {
    let stage = Stage::new().set("http.header_timeout", "\"300ms\"");
    let daemon = stage.start();
    let session = stage.connect(&daemon, Speaks::Http2);
    session.ok("GET", "/v1/status", "");
    until("the daemon has ended the connection", || session.is_closed(), |closed| *closed);
}

#[test]
fn plain_http_on_a_port_with_tls_is_told_so() {
    let stage = Stage::new();
    let daemon = stage.start();
    for request in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "POST /v1/a/jobs/t HTTP/1.0\r\n"] {
        let mut stream = silent(&daemon);
        stream.write_all(request.as_bytes()).unwrap();
        let answer = String::from_utf8(until_closed(&mut stream)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("application/json") && answer.contains("https://"), "{answer}");
    }
    // What is neither gets no answer.
    let mut stream = silent(&daemon);
    stream.write_all(b"\0\0\0\0").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    stage.connect(&daemon, Speaks::Http1).ok("GET", "/v1/status", "");
}

#[test]
fn an_address_that_other_machines_reach_needs_tls_or_insecure() {
    let open = |config: Config| config.flag("--listen").flag("0.0.0.0:0");
    let refused = refused_start(&open(Config::new()));
    for part in ["0.0.0.0:0", "tls.cert", "127.0.0.1:", "--insecure"] {
        assert!(refused.stderr.contains(part), "{part}: {refused:?}");
    }
    let stage = Stage::new();
    let daemon = Daemon::start(open(stage.config.clone()));
    stage.connect(&daemon, Speaks::Http2).ok("GET", "/v1/status", "");
}
