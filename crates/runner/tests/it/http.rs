//! `http` handlers, one job per request.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use windlass_core::limit::RESULT_BYTES_MAX;
use windlass_core::runner::{Report, Stop};
use windlass_core::{Json, Lang, Runner};
use windlass_runner::LocalRunner;
use windlass_runner::network::Lookup;

use crate::harness::{
    Event, Fixture, LIMITS, MadePieces, check_ended, fixture, in_pieces, job, limited, options,
    spec,
};
use crate::server::{Reply, Request, Server, answer};

fn data(report: &Report) -> Option<&str> {
    report.data.as_ref().map(Json::as_str)
}

/// Runs one job against a server with this answer.
async fn run_against(
    reply: impl Fn(&Request) -> Reply + Clone + Send + Sync + 'static,
    payload: &[u8],
) -> Report {
    let server = Server::start(reply).await;
    fixture().run(spec(Lang::Http, &server.url()), payload).await
}

#[tokio::test]
async fn s0_56_the_payload_is_posted_with_the_job_in_the_headers() {
    let mut server = Server::start(|request| answer(200, "text/plain", &request.body)).await;
    let fixture = fixture();
    let assignment = job("grüße\nzwei".as_bytes());
    let id = assignment.job.id;
    let handler = spec(Lang::Http, &format!("{}?a=b", server.url()));
    let (_, report) = fixture.begin(handler, vec![assignment]).ended().await;
    check_ended(&report, 200, None);
    assert_eq!(data(&report), Some("\"grüße\\nzwei\""));
    assert_eq!(report.log.to_string(), format!("[windlass] POST {}: 200\n", server.url()));
    let request = server.request().await;
    assert_eq!(request.line, "POST /jobs?a=b HTTP/1.1");
    assert_eq!(request.body, "grüße\nzwei".as_bytes());
    for (name, value) in [
        ("windlass-job-id", id.to_string().as_str()),
        ("windlass-tenant", "acme"),
        ("windlass-type", "mail/send"),
        ("windlass-attempt", "3"),
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", "12"),
    ] {
        assert_eq!(request.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(!request.headers.contains_key("windlass-batch"));
}

#[tokio::test]
async fn s0_56_the_status_of_the_answer_is_the_status_of_the_job() {
    for status in [200, 204, 302, 400, 404, 429, 500, 503] {
        let report = run_against(move |_| answer(status, "text/plain", ""), b"x").await;
        check_ended(&report, status, None);
        assert_eq!(data(&report), None);
    }
    let report = run_against(|_| answer(799, "text/plain", ""), b"x").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("799"), "{}", report.log);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut server = Server::start(|_| {
        Reply::Raw(b"HTTP/1.1 307 Go\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n".to_vec())
    })
    .await;
    let report = fixture().run(spec(Lang::Http, &server.url()), b"").await;
    check_ended(&report, 307, None);
    assert_eq!(server.request().await.line, "POST /jobs HTTP/1.1");
}

#[tokio::test]
async fn a_body_is_json_when_it_says_so() {
    let json = "{\"sent\": [1, 2]}";
    let report = run_against(move |_| answer(200, "application/json", json), b"").await;
    assert_eq!(data(&report), Some(json));
    let kind = "Application/JSON; charset=utf-8";
    let report = run_against(move |_| answer(400, kind, "null"), b"").await;
    assert_eq!((report.status.get(), data(&report)), (400, Some("null")));
    let report = run_against(|_| answer(200, "application/json", "{broken"), b"").await;
    assert_eq!((report.status.get(), data(&report)), (200, Some("\"{broken\"")));
    let report = run_against(|_| answer(200, "text/plain", "1"), b"").await;
    assert_eq!(data(&report), Some("\"1\""));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_sent_and_taken() {
    let reply = |request: &Request| {
        let kind = &request.headers["content-type"];
        answer(200, "x/y", [kind.as_bytes(), b" ", &request.body].concat())
    };
    let report = run_against(reply, b"a\0\xff").await;
    assert_eq!(data(&report), Some("\"application/octet-stream a\\u0000\u{fffd}\""));
}

#[tokio::test]
async fn s0_61_an_answer_beyond_the_bound_of_results_is_an_error() {
    let reply = |_: &Request| answer(200, "text/plain", vec![b'x'; RESULT_BYTES_MAX + 1]);
    let report = run_against(reply, b"").await;
    check_ended(&report, 500, None);
    assert_eq!(data(&report), None);
    let log = report.log.to_string();
    assert!(log.contains("the answer has more than 16777216 bytes"), "{log}");
    let largest = format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX - 2));
    let reply = move |_: &Request| answer(200, "application/json", largest.clone());
    let report = run_against(reply, b"").await;
    check_ended(&report, 200, None);
    assert_eq!(data(&report).map(str::len), Some(RESULT_BYTES_MAX));
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    let broken = b"HTTP/1.1 200 Broken\r\nContent-Length: 100\r\n\r\nonly this";
    let report = run_against(|_| Reply::Raw(broken.to_vec()), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("the answer is incomplete"), "{}", report.log);
}

#[tokio::test]
async fn what_is_not_http_is_an_error() {
    let report = run_against(|_| Reply::Raw(b"SSH-2.0-hello\r\n\r\n".to_vec()), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("no answer"), "{}", report.log);
}

#[tokio::test]
async fn no_connection_is_an_error_with_the_reason_and_without_secrets() {
    let port = windlass_test_kit::port::free_port();
    let url = format!("http://user:secret@127.0.0.1:{port}/x?token=secret");
    let report = fixture().run(spec(Lang::Http, &url), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("refused"), "{}", report.log);
    assert!(!report.log.to_string().contains("secret"), "{}", report.log);
}

#[tokio::test]
async fn https_to_a_server_that_does_not_speak_it_is_an_error() {
    let server = Server::start(|_| answer(200, "text/plain", "")).await;
    let url = server.url().replace("http:", "https:");
    let report = fixture().run(spec(Lang::Http, &url), b"").await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("no answer"), "{}", report.log);
}

#[tokio::test]
async fn s2_30_no_answer_in_time_ends_the_request() {
    for limit in LIMITS {
        let mut server = Server::start(|_| Reply::Hang).await;
        let jobs = vec![limited(job(b"x"), limit)];
        let (_, report) = fixture().begin(spec(Lang::Http, &server.url()), jobs).ended().await;
        check_ended(&report, 500, Some(Stop::TimedOut));
        assert!(report.log.to_string().contains("timed out"), "{}", report.log);
        if server.was_asked() {
            server.client_gone().await;
            return;
        }
    }
    panic!("it never asked before its limit");
}

#[tokio::test]
async fn a_stop_ends_the_request_with_its_reason() {
    let mut server = Server::start(|_| Reply::Hang).await;
    let fixture = fixture();
    let mut run = fixture.begin(spec(Lang::Http, &server.url()), vec![job(b"x"), job(b"y")]);
    server.request().await;
    fixture.runner.stop(run.attempts[0], Stop::Shutdown);
    check_ended(&run.ended().await.1, 500, Some(Stop::Shutdown));
    server.client_gone().await;
    let second = run.ids[1];
    assert_eq!(run.rest().await, [Event::Returned(second)]);
}

#[tokio::test]
async fn connections_are_used_again() {
    let mut server = Server::start(|_| answer(200, "text/plain", "x")).await;
    let jobs = vec![job(b"1"), job(b"2"), job(b"3")];
    let ended = fixture().begin(spec(Lang::Http, &server.url()), jobs).rest().await;
    assert_eq!(ended.len(), 6);
    for _ in 0..3 {
        assert_eq!(server.request().await.connection, 0);
    }
}

#[tokio::test]
async fn s2_29_a_payload_in_pieces_is_streamed_with_its_length() {
    const BYTES: u64 = 5 * 1024 * 1024 + 7;
    let mut server = Server::start(|_| answer(200, "text/plain", "")).await;
    let pieces = Arc::new(MadePieces { bytes: BYTES, piece_bytes: 256 * 1024, broken_from: 1000 });
    let handler = spec(Lang::Http, &server.url());
    let mut run = fixture().begin_with(handler, vec![in_pieces(BYTES)], pieces);
    check_ended(&run.ended().await.1, 200, None);
    let request = server.request().await;
    assert_eq!(request.headers["content-length"], BYTES.to_string());
    assert!(!request.headers.contains_key("transfer-encoding"));
    assert!(request.body.iter().copied().eq((0..BYTES).map(MadePieces::byte)));
}

#[tokio::test]
async fn half_a_payload_is_an_error_and_an_unreadable_one_is_not_sent() {
    let server = Server::start(|_| answer(200, "text/plain", "")).await;
    let handler = spec(Lang::Http, &server.url());
    let fixture = fixture();
    let pieces = |broken_from| Arc::new(MadePieces { bytes: 100, piece_bytes: 10, broken_from });
    let mut run = fixture.begin_with(handler.clone(), vec![in_pieces(100)], pieces(5));
    let (_, report) = run.ended().await;
    check_ended(&report, 500, None);
    assert!(report.log.to_string().contains("the store is gone"), "{}", report.log);
    let run = fixture.begin_with(handler, vec![in_pieces(100)], pieces(0));
    let id = run.ids[0];
    assert_eq!(run.rest().await, [Event::Returned(id)]);
}

/// Knows one name, whose address is another one each time that it is asked.
struct Fickle(Mutex<VecDeque<&'static str>>);

#[async_trait]
impl Lookup for Fickle {
    async fn addresses(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        let next = self.0.lock().unwrap().pop_front().expect("no further lookup");
        Ok(next.split(' ').map(|address| address.parse().unwrap()).collect())
    }
}

/// Runs one job for a name with these addresses on the port of a server on 127.0.0.1, which is the
/// only one that is allowed.
async fn run_by_name(server: &Server, answers: &[&'static str]) -> Report {
    let scratch = tempfile::tempdir().unwrap();
    let mut options = options(&scratch);
    options.network.allow = vec!["127.0.0.1".parse().unwrap()];
    options.network.lookup = Arc::new(Fickle(Mutex::new(answers.iter().copied().collect())));
    let runner = Arc::new(LocalRunner::new(options).unwrap());
    let url = format!("http://fickle.example:{}/", server.address.port());
    Fixture { runner, scratch }.run(spec(Lang::Http, &url), b"").await
}

#[tokio::test]
async fn a_name_is_resolved_once_and_every_address_is_decided() {
    let mut server = Server::start(|_| answer(200, "text/plain", "")).await;
    // A second lookup, after the first was found to be good, would fail the test.
    check_ended(&run_by_name(&server, &["127.0.0.1"]).await, 200, None);
    server.request().await;
    // Of several addresses only those that are allowed are tried.
    check_ended(&run_by_name(&server, &["127.0.0.2 10.0.0.1 127.0.0.1"]).await, 200, None);
    server.request().await;
    let report = run_by_name(&server, &["127.0.0.2 10.0.0.1"]).await;
    check_ended(&report, 500, None);
    let sentence =
        format!("refused: connection to 127.0.0.2:{} (loopback)\n", server.address.port());
    assert!(report.log.to_string().ends_with(&sentence), "{}", report.log);
    assert!(!server.was_asked());
}
