//! Every rule for adds, broken once: the answer names the problem, and nothing is stored.

use crate::client::{Client, request};
use crate::daemon::Daemon;

const TEXT: &str = "content-type: text/plain";
const JSON: &str = "content-type: application/json";
const BINARY: &str = "content-type: application/octet-stream";

/// Path, headers, body; status, code, field.
type Case<'a> = (&'a str, &'a [&'a str], &'a str, u16, &'a str, Option<&'a str>);

async fn check(cases: &[Case<'_>]) {
    let daemon = Daemon::start().await;
    for (path, headers, body, status, code, field) in cases {
        let answer = daemon.call(&format!("POST {path}"), headers, body).await;
        let expected = (*status, (*code).to_owned(), field.map(str::to_owned));
        assert_eq!(answer.refusal(), expected, "{path} {headers:?} {body}\n{}", answer.text());
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn s0_39_names_that_break_the_rules() {
    let long_tenant = format!("/v1/{}/jobs/t", "a".repeat(65));
    let long_type = format!("/v1/acme/jobs/{}", "a".repeat(256));
    let long_utf8 = format!("/acme/job/{}/add", "%C3%A4".repeat(128));
    let tenant = (400, "invalid_tenant", Some("tenant"));
    let kind = (400, "invalid_type", Some("type"));
    let cases = [
        (long_tenant.as_str(), tenant),
        ("/v1/-acme/jobs/t", tenant),
        ("/v1/.acme/jobs/t", tenant),
        ("/v1/ac%20me/jobs/t", tenant),
        ("/v1/ac%2Fme/jobs/t", tenant),
        ("/v1/%C3%A4/jobs/t", tenant),
        ("/v1/%ff/jobs/t", tenant),
        ("/v1/v1/jobs/t", tenant),
        ("/v1/healthz/jobs/t", tenant),
        ("/v1/readyz/jobs/t", tenant),
        ("/v1/metrics/jobs/t", tenant),
        ("/v1/openapi.json/jobs/t", tenant),
        ("/v1/ui/jobs/t", tenant),
        ("/v1/job/t/add", tenant),
        ("/healthz/job/t/add", tenant),
        ("/ui/job/t/add", tenant),
        ("/ac%20me/job/t/add", tenant),
        (long_type.as_str(), kind),
        (long_utf8.as_str(), kind),
        ("/v1/acme/jobs/a%7Cb", kind),
        ("/v1/acme/jobs/a%0Ab", kind),
        ("/v1/acme/jobs/a%00b", kind),
        ("/v1/acme/jobs/%C2%85", kind),
        ("/v1/acme/jobs/%ff", kind),
        ("/acme/job/a%7Cb/add", kind),
        ("/acme/job/%ff/add", kind),
    ];
    let cases: Vec<Case<'_>> = cases
        .iter()
        .map(|(path, (status, code, field))| (*path, &[TEXT][..], "a", *status, *code, *field))
        .collect();
    check(&cases).await;
}

#[tokio::test]
async fn options_in_the_query_that_break_the_rules() {
    let queries = [
        ("run_at=tomorrow", "run_at"),
        ("run_at=2027-01-15", "run_at"),
        ("run_at=2027-01-15T09:00:00+01:00", "run_at"),
        ("run_at=2027-01-15T09:00:00Z&delay=5s", "run_at"),
        ("delay=5", "delay"),
        ("delay=-5s", "delay"),
        ("delay=1.5s", "delay"),
        ("delay=99999d", "delay"),
        ("delay=", "delay"),
        ("priority=1001", "priority"),
        ("priority=-1", "priority"),
        ("priority=high", "priority"),
        ("timeout=0s", "timeout"),
        ("timeout=x", "timeout"),
        ("expires=0ms", "expires"),
        ("expires=never", "expires"),
        ("unique=", "unique"),
        ("unique=%ff", "unique"),
        ("repeat=5m", "repeat"),
        ("parent=1", "parent"),
        ("then=a%7Cb", "then"),
        ("delays=5s", "delays"),
        ("priority=1&priority=2", "priority"),
    ];
    let long = format!("unique={}", "k".repeat(256));
    let mut paths = Vec::new();
    for (query, field) in queries.into_iter().chain([(long.as_str(), "unique")]) {
        paths.push((format!("/v1/acme/jobs/t?{query}"), TEXT, field.to_owned()));
        paths.push((format!("/v1/acme/jobs/t?{query}"), BINARY, field.to_owned()));
        paths.push((format!("/acme/job/t/add?{query}"), TEXT, field.to_owned()));
    }
    for (path, content_type, field) in &paths {
        let header = [*content_type];
        let field = Some(field.as_str());
        check(&[(path.as_str(), &header, "a", 400, "invalid_value", field)]).await;
    }
}

#[tokio::test]
async fn bodies_that_break_the_rules() {
    let path = "/v1/acme/jobs/t";
    let value = "invalid_value";
    let body = Some("body");
    check(&[
        (path, &[TEXT], "", 400, value, body),
        (path, &[TEXT], "\n\r\n\n", 400, value, body),
        (path, &[], "", 400, value, body),
        ("/acme/job/t/add", &[TEXT], "\n", 400, value, body),
        (path, &["content-type: text/html"], "a", 415, value, Some("Content-Type")),
        (
            path,
            &["content-type: application/x-www-form-urlencoded"],
            "a",
            415,
            value,
            Some("Content-Type"),
        ),
        (path, &["content-type: nonsense"], "a", 415, value, Some("Content-Type")),
        (path, &[TEXT, "content-encoding: gzip"], "a", 415, value, Some("Content-Encoding")),
        (path, &[BINARY, "content-encoding: br"], "a", 415, value, Some("Content-Encoding")),
        (path, &[TEXT, "idempotency-key: "], "a", 400, value, Some("Idempotency-Key")),
        (
            path,
            &[TEXT, "idempotency-key: a", "idempotency-key: b"],
            "a",
            400,
            value,
            Some("Idempotency-Key"),
        ),
        (
            path,
            &[TEXT, &format!("idempotency-key: {}", "k".repeat(256))],
            "a",
            400,
            value,
            Some("Idempotency-Key"),
        ),
    ])
    .await;
}

#[tokio::test]
async fn json_that_breaks_the_rules() {
    let good = r#"{"payload":"good"},"#;
    let jobs = [
        ("", "jobs"),
        (r#"{"payload":1,"priority":1001}"#, "priority"),
        (r#"{"payload":1,"priority":"5"}"#, "priority"),
        (r#"{"payload":1,"priority":5.5}"#, "priority"),
        (r#"{"payload":1,"run_at":"soon"}"#, "run_at"),
        (r#"{"payload":1,"run_at":"2027-01-15T09:00:00Z","delay":"5s"}"#, "run_at"),
        (r#"{"payload":1,"delay":5}"#, "delay"),
        (r#"{"payload":1,"delay":"5"}"#, "delay"),
        (r#"{"payload":1,"timeout":"0s"}"#, "timeout"),
        (r#"{"payload":1,"expires":"0s"}"#, "expires"),
        (r#"{"payload":1,"unique":""}"#, "unique"),
        (r#"{"payload":1,"unique":5}"#, "unique"),
        (r#"{"payload":1,"then":"a|b"}"#, "then"),
        (r#"{"payload":1,"repeat":"5m"}"#, "repeat"),
        (r#"{"payload":1,"parent":"1"}"#, "parent"),
        (r#"{"payload":1,"nonsense":1}"#, "nonsense"),
        (r#"{"payload":1,"tenant":"other"}"#, "tenant"),
        (r#"{"payload":1,"payload":2}"#, "payload"),
        (r#"{"priority":1}"#, "payload"),
        (r#"{"payload":"\ud800"}"#, "payload"),
    ];
    for (job, field) in jobs {
        let alone = format!(r#"{{"jobs":[{job}]}}"#);
        let second = format!(r#"{{"jobs":[{good}{job}]}}"#);
        let bodies = if job.is_empty() { vec![alone] } else { vec![alone, second] };
        for body in &bodies {
            let path = "/v1/acme/jobs/t";
            check(&[(path, &[JSON], body, 400, "invalid_value", Some(field))]).await;
        }
    }
    let wholes = [
        ("", "body"),
        ("{", "body"),
        ("[]", "body"),
        ("null", "body"),
        ("\"a\"", "body"),
        (r#"{"jobs":[{"payload":1}]} x"#, "body"),
        (r#"{"jobs":[{"payload":1},]}"#, "body"),
        (r#"{}"#, "jobs"),
        (r#"{"jobs":{}}"#, "jobs"),
        (r#"{"jobs":[{"payload":1}],"more":1}"#, "more"),
        (r#"{"jobs":[5]}"#, "jobs[0]"),
    ];
    for (body, field) in wholes {
        check(&[("/v1/acme/jobs/t", &[JSON], body, 400, "invalid_value", Some(field))]).await;
    }
    let query = "/v1/acme/jobs/t?priority=5";
    let body = r#"{"jobs":[{"payload":1}]}"#;
    check(&[(query, &[JSON], body, 400, "invalid_value", Some("priority"))]).await;
}

#[tokio::test]
async fn bodies_that_are_too_large() {
    let daemon = Daemon::start_with(|options| options.body_bytes_max = 1000).await;
    let large = "a\n".repeat(501);
    for content_type in [TEXT, BINARY, JSON] {
        for path in ["/v1/acme/jobs/t", "/acme/job/t/add"] {
            let answer = daemon.call(&format!("POST {path}"), &[content_type], &large).await;
            let expected = (413, "too_large".into(), Some("body".into()));
            assert_eq!(answer.refusal(), expected, "{path} {content_type}");
        }
        let mut client = Client::connect(daemon.address).await;
        let head = format!(
            "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\n{content_type}\r\n\
             transfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n",
            large.len()
        );
        let answer = client.call(head.as_bytes()).await;
        assert_eq!(answer.status, 413, "{content_type}");
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn more_lines_or_jobs_than_an_add_has_and_more_text_than_is_buffered() {
    let daemon = Daemon::start().await;
    let lines = "a\n".repeat(100_001);
    let answer = daemon.call("POST /v1/acme/jobs/t", &[TEXT], &lines).await;
    assert_eq!(answer.refusal(), (413, "too_large".into(), Some("body".into())));
    let jobs = vec![r#"{"payload":1}"#; 100_001].join(",");
    let body = format!(r#"{{"jobs":[{jobs}]}}"#);
    let answer = daemon.call("POST /v1/acme/jobs/t", &[JSON], &body).await;
    assert_eq!(answer.refusal(), (413, "too_large".into(), Some("jobs".into())));
    // Only announced: it is refused before it is sent.
    for content_type in [TEXT, JSON] {
        let mut head = request("POST /v1/acme/jobs/t", &[content_type], "");
        head.truncate(head.len() - "content-length: 0\r\n\r\n".len());
        head.extend_from_slice(b"content-length: 67108865\r\n\r\n");
        let answer = Client::connect(daemon.address).await.call(&head).await;
        assert_eq!(answer.refusal(), (413, "too_large".into(), Some("body".into())));
        assert!(answer.text().contains("application/octet-stream"), "{}", answer.text());
    }
    assert_eq!(daemon.leftovers().await, [] as [String; 0]);
}

#[tokio::test]
async fn a_refused_large_payload_leaves_no_file_behind() {
    let daemon = Daemon::start_with(|options| options.body_bytes_max = 3 * 1024 * 1024).await;
    let mut client = Client::connect(daemon.address).await;
    let head = format!(
        "POST /v1/acme/jobs/t HTTP/1.1\r\nhost: localhost\r\n{BINARY}\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    client.send(head.as_bytes()).await;
    let chunk = vec![b'x'; 1024 * 1024];
    for _ in 0..4 {
        client.send(format!("{:x}\r\n", chunk.len()).as_bytes()).await;
        client.send(&chunk).await;
        client.send(b"\r\n").await;
    }
    assert_eq!(client.receive().await.unwrap().status, 413);
    daemon.no_leftovers().await;
}
