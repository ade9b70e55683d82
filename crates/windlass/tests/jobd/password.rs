//! Passwords in every position: section 1 of the contract.

use serde_json::{Value, json};

use crate::harness::{Conf, Daemon, Home, error_zero, until};

fn both(home: &Home, change: impl Fn(Conf) -> Conf) -> [Daemon; 2] {
    [home.worker(&change(home.conf())), home.master(&change(home.master_conf()))]
}

const REFUSED: &str = r#"[1,{"no":7,"error":"invalid password"}]"#;

#[test]
fn without_a_password_everything_is_allowed_and_sent_ones_are_ignored() {
    let home = Home::new();
    for daemon in both(&home, |conf| conf) {
        let mut client = daemon.client();
        client.send(r#"[0,{"no":1,"type":"status","password":"whatever"}]"#);
        assert!(client.answer(1)["data"].is_object());
    }
}

#[test]
fn the_first_request_must_carry_it_and_later_ones_are_not_compared() {
    let home = Home::new();
    for daemon in both(&home, |conf| conf.set("password", "secret")) {
        let mut client = daemon.client();
        client.send(r#"[0,{"no":1,"type":"status","password":"secret"}]"#);
        assert!(client.answer(1)["data"].is_object());
        client.send(r#"[0,{"no":2,"type":"status"}]"#);
        assert!(client.answer(2)["data"].is_object());
        client.send(r#"[0,{"no":3,"type":"status","password":"wrong"}]"#);
        assert!(client.answer(3)["data"].is_object());
    }
}

#[test]
fn a_wrong_or_missing_one_is_refused_and_the_connection_closed() {
    let home = Home::new();
    for daemon in both(&home, |conf| conf.set("password", "secret")) {
        for first in [
            r#"[0,{"no":7,"type":"status"}]"#,
            r#"[0,{"no":7,"type":"status","password":""}]"#,
            r#"[0,{"no":7,"type":"status","password":"Secret"}]"#,
            r#"[0,{"no":7,"type":"status","password":"secret "}]"#,
            r#"[0,{"no":7,"type":"no such request","password":"secre"}]"#,
        ] {
            let mut client = daemon.client();
            assert_eq!(client.exchange(first), REFUSED, "{first}");
            client.closed();
        }
    }
}

#[test]
fn what_was_pipelined_behind_a_wrong_one_is_dropped() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", "secret"));
    let mut client = worker.client();
    client.send_bytes(
        b"[0,{\"no\":7,\"type\":\"status\"}]\x04\
          [0,{\"no\":8,\"type\":\"pause\",\"password\":\"secret\"}]\x04[2]\x04",
    );
    assert_eq!(client.receive(), REFUSED);
    client.closed();
    let mut other = worker.client();
    other.send(r#"[0,{"no":1,"type":"status","password":"secret"}]"#);
    assert_eq!(other.answer(1)["data"]["targets"]["low"]["paused"], false);
}

#[test]
fn pings_and_malformed_messages_need_none() {
    let home = Home::new();
    for daemon in both(&home, |conf| conf.set("password", "secret")) {
        let mut client = daemon.client();
        assert_eq!(client.exchange("[2]"), "[3]");
        client.send("{broken");
        let told = client.exchange("[0,{}]");
        let wanted = "malformed REQUEST message: missing required field type";
        assert_eq!(told, error_zero(wanted));
        client.send(r#"[0,{"no":1,"type":"status","password":"secret"}]"#);
        assert!(client.answer(1)["data"].is_object());
    }
}

#[test]
fn localhost_needs_none_when_it_is_always_allowed() {
    let home = Home::new();
    for yes in ["true", "1"] {
        let change = |conf: Conf| conf.set("password", "s").set("always_allow_localhost", yes);
        for daemon in both(&home, change) {
            assert!(daemon.client().ask("status", Value::Null).is_object());
        }
    }
    for no in ["false", "0", "yes", "on"] {
        let change = |conf: Conf| conf.set("password", "s").set("always_allow_localhost", no);
        for daemon in both(&home, change) {
            let mut client = daemon.client();
            assert_eq!(client.refused("status", Value::Null), "invalid password", "{no}");
        }
    }
}

#[test]
fn a_typed_password_never_matches() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", "true"));
    let mut client = worker.client();
    let told = client.exchange(r#"[0,{"no":7,"type":"status","password":"true"}]"#);
    assert_eq!(told, REFUSED);
    client.closed();
}

#[test]
fn a_quoted_password_may_hold_anything() {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("password", r#""a;b#c \u00e9""#));
    let mut client = worker.client();
    client.send_json(&json!([0, {"no": 1, "type": "status", "password": "a;b#c é"}]));
    assert!(client.answer(1)["data"].is_object());
}

#[test]
fn a_worker_uses_its_own_password_towards_the_master() {
    let home = Home::new();
    let master = home.master(&home.master_conf().set("password", "shared"));
    let linked = |password: &str, name: &str| {
        home.conf()
            .set("password", password)
            .set("name", name)
            .set("master_host", "127.0.0.1")
            .set("master_port", master.port())
            .set("master_reconnect_timeout", 1)
    };
    let _wrong = home.worker(&linked("other", "wrong"));
    let _right = home.worker(&linked("shared", "right"));
    let mut client = master.client();
    client.send(r#"[0,{"no":0,"type":"status","password":"shared"}]"#);
    client.receive();
    until("the worker with the right password is there", || {
        let workers = client.ask("status", Value::Null)["workers"].clone();
        assert!(!workers.to_string().contains("wrong"), "{workers}");
        workers.to_string().contains("right")
    });
}

/// Everything that was written while passwords were sent, right and wrong, at every level.
#[test]
fn passwords_never_reach_a_log() {
    let home = Home::new();
    let words = ["opensesame", "wrongword", "laterword"];
    let log = |name: &str| home.path(name).display().to_string();
    let loud = |conf: Conf, file: &str| {
        conf.set("password", words[0])
            .set("log_file", log(file))
            .set("log_level_file", "trace")
            .set("log_level_console", "trace")
    };
    let master = home.master(&loud(home.master_conf(), "master.log"));
    let conf = loud(home.conf(), "worker.log")
        .set("master_host", "127.0.0.1")
        .set("master_port", master.port());
    let worker = home.worker(&conf);
    for daemon in [&master, &worker] {
        let mut client = daemon.client();
        client.send_json(&json!([0, {"no": 1, "type": "status", "password": words[0]}]));
        client.receive();
        client.send_json(&json!([0, {"no": 2, "type": "status", "password": words[2]}]));
        client.receive();
        client.send_json(&json!([0, {"no": 3, "type": "odd", "password": words[2]}]));
        client.receive();
        client.send_json(&json!([0, {"no": "x", "type": "odd", "password": words[2]}]));
        client.receive();
        client.send(r#"[0,{"no":4,"type":"x","password":"laterword"},"#);
        client.nothing_came();
        let mut stranger = daemon.client();
        stranger.send_json(&json!([0, {"no": 1, "type": "status", "password": words[1]}]));
        stranger.receive();
        stranger.closed();
    }
    until("both logs have something", || {
        ["master.log", "worker.log"].iter().all(|file| !home.lines(file).is_empty())
    });
    for text in [
        home.lines("master.log").join("\n"),
        home.lines("worker.log").join("\n"),
        master.console(),
        worker.console(),
    ] {
        for word in words.iter().chain([&home.base.server().password()]) {
            assert!(!text.contains(word), "{word} in {text}");
        }
    }
}
