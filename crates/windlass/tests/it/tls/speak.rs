//! Ordinary use over TLS, in both versions of HTTP.

use hyper::Version;
use serde_json::json;

use super::session::{BOTH, Speaks};
use super::{Stage, Trust};
use crate::harness::text;
use crate::tls::{Authority, Session};

#[test]
fn jobs_are_added_claimed_and_finished_over_tls() {
    let stage = Stage::new();
    let daemon = stage.start();
    for speaks in BOTH {
        let session = stage.connect(&daemon, speaks);
        let version = session.call("GET", "/healthz", "").version;
        let expected = if speaks == Speaks::Http2 { Version::HTTP_2 } else { Version::HTTP_11 };
        assert_eq!(version, expected);
        let ids = session.ok("POST", "/v1/a/jobs/t", "x")["ids"].clone();
        let wish = json!({"types": ["t"], "wait": "10s"}).to_string();
        let claimed = session.ok("POST", "/v1/a/claim", &wish)["jobs"][0].clone();
        assert_eq!(claimed["id"], ids[0]);
        let id = text(&claimed["id"]);
        let end = json!({"token": claimed["token"], "status": 200}).to_string();
        session.ok("POST", &format!("/v1/a/jobs/{id}/finish"), &end);
        let job = session.ok("GET", &format!("/v1/a/jobs/{id}"), "");
        assert_eq!(job["state"], "finished", "{job}");
    }
}

#[test]
fn large_payloads_go_through_in_both_directions() {
    let stage = Stage::new();
    let daemon = stage.start();
    let payload = "0123456789abcdef".repeat(32 * 1024);
    for speaks in BOTH {
        let session = stage.connect(&daemon, speaks);
        let kind = format!("{speaks:?}");
        session.ok("POST", &format!("/v1/a/jobs/{kind}"), &payload);
        let wish = json!({"types": [kind], "wait": "10s"}).to_string();
        let claimed = session.ok("POST", "/v1/a/claim", &wish);
        assert!(claimed["jobs"][0]["payload"] == payload.as_str(), "{speaks:?}");
    }
}

#[test]
fn a_key_is_needed_as_without_tls() {
    let stage = Stage::new();
    let daemon = stage.start();
    for speaks in BOTH {
        let session = Session::open(&daemon.without_key(), &stage.trust(), speaks).unwrap();
        assert_eq!(session.call("GET", "/v1/status", "").status, 401);
        assert_eq!(session.call("GET", "/healthz", "").status, 200);
    }
}

#[test]
fn a_client_that_does_not_know_the_authority_goes_no_further() {
    let stage = Stage::new();
    let daemon = stage.start();
    let other = Trust::of(&Authority::new("another"));
    for speaks in BOTH {
        let refused = Session::open(&daemon, &other, speaks).err().unwrap();
        assert!(refused.contains("UnknownIssuer"), "{refused}");
    }
}

#[test]
fn other_names_are_refused_in_both_versions() {
    let stage = Stage::new().set("http.hosts", "[\"jobs.example\"]");
    let daemon = stage.start();
    for speaks in BOTH {
        let mut session = stage.connect(&daemon, speaks);
        session.host = "evil.example".into();
        let refused = session.call("GET", "/v1/status", "");
        assert_eq!(refused.status, 403, "{speaks:?}");
        assert!(refused.json()["error"]["message"].as_str().unwrap().contains("evil.example"));
        session.host = "jobs.example:7600".into();
        session.ok("GET", "/v1/status", "");
    }
}
