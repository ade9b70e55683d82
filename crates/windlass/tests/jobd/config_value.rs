//! How values are read, and what each key does: section 6 of the contract.

use serde_json::{Value, json};

use crate::harness::{Home, until};

/// A worker with this text as its `[targets]`; returns them as status shows them.
fn targets_of(section: &str) -> Value {
    let home = Home::new();
    let conf = home.conf().without_targets();
    let file = home.path("own.conf");
    std::fs::write(&file, format!("{}{section}", conf.text())).unwrap();
    let mut command = crate::harness::program("jobd");
    command.arg("--config").arg(&file);
    let mut worker = crate::harness::Daemon::spawn(command, home.folder(), conf.port());
    worker.listening();
    let targets = worker.client().ask("status", Value::Null)["targets"].clone();
    let pairs = targets.as_object().unwrap().iter();
    pairs.map(|(name, target)| (name.clone(), target["concurrency"].clone())).collect()
}

/// A worker whose job prints the variable X, which has this value.
fn value_of(value: &str) -> String {
    let home = Home::new();
    let worker = home.worker(&home.conf().set("launcher.env.X", value));
    let id = home.waiting("low", "printf '%s' \"$X\"");
    worker.client().ok("poll", Value::Null);
    home.done(id).stdout.unwrap()
}

#[test]
fn comments_blank_lines_and_line_ends_of_any_kind() {
    let section =
        "; a comment\r\n# another\r\n\r\n[targets]\r\n  a = 1\r\n\tb=2 ; behind\rc =3# x\n\n";
    assert_eq!(targets_of(section), json!({"a": 1, "b": 2, "c": 3}));
}

#[test]
fn an_empty_section_of_targets_passes() {
    assert_eq!(targets_of("[targets]\n"), json!({}));
}

#[test]
fn a_later_duplicate_wins() {
    assert_eq!(targets_of("[targets]\na = 1\nb = 2\na = 7\n"), json!({"a": 7, "b": 2}));
}

#[test]
fn numbers_are_cut_to_whole_ones() {
    assert_eq!(targets_of("[targets]\na = 2.9\nb = \"4\"\n"), json!({"a": 2, "b": 4}));
}

#[test]
fn quoted_keys_and_escapes() {
    let section = "[targets]\n\"with space\" = 1\n'single' = 2\na\\;b = 3\n1/low = 4\n";
    let wanted = json!({"with space": 1, "single": 2, "a;b": 3, "1/low": 4});
    assert_eq!(targets_of(section), wanted);
}

#[test]
fn a_comment_in_a_value_and_its_escape() {
    assert_eq!(value_of("plain ; comment"), "plain");
    assert_eq!(value_of("plain # comment"), "plain");
    assert_eq!(value_of(r"a\;b\#c"), "a;b#c");
}

#[test]
fn quotes_of_both_kinds() {
    assert_eq!(value_of(r#""a \"b\" \u00e9;#""#), "a \"b\" é;#");
    assert_eq!(value_of("'single ; quoted'"), "single ; quoted");
    assert_eq!(value_of("\"quoted\" ; comment"), "\"quoted\"");
    assert_eq!(value_of("a=b=c"), "a=b=c");
}

#[test]
fn the_name_is_given_or_that_of_the_host() {
    let home = Home::new();
    let master = home.master(&home.master_conf());
    let conf = || home.conf().set("master_host", "127.0.0.1").set("master_port", master.port());
    let _named = home.worker(&conf().set("name", "my worker"));
    let _unnamed = home.worker(&conf());
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut client = master.client();
    until("both are there with their names", || {
        let workers = client.ask("status", Value::Null)["workers"].clone();
        let names: Vec<&str> =
            workers.as_array().unwrap().iter().map(|w| w["name"].as_str().unwrap()).collect();
        names.len() == 2 && names.contains(&"my worker") && names.contains(&host.trim())
    });
}

#[test]
fn a_master_without_its_port_or_host_is_no_master() {
    let home = Home::new();
    let _half = home.worker(&home.conf().set("master_host", "127.0.0.1"));
    let zero = home.worker(&home.conf().set("master_host", "127.0.0.1").set("master_port", 0));
    assert!(zero.client().ask("status", Value::Null).is_object());
}

#[test]
fn the_port_of_the_database_is_used() {
    // The private server listens on another port than 3306, so all other tests prove it too.
    let home = Home::new();
    assert_ne!(home.base.server().port(), 3306);
    let worker = home.worker(&home.conf());
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
}

/// `[2026-11-15T17:48:56.065] [INFO] server - text`
#[test]
fn a_line_of_the_log_has_its_form() {
    let home = Home::new();
    let log = home.path("log").display().to_string();
    let conf = home.conf().set("log_file", &log).set("log_level_file", "trace");
    let worker = home.worker(&conf);
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
    until("something is in the log", || !home.lines("log").is_empty());
    for line in home.lines("log") {
        let shape: String =
            line.chars().take(25).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "[0000-00-00T00:00:00.000]", "{line}");
        let rest = &line[25..];
        let level = rest.strip_prefix(" [").and_then(|rest| rest.split_once("] ")).unwrap();
        assert!(["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level.0), "{line}");
        assert!(level.1.contains(" - "), "{line}");
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn levels_of_file_and_console_are_kept_apart_and_the_console_is_coloured() {
    let home = Home::new();
    let log = home.path("log").display().to_string();
    let conf = home
        .conf()
        .set("log_file", &log)
        .set("log_level_file", "error")
        .set("log_level_console", "info");
    let worker = home.worker(&conf);
    worker.client().ok("poll", Value::Null);
    until("the console tells", || worker.console().contains("INFO"));
    assert!(worker.console().contains('\u{1b}'));
    assert_eq!(home.lines("log"), Vec::<String>::new());
}

#[test]
fn warn_is_the_level_without_a_word() {
    let home = Home::new();
    let worker = home.worker(&home.conf());
    let id = home.waiting("low", "echo x");
    worker.client().ok("poll", Value::Null);
    home.done(id);
    assert!(!worker.console().contains("INFO"), "{}", worker.console());
}

#[test]
fn a_log_of_fifty_megabytes_is_put_aside() {
    const MEGABYTES: usize = 50;
    let home = Home::new();
    let log = home.path("log");
    std::fs::write(&log, "x".repeat(MEGABYTES * 1024 * 1024)).unwrap();
    let conf = home.conf().set("log_file", log.display()).set("log_level_file", "trace");
    let worker = home.worker(&conf);
    let mut client = worker.client();
    until("a new file is begun", || {
        client.ok("poll", Value::Null);
        std::fs::metadata(&log).is_ok_and(|file| file.len() < 1_000_000)
    });
    let kept = std::fs::read_dir(home.folder()).unwrap().flatten().any(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("log.") && file.metadata().unwrap().len() >= 50 * 1024 * 1024
    });
    assert!(kept, "the old one is kept beside it");
}
