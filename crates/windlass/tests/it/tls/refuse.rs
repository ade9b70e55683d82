//! Files that cannot be used: the start is refused with one sentence that names file and reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{Issued, Stage};
use crate::harness::{Config, refused_start};

/// One sentence with these parts, and nothing was made.
#[track_caller]
fn assert_refused(stage: &Stage, parts: &[&str]) {
    let finished = refused_start(&stage.config);
    let lines: Vec<&str> = finished.stderr.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 1, "one sentence: {finished:?}");
    for part in parts {
        assert!(lines[0].contains(part), "{part:?} is not in {}", lines[0]);
    }
    assert!(!stage.config.home.data().exists(), "nothing was made");
}

#[test]
fn a_missing_file_is_named() {
    for (name, setting) in [("server.pem", "tls.cert"), ("server.key", "tls.key")] {
        let stage = Stage::new();
        fs::remove_file(stage.path(name)).unwrap();
        assert_refused(&stage, &[setting, name, "No such file"]);
    }
    let stage = Stage::new();
    let ca = format!("{:?}", stage.path("missing.pem"));
    assert_refused(&stage.set("tls.client_ca", &ca), &["tls.client_ca", "missing.pem"]);
}

#[test]
fn one_file_without_the_other_is_refused() {
    for (name, other) in [("tls.cert", "tls.key"), ("tls.key", "tls.cert")] {
        let config = Config::new().set(name, "\"/etc/ssl/x.pem\"");
        let finished = refused_start(&config);
        let told = format!("{name} is set, but {other} is not");
        assert!(finished.stderr.contains(&told), "{finished:?}");
    }
}

#[test]
fn a_certificate_out_of_its_time_is_refused() {
    let stage = Stage::new();
    stage.install(&stage.authority.issue_with(|params| {
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(2001, 2, 3);
    }));
    assert_refused(&stage, &["tls.cert", "server.pem", "expired at 2001-02-03 00:00:00 UTC"]);
    stage.install(&stage.authority.issue_with(|params| {
        params.not_before = rcgen::date_time_ymd(2090, 1, 1);
        params.not_after = rcgen::date_time_ymd(2091, 1, 1);
    }));
    assert_refused(&stage, &["tls.cert", "server.pem", "not valid before 2090-01-01"]);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let stage = Stage::new();
    let Issued { key, .. } = stage.authority.issue();
    stage.write("server.key", &key);
    assert_refused(&stage, &["tls.key", "server.key", "does not belong to", "server.pem"]);
}

#[test]
fn what_is_not_pem_is_refused() {
    for text in ["", "no certificate", "\u{1}\u{2}\u{3}"] {
        let stage = Stage::new();
        stage.write("server.pem", text);
        assert_refused(&stage, &["tls.cert", "server.pem", "no certificate in"]);
        let stage = Stage::new();
        stage.write("server.key", text);
        assert_refused(&stage, &["tls.key", "server.key", "no private key in"]);
    }
    let stage = Stage::new();
    stage.write("server.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    assert_refused(&stage, &["tls.cert", "server.pem", "is not valid PEM"]);
    stage.write("server.pem", "-----BEGIN CERTIFICATE-----\nQUJD\n");
    assert_refused(&stage, &["tls.cert", "server.pem", "does not end"]);
    stage.write("server.pem", "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n");
    assert_refused(&stage, &["tls.cert", "server.pem", "damaged"]);
}

#[test]
fn an_encrypted_key_is_refused() {
    let modern = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nQUJD\n-----END ENCRYPTED PRIVATE KEY-----";
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nQUJD\n\
               -----END RSA PRIVATE KEY-----";
    for text in [modern, old] {
        let stage = Stage::new();
        stage.write("server.key", text);
        assert_refused(&stage, &["tls.key", "server.key", "encrypted with a password"]);
    }
}

#[test]
fn an_empty_list_of_authorities_is_refused() {
    for text in ["", "none", "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----\n"] {
        let stage = Stage::new();
        let ca = stage.write("clients.pem", text);
        let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
        assert_refused(&stage, &["tls.client_ca", "clients.pem", "no certificate in"]);
    }
}

#[test]
fn a_key_that_everybody_can_read_is_refused_and_one_of_a_group_is_not() {
    let stage = Stage::new();
    let set = |mode| {
        fs::set_permissions(stage.path("server.key"), fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o644);
    assert_refused(&stage, &["tls.key", "server.key", "every user", "chmod o="]);
    set(0o640);
    stage.start();
}

#[test]
fn handlers_do_not_see_the_key() {
    let stage = Stage::new();
    let read = format!("[{:?}]", stage.path("."));
    assert_refused(&stage.set("isolation.read", &read), &["isolation.read allows"]);
}
