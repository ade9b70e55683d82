//! What holds for waiting requests of HTTP/1 holds for those of HTTP/2.

use serde_json::json;

use super::{Session, Speaks, Stage};
use crate::harness::{text, until, until_some};

/// Longer than any test, so that a job is not claimable again because a lease has ended.
const LEASE: &str = "1h";

fn waiting_claim() -> String {
    json!({"types": ["t"], "wait": "5m", "lease": LEASE}).to_string()
}

/// The ids of jobs that can be claimed now.
fn claim(session: &Session) -> Vec<String> {
    let wish = json!({"types": ["t"], "lease": LEASE}).to_string();
    let jobs = session.ok("POST", "/v1/a/claim", &wish)["jobs"].clone();
    jobs.as_array().unwrap().iter().map(|job| text(&job["id"])).collect()
}

#[test]
fn a_claim_that_waits_gets_the_next_job() {
    let stage = Stage::new();
    let daemon = stage.start();
    let session = stage.connect(&daemon, Speaks::Http2);
    let waiting = session.begin("POST", "/v1/a/claim", &waiting_claim());
    // On the same connection.
    let ids = session.ok("POST", "/v1/a/jobs/t", "x")["ids"].clone();
    let claimed = session.wait(waiting).unwrap().json();
    assert_eq!(claimed["jobs"][0]["id"], ids[0]);
}

#[test]
fn a_worker_that_withdraws_its_claim_keeps_no_job() {
    let stage = Stage::new();
    let daemon = stage.start();
    let session = stage.connect(&daemon, Speaks::Http2);
    for _ in 0..5 {
        let waiting: Vec<_> =
            (0..3).map(|_| session.begin("POST", "/v1/a/claim", &waiting_claim())).collect();
        session.ok("GET", "/v1/status", "");
        waiting.iter().for_each(|waiting| waiting.abort());
        let added = text(&session.ok("POST", "/v1/a/jobs/t", "x")["ids"][0]);
        let claimed = until("the job can be claimed", || claim(&session), |ids| !ids.is_empty());
        assert_eq!(claimed, [added.as_str()]);
        assert_eq!(session.ok("GET", &format!("/v1/a/jobs/{added}"), "")["attempt"], 1);
    }
}

#[test]
fn a_worker_that_disconnects_keeps_no_job() {
    let stage = Stage::new();
    let daemon = stage.start();
    let other = stage.connect(&daemon, Speaks::Http2);
    for speaks in [Speaks::Http1, Speaks::Http2] {
        let session = stage.connect(&daemon, speaks);
        let _waiting = session.begin("POST", "/v1/a/claim", &waiting_claim());
        other.ok("GET", "/v1/status", "");
        drop(session);
        let added = text(&other.ok("POST", "/v1/a/jobs/t", "x")["ids"][0]);
        let claimed = until("the job can be claimed", || claim(&other), |ids| !ids.is_empty());
        assert_eq!(claimed, [added], "{speaks:?}");
    }
}

#[test]
fn claims_that_wait_on_one_connection_leave_room_for_others() {
    const CONNECTIONS_MAX: usize = 8;
    let stage = Stage::new().set("http.connections_max", &CONNECTIONS_MAX.to_string());
    let daemon = stage.start();
    let session = stage.connect(&daemon, Speaks::Http2);
    // One more than there is room for.
    let mut waiting: Vec<_> =
        (0..7).map(|_| session.begin("POST", "/v1/a/claim", &waiting_claim())).collect();
    let turned_away = until_some("one is answered", || {
        let index = waiting.iter().position(|waiting| waiting.is_finished())?;
        Some(waiting.remove(index))
    });
    let turned_away = session.wait(turned_away).unwrap();
    assert!(turned_away.retry_after);
    assert_eq!((turned_away.status, &turned_away.json()["jobs"]), (200, &json!([])));
    session.ok("POST", "/v1/a/jobs/u", "x");
    stage.connect(&daemon, Speaks::Http1).ok("GET", "/v1/status", "");
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "the others still wait");
}

#[test]
fn requests_beyond_the_bound_of_all_connections_are_refused() {
    const REQUESTS_MAX: usize = 4;
    let stage = Stage::new().set("http.connections_max", &REQUESTS_MAX.to_string());
    let daemon = stage.start();
    let session = stage.connect(&daemon, Speaks::Http2);
    let adds: Vec<_> = (0..50).map(|_| session.begin("POST", "/v1/a/jobs/t", "x")).collect();
    let answers: Vec<_> = adds.into_iter().map(|add| session.wait(add)).collect();
    let added = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|a| a.status == 201));
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    let (added, refused) = (added.count(), refused.collect::<Vec<_>>());
    assert_eq!(added + refused.len(), 50, "{answers:?}");
    assert!(added >= REQUESTS_MAX, "{answers:?}");
    assert!(refused.iter().all(|error| error.contains("REFUSED_STREAM")), "{refused:?}");
    // The connection goes on, and nothing that was refused has been added.
    let counted = until(
        "all jobs are counted",
        || session.ok("GET", "/v1/a/jobs?limit=1000", "")["jobs"].as_array().unwrap().len(),
        |count| *count >= added,
    );
    assert_eq!(counted, added);
}

#[test]
fn a_daemon_that_stops_answers_waiting_requests_and_leaves_idle_connections() {
    let stage = Stage::new();
    let mut daemon = stage.start();
    let idle = stage.connect(&daemon, Speaks::Http2);
    idle.ok("GET", "/v1/status", "");
    let session = stage.connect(&daemon, Speaks::Http2);
    let waiting = session.begin("POST", "/v1/a/claim", &waiting_claim());
    session.ok("GET", "/v1/status", "");
    assert!(daemon.terminate().success());
    assert_eq!(session.wait(waiting).unwrap().json()["jobs"], json!([]));
    assert!(!daemon.log.lines().iter().any(|line| line.contains("cutting off")));
}
