//! `windlass disbatch`: which server, which user, TLS, and what a failure looks like.

use serde_json::json;

use crate::harness::{Certificate, Dci, Home, client, free_port, run, windlass};

fn guarded(home: &Home) -> Dci {
    home.dci_with(json!({"users": {"ann": "secret: word"}}))
}

#[test]
fn a_user_logs_in() {
    let home = Home::released();
    home.queue("q");
    let dci = guarded(&home);
    let url = dci.url();
    let login = ["--url", &url, "--username", "ann", "--password", "secret: word", "queues"];
    let ended = client(&login);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("1 total queues."), "{ended:?}");
    let behind = ["queues", "--url", &url, "--username", "ann", "--password", "secret: word"];
    assert_eq!(client(&behind).stdout, ended.stdout, "options stand before or behind the command");
}

/// The original prints the password.
#[test]
fn a_password_is_never_printed() {
    let home = Home::released();
    let dci = guarded(&home);
    let url = dci.url();
    for password in ["secret: word", "my-wrong-secret"] {
        for command in [&["queues"][..], &["queues", "--json"], &["delete-queue", "none"], &["x"]] {
            let mut all = vec!["--url", &url, "--username", "ann", "--password", password];
            all.extend(command);
            let ended = client(&all);
            let told = format!("{}{}", ended.stdout, ended.stderr);
            assert!(!told.contains(password), "{command:?}: {told}");
        }
    }
    let down = format!("http://127.0.0.1:{}", free_port());
    let ended =
        client(&["--url", &down, "--username", "ann", "--password", "hidden-word", "queues"]);
    assert!(!format!("{ended:?}").contains("hidden-word"), "{ended:?}");
}

#[test]
fn a_refused_login_is_told() {
    let home = Home::released();
    let dci = guarded(&home);
    let url = dci.url();
    for arguments in [
        vec!["--url", &url, "queues"],
        vec!["--url", &url, "--username", "ann", "--password", "wrong", "queues"],
        vec!["--url", &url, "--username", "bob", "--password", "secret: word", "queues"],
    ] {
        let ended = client(&arguments);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains("login"), "{ended:?}");
    }
}

#[test]
fn name_and_password_go_together() {
    let home = Home::released();
    let url = home.dci().url();
    for arguments in [
        ["--url", &url, "--username", "ann", "queues"],
        ["--url", &url, "--password", "secret", "queues"],
    ] {
        let ended = client(&arguments);
        assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
        let told = ended.stderr;
        assert!(told.contains("--username") || told.contains("password"), "{told}");
    }
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let ended = client(&["--url", &url, "queues"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(ended.stdout, "");
    assert!(ended.stderr.contains(&url), "{ended:?}");
    assert!(!ended.stderr.contains("panicked"), "{ended:?}");
}

#[test]
fn an_address_that_is_none_is_told() {
    for url in ["nonsense", "ftp://127.0.0.1/", "http://", ""] {
        let ended = client(&["--url", url, "queues"]);
        assert!(matches!(ended.code, Some(1 | 2)), "{url} {ended:?}");
        assert!(!ended.stderr.is_empty() && !ended.stderr.contains("panicked"), "{url} {ended:?}");
    }
}

#[test]
fn an_address_may_end_in_a_slash() {
    let home = Home::released();
    let dci = home.dci();
    let ended = client(&["--url", &format!("{}/", dci.url()), "queues"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_server_that_is_something_else_is_told() {
    let home = Home::released();
    let dci = home.dci();
    let ended = client(&["--url", &format!("{}/nowhere", dci.url()), "queues"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(!ended.stderr.is_empty() && !ended.stderr.contains("panicked"), "{ended:?}");
}

#[test]
fn usage_is_told() {
    let ended = client(&["--help"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for word in [
        "--url",
        "http://localhost:8080",
        "--username",
        "--password",
        "--ssl_ca_file",
        "--disable_ssl_verification",
        "--config",
        "plugins",
        "queues",
        "create-queue",
        "update-queue",
        "delete-queue",
        "create-task",
        "create-tasks",
        "tasks",
    ] {
        assert!(ended.stdout.contains(word), "{word} is not in {}", ended.stdout);
    }
    for wrong in [&["search", "{}"][..], &["nonsense"], &["--nonsense", "queues"]] {
        let ended = client(wrong);
        assert_eq!(ended.code, Some(2), "{wrong:?} {ended:?}");
        assert!(ended.stderr.contains(wrong[0]), "{wrong:?} {ended:?}");
    }
}

#[test]
fn a_private_certificate_is_trusted_when_its_file_is_named() {
    let home = Home::released();
    let certificate = Certificate::new(home.folder());
    let dci = home.dci_with(json!({"tls": certificate.config()}));
    let url = format!("https://localhost:{}", dci.port);
    let file = certificate.cert.to_str().unwrap();
    let ended = client(&["--url", &url, "queues"]);
    assert_eq!(ended.code, Some(1), "a stranger is not trusted: {ended:?}");
    assert!(ended.stderr.contains("certificate"), "{ended:?}");
    let ended = client(&["--url", &url, "--ssl_ca_file", file, "queues"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = client(&["--url", &url, "--disable_ssl_verification", "queues"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = client(&["--url", &url, "--ssl_ca_file", "/nonexistent/ca.pem", "queues"]);
    assert!(matches!(ended.code, Some(1 | 2)), "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/ca.pem"), "{ended:?}");
}

/// The settings are those for the database, as in the original.
#[test]
fn the_settings_of_the_config_are_used() {
    let home = Home::released();
    let certificate = Certificate::new(home.folder());
    let dci = home.dci_with(json!({"tls": certificate.config()}));
    let url = format!("https://localhost:{}", dci.port);
    for (ssl, code) in [
        (json!({"SSL_ca_file": certificate.cert}), 0),
        (json!({"SSL_verify_mode": 0}), 0),
        (json!(1), 1),
    ] {
        let file = home.write(&json!({"attributes": {"ssl": ssl}}));
        let ended = client(&["--url", &url, "--config", file.to_str().unwrap(), "queues"]);
        assert_eq!(ended.code, Some(code), "{ssl} {ended:?}");
    }
}

/// A mistyped name must not lead to trusting other certificates.
#[test]
fn a_config_that_is_named_must_be_there() {
    let home = Home::released();
    let dci = home.dci();
    let url = dci.url();
    let ended = client(&["--url", &url, "--config", "/nonexistent/config.json", "queues"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("/nonexistent/config.json"), "{ended:?}");
}

#[test]
fn help_shows_nothing_of_the_environment() {
    let mut command = windlass(&["disbatch", "--help"]);
    command.env("DISBATCH_URL", "https://ann:hidden-word@example.com");
    let ended = run(command, "");
    assert!(ended.stdout.contains("DISBATCH_URL"), "{ended:?}");
    assert!(!ended.stdout.contains("hidden-word"), "{ended:?}");
}

/// They would apply to the whole program, which talks to a different kind of server.
#[test]
fn options_in_front_of_the_command_are_refused() {
    let home = Home::released();
    let dci = home.dci();
    let url = dci.url();
    for options in [&["--url", &url][..], &["--json"], &["--tenant", "a"]] {
        let ended = run(windlass(&[options, &["disbatch", "queues"]].concat()), "");
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(options[0]), "{ended:?}");
        assert!(ended.stderr.contains("after `disbatch`"), "{ended:?}");
    }
    let mut command = windlass(&["disbatch", "--url", &url, "queues"]);
    command.env("WINDLASS_URL", "http://127.0.0.1:1");
    assert_eq!(run(command, "").code, Some(0));
}
