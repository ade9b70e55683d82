//! `windlass secret`, and what other commands say about secrets.

use serde_json::Value;

use crate::harness::{Config, Daemon, Finished, run, windlass};

fn secret(daemon: &Daemon, arguments: &[&str], input: &[u8]) -> Finished {
    let mut command = windlass();
    command.args(arguments).args(["--url", &format!("http://{}", daemon.address)]);
    run(command.current_dir(daemon.home().path(".")), input)
}

/// The value of the secret, as a job gets it.
fn value(daemon: &Daemon) -> String {
    let script = "# windlass: secrets=DOOR\nprintf %s \"$DOOR\" | od -An -tx1 | tr -d ' \\n'\n";
    daemon.home().write("show.sh", script);
    let shown = secret(daemon, &["run", "show.sh", "--payload", "x"], b"").ok();
    let hex = shown.lines().find(|line| line.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let hex = hex.unwrap_or_else(|| panic!("{shown}"));
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap()
}

#[test]
fn a_value_comes_from_standard_input_without_one_last_line_feed() {
    let daemon = Daemon::start(Config::new());
    for (arguments, input, expected) in [
        (&["secret", "set", "DOOR"][..], "hunter2!\n", "hunter2!"),
        (&["secret", "set", "DOOR"], "hunter2!", "hunter2!"),
        (&["secret", "set", "DOOR"], "two\nlines\n\n", "two\nlines\n"),
        (&["secret", "set", "DOOR", "--exact"], "hunter2!\n", "hunter2!\n"),
    ] {
        let said = secret(&daemon, arguments, input.as_bytes()).ok();
        assert!(said.starts_with("DOOR is set, version "), "{said}");
        assert_eq!(value(&daemon), expected, "{input:?}");
    }
}

#[test]
fn a_value_on_the_command_line_is_refused() {
    let daemon = Daemon::start(Config::new());
    let refused = secret(&daemon, &["secret", "set", "DOOR", "hunter2!"], b"");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("a value is not an argument"), "{refused:?}");
    assert!(!refused.stderr.contains("hunter2"), "{refused:?}");
    let empty = secret(&daemon, &["secret", "set", "DOOR"], b"\n");
    assert!(empty.code == Some(1) && empty.stderr.contains("1 to 65536 bytes"), "{empty:?}");
    let reserved = secret(&daemon, &["secret", "set", "LD_PRELOAD"], b"x");
    assert!(reserved.stderr.contains("changes how a process starts"), "{reserved:?}");
    let none = secret(&daemon, &["secret", "list"], b"").ok();
    assert_eq!(none, "there are no secrets\n");
}

#[test]
fn secrets_are_listed_replaced_and_removed() {
    let daemon = Daemon::start(Config::new());
    daemon.home().write("charge.sh", "# windlass: secrets=DOOR,GATE\ntrue\n");
    let set = secret(&daemon, &["handler", "set", "charge", "charge.sh"], b"");
    for name in ["DOOR", "GATE"] {
        let warning = format!("warning: there is no secret {name} yet");
        assert!(set.code == Some(0) && set.stderr.contains(&warning), "{set:?}");
        secret(&daemon, &["secret", "set", name], b"hunter2!").ok();
    }
    let flag = ["handler", "set", "other", "charge.sh", "--secret", "GATE"];
    let set = secret(&daemon, &flag, b"");
    assert_eq!((set.code, set.stderr.as_str()), (Some(0), ""));
    let list = secret(&daemon, &["secret", "list"], b"").ok();
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "VERSION", "UPDATED", "HANDLERS"]);
    assert_eq!((rows[1][0], rows[1].last()), ("DOOR", Some(&"charge")));
    assert!(list.lines().nth(2).unwrap().ends_with("charge, other"), "{list}");
    let json = secret(&daemon, &["secret", "list", "--json"], b"").ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["secrets"].as_array().unwrap().len(), 2);
    let rekeyed = secret(&daemon, &["secret", "rekey"], b"").ok();
    assert!(rekeyed.starts_with("2 secrets are encrypted with the new key "), "{rekeyed}");
    let removed = secret(&daemon, &["secret", "rm", "DOOR", "GATE"], b"").ok();
    assert_eq!(removed, "DOOR was removed\nGATE was removed\n");
    let again = secret(&daemon, &["secret", "rm", "DOOR"], b"");
    assert!(again.code == Some(1) && again.stderr.contains("there is no such secret"), "{again:?}");
}

#[test]
fn a_backup_leaves_the_key_file_out_and_says_so() {
    let daemon = Daemon::start(Config::embedded().set("retry.attempts", "1"));
    secret(&daemon, &["secret", "set", "DOOR"], b"hunter2!").ok();
    let (data, target) = (daemon.home().data(), daemon.home().path("backup"));
    let backup = |json: &[&str], target: &std::path::Path| {
        let mut command = windlass();
        command.arg("backup").arg(target).args(json).arg("--data-dir").arg(&data);
        run(&mut command, b"")
    };
    let said = backup(&[], &target);
    assert!(said.code == Some(0) && said.stderr.contains("secrets.key, is not in the backup"));
    let found = crate::harness::files_below(&target);
    assert!(!found.iter().any(|path| path.ends_with("secrets.key")), "{found:?}");
    let json = backup(&["--json"], &daemon.home().path("other")).ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["not_included"].as_str().unwrap().ends_with("secrets.key"), "{json}");
    // With a copy of the file, the secrets of a restored backup can be read.
    let config = Config::embedded().set("retry.attempts", "1");
    let mut restore = windlass();
    restore.arg("restore").arg(&target).arg("--data-dir").arg(config.home.data());
    run(&mut restore, b"").ok();
    std::fs::copy(data.join("secrets.key"), config.home.data().join("secrets.key")).unwrap();
    drop(daemon);
    let restored = Daemon::start(config);
    assert_eq!(value(&restored), "hunter2!");
}
