//! Every key of a worker's file: its default, its effect, and its error messages.

use super::*;
use crate::password::Password;

/// The required keys, in the order in which they are checked.
const LEAST: [(&str, &str); 9] = [
    ("host", "0.0.0.0"),
    ("port", "7080"),
    ("mysql_host", "db"),
    ("mysql_port", "3307"),
    ("mysql_user", "me"),
    ("mysql_password", "pw"),
    ("mysql_database", "work"),
    ("mysql_table", "things"),
    ("launcher", "php run.php {id}"),
];

fn file(keys: &[(&str, &str)], more: &str) -> String {
    let lines: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{}\n{more}\n[targets]\nlow = 5\n1/high = 2.9\n7 = 1\n", lines.join("\n"))
}

fn read(more: &str) -> WorkerConfig {
    WorkerConfig::parse(&file(&LEAST, more)).unwrap()
}

fn refused(text: &str, error: &str) {
    let expected = format!("config parsing error: {error}");
    assert_eq!(WorkerConfig::parse(text).unwrap_err().to_string(), expected, "{text}");
}

fn mysql() -> Storage {
    Storage::Mysql(Server {
        host: "db".to_owned(),
        port: 3307,
        user: "me".to_owned(),
        password: "pw".to_owned(),
        database: "work".to_owned(),
        table: "things".to_owned(),
    })
}

#[test]
fn every_other_key_has_a_default() {
    let config = read("");
    assert!(!config.name.is_empty());
    let log =
        LogConfig { file: None, level_file: "warn".to_owned(), level_console: "warn".to_owned() };
    let expected = WorkerConfig {
        name: config.name.clone(),
        host: "0.0.0.0".to_owned(),
        port: 7080,
        access: Access::default(),
        master: None,
        log,
        storage: mysql(),
        fetch_limit: 100,
        launcher: LauncherConfig {
            command: "php run.php {id}".to_owned(),
            cwd: None,
            env: Vec::new(),
        },
        output_bytes_max: 1_048_576,
        time_limit: None,
        shutdown_timeout: Duration::from_secs(10),
        interrupted: Interrupted::Fail,
        lease: Duration::from_secs(30),
        targets: vec![("7".to_owned(), 1), ("low".to_owned(), 5), ("1/high".to_owned(), 2)],
    };
    assert_eq!(config, expected);
}

#[test]
fn nothing_and_zero_mean_the_default() {
    let config = read(
        "name=\nmaster_host=\nmaster_port=0\nmaster_reconnect_timeout=0\nmysql_fetch_limit=0\n\
         launcher.cwd=\nmax_output_buffer=0\ntime_limit=0\nlease=0\ninterrupted=\nstorage=",
    );
    assert_eq!(config, read(""));
}

#[test]
fn every_key_is_used() {
    let config = read(
        "name=w1\npassword=secret\nalways_allow_localhost=true\nmaster_host=m\nmaster_port=7081\n\
         master_reconnect_timeout=3\nlog_file=/l\nlog_level_file=info\nlog_level_console=trace\n\
         mysql_fetch_limit=7\nlauncher.cwd=/tmp\nlauncher.env.A=1\nlauncher.env.B.C=true\n\
         launcher.env.D=\nlauncher.env.=x\nmax_output_buffer=1000\ntime_limit=60\n\
         shutdown_timeout=0\ninterrupted=retry\nlease=9",
    );
    assert_eq!(config.name, "w1");
    let access = Access { password: Some(Password::new("secret")), always_allow_localhost: true };
    assert_eq!(config.access, access);
    let reconnect_timeout = Duration::from_secs(3);
    let master = MasterAddress { host: "m".to_owned(), port: 7081, reconnect_timeout };
    assert_eq!(config.master, Some(master));
    let log = LogConfig {
        file: Some("/l".into()),
        level_file: "info".to_owned(),
        level_console: "trace".to_owned(),
    };
    assert_eq!(config.log, log);
    assert_eq!(config.fetch_limit, 7);
    assert_eq!(config.launcher.cwd, Some("/tmp".into()));
    let env = [("A", "1"), ("B.C", "true"), ("D", "")];
    assert_eq!(config.launcher.env, env.map(|(key, value)| (key.to_owned(), value.to_owned())));
    assert_eq!(config.output_bytes_max, 1000);
    assert_eq!(config.time_limit, Some(Duration::from_secs(60)));
    assert_eq!(config.shutdown_timeout, Duration::ZERO);
    assert_eq!(config.interrupted, Interrupted::Retry);
    assert_eq!(config.lease, Duration::from_secs(9));
}

#[test]
fn a_master_needs_host_and_port() {
    assert_eq!(read("master_host=m").master, None);
    assert_eq!(read("master_port=7081").master, None);
    assert!(read("master_host=m\nmaster_port=7081").master.is_some());
}

#[test]
fn required_keys_are_checked_in_their_order() {
    for position in 0..LEAST.len() {
        let key = LEAST[position].0;
        let error = format!("'{key}' is not defined");
        // Everything after it is missing as well.
        refused(&file(&LEAST[..position], ""), &error);
        for empty in ["", "null", "false", "\"\""] {
            let mut keys = LEAST;
            keys[position].1 = empty;
            refused(&file(&keys, ""), &error);
        }
    }
}

#[test]
fn numbers_must_be_numbers() {
    for (position, key) in [(1, "port"), (3, "mysql_port")] {
        let mut keys = LEAST;
        keys[position].1 = "x";
        refused(&file(&keys, ""), &format!("'{key}' must be an integer"));
        keys[position].1 = "65536";
        refused(&file(&keys, ""), &format!("'{key}' must be a port number"));
    }
    for key in [
        "master_port",
        "master_reconnect_timeout",
        "mysql_fetch_limit",
        "max_output_buffer",
        "time_limit",
        "shutdown_timeout",
        "lease",
    ] {
        for value in ["x", "", "true", "5s"] {
            let more = format!("{key} = {value}");
            refused(&file(&LEAST, &more), &format!("'{key}' must be an integer"));
        }
        if key != "master_port" {
            let negative = format!("'{key}' must not be negative");
            refused(&file(&LEAST, &format!("{key} = -1")), &negative);
        }
    }
    refused(&file(&LEAST, "master_port=-1"), "'master_port' must be a port number");
}

#[test]
fn the_new_keys_say_what_they_may_be() {
    refused(&file(&LEAST, "interrupted=again"), "'interrupted' must be fail or retry");
    refused(&file(&LEAST, "lease=2"), "'lease' must be at least 3 seconds");
}

#[test]
fn a_url_stands_for_the_keys_of_mysql() {
    let least = [LEAST[0], LEAST[1], LEAST[8]];
    let storage = |more: &str| WorkerConfig::parse(&file(&least, more)).unwrap().storage;
    let sqlite =
        |table: &str| Storage::Sqlite { path: "/j.db".to_owned(), table: table.to_owned() };
    assert_eq!(storage("storage = sqlite:///j.db"), sqlite("jobs"));
    assert_eq!(storage("storage = sqlite:///j.db\nmysql_table = t"), sqlite("t"));
    assert_eq!(read("storage = mysql://me:pw@db:3307/work").storage, mysql());
    refused(&file(&least, "storage = nowhere"), "storage must be a URL");
}

#[test]
fn targets_are_a_section_of_numbers() {
    let with = |targets: &str| format!("{}\n{targets}", plain());
    refused(&plain(), "'targets' is not defined");
    refused(&with("targets ="), "'targets' is not defined");
    refused(&with("targets = 5"), "'targets' must be an object");
    refused(&with("targets"), "'targets' must be an object");
    refused(&with("[targets]\na=1\nb=x"), "value of target 'b' must be a number");
    refused(&with("[targets]\na="), "value of target 'a' must be a number");
    refused(&with("[targets]\na"), "value of target 'a' must be a number");
    refused(&with("[targets]\na=0"), "target 'a' has invalid value");
    refused(&with("[targets]\na=0.9"), "target 'a' has invalid value");
    refused(&with("[targets]\na=-1\nb=x"), "target 'a' has invalid value");
    let reserved = "word 'null' is reserved, please don't use it as a target name";
    refused(&with("[targets]\nnull=x"), reserved);
    let empty = WorkerConfig::parse(&with("[targets]")).unwrap();
    assert_eq!(empty.targets, []);
    let list = WorkerConfig::parse(&with("targets[]=3")).unwrap();
    assert_eq!(list.targets, [("0".to_owned(), 3)]);
}

/// A file without targets.
fn plain() -> String {
    LEAST.map(|(key, value)| format!("{key} = {value}")).join("\n")
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", read("password=hush"));
    assert!(!shown.contains("hush"), "{shown}");
    assert!(!shown.contains("\"pw\""), "{shown}");
}
