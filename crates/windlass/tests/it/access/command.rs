//! `windlass key`, `windlass login`, and where commands find their keys.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;

use crate::harness::{Config, Daemon, run, text, windlass};

/// A command that finds no key by itself.
fn command(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = windlass();
    command.args(arguments).env_remove("XDG_RUNTIME_DIR").current_dir(daemon.home().path("."));
    command.env("XDG_CONFIG_HOME", daemon.home().path("config"));
    if arguments[0] != "login" {
        command.args(["--url", &url(daemon)]);
    }
    command
}

fn url(daemon: &Daemon) -> String {
    format!("http://{}", daemon.address)
}

/// With the admin key.
fn admin(daemon: &Daemon, arguments: &[&str]) -> Command {
    let mut command = command(daemon, arguments);
    command.env("WINDLASS_KEY", daemon.key.unwrap());
    command
}

#[test]
fn a_command_without_a_key_says_what_to_do() {
    let daemon = Daemon::start(Config::new());
    let refused = run(&mut command(&daemon, &["status"]), b"");
    assert_eq!((refused.code, refused.stderr.lines().count()), (Some(1), 1), "{refused:?}");
    assert!(refused.stderr.contains("windlass login"), "{refused:?}");
    assert!(refused.stderr.contains("admin.key"), "where the first one is: {refused:?}");
    let wrong = run(&mut command(&daemon, &["status", "--key", "wl_wrong"]), b"");
    assert!(wrong.stderr.contains("not valid") && wrong.code == Some(1), "{wrong:?}");
}

#[test]
fn a_key_for_all_tenants_is_not_made_for_one() {
    let daemon = Daemon::start(Config::new());
    for role in ["admin", "metrics"] {
        let create = ["key", "create", role, "--tenant", "acme"];
        let refused = run(&mut admin(&daemon, &create), b"");
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
        assert!(refused.stderr.contains("all tenants"), "{refused:?}");
        let made = run(&mut admin(&daemon, &create[..3]), b"");
        assert!(made.stderr.contains(&format!("role {role} of all tenants")), "{made:?}");
    }
    let made = run(&mut admin(&daemon, &["key", "create", "worker", "--tenant", "acme"]), b"");
    assert!(made.stderr.contains("role worker of acme"), "{made:?}");
}

#[test]
fn a_key_comes_from_the_command_line_the_environment_or_the_daemon_itself() {
    let daemon = Daemon::start(Config::new());
    let key = daemon.key.unwrap();
    run(command(&daemon, &["status"]).args(["--key", key]), b"").ok();
    run(&mut admin(&daemon, &["status"]), b"").ok();
    // The daemon has left its key for commands of its user.
    run(windlass().args(["status", "--url", &url(&daemon)]), b"").ok();
    // The working directory has the data directory.
    let link = daemon.home().path("windlass-data");
    std::os::unix::fs::symlink(daemon.home().data(), link).unwrap();
    run(&mut command(&daemon, &["status"]), b"").ok();
}

#[test]
fn the_key_that_a_daemon_leaves_is_gone_when_it_stops() {
    let config = Config::new();
    let runtime = config.home.path("runtime");
    let mut serve = config.command();
    serve.env("XDG_RUNTIME_DIR", &runtime);
    let mut daemon = Daemon::start_command(config, &mut serve);
    let file = runtime.join(format!("windlass/{}.key", daemon.address));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), daemon.key.unwrap());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(daemon.terminate().success());
    assert!(!file.exists());
}

#[test]
fn login_saves_a_key_that_works_and_no_other() {
    let daemon = Daemon::start(Config::new());
    let file = daemon.home().path("config/windlass/keys.toml");
    let key = daemon.key.unwrap();
    for wrong in ["", "\n", "password", &format!("wl_{:016x}_{:064x}", 1, 2)] {
        let refused = run(&mut command(&daemon, &["login", &url(&daemon)]), wrong.as_bytes());
        assert_eq!(refused.code, Some(1), "{wrong}: {refused:?}");
        assert!(!file.exists(), "{wrong}");
    }
    let typed = format!("{key}\n");
    let said = run(&mut command(&daemon, &["login", &url(&daemon)]), typed.as_bytes()).ok();
    assert!(said.contains("keys.toml") && !said.contains(key), "{said}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    run(&mut command(&daemon, &["status"]), b"").ok();
}

#[test]
fn keys_are_made_listed_rotated_and_revoked() {
    let daemon = Daemon::start(Config::new());
    let create = ["key", "create", "viewer", "--tenant", "a", "--name", "eyes", "--expires", "1h"];
    let made = run(&mut admin(&daemon, &create), b"");
    let key = made.stdout.trim().to_owned();
    assert!(key.starts_with("wl_") && made.stderr.contains("viewer of a"), "{made:?}");
    let list = |key: &str| {
        let arguments = ["jobs", "list", "--tenant", "a", "--key", key];
        run(&mut command(&daemon, &arguments), b"").code
    };
    assert_eq!(list(&key), Some(0));
    let id = key.split('_').nth(1).unwrap();
    let shown = run(&mut admin(&daemon, &["key", "list"]), b"").ok();
    assert!(shown.contains(id) && shown.contains("eyes") && shown.contains("admin"), "{shown}");
    assert!(!shown.contains(key.rsplit('_').next().unwrap()), "{shown}");
    let listed = run(&mut admin(&daemon, &["key", "list", "--json"]), b"").json();
    assert_eq!(listed["keys"].as_array().map(Vec::len), Some(2), "{listed}");
    let rotate = ["key", "rotate", id, "--overlap", "1h", "--json"];
    let new = run(&mut admin(&daemon, &rotate), b"").json();
    assert_eq!((&new["role"], &new["name"]), (&json!("viewer"), &json!("eyes")));
    let new = text(&new["key"]);
    assert_eq!((list(&key), list(&new)), (Some(0), Some(0)));
    run(&mut admin(&daemon, &["key", "revoke", id, new.split('_').nth(1).unwrap()]), b"").ok();
    assert_eq!((list(&key), list(&new)), (Some(1), Some(1)));
    for arguments in [&["key", "revoke", "x/../y"][..], &["key", "create", "boss"]] {
        assert_eq!(run(&mut admin(&daemon, arguments), b"").code, Some(1), "{arguments:?}");
    }
    let metrics = run(&mut admin(&daemon, &["key", "create", "metrics"]), b"").ok();
    daemon.with_key(metrics.trim()).get("/metrics").expect(200);
}
