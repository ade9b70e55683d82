//! Random requests of all kinds: every answer is a clear one, and the daemon survives.

use crate::harness::{Config, Daemon, Random};

const SEED: u64 = 4711;
const REQUESTS: usize = 4000;

const METHODS: &[&str] = &["GET", "POST", "PUT", "DELETE", "PATCH"];
const ROUTES: &[&str] = &[
    "POST /a/job/t/add",
    "POST /a/handler/add/t/add",
    "DELETE /a/handler/del/t/delete",
    "GET /a/handler/get/t",
    "GET /v1/a/jobs",
    "POST /v1/a/jobs/t",
    "GET /v1/a/jobs/123",
    "DELETE /v1/a/jobs/123",
    "GET /v1/a/jobs/123/payload",
    "GET /v1/a/jobs/123/log",
    "POST /v1/a/jobs/123/cancel",
    "POST /v1/a/jobs/123/retry",
    "POST /v1/a/jobs/requeue",
    "GET /v1/a/handlers",
    "PUT /v1/a/handlers/t",
    "GET /v1/a/types",
    "POST /v1/a/types/t/suspend",
    "POST /v1/a/types/t/resume",
    "PUT /v1/a/types/t/settings",
    "GET /v1/a/types/t/settings",
    "POST /v1/a/claim",
    "POST /v1/a/jobs/123/renew",
    "POST /v1/a/jobs/123/finish",
    "POST /v1/a/jobs/123/release",
    "POST /v1/a/jobs/123/progress",
    "GET /v1/status",
    "GET /v1/daemons",
    "POST /v1/control/start",
    "GET /metrics",
    "GET /readyz",
    "GET /openapi.json",
];
const SEGMENTS: &[&str] = &[
    "v1",
    "a",
    "b",
    "jobs",
    "t",
    "claim",
    "handlers",
    "types",
    "settings",
    "suspend",
    "resume",
    "requeue",
    "cancel",
    "retry",
    "payload",
    "log",
    "finish",
    "renew",
    "release",
    "progress",
    "job",
    "handler",
    "add",
    "del",
    "get",
    "delete",
    "status",
    "events",
    "%7C",
    "%00",
    "%zz",
    "%FF",
    "123",
    "9223372036854775807",
];
const QUERIES: &[&str] = &[
    "?",
    "?limit=1",
    "?limit=99999999999",
    "?wait=1ms",
    "?wait=x",
    "?state=queued",
    "?type=t",
    "?after=%00",
    "?priority=1e3",
    "?delay=9999999999d",
    "?run_at=9999-99-99T00:00:00Z",
    "?method=sh",
    "?unique=&unique=",
];
const KINDS: &[&str] =
    &["application/json", "text/plain", "application/octet-stream", "application/json; x=\"", ""];
const BODIES: &[&str] = &[
    "",
    "x",
    "{}",
    "[]",
    "null",
    "{\"jobs\":[]}",
    "{\"jobs\":[{\"payload\":null}]}",
    "{\"jobs\":[{\"payload\":\"x\",\"delay\":\"106751991167300d\"}]}",
    "{\"jobs\":[{\"payload\":\"x\",\"run_at\":\"-009999-01-01T00:00:00Z\"}]}",
    "{\"jobs\":[{\"payload\":\"x\",\"expires\":\"0s\"}]}",
    "{\"token\":-1,\"status\":200}",
    "{\"token\":18446744073709551616,\"status\":200}",
    "{\"token\":1,\"lease\":\"99999999999d\"}",
    "{\"token\":1,\"percent\":101,\"message\":\"x\"}",
    "{\"types\":[],\"limit\":1,\"lease\":\"1s\",\"wait\":\"0s\"}",
    "{\"types\":[\"[\"],\"limit\":1,\"lease\":\"1s\",\"wait\":\"0s\"}",
    "{\"types\":[\"**\"],\"limit\":1,\"lease\":\"9999999d\",\"wait\":\"0s\"}",
    "{\"lang\":\"sh\",\"body\":\"true\",\"options\":{\"retry\":{\"factor\":-1}}}",
    "{\"lang\":\"sh\",\"body\":\"true\",\"options\":{\"env\":{\"A=B\":\"\\u0000\"}}}",
    "{\"weight\":1e308}",
    "{\"type\":\"t\",\"state\":\"failed\",\"limit\":-1}",
    "{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]}}}}}}",
];

fn pick<'a>(random: &mut Random, from: &[&'a str]) -> &'a str {
    from[random.below(from.len() as u64) as usize]
}

/// Mostly existing routes, so that the code behind them is reached.
fn target(random: &mut Random) -> (&'static str, String) {
    let query = if random.below(4) == 0 { pick(random, QUERIES) } else { "" };
    if random.below(5) > 0 {
        let (method, path) = pick(random, ROUTES).split_once(' ').expect("method and path");
        return (method, format!("{path}{query}"));
    }
    let more = 1 + random.below(5);
    let segments: String = (0..more).map(|_| format!("/{}", pick(random, SEGMENTS))).collect();
    (pick(random, METHODS), format!("{segments}{query}"))
}

#[test]
fn random_requests_never_cause_an_internal_error() {
    let mut daemon = Daemon::start(Config::new());
    let mut random = Random::new(SEED);
    let id = daemon.tenant("a").add_one("t", "x");
    let mut connection = daemon.connection();
    let mut good = 0;
    for _ in 0..REQUESTS {
        let (method, path) = target(&mut random);
        let path = path.replace("123", &id);
        if path.contains("events") {
            continue;
        }
        let kind = pick(&mut random, KINDS);
        let body = pick(&mut random, BODIES);
        let headers = [("Content-Type", kind)];
        let headers = if kind.is_empty() { &[][..] } else { &headers[..] };
        let answer = connection.call(method, &path, headers, body.as_bytes());
        let Ok(answer) = answer else {
            // A malformed request may cost its connection.
            connection = daemon.connection();
            continue;
        };
        assert!(
            matches!(answer.status, 200..=499),
            "{method} {path} {kind} {body}: {} {}",
            answer.status,
            answer.text()
        );
        good += usize::from(answer.status < 300);
        if answer.status >= 400 {
            assert!(!answer.error_code().is_empty(), "{method} {path}");
        }
    }
    assert!(good > REQUESTS / 20, "{good} requests did something");
    assert!(!daemon.has_exited());
    assert!(daemon.log.lines().iter().all(|line| !line.contains("panicked")));
    let next = daemon.tenant("b").add_one("alive", "x");
    assert_eq!(daemon.tenant("b").until_claimed("alive", "60s")["id"], next.as_str());
}
