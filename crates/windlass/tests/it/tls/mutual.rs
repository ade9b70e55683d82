//! Mutual TLS: a client without a certificate of the right authority is refused in the handshake.

use super::session::BOTH;
use super::{Authority, Session, Stage};

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
fn a_certificate_is_no_key() {
    let stage = Stage::new();
    let ca = stage.write("clients.pem", &stage.authority.pem());
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let known = stage.trust().with_identity(&stage.authority.issue());
    let session = Session::open(&daemon.without_key(), &known, BOTH[0]).unwrap();
    assert_eq!(session.call("GET", "/v1/status", "").status, 401);
}
