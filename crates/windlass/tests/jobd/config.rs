//! Configuration files that are wrong, with the exact texts: section 6 of the contract.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use crate::harness::{Conf, Ended, Home, free_port, program, run};

/// A valid worker file; its database need not exist.
fn worker_conf() -> Conf {
    Conf::new(&[("host", "127.0.0.1"), ("port", "7080")])
        .set("mysql_host", "127.0.0.1")
        .set("mysql_port", 1)
        .set("mysql_user", "u")
        .set("mysql_password", "p")
        .set("mysql_database", "d")
        .set("mysql_table", "jobs")
        .set("launcher", "/bin/true {id}")
        .targets(&[("low", "1")])
}

fn master_conf() -> Conf {
    Conf::new(&[("host", "127.0.0.1"), ("port", "7081")])
}

fn started(name: &str, text: &str) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("conf");
    fs::write(&file, text).unwrap();
    let mut command = program(name);
    command.arg("--config").arg(&file);
    run(command, "")
}

fn refused(name: &str, conf: &Conf, wanted: &str) {
    refused_text(name, &conf.text(), wanted);
}

fn refused_text(name: &str, text: &str, wanted: &str) {
    let ended = started(name, text);
    assert_eq!(ended.code, Some(1), "{ended:?} {text}");
    assert_eq!(ended.stderr, format!("config parsing error: {wanted}\n"), "{text}");
    assert_eq!(ended.stdout, "", "{text}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    for name in ["jobd", "jobd-master"] {
        let mut command = program(name);
        command.args(["--config", "/nowhere/at all.conf"]);
        let ended = run(command, "");
        assert_eq!(ended.code, Some(1));
        let wanted = "config parsing error: file /nowhere/at all.conf not found\n";
        assert_eq!(ended.stderr, wanted);
    }
}

#[test]
fn required_keys_of_a_worker_are_asked_for_in_their_order() {
    let required = [
        "host",
        "port",
        "mysql_host",
        "mysql_port",
        "mysql_user",
        "mysql_password",
        "mysql_database",
        "mysql_table",
        "launcher",
    ];
    for key in required {
        let wanted = format!("'{key}' is not defined");
        refused("jobd", &worker_conf().without(key), &wanted);
        refused("jobd", &worker_conf().set(key, ""), &wanted);
    }
    // The first missing key is named.
    let mut conf = worker_conf().without_targets();
    for key in required.iter().rev() {
        conf = conf.without(key);
        refused("jobd", &conf, &format!("'{key}' is not defined"));
    }
    refused("jobd", &worker_conf().without_targets(), "'targets' is not defined");
}

#[test]
fn required_keys_of_a_master_are_asked_for() {
    refused("jobd-master", &master_conf().without("host"), "'host' is not defined");
    refused("jobd-master", &master_conf().without("port"), "'port' is not defined");
    refused_text("jobd-master", "", "'host' is not defined");
}

#[test]
fn whole_numbers_must_look_like_numbers() {
    for key in ["port", "master_port", "master_reconnect_timeout"] {
        let wanted = format!("'{key}' must be an integer");
        refused("jobd", &worker_conf().set(key, "ten"), &wanted);
    }
    for key in ["mysql_port", "mysql_fetch_limit", "max_output_buffer"] {
        let wanted = format!("'{key}' must be an integer");
        refused("jobd", &worker_conf().set(key, "1x"), &wanted);
    }
    for key in ["port", "ping_interval"] {
        let wanted = format!("'{key}' must be an integer");
        refused("jobd-master", &master_conf().set(key, "soon"), &wanted);
    }
    let wanted = "'poke_throttle_interval' must be a float";
    refused("jobd-master", &master_conf().set("poke_throttle_interval", "soon"), wanted);
}

#[test]
fn targets_are_a_section_of_numbers_of_at_least_one() {
    let text = format!("targets = low\n{}", worker_conf().without_targets().text());
    refused_text("jobd", &text, "'targets' must be an object");
    let table = [
        ("low", "many", "value of target 'low' must be a number"),
        ("low", "1x", "value of target 'low' must be a number"),
        ("low", "0", "target 'low' has invalid value"),
        ("low", "-3", "target 'low' has invalid value"),
        ("null", "1", "word 'null' is reserved, please don't use it as a target name"),
    ];
    for (name, value, wanted) in table {
        refused("jobd", &worker_conf().targets(&[(name, value)]), wanted);
    }
}

#[test]
fn a_level_that_is_none_is_refused() {
    for name in ["jobd", "jobd-master"] {
        let conf = if name == "jobd" { worker_conf() } else { master_conf() };
        let ended = started(name, &conf.set("log_level_console", "loud").text());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let told = ended.stdout + &ended.stderr;
        assert!(told.contains("Level loud is not allowed."), "{told}");
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let conf = master_conf().set("log_file", log.display()).set("log_level_file", "quiet");
    let ended = started("jobd-master", &conf.text());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("Level quiet is not allowed."));
}

#[test]
fn a_log_that_cannot_be_written_is_named() {
    for name in ["jobd", "jobd-master"] {
        let conf = if name == "jobd" { worker_conf() } else { master_conf() };
        let ended = started(name, &conf.set("log_file", "/nowhere/log").text());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let told = ended.stdout + &ended.stderr;
        assert!(told.contains("failed to create file '/nowhere/log': "), "{told}");
    }
}

#[test]
fn a_database_that_is_not_there_at_the_start_ends_the_worker() {
    let conf = worker_conf().set("port", free_port()).set("mysql_port", free_port());
    let ended = started("jobd", &conf.text());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("ERROR"));
}

#[test]
fn a_wrong_database_password_ends_the_worker_and_is_not_told() {
    let home = Home::new();
    let conf = home.conf().set("mysql_password", "verysecretword");
    let ended = started("jobd", &conf.text());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let told = ended.stdout + &ended.stderr;
    assert!(told.contains("ERROR") && !told.contains("verysecretword"), "{told}");
}

#[test]
fn a_table_that_is_not_there_ends_the_worker() {
    let home = Home::new();
    let ended = started("jobd", &home.conf().set("mysql_table", "nothing").text());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!((ended.stdout + &ended.stderr).contains("nothing"));
}

#[test]
fn a_port_in_use_ends_the_daemons() {
    let home = Home::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    for (name, conf) in [("jobd", home.conf()), ("jobd-master", home.master_conf())] {
        let ended = started(name, &conf.set("port", port).text());
        assert_eq!(ended.code, Some(1), "{name} {ended:?}");
        assert!((ended.stdout + &ended.stderr).contains("ERROR"), "{name}");
    }
}

/// Both ways to start the programs.
fn forms(name: &str) -> [Command; 2] {
    let mut other = Command::new(env!("CARGO_BIN_EXE_windlass"));
    other.arg(name);
    [program(name), other]
}

#[test]
fn the_command_line_has_usage_and_version() {
    for name in ["jobd", "jobd-master", "jobctl"] {
        for mut command in forms(name) {
            command.arg("--version");
            let ended = run(command, "");
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "1.12.0\n"), "{name}");
        }
        for mut command in forms(name) {
            command.arg("--help");
            let ended = run(command, "");
            let told = ended.stdout + &ended.stderr;
            assert_eq!(ended.code, Some(0), "{name}");
            assert!(told.contains("--config") && told.contains("--version"), "{told}");
        }
        for command in forms(name) {
            let ended = run(command, "");
            let told = ended.stdout + &ended.stderr;
            assert_eq!(ended.code, Some(0), "{name}");
            assert!(told.to_lowercase().contains("usage"), "{told}");
        }
    }
}

#[test]
fn both_ways_to_start_a_daemon_read_the_same_file() {
    for name in ["jobd", "jobd-master"] {
        for mut command in forms(name) {
            command.args(["--config", "/nowhere.conf"]);
            let ended = run(command, "");
            assert_eq!(ended.code, Some(1));
            assert_eq!(ended.stderr, "config parsing error: file /nowhere.conf not found\n");
        }
    }
}
