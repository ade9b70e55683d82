//! Status classes, retries, and where they end.

use jiff::Timestamp;
use serde_json::json;

use crate::harness::{Config, Daemon, Peer, field, text, until};

#[test]
fn s0_17_an_always_failing_job_ends_after_its_last_attempt() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "3"));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("{}; exit 1", daemon.home().recorder("seen")));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "failed");
    assert_eq!((&job["attempt"], &job["code"]), (&json!(3), &json!("error")));
    assert_eq!(daemon.home().lines("seen").len(), 3, "the first try counts");
    assert!(tenant.claim("t", 1, "60s").is_empty());
}

#[test]
fn s2_18_retries_also_end_when_the_job_is_too_old() {
    let config = Config::new().set("retry.age", "\"1s\"").set("retry.delay", "\"200ms\"");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", &format!("{}; exit 1", daemon.home().recorder("seen")));
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "failed");
    let runs = daemon.home().lines("seen").len() as u64;
    assert_eq!(job["attempt"], runs);
    assert!((2..25).contains(&runs), "{runs} attempts within the age");
}

#[test]
fn s2_18_a_handlers_own_retry_option_wins() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let options = json!({"retry": {"attempts": 2, "delay": "50ms", "factor": 1}});
    let body = format!("{}; exit 1", daemon.home().recorder("seen"));
    tenant.handler("t", &json!({"lang": "sh", "body": body, "options": options}));
    tenant.settings("t", &json!({"retry": {"attempts": 7}}));
    let id = tenant.add_one("t", "x");
    assert_eq!(tenant.until_state(&id, "failed")["attempt"], 2);
    assert_eq!(daemon.home().lines("seen").len(), 2);
}

#[test]
fn s0_32_each_class_of_exit_has_its_code_and_its_consequence() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    let cases = [
        ("exit 0", "finished", "ok", 200, 1),
        ("exit 65", "failed", "failed", 400, 1),
        ("exit 75", "failed", "retry", 100, 2),
        ("exit 1", "failed", "error", 500, 2),
        ("kill -TERM $$", "failed", "error", 500, 2),
    ];
    for (number, (body, state, code, exitcode, runs)) in cases.into_iter().enumerate() {
        let kind = format!("t{number}");
        tenant.sh(&kind, &format!("{}; {body}", daemon.home().recorder(&kind)));
        let id = tenant.add_one(&kind, "x");
        let job = tenant.until_state(&id, state);
        assert_eq!(
            (&job["code"], &job["exitcode"], &job["attempt"]),
            (&json!(code), &json!(exitcode), &json!(runs)),
            "{body}"
        );
        assert_eq!(daemon.home().lines(&kind).len(), runs, "{body}");
        let ends = || {
            let events = daemon.log.events("job_ended");
            events.into_iter().filter(|e| field(e, "id") == id.as_str()).collect::<Vec<_>>()
        };
        let ends = until("all ends are logged", ends, |ends| ends.len() == runs);
        assert!(ends.iter().all(|e| field(e, "code") == code && field(e, "exitcode") == exitcode));
    }
}

/// A peer's status is the job's status as it is; 3xx, and anything outside 1xx..5xx, is an error.
#[test]
fn s0_32_statuses_of_http_handlers_keep_their_number() {
    let daemon = Daemon::start(Config::new().loopback().set("retry.attempts", "2"));
    let peer = Peer::start(|asked| {
        (asked.path.trim_start_matches('/').parse().unwrap(), "text/plain", String::new())
    });
    let tenant = daemon.tenant("a");
    let cases = [
        (204, "finished", "ok", 1),
        (299, "finished", "ok", 1),
        (404, "failed", "failed", 1),
        (499, "failed", "failed", 1),
        (503, "failed", "error", 2),
        (304, "failed", "error", 2),
    ];
    for (status, state, code, runs) in cases {
        let kind = format!("t{status}");
        let url = peer.url(&format!("/{status}"));
        tenant.handler(&kind, &json!({"lang": "http", "body": url}));
        let id = tenant.add_one(&kind, "x");
        let job = tenant.until_state(&id, state);
        assert_eq!((&job["code"], &job["attempt"]), (&json!(code), &json!(runs)), "{status}");
        assert_eq!(job["exitcode"], status);
    }
}

#[test]
fn s0_32_pulled_jobs_follow_the_same_classes() {
    let daemon = Daemon::start(Config::new().set("retry.attempts", "2"));
    let tenant = daemon.tenant("a");
    for (status, state, code, runs) in [
        (200, "finished", "ok", 1),
        (299, "finished", "ok", 1),
        (400, "failed", "failed", 1),
        (100, "failed", "retry", 2),
        (500, "failed", "error", 2),
        (302, "failed", "error", 2),
    ] {
        let id = tenant.add_one("t", "x");
        for _ in 0..runs {
            let job = tenant.until_claimed("t", "60s");
            assert_eq!(job["id"], id.as_str());
            tenant.finish(&job, status).expect(200);
        }
        let job = tenant.until_state(&id, state);
        assert_eq!((&job["code"], &job["exitcode"]), (&json!(code), &json!(status)));
    }
    let id = tenant.add_one("t", "x");
    let job = tenant.until_claimed("t", "60s");
    for status in [0, 99, 600, 1000] {
        assert_eq!(tenant.finish(&job, status).expect(400).error_code(), "invalid_value");
    }
    assert_eq!(tenant.job(&id)["state"], "running");
}

#[test]
fn s0_33_a_second_try_waits_for_the_delay() {
    let config = Config::new().set("retry.delay", "\"1s\"").set("retry.attempts", "3");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    let times = daemon.home().path("times");
    tenant.sh("t", &format!("date +%s%3N >> '{}'; exit 75", times.display()));
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "failed");
    let times: Vec<u64> =
        daemon.home().lines("times").iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!(times.len(), 3);
    // Each delay varies by a random tenth.
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 900), "{times:?}");
}

#[test]
fn s0_33_delays_grow_by_the_factor_up_to_their_maximum() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let retry = json!({"delay": "1s", "factor": 3, "delay_max": "2s", "attempts": 9});
    tenant.settings("t", &json!({"retry": retry}));
    let id = tenant.add_one("t", "x");
    for (attempt, delay_ms) in [(1, 1000), (2, 2000), (3, 2000)] {
        let job = tenant.until_claimed("t", "60s");
        assert_eq!(job["attempt"], attempt);
        let before = Timestamp::now().as_millisecond();
        tenant.finish(&job, 500).expect(200);
        let after = Timestamp::now().as_millisecond();
        let job = tenant.job(&id);
        assert_eq!(job["state"], "queued");
        let run_at = text(&job["run_at"]).parse::<Timestamp>().unwrap().as_millisecond();
        // Each delay varies by a random tenth.
        assert!(run_at >= before + delay_ms * 9 / 10, "attempt {attempt}: {job}");
        assert!(run_at <= after + delay_ms * 11 / 10, "attempt {attempt}: {job}");
    }
    assert_eq!(tenant.type_row("t")["deferred"], 1);
}

#[test]
fn s0_34_a_handler_that_crashes_three_times_completes_in_the_end() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let body = format!(
        "{}; case $WINDLASS_ATTEMPT in 1) exit 1;; 2) kill -KILL $$;; 3) kill -SEGV $$;; esac",
        daemon.home().recorder("seen")
    );
    tenant.sh("t", &body);
    let id = tenant.add_one("t", "x");
    let job = tenant.until_state(&id, "finished");
    assert_eq!((&job["attempt"], &job["code"]), (&json!(4), &json!("ok")));
    assert_eq!(daemon.home().lines("seen").len(), 4);
    let log = tenant.log(&id);
    assert!(log.contains("SIGKILL") && log.contains("SIGSEGV"), "signals are named: {log}");
}
