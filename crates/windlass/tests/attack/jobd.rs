//! Guessing the passwords of jobd's daemons.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::sync::mpsc;

use serde_json::json;

use crate::jobd_harness::{Client, Daemon, Home, PATIENCE, program};
use crate::users::NOBODY;

/// Far more than anybody mistypes. One after another, with their pauses, they take minutes.
const GUESSES: usize = 60;

/// A worker and a master of this user, with a password.
fn daemons(home: &Home, user: u32) -> [Daemon; 2] {
    [("jobd", home.storage_conf()), ("jobd-master", home.master_conf())].map(|(name, conf)| {
        let conf = conf.set("password", "secret");
        let file = home.path(&format!("{name}.conf"));
        conf.write(&file);
        for path in [home.folder(), &file, &home.path("jobs.db")] {
            chown(path, Some(user), Some(user)).unwrap();
        }
        let mut command = program(name);
        command.arg("--config").arg(&file).uid(user).gid(user);
        let mut daemon = Daemon::spawn(command, home.folder(), conf.port());
        daemon.listening();
        daemon
    })
}

/// The attack on daemons of each user.
fn as_root_and_as_nobody(attack: impl Fn(Daemon)) {
    for user in [0, NOBODY] {
        let home = Home::sqlite();
        daemons(&home, user).into_iter().for_each(&attack);
    }
}

/// Sends a password with the first request.
fn guess(daemon: &Daemon, password: &str) -> Client {
    let mut client = daemon.client();
    client.send_json(&json!([0, {"no": 1, "type": "status", "password": password}]));
    client
}

#[test]
fn passwords_are_not_compared_as_fast_as_they_are_guessed() {
    as_root_and_as_nobody(|daemon| {
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
    });
}

#[test]
fn a_right_password_is_accepted_after_wrong_ones() {
    as_root_and_as_nobody(|daemon| {
        for wrong in ["", "Secret", "secre"] {
            let mut client = guess(&daemon, wrong);
            assert_eq!(client.answer(1)["error"], "invalid password");
            client.closed();
        }
        assert!(guess(&daemon, "secret").answer(1)["data"].is_object());
        for _ in 0..GUESSES {
            assert!(guess(&daemon, "secret").answer(1)["data"].is_object());
        }
    });
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
