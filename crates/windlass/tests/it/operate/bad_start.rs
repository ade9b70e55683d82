//! A start that cannot work is refused with one sentence, and touches nothing.

use std::fs;
use std::net::TcpListener;

use crate::harness::{
    Config, Daemon, Finished, StoreLock, python, refused_start, run, snapshot, windlass,
};

/// One sentence that names the problem, on standard error.
#[track_caller]
fn assert_sentence(finished: &Finished, names: &str) {
    let lines: Vec<&str> = finished.stderr.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 1, "one sentence: {finished:?}");
    assert!(lines[0].contains(names), "{names:?} is not named: {finished:?}");
    assert!(!lines[0].contains("panicked"), "{finished:?}");
}

#[test]
fn a_configuration_that_is_no_toml_is_refused() {
    let config = Config::new().set("retry.delay", "\"10s");
    let finished = refused_start(&config);
    let text = &finished.stderr;
    assert!(text.contains(".toml"), "the file is named: {finished:?}");
    assert!(!text.contains("panicked"), "{finished:?}");
    assert!(!config.home.data().exists(), "nothing was made");
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    for (wrong, nearest) in [
        ("scheduler.slot", "scheduler.slots"),
        ("lease.durations", "lease.duration"),
        ("data_dirr", "data_dir"),
    ] {
        let config = Config::new().set(wrong, "\"1\"");
        let finished = refused_start(&config);
        assert_sentence(&finished, nearest);
        assert!(finished.stderr.contains(wrong), "{finished:?}");
        assert!(!config.home.data().exists());
    }
}

#[test]
fn a_value_of_the_wrong_kind_names_its_key() {
    for (key, value) in [
        ("scheduler.slots", "\"many\""),
        ("lease.duration", "\"soon\""),
        ("lease.duration", "10"),
        ("scheduler.fairness", "\"none\""),
        ("log.level", "\"loud\""),
        ("retry.factor", "\"two\""),
        ("tenants", "[\"not a tenant\"]"),
        ("sysid", "0"),
        ("sysid", "70000"),
    ] {
        let config = Config::new().set(key, value);
        let finished = refused_start(&config);
        assert_sentence(&finished, key);
        assert!(!config.home.data().exists(), "{key} = {value}");
    }
}

#[test]
fn wrong_flags_and_environment_are_refused() {
    let finished = run(windlass().args(["serve", "--no-such-flag"]), b"");
    assert_eq!(finished.code, Some(2), "{finished:?}");
    let config = Config::new();
    let mut command = config.command();
    command.env("WINDLASS_SCHEDULER_SLOTS", "many");
    let finished = run(&mut command, b"");
    assert!(finished.code.is_some_and(|code| code != 0), "{finished:?}");
    assert_sentence(&finished, "WINDLASS_SCHEDULER_SLOTS");
    let mut command = config.command();
    command.args(["--config", "/nowhere/windlass.toml"]);
    let finished = run(&mut command, b"");
    assert!(finished.code.is_some_and(|code| code != 0), "{finished:?}");
}

#[test]
fn a_configuration_file_that_is_not_there_is_named() {
    let home = Config::new().home;
    let missing = home.path("missing.toml");
    let mut command = windlass();
    command.arg("serve").arg("--config").arg(&missing).current_dir(home.path("."));
    let finished = run(&mut command, b"");
    assert!(finished.code.is_some_and(|code| code != 0), "{finished:?}");
    assert_sentence(&finished, "missing.toml");
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let config = Config::new().set("sysid", "11");
    assert_eq!(Daemon::start(config.clone()).sysid(), 11);
    let mut command = config.command();
    command.env("WINDLASS_SYSID", "12");
    assert_eq!(Daemon::start_command(config.clone(), &mut command).sysid(), 12);
    let mut command = config.command();
    command.env("WINDLASS_SYSID", "12").args(["--sysid", "13"]);
    assert_eq!(Daemon::start_command(config, &mut command).sysid(), 13);
}

/// No directory can be created below a regular file, not even by root.
#[test]
fn a_data_directory_that_cannot_be_made_is_refused() {
    let home = Config::new().home;
    let file = home.write("regular-file", "keep me");
    let mut command = windlass();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(file.join("data"));
    command.current_dir(home.path("."));
    let finished = run(&mut command, b"");
    assert!(finished.code.is_some_and(|code| code != 0), "{finished:?}");
    assert_sentence(&finished, "regular-file");
    assert_eq!(fs::read_to_string(file).unwrap(), "keep me");
}

#[test]
fn a_port_in_use_is_refused_and_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut running = Daemon::start(Config::new());
    running.tenant("a").add_one("t", "x");
    assert!(running.terminate().success());
    let before = snapshot(&running.home().data());
    let config = running.config.clone().flag("--listen").flag(&address);
    let finished = refused_start(&config);
    assert_sentence(&finished, &address);
    assert_eq!(snapshot(&running.home().data()), before, "files are as they were");
}

#[test]
fn an_address_that_is_not_loopback_needs_insecure() {
    let config = Config::new().flag("--listen").flag("0.0.0.0:0");
    let finished = refused_start(&config);
    assert_sentence(&finished, "--insecure");
    assert!(!config.home.data().exists());
    let daemon = Daemon::start(config.flag("--insecure"));
    assert_ne!(daemon.address.port(), 0);
}

#[test]
fn a_taken_sysid_is_refused() {
    let config = Config::new().flag("--sysid").flag("7");
    let daemon = Daemon::start(config.clone());
    let finished = refused_start(&config);
    assert_sentence(&finished, "7");
    assert_eq!(daemon.sysid(), 7);
    let id = daemon.tenant("a").add_one("t", "x");
    assert_eq!(daemon.tenant("a").until_claimed("t", "60s")["id"], id.as_str());
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_as_it_is() {
    let mut daemon = Daemon::start(Config::embedded());
    daemon.tenant("a").add_one("t", "x");
    assert!(daemon.terminate().success());
    let store = daemon.home().store();
    let program = "import sqlite3, sys; s = sqlite3.connect(sys.argv[1]); \
                   s.execute('PRAGMA user_version = 9999'); s.commit(); s.close()";
    python(program, &[store.to_str().unwrap()]);
    let before = snapshot(&daemon.home().data());
    let finished = refused_start(&daemon.config);
    assert_sentence(&finished, "newer");
    assert_eq!(snapshot(&daemon.home().data()), before);
}

#[test]
fn a_store_that_is_no_database_is_refused_and_left_as_it_is() {
    let config = Config::embedded();
    fs::create_dir_all(config.home.data()).unwrap();
    fs::write(config.home.store(), "not a database, but somebody's file ".repeat(200)).unwrap();
    let before = snapshot(&config.home.data());
    let finished = refused_start(&config);
    assert_sentence(&finished, "store.db");
    let after = snapshot(&config.home.data());
    assert_eq!(after.get(&config.home.store()), before.get(&config.home.store()));
}

#[test]
fn other_kinds_of_store_are_refused_in_one_sentence() {
    for kind in ["mysql", "mariadb", "mongodb", "mongodb+srv"] {
        let config = Config::new().flag("--store").flag(&format!("{kind}://u:hidden@localhost/x"));
        let finished = refused_start(&config);
        assert_sentence(&finished, "not available yet");
        let told = finished.stderr;
        assert!(told.contains("sqlite:") && told.contains("postgres://"), "{told}");
        assert!(!told.contains("hidden"), "{told}");
    }
}

/// Damage in the middle, followed by good lines, is not a torn write: an operator must look at it.
#[test]
fn a_journal_damaged_in_the_middle_is_refused_and_left_as_it_is() {
    let config = Config::new().flag("--sysid").flag("21");
    let mut daemon = Daemon::start(config);
    let lock = StoreLock::take(&daemon.config);
    let tenant = daemon.tenant("a");
    for n in 0..5 {
        tenant.add_one("t", &format!("payload-{n}"));
    }
    daemon.kill9();
    drop(lock);
    let mut damaged = false;
    for file in snapshot(&daemon.home().journal()).into_keys() {
        let mut bytes = fs::read(&file).unwrap();
        let wanted = b"payload-1";
        if let Some(at) = bytes.windows(wanted.len()).position(|window| window == wanted) {
            bytes[at..at + wanted.len()].copy_from_slice(b"DAMAGED!!");
            fs::write(&file, bytes).unwrap();
            damaged = true;
        }
    }
    assert!(damaged, "the journal holds what the store has not");
    let before = snapshot(&daemon.home().journal());
    let finished = crate::harness::until_some("the damage is met", || {
        let finished = refused_start(&daemon.config);
        // The number of the killed daemon is taken until its lease ends.
        finished.stderr.contains("journal").then_some(finished)
    });
    assert_sentence(&finished, "journal");
    assert_eq!(snapshot(&daemon.home().journal()), before);
}
