//! Mutual TLS: a client without a certificate of the right authority is refused in the handshake.

use serde_json::{Value, json};

use super::session::BOTH;
use super::{Authority, Session, Stage, Trust};
use crate::harness::until;

#[test]
fn only_clients_with_a_certificate_of_the_authority_come_in() {
    let stage = Stage::new();
    let clients = Authority::new("clients");
    let ca = stage.write("clients.pem", &clients.pem());
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let stranger = Authority::new("strangers").issue();
    let expired = clients.issue_with(|params| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    for speaks in BOTH {
        let known = stage.trust().with_identity(&clients.issue());
        let session = Session::open(&daemon, &known, speaks).unwrap();
        session.ok("POST", "/v1/a/jobs/t", "x");
        // In TLS 1.3 a client learns of the refusal when it reads.
        for (trust, who) in [
            (stage.trust(), "without a certificate"),
            (stage.trust().with_identity(&stranger), "of another authority"),
            (stage.trust().with_identity(&expired), "expired"),
        ] {
            let opened = Session::open(&daemon, &trust, speaks);
            let answer = opened.and_then(|session| session.try_call("GET", "/healthz", ""));
            assert!(answer.is_err(), "{who}: {answer:?}");
        }
        session.ok("GET", "/v1/status", "");
    }
}

#[test]
fn refused_certificates_are_in_the_audit_and_other_broken_handshakes_are_not() {
    let clients = Authority::new("clients");
    let strange = Authority::new("strangers").issue();
    let expired = clients.issue_with(|params| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    });
    for (who, identity) in [
        ("without a certificate", None),
        ("of another authority", Some(&strange)),
        ("expired", Some(&expired)),
    ] {
        let stage = Stage::new();
        let ca = stage.write("clients.pem", &clients.pem());
        let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
        let daemon = stage.start();
        let known = stage.trust().with_identity(&clients.issue());
        let session = Session::open(&daemon, &known, BOTH[0]).unwrap();
        let refusals = || {
            let entries = session.call("GET", "/v1/audit", "").json()["entries"].clone();
            let mut entries = entries.as_array().unwrap().clone();
            entries.retain(|entry| entry["action"] != "admin_key_create");
            entries
        };
        // A client that does not trust the daemon ends the handshake itself.
        let doubtful = Trust::of(&Authority::new("two")).with_identity(&clients.issue());
        assert!(Session::open(&daemon, &doubtful, BOTH[0]).is_err());
        let trust = match identity {
            Some(issued) => stage.trust().with_identity(issued),
            None => stage.trust(),
        };
        // In TLS 1.3 a client learns of the refusal when it reads.
        let opened = Session::open(&daemon, &trust, BOTH[0]);
        let answer = opened.and_then(|session| session.try_call("GET", "/healthz", ""));
        assert!(answer.is_err(), "{who}: {answer:?}");
        let entries = until("the refusal is stored", refusals, |entries| !entries.is_empty());
        assert_eq!(entries.len(), 1, "{who}: {entries:?}");
        let entry = &entries[0];
        assert_eq!((&entry["by"], &entry["address"]), (&json!("nobody"), &json!("127.0.0.1")));
        assert_eq!(entry["action"], "tls_handshake", "{who}");
        assert_eq!(entry["reason"], "certificate", "{who}");
        assert_eq!((&entry["status"], &entry["count"]), (&Value::Null, &json!(1)), "{who}");
    }
}

#[test]
fn a_certificate_is_no_key() {
    let stage = Stage::new();
    let ca = stage.write("clients.pem", &stage.authority.pem());
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let known = stage.trust().with_identity(&stage.authority.issue());
    let session = Session::open(&daemon.without_key(), &known, BOTH[0]).unwrap();
    assert_eq!(session.call("GET", "/v1/status", "").status, 401);
}
