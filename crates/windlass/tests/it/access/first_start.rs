//! The admin key in the data directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::harness::{Config, Daemon, refused_start, until};

fn file(config: &Config) -> PathBuf {
    config.home.data().join("admin.key")
}

fn key(config: &Config) -> String {
    fs::read_to_string(file(config)).unwrap().trim().to_owned()
}

#[test]
fn the_first_start_makes_a_key_and_names_its_file_but_not_the_key() {
    let daemon = Daemon::start(Config::new());
    let key = key(&daemon.config);
    assert_eq!(file(&daemon.config).metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let made = || daemon.log.entries().iter().map(ToString::to_string).collect::<String>();
    let log = until("the file is named", made, |log| log.contains("admin.key"));
    let (id, secret) = key.strip_prefix("wl_").unwrap().split_once('_').unwrap();
    assert!(log.contains(id) && !log.contains(secret), "{log}");
    daemon.status();
    daemon.without_key().get("/v1/status").expect(401);
    assert_eq!(daemon.without_key().get("/healthz").expect(200).text(), "ok");
}

#[test]
fn later_starts_keep_the_key() {
    let mut daemon = Daemon::start(Config::new());
    let first = key(&daemon.config);
    daemon.kill9();
    daemon.restart();
    assert_eq!(key(&daemon.config), first);
    daemon.status();
}

/// A crash between the file and the store leaves this.
#[test]
fn a_key_in_the_file_that_is_not_stored_is_stored_by_the_next_start() {
    let config = Config::new();
    let made = Daemon::start(Config::new());
    fs::create_dir(config.home.data()).unwrap();
    fs::write(file(&config), key(&made.config)).unwrap();
    let daemon = Daemon::start(config);
    assert_eq!(key(&daemon.config), key(&made.config));
    daemon.status();
}

/// As after a restored backup.
#[test]
fn without_the_file_a_new_key_is_made_and_the_old_one_stays() {
    let mut daemon = Daemon::start(Config::new());
    let old = key(&daemon.config);
    assert!(daemon.terminate().success());
    fs::remove_file(file(&daemon.config)).unwrap();
    daemon.restart();
    assert_ne!(key(&daemon.config), old);
    daemon.status();
    daemon.with_key(&old).status();
}

#[test]
fn a_file_that_holds_no_key_is_refused_and_named() {
    let config = Config::new();
    fs::create_dir(config.home.data()).unwrap();
    fs::write(file(&config), "wl_cut").unwrap();
    let refused = refused_start(&config);
    assert!(refused.stderr.contains("admin.key holds no key"), "{refused:?}");
}

#[test]
fn daemons_of_one_data_directory_have_one_key() {
    let config = Config::new();
    let daemons: Vec<Daemon> = std::thread::scope(|scope| {
        let starts: Vec<_> =
            (0..3).map(|_| scope.spawn(|| Daemon::start(config.clone()))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let key = key(&config);
    for daemon in &daemons {
        daemon.with_key(&key).status();
    }
}

#[test]
fn insecure_switches_keys_off_and_says_so() {
    let daemon = Daemon::start(Config::new().flag("--insecure"));
    assert!(!file(&daemon.config).exists());
    let client = daemon.without_key();
    client.get("/v1/status").expect(200);
    client.tenant("a").add_one("t", "x");
    let log = || daemon.log.entries().iter().map(ToString::to_string).collect::<String>();
    until("it is said", log, |log| log.contains("API keys are switched off"));
}
