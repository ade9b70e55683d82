//! Guessing the passwords of jobd's daemons.

use std::sync::mpsc;

use serde_json::json;

use crate::jobd_harness::{Client, Daemon, Home, PATIENCE};

/// Far more than anybody mistypes. One after another, with their pauses, they take minutes.
const GUESSES: usize = 60;

fn daemons(home: &Home) -> [Daemon; 2] {
    [
        home.worker(&home.storage_conf().set("password", "secret")),
        home.master(&home.master_conf().set("password", "secret")),
    ]
}

/// Sends a password with the first request.
fn guess(daemon: &Daemon, password: &str) -> Client {
    let mut client = daemon.client();
    client.send_json(&json!([0, {"no": 1, "type": "status", "password": password}]));
    client
}

#[test]
fn passwords_are_not_compared_as_fast_as_they_are_guessed() {
    let home = Home::sqlite();
    for daemon in daemons(&home) {
        let (sender, told) = mpsc::channel();
        for number in 0..GUESSES {
            let (mut client, sender) = (guess(&daemon, &format!("guess {number}")), sender.clone());
            // Some are answered only when the daemon ends; nobody waits for them then.
            std::thread::spawn(move || client.try_receive().map(|answer| sender.send(answer)));
        }
        drop(sender);
        let next = || told.recv_timeout(PATIENCE).ok();
        let refused = std::iter::from_fn(next).any(|told| told.contains("too many wrong"));
        assert!(refused, "all guesses were compared");
    }
}

#[test]
fn a_right_password_is_accepted_after_wrong_ones() {
    let home = Home::sqlite();
    for daemon in daemons(&home) {
        for wrong in ["", "Secret", "secre"] {
            let mut client = guess(&daemon, wrong);
            assert_eq!(client.answer(1)["error"], "invalid password");
            client.closed();
        }
        assert!(guess(&daemon, "secret").answer(1)["data"].is_object());
        for _ in 0..GUESSES {
            assert!(guess(&daemon, "secret").answer(1)["data"].is_object());
        }
    }
}

/// The files that the packages install.
#[test]
fn the_sample_configurations_open_nothing() {
    for file in ["jobd.conf", "jobd-master.conf"] {
        let path = format!("{}/../../packaging/config/{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let is_set = |key: &str| text.lines().any(|line| line.starts_with(key));
        assert!(is_set("password = ") && !is_set("always_allow_localhost"), "{text}");
    }
}
