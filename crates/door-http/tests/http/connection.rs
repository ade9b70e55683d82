//! Connections that are slow, rude, or many.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Client, request};
use crate::daemon::Daemon;

/// Long enough for a well-behaved client, even on a busy machine.
const SHORT: Duration = Duration::from_secs(3);

#[tokio::test]
async fn slow_headers_are_cut_off() {
    let daemon = Daemon::start_with(|options| options.header_timeout = SHORT).await;
    let mut client = Client::connect(daemon.address).await;
    client.send(b"POST /v1/acme/jobs/t HTTP/1.1\r\nhost").await;
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let daemon = Daemon::start_with(|options| options.header_timeout = SHORT).await;
    let mut client = Client::connect(daemon.address).await;
    assert_eq!(client.call(&request("GET /healthz", &[], "")).await.status, 200);
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_answered_408_and_nothing_is_stored() {
    let daemon = Daemon::start_with(|options| options.body_timeout = SHORT).await;
    for content_type in ["text/plain", "application/octet-stream", "application/json"] {
        let mut client = Client::connect(daemon.address).await;
        let head = format!(
            "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n\
             content-length: 100\r\n\r\nhalf\n"
        );
        let answer = client.call(head.as_bytes()).await;
        assert_eq!(answer.refusal(), (408, "unavailable".into(), Some("body".into())));
        assert_eq!(client.rest().await, b"", "the connection is of no further use");
    }
    daemon.no_leftovers().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_half_way_leaves_nothing_behind() {
    let daemon = Daemon::start_with(|options| options.connections_max = 1).await;
    for (content_type, sent) in [("text/plain", 10), ("application/octet-stream", 2_000_000)] {
        let mut client = Client::connect(daemon.address).await;
        let head = format!(
            "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n\
             content-length: 3000000\r\n\r\n"
        );
        client.send(head.as_bytes()).await;
        client.send(&vec![b'\n'; sent]).await;
        drop(client);
        // There is only one connection slot, so this is answered once the other one is dropped.
        assert_eq!(daemon.get("/healthz").await.status, 200);
    }
    daemon.no_leftovers().await;
}

#[tokio::test]
async fn s2_8_a_client_that_closes_after_sending_does_not_disturb_the_daemon() {
    let daemon = Daemon::start().await;
    for _ in 0..20 {
        let mut client = Client::connect(daemon.address).await;
        client.send(&request("POST /v1/acme/jobs/t", &["content-type: text/plain"], "a")).await;
    }
    let known = daemon.add("/v1/acme/jobs/t", "last").await;
    let jobs = daemon.get("/v1/acme/jobs").await.json()["jobs"].as_array().unwrap().clone();
    assert!(jobs.iter().any(|job| job["id"] == known[0].as_str()));
    assert!(jobs.len() <= 21);
}

#[tokio::test]
async fn oversized_headers_are_answered_431() {
    let daemon = Daemon::start().await;
    let large = format!("x-large: {}", "a".repeat(70_000));
    let answer = daemon.call("GET /healthz", &[&large], "").await;
    assert_eq!(answer.status, 431);
    let many: Vec<_> = (0..150).map(|index| format!("x-{index}: a")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(daemon.call("GET /healthz", &many, "").await.status, 431);
    let fits = format!("x-large: {}", "a".repeat(50_000));
    assert_eq!(daemon.call("GET /healthz", &[&fits], "").await.status, 200);
}

#[tokio::test]
async fn what_is_no_http_is_answered_400() {
    let daemon = Daemon::start().await;
    for bytes in
        [&b"nonsense\r\n\r\n"[..], b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"\x16\x03\x01\r\n\r\n"]
    {
        let answer = Client::connect(daemon.address).await.call(bytes).await;
        assert_eq!(answer.status, 400, "{bytes:?}");
    }
    assert_eq!(daemon.get("/healthz").await.status, 200);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(daemon.address).await;
    let mut all = Vec::new();
    for lines in 1..=5 {
        let body = "a\n".repeat(lines);
        all.extend(request("POST /v1/acme/jobs/t", &["content-type: text/plain"], body));
        all.extend(request("GET /nonsense", &[], ""));
    }
    client.send(&all).await;
    for lines in 1..=5 {
        assert_eq!(client.receive().await.unwrap().ids().len(), lines);
        assert_eq!(client.receive().await.unwrap().status, 404);
    }
}

#[tokio::test]
async fn a_refusal_is_read_although_the_body_was_not() {
    let daemon = Daemon::start().await;
    let large = vec![b'x'; 8 * 1024 * 1024];
    for path in ["/v1/a%20b/jobs/t", "/v1/acme/jobs/t?nonsense=1", "/nonsense"] {
        let binary = ["content-type: application/octet-stream"];
        let answer = daemon.call(&format!("POST {path}"), &binary, &large).await;
        assert!((400..500).contains(&answer.status), "{path} {answer:?}");
    }
}

#[tokio::test]
async fn expect_continue_is_answered_before_the_body_is_sent() {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(daemon.address).await;
    let head = "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n\
                expect: 100-continue\r\ncontent-length: 1\r\n\r\n";
    assert_eq!(client.call(head.as_bytes()).await.status, 100);
    assert_eq!(client.call(b"a").await.status, 201);
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_hold_its_connection() {
    let daemon = Daemon::start_with(|options| {
        options.body_timeout = SHORT;
        options.connections_max = 1;
    })
    .await;
    let large = vec![b'x'; 16 * 1024 * 1024];
    let binary = ["content-type: application/octet-stream"];
    let id = daemon.call("POST /v1/acme/jobs/t", &binary, &large).await.ids().remove(0);
    for _ in 0..60 {
        // A listed job is in the store, with its whole payload.
        let listed = daemon.get("/v1/acme/jobs").await.json();
        if listed["jobs"][0]["id"] == id.as_str() {
            break;
        }
    }
    // With a small receive buffer, the client's kernel does not read in its place.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut rude = socket.connect(daemon.address).await.unwrap();
    let get = request(&format!("GET /v1/acme/jobs/{id}/payload"), &[], "");
    rude.write_all(&get).await.unwrap();
    // There is only one connection slot, so this is answered once the rude one is dropped.
    assert_eq!(daemon.get("/healthz").await.status, 200);
    drop(rude);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_their_turn() {
    let daemon = Daemon::start_with(|options| options.connections_max = 2).await;
    let mut first = Client::connect(daemon.address).await;
    let mut second = Client::connect(daemon.address).await;
    let health = request("GET /healthz", &[], "");
    assert_eq!(first.call(&health).await.status, 200);
    assert_eq!(second.call(&health).await.status, 200);
    let mut third = Client::connect(daemon.address).await;
    third.send(&health).await;
    assert_eq!(first.call(&health).await.status, 200);
    drop(first);
    assert_eq!(third.receive().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_closing_door_answers_whoever_waits_and_ends() {
    let daemon = Daemon::start().await;
    let id = daemon.add("/v1/acme/jobs/t?delay=1h", "a").await.remove(0);
    let mut idle = Client::connect(daemon.address).await;
    assert_eq!(idle.call(&request("GET /healthz", &[], "")).await.status, 200);
    let mut waits = Client::connect(daemon.address).await;
    waits.send(&request(&format!("GET /v1/acme/jobs/{id}?wait=5m"), &[], "")).await;
    let mut claims = Client::connect(daemon.address).await;
    let json = ["content-type: application/json"];
    claims.send(&request("POST /v1/acme/claim", &json, r#"{"wait":"5m"}"#)).await;
    let mut half = Client::connect(daemon.address).await;
    half.send(b"POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\na")
        .await;
    // The three are in progress once the daemon has answered something sent after them.
    assert_eq!(daemon.get("/healthz").await.status, 200);
    daemon.shutdown.cancel();
    assert_eq!(waits.receive().await.unwrap().json()["state"], "queued");
    assert_eq!(claims.receive().await.unwrap().json()["jobs"], serde_json::json!([]));
    half.send(b"b").await;
    assert_eq!(half.receive().await.unwrap().status, 201);
    assert_eq!(idle.rest().await, b"");
    daemon.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(daemon.address).await.is_err());
}
