//! A running daemon takes new certificates, and connections that are open go on.

use rustix::process::Signal;

use super::session::BOTH;
use super::{Authority, Session, Speaks, Stage};
use crate::harness::{Config, Daemon, until};

/// Waits until new connections get this certificate.
#[track_caller]
fn until_shown(stage: &Stage, daemon: &Daemon, certificate: &[u8]) {
    let shown = || stage.connect(daemon, Speaks::Http1).certificate;
    until("the new certificate is in use", shown, |shown| shown == certificate);
}

#[track_caller]
fn until_logged(daemon: &Daemon, part: &str) -> String {
    let lines = || daemon.log.lines().into_iter().filter(|line| line.contains(part)).collect();
    until(&format!("{part} is logged"), lines, |lines: &Vec<String>| !lines.is_empty()).remove(0)
}

#[test]
fn a_hangup_loads_the_certificate_again_and_open_connections_go_on() {
    let stage = Stage::new();
    let daemon = stage.start();
    let open = BOTH.map(|speaks| stage.connect(&daemon, speaks));
    let new = stage.authority.issue();
    stage.install(&new);
    daemon.signal(Signal::HUP);
    until_shown(&stage, &daemon, &new.der);
    for session in open {
        assert_ne!(session.certificate, new.der);
        session.ok("GET", "/v1/status", "");
    }
}

#[test]
fn a_changed_file_is_loaded_by_itself() {
    let stage = Stage::new();
    let daemon = stage.start();
    let open = stage.connect(&daemon, Speaks::Http2);
    let new = stage.authority.issue();
    stage.install(&new);
    until_shown(&stage, &daemon, &new.der);
    open.ok("GET", "/v1/status", "");
    // The certificate before the key: for a moment they do not belong together.
    let newer = stage.authority.issue();
    stage.write("server.pem", &newer.cert);
    stage.write("server.key", &newer.key);
    until_shown(&stage, &daemon, &newer.der);
}

#[test]
fn the_authority_of_clients_is_loaded_again_too() {
    let stage = Stage::new();
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let ca = stage.write("clients.pem", &old.pem());
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let answers = |authority: &Authority| {
        let trust = stage.trust().with_identity(&authority.issue());
        let opened = Session::open(&daemon, &trust, Speaks::Http2);
        opened.and_then(|session| session.try_call("GET", "/healthz", "")).is_ok()
    };
    assert!(answers(&old) && !answers(&new));
    stage.write("clients.pem", &new.pem());
    until("the new authority counts", || answers(&new), |answers| *answers);
    assert!(!answers(&old));
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_is_named() {
    let stage = Stage::new();
    let first = stage.authority.issue();
    stage.install(&first);
    let daemon = stage.start();
    stage.write("server.pem", "nothing");
    daemon.signal(Signal::HUP);
    let told = until_logged(&daemon, "there is no certificate in");
    assert!(told.contains("server.pem") && told.contains("stays in use"), "{told}");
    until_shown(&stage, &daemon, &first.der);
    // Without a signal, too.
    stage.write("server.pem", &stage.authority.issue().cert);
    let told = until_logged(&daemon, "does not belong to");
    assert!(told.contains("server.key") && told.contains("stays in use"), "{told}");
    until_shown(&stage, &daemon, &first.der);
    let good = stage.authority.issue();
    stage.install(&good);
    until_shown(&stage, &daemon, &good.der);
}

#[test]
fn a_certificate_that_expires_soon_is_a_warning() {
    let soon = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let soon = soon.checked_add(jiff::Span::new().days(3)).unwrap();
    let stage = Stage::new();
    stage.install(&stage.authority.issue_with(|params| {
        let (year, month, day) = (soon.year().into(), soon.month() as u8, soon.day() as u8);
        params.not_after = rcgen::date_time_ymd(year, month, day);
    }));
    let daemon = stage.start();
    let told = until_logged(&daemon, "replace the file");
    assert!(told.contains("server.pem") && told.contains(&format!("expires at {soon}")), "{told}");
}

#[test]
fn a_hangup_does_not_end_a_daemon_that_has_nothing_to_load() {
    let mut daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let id = tenant.add_one("t", "x");
    until("the job runs", || daemon.home().lines("seen").len(), |n| *n == 1);
    for _ in 0..3 {
        daemon.signal(Signal::HUP);
    }
    until_logged(&daemon, "nothing to load");
    assert!(!daemon.has_exited());
    daemon.home().let_go("hold");
    assert_eq!(tenant.until_end(&id)["attempt"], 1);
    daemon.signal(Signal::HUP);
    assert!(daemon.terminate().success(), "and it still stops in order");
}
