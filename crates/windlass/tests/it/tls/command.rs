//! Commands that talk to a daemon over TLS.

use std::process::Command;

use rustix::process::Signal;

use super::{Authority, Stage};
use crate::harness::{Config, Daemon, run, until, windlass};

/// A command that finds nothing by itself.
fn command(stage: &Stage, daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = windlass();
    command.args(arguments).env_remove("XDG_RUNTIME_DIR").current_dir(stage.path("."));
    command.env("XDG_CONFIG_HOME", stage.path("config"));
    if arguments[0] != "login" {
        command.args(["--url", &url(daemon)]).env("WINDLASS_KEY", daemon.key.unwrap());
    }
    command
}

fn url(daemon: &Daemon) -> String {
    format!("https://localhost:{}", daemon.address.port())
}

/// One sentence, and the exit code of a refusal.
#[track_caller]
fn refused(command: &mut Command) -> String {
    let refused = run(command, b"");
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(1), 1), "{refused:?}");
    refused.stderr
}

#[test]
fn the_authority_comes_from_a_flag_or_the_environment() {
    let stage = Stage::new();
    let daemon = stage.start();
    run(&mut command(&stage, &daemon, &["status", "--ca", "ca.pem"]), b"").ok();
    run(command(&stage, &daemon, &["status"]).env("WINDLASS_CA", "ca.pem"), b"").ok();
    let told = refused(&mut command(&stage, &daemon, &["status"]));
    assert!(told.contains("UnknownIssuer") && told.contains("--ca"), "{told}");
    stage.write("other.pem", &Authority::new("another").pem());
    let told = refused(&mut command(&stage, &daemon, &["status", "--ca", "other.pem"]));
    assert!(told.contains("certificate"), "{told}");
    for file in ["missing.pem", "server.key"] {
        let told = refused(&mut command(&stage, &daemon, &["status", "--ca", file]));
        assert!(told.contains(file), "{told}");
    }
}

#[test]
fn login_saves_the_files_with_the_key() {
    let stage = Stage::new();
    let ca = stage.path("ca.pem");
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let client = stage.authority.issue();
    stage.write("client.pem", &client.cert);
    stage.write("client.key", &client.key);
    let key = format!("{}\n", daemon.key.unwrap());
    let files = ["--ca", "ca.pem", "--cert", "client.pem", "--cert-key", "client.key"];
    let url = url(&daemon);
    let login = [&["login", url.as_str()], &files[..]].concat();
    run(&mut command(&stage, &daemon, &login), key.as_bytes()).ok();
    // From another directory, without any of them.
    let mut status = command(&stage, &daemon, &["status"]);
    run(status.env_remove("WINDLASS_KEY").current_dir("/"), b"").ok();
}

#[test]
fn a_client_certificate_is_sent() {
    let stage = Stage::new();
    let ca = stage.path("ca.pem");
    let stage = stage.set("tls.client_ca", &format!("{ca:?}"));
    let daemon = stage.start();
    let client = stage.authority.issue();
    stage.write("client.pem", &client.cert);
    stage.write("client.key", &client.key);
    stage.write("both.pem", &format!("{}{}", client.cert, client.key));
    let status =
        |more: &[&str]| command(&stage, &daemon, &[&["status", "--ca", "ca.pem"], more].concat());
    run(&mut status(&["--cert", "client.pem", "--cert-key", "client.key"]), b"").ok();
    run(&mut status(&["--cert", "both.pem"]), b"").ok();
    let mut by_environment = status(&[]);
    by_environment.env("WINDLASS_CERT", "client.pem").env("WINDLASS_CERT_KEY", "client.key");
    run(&mut by_environment, b"").ok();
    let told = refused(&mut status(&[]));
    assert!(told.contains("--cert"), "{told}");
    let told = refused(&mut status(&["--cert", "client.pem"]));
    assert!(told.contains("no private key in client.pem"), "{told}");
    let misused = run(&mut status(&["--cert-key", "client.key"]), b"");
    assert_eq!(misused.code, Some(2), "{misused:?}");
    assert!(misused.stderr.contains("--cert FILE"), "{misused:?}");
}

#[test]
fn a_wrong_scheme_is_explained() {
    let stage = Stage::new();
    let daemon = stage.start();
    let mut plain = windlass();
    plain.args(["status", "--url", &url(&daemon).replace("https", "http")]);
    plain.env_remove("XDG_RUNTIME_DIR").current_dir(stage.path("."));
    let told = refused(&mut plain);
    assert!(told.contains("this port speaks TLS"), "{told}");
    let daemon = Daemon::start(Config::new());
    let told = refused(&mut command(&stage, &daemon, &["status"]));
    assert!(told.contains("http://"), "{told}");
}

/// The daemon has left its key and its certificate for commands of its user.
#[test]
fn a_daemon_of_this_machine_is_found_with_tls_as_without() {
    let stage = Stage::new();
    // For another name, and at every address.
    stage.install(&stage.authority.issue_with(|params| params.subject_alt_names.clear()));
    let config = stage.config.clone().flag("--listen").flag("0.0.0.0:0");
    let mut daemon = Daemon::start(config);
    let port = daemon.address.port();
    for url in [
        format!("http://127.0.0.1:{port}"),
        format!("https://127.0.0.1:{port}/"),
        format!("http://localhost:{port}"),
    ] {
        run(windlass().args(["status", "--url", &url]), b"").ok();
    }
    let script = daemon.home().write("hello.sh", "cat");
    let url = format!("http://127.0.0.1:{port}");
    let run_it = ["run", script.to_str().unwrap(), "--payload", "world", "--url", &url];
    run(windlass().args(run_it), b"").ok();
    // It follows a new certificate.
    let new = stage.authority.issue();
    stage.install(&new);
    daemon.signal(Signal::HUP);
    let shown = || run(windlass().args(["status", "--url", &url]), b"").code;
    until("the command knows the certificate", shown, |code| *code == Some(0));
    assert!(daemon.terminate().success());
    let told = refused(windlass().args(["status", "--url", &url]));
    assert!(told.contains("cannot reach"), "{told}");
}
