//! Configuration files and the settings read from them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use mongodb::bson::{doc, oid::ObjectId};
use serde_json::{Value, json};

use super::*;
use windlass_program::Secret;

/// The settings of a file with these keys and the mandatory ones.
fn parse(keys: Value) -> Result<(Config, Vec<String>), String> {
    let mut all = json!({"mongohost": "mongodb://h:1", "database": "d"});
    if let (Value::Object(all), Value::Object(keys)) = (&mut all, keys) {
        all.extend(keys);
    }
    let parsed = Config::parse(&all.to_string(), Path::new("/c.json"));
    parsed.map_err(|error| error.to_string())
}

fn config(keys: Value) -> Config {
    let (config, warnings) = parse(keys).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    config
}

#[track_caller]
fn refused(keys: Value, why: &str) {
    let error = parse(keys.clone()).unwrap_err();
    assert_eq!(error, format!("the configuration /c.json: {why}"), "{keys}");
}

#[track_caller]
fn warned(keys: Value, about: &str) {
    let (_, warnings) = parse(keys.clone()).unwrap();
    assert_eq!(warnings, [about], "{keys}");
}

#[test]
fn the_mandatory_keys_are_enough() {
    let config = config(json!({}));
    assert_eq!(config.connection.uri.reveal(), "mongodb://h:1");
    assert_eq!(config.connection.database, "d");
    assert_eq!(config.connection.auth, Auth::default());
    assert_eq!(config.connection.tls, None);
    assert!(!config.node.is_empty());
    assert_eq!((config.dialect, config.gfs), (None, Gfs::Auto));
    assert_eq!(config.plugins, Plugins::default());
    assert_eq!((config.node_increase, config.queue_increase), (None, None));
    assert_eq!((config.quiet, config.monitoring), (false, false));
    assert_eq!((config.temp_dir.to_str().unwrap(), config.temp_dir_mode), ("/tmp/disbatch", 0o755));
    assert_eq!(config.heartbeat, Duration::from_secs(5));
    assert_eq!(config.orphan_after, Duration::from_secs(30));
    assert_eq!((config.orphan_foreign, config.stop_timeout), (None, Duration::from_secs(10)));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert!(config.access.is_open());
    assert_eq!((config.tls, config.web_root, config.pre_hook), (None, None, None));
    assert_eq!((config.dashboard.refresh_ms, config.dashboard.live_window_ms), (30_000, 15_000));
    assert_eq!(config.balance, BalanceSettings::default());
    assert_eq!(config.log_level, LevelFilter::INFO);
}

#[test]
fn every_key_is_read() {
    let config = config(json!({
        "attributes": {"ssl": {"SSL_ca_file": "/ca", "SSL_verify_mode": 0}},
        "auth": {"disbatchd": "p1", "disbatch_web": "p2", "task_runner": "p3",
                 "queuebalance": "p4", "plugin": "p5"},
        "node": "n1", "dialect": "released",
        "activequeues": ["565B34420cef2c52d6000000"], "ignorequeues": ["565e75f03fb6ecd1c8504499"],
        "node_increase": 3, "queue_increase": 3, "gfs": false, "quiet": 1,
        "temp_dir": "/var/t", "temp_dir_mode": "0700",
        "heartbeat": 0.25, "orphan_after": 1.5, "orphan_foreign": 3600, "stop_timeout": 0,
        "listen": "[::1]:0", "users": {"a": "secret"}, "tokens": ["t"],
        "tls": {"cert": "/c", "key": "/k"}, "web_root": "/w",
        "dashboard": {"refresh_ms": 5}, "monitoring": true,
        "balance": {"enabled": true, "log": 1, "verbose": 0, "pretend": true},
        "pre_hook": {"name": "/bin/true", "fatal": true, "own": 7},
        "web_extensions": {"Disbatch::Web::V3": null}, "log4perl": {"level": "debug"},
    }));
    let passwords = User::ALL.map(|user| config.connection.password(user).unwrap().reveal());
    assert_eq!(passwords, ["p1", "p2", "p3", "p5", "p4"]);
    let tls = ServerTls { ca_file: Some("/ca".into()), verify: false };
    assert_eq!(config.connection.tls, Some(tls));
    assert_eq!((config.node.as_str(), config.dialect), ("n1", Some(Dialect::Released)));
    assert_eq!(config.active_queues, ["565b34420cef2c52d6000000"]);
    assert_eq!(config.ignore_queues, ["565e75f03fb6ecd1c8504499"]);
    assert_eq!((config.node_increase, config.queue_increase), (Some(3), Some(3)));
    assert_eq!((config.gfs, config.quiet), (Gfs::Never, true));
    assert_eq!((config.temp_dir.to_str().unwrap(), config.temp_dir_mode), ("/var/t", 0o700));
    assert_eq!(config.heartbeat, Duration::from_millis(250));
    assert_eq!(config.orphan_after, Duration::from_millis(1500));
    assert_eq!(config.orphan_foreign, Some(Duration::from_secs(3600)));
    assert_eq!(config.stop_timeout, Duration::ZERO);
    assert_eq!(config.listen.to_string(), "[::1]:0");
    assert_eq!(config.access.users, [("a".to_owned(), Secret::new("secret"))]);
    assert_eq!(config.access.tokens, [Secret::new("t")]);
    assert_eq!(config.tls, Some(Tls { cert: "/c".into(), key: "/k".into() }));
    assert_eq!(config.web_root, Some("/w".into()));
    assert_eq!((config.dashboard.refresh_ms, config.dashboard.live_window_ms), (5, 15_000));
    let balance = BalanceSettings { enabled: true, log: true, verbose: false, pretend: true };
    assert_eq!((config.monitoring, config.balance), (true, balance));
    let hook = config.pre_hook.unwrap();
    assert_eq!((hook.program(), hook.fatal), (Some(Path::new("/bin/true")), true));
    assert_eq!(config.web_extensions, ["Disbatch::Web::V3"]);
    assert_eq!(config.log_level, LevelFilter::DEBUG);
}

#[test]
fn null_is_the_same_as_missing() {
    let with_nulls = config(json!({
        "auth": null, "attributes": null, "plugins": null, "node": null, "gfs": null, "users": null,
        "node_increase": null, "queue_increase": null, "listen": null, "tls": null, "tokens": null,
    }));
    let without = config(json!({}));
    assert_eq!(with_nulls.connection, without.connection);
    assert_eq!(with_nulls.access, without.access);
    assert_eq!(with_nulls.node, without.node);
    assert_eq!(config(json!({"auth": {}})).connection, without.connection);
}

#[test]
fn what_must_be_there_is_asked_for() {
    let parse = |text| Config::parse(text, Path::new("/c.json")).unwrap_err().to_string();
    let missing = |key, example| {
        format!(
            "the configuration /c.json: `{key}` is missing; set it, for example to \"{example}\""
        )
    };
    assert_eq!(parse("{}"), missing("mongohost", "mongodb://localhost:27017"));
    assert_eq!(parse(r#"{"mongohost": "h"}"#), missing("database", "disbatch"));
    assert_eq!(parse("[]"), "the configuration /c.json: the file must hold an object, not a list");
    let syntax = parse("{\n\"a\" 1}");
    assert_eq!(syntax, "the configuration /c.json is not JSON: line 2, column 5: expected `:`");
    let error = Config::read(Path::new("/nonexistent/c.json")).unwrap_err().to_string();
    let start = "the configuration /nonexistent/c.json cannot be read: ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn wrong_types_are_named_with_what_was_expected() {
    for (keys, why) in [
        (json!({"database": 7}), "`database` must be a text, not a number"),
        (json!({"database": ""}), "`database` must be a non-empty text"),
        (json!({"auth": []}), "`auth` must be an object, not a list"),
        (json!({"auth": {"plugin": 1}}), "`auth.plugin` must be a text, not a number"),
        (json!({"quiet": "yes"}), "`quiet` must be true or false, not a text"),
        (json!({"heartbeat": "5"}), "`heartbeat` must be a number of seconds above 0, not a text"),
        (json!({"heartbeat": 0}), "`heartbeat` must be a number of seconds above 0, not 0"),
        (
            json!({"stop_timeout": -1}),
            "`stop_timeout` must be a number of seconds, 0 or more, not a number below 0",
        ),
        (json!({"orphan_after": 1e300}), "`orphan_after` must be at most 100 years"),
        (
            json!({"node_increase": 1.5}),
            "`node_increase` must be a whole number above 0, not a number with a fraction",
        ),
        (json!({"queue_increase": 0}), "`queue_increase` must be a whole number above 0, not 0"),
        (json!({"activequeues": "x"}), "`activequeues` must be a list of texts, not a text"),
        (json!({"ignorequeues": [1]}), "`ignorequeues` must be a list of texts; a number is in it"),
        (json!({"gfs": "always"}), "`gfs` must be true, false or \"auto\", not a text"),
        (json!({"dialect": "4.0"}), "`dialect` must be \"seed\" or \"released\""),
        (json!({"temp_dir": "tmp"}), "`temp_dir` must be an absolute path"),
        (
            json!({"temp_dir_mode": "0799"}),
            "`temp_dir_mode` must be octal digits in a text, such as \"0755\"",
        ),
        (json!({"temp_dir_mode": 755}), "`temp_dir_mode` must be a text, not a number"),
        (
            json!({"balance": {"pretend": 2}}),
            "`balance.pretend` must be true or false, not a number",
        ),
        (
            json!({"dashboard": {"refresh_ms": -1}}),
            "`dashboard.refresh_ms` must be a whole number above 0, not a number below 0",
        ),
        (
            json!({"log4perl": {"level": "LOUD"}}),
            "`log4perl.level` must be TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF",
        ),
        (
            json!({"attributes": {"ssl": "on"}}),
            "`attributes.ssl` must be true or an object, not a text",
        ),
        (json!({"web_extensions": 1}), "`web_extensions` must be an object, not a number"),
        (
            json!({"tls": {"cert": "/c"}}),
            "`tls.key` is missing; set it, for example to \"/etc/disbatch/dci.pem\"",
        ),
    ] {
        refused(keys, why);
    }
}

#[test]
fn rules_between_keys_are_checked() {
    refused(
        json!({"node_increase": 2, "queue_increase": 3}),
        "`queue_increase` (3) must not be larger than `node_increase` (2)",
    );
    config(json!({"queue_increase": 3}));
    refused(
        json!({"heartbeat": 5, "orphan_after": 10}),
        "`heartbeat` (5 s) must be less than half of `orphan_after` (10 s), or one late heartbeat \
         would orphan what runs",
    );
    config(json!({"heartbeat": 4.9, "orphan_after": 10}));
}

#[test]
fn others_may_only_listen_in_when_they_understand_nothing() {
    for listen in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
        refused(
            json!({"listen": listen}),
            &format!(
                "`listen` is {listen}, where others can listen in; give a certificate in `tls`, or \
                 listen on a loopback address such as 127.0.0.1:80"
            ),
        );
    }
    let tls = json!({"cert": "/c", "key": "/k"});
    config(json!({"listen": "0.0.0.0:80", "tls": tls, "tokens": ["t"]}));
    warned(
        json!({"listen": "0.0.0.0:80", "tls": tls}),
        "anyone who can reach 0.0.0.0:80 can change queues and tasks; set `users` or `tokens`",
    );
    assert_eq!(config(json!({"listen": "localhost:9"})).listen.to_string(), "127.0.0.1:9");
    let expected = "an address with a port, such as \"127.0.0.1:8080\"";
    refused(json!({"listen": 8080}), &format!("`listen` must be {expected}, not a number"));
    refused(json!({"listen": "somewhere"}), &format!("`listen` must be {expected}"));
}

#[test]
fn who_may_come_in_is_checked() {
    refused(json!({"users": {}}), "`users` is empty; add a user, or remove the key");
    refused(json!({"users": {"a": ""}}), "`users.a` must be a non-empty text");
    refused(json!({"users": {"a": null}}), "`users.a` must be a password or a hash of one");
    refused(json!({"users": {"a:b": "p"}}), "`users`: \"a:b\" cannot be the name of a user");
    for half in [
        "$argon2id$oops",
        "$argon2id",
        "$argon2id$v=19$m=19456,t=2,p=1",
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzYWx0",
        "$argon2x$v=19$m=19456,t=2,p=1$c29tZXNhbHRzYWx0$YWJjZGVmZ2hpamtsbW5vcA",
        "$argon2id$v=7$m=19456,t=2,p=1$c29tZXNhbHRzYWx0$YWJjZGVmZ2hpamtsbW5vcA",
        "$argon2id$v=19$m=1,t=2,p=1$c29tZXNhbHRzYWx0$YWJjZGVmZ2hpamtsbW5vcA",
    ] {
        refused(json!({"users": {"a": half}}), "`users.a` is not a complete argon2 hash");
    }
    refused(json!({"tokens": []}), "`tokens` is empty; add a token, or remove the key");
    refused(json!({"tokens": [""]}), "`tokens` must be a list of texts; an empty text is in it");
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzYWx0$\
                YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXphYmNkZWY";
    assert_eq!(config(json!({"users": {"a": hash}})).access.users[0].0, "a");
}

#[test]
fn unknown_keys_are_told_with_the_one_that_was_meant() {
    let unknown = "is not a key that is known, and is not used";
    warned(json!({"hartbeat": 5}), &format!("`hartbeat` {unknown}; did you mean `heartbeat`?"));
    warned(json!({"colour": 5}), &format!("`colour` {unknown}"));
    warned(
        json!({"balance": {"enable": true}}),
        &format!("`balance.enable` {unknown}; did you mean `enabled`?"),
    );
    warned(
        json!({"auth": {"disbatch": "p"}}),
        &format!("`auth.disbatch` {unknown}; did you mean `disbatchd`?"),
    );
}

#[test]
fn keys_that_have_nothing_to_do_are_told() {
    for (keys, about) in [
        (json!({"task_runner": "/x"}), "`task_runner` is not used: the node runs tasks itself"),
        (
            json!({"plugin_runner": "/x"}),
            "`plugin_runner` is not used: the node starts the programs of `plugins` itself",
        ),
        (json!({"testing": true}), "`testing` is not used: tests run what everybody runs"),
        (json!({"views_dir": "/x"}), "`views_dir` is not used: the page is part of the program"),
        (
            json!({"log4perl": {"appenders": {}}}),
            "`log4perl.appenders` is not used: the log goes to standard error",
        ),
        (
            json!({"attributes": {"w": 1}}),
            "`attributes.w` is not used: options of the connection belong into the address \
             `mongohost`",
        ),
        (
            json!({"web_extensions": ["My::Web"]}),
            "`web_extensions`: My::Web is not used: nothing in Perl is loaded",
        ),
        (
            json!({"pre_hook": {"name": "My::Hook"}}),
            "`pre_hook.name` (\"My::Hook\") is not the absolute path of a program, and is not run: \
             nothing in Perl is",
        ),
        (
            json!({"activequeues": ["demo"]}),
            "`activequeues`: \"demo\" is not the id of a queue: 24 hex digits",
        ),
    ] {
        warned(keys, about);
    }
}

#[test]
fn both_forms_of_plugins_are_read() {
    let listed = config(json!({"plugins": ["/b/two", "/b/one", "/b/one"]})).plugins;
    assert_eq!(listed.names(), ["/b/one", "/b/two"]);
    let one = listed.get("/b/one").unwrap();
    assert_eq!((one.program.to_str().unwrap(), one.kind), ("/b/one", PluginKind::Default));
    let mapped = config(json!({"plugins": {
        "Disbatch::Plugin::Demo": {"program": "/b/demo", "type": "mongo", "timeout": 0.5},
        "/b/no": {"type": "nomongo"}, "/b/hand": {"type": "handoff"}, "/b/plain": null,
    }}))
    .plugins;
    let demo = mapped.get("Disbatch::Plugin::Demo").unwrap();
    assert_eq!((demo.program.to_str().unwrap(), demo.kind), ("/b/demo", PluginKind::Mongo));
    assert_eq!(demo.timeout, Some(Duration::from_millis(500)));
    let kinds = ["/b/no", "/b/hand", "/b/plain"].map(|name| mapped.get(name).unwrap().kind);
    assert_eq!(kinds, [PluginKind::NoMongo, PluginKind::Handoff, PluginKind::Default]);
    assert_eq!(mapped.get("/b/other"), None);
}

#[test]
fn a_plugin_without_a_program_is_left_to_others() {
    for plugins in [
        json!(["My::Plugin"]),
        json!({"My::Plugin": {}}),
        json!({"My::Plugin": null}),
        json!({"My::Plugin": 1}),
        json!({"My::Plugin": true}),
    ] {
        let (config, warnings) = parse(json!({"plugins": plugins})).unwrap();
        let plugin = config.plugins.get("My::Plugin").unwrap();
        assert!(!plugin.program.is_absolute());
        assert_eq!(
            warnings,
            ["`plugins`: My::Plugin has no program, so that this node leaves its queues to \
              others; \
              write {\"My::Plugin\": {\"program\": \"/absolute/path\"}}"]
        );
    }
}

#[test]
fn what_cannot_be_a_plugin_is_refused() {
    let name = |name: &str| {
        format!(
            "`plugins`: {name:?} must be an absolute path, or a name of letters, digits, _ and ::"
        )
    };
    for wrong in ["bin/x", "My-Plugin", "a b", "./x", "ü"] {
        refused(json!({"plugins": [wrong]}), &name(wrong));
        refused(json!({"plugins": {wrong: {}}}), &name(wrong));
    }
    refused(json!({"plugins": "/x"}), "`plugins` must be an object or a list of paths, not a text");
    refused(json!({"plugins": {"/x": 1}}), "`plugins./x` must be an object, not a number");
    refused(json!({"plugins": {"X": 0}}), "`plugins.X` must be an object, not 0");
    refused(json!({"plugins": {"X": false}}), "`plugins.X` must be an object, not true or false");
    // The key contains the plugin's name.
    let below = |key: &str, rest: &str| format!("`plugins.X.{key}` {rest}");
    for (plugin, why) in [
        (json!({"program": "x"}), below("program", "must be an absolute path")),
        (
            json!({"program": "/x", "type": "perl"}),
            below("type", "must be \"default\", \"nomongo\", \"mongo\" or \"handoff\""),
        ),
        (
            json!({"program": "/x", "timeout": 0}),
            below("timeout", "must be a number of seconds above 0, not 0"),
        ),
    ] {
        refused(json!({"plugins": {"X": plugin}}), &why);
    }
}

#[test]
fn addresses_of_the_server_are_checked_and_never_shown_with_a_password() {
    assert_eq!(config(json!({"mongohost": "h:2"})).connection.uri.reveal(), "mongodb://h:2");
    let error = parse(json!({"mongohost": "mongodb://u:pa@ss:w0rd@h"})).unwrap_err();
    assert!(error.ends_with("with @ : / % in a password as %40 %3A %2F %25"), "{error}");
    let error = parse(json!({"mongohost": "mongodb://u:w0rd@h/?nonsense=1"})).unwrap_err();
    assert!(error.contains("nonsense") && !error.contains("w0rd"), "{error}");
    let error = parse(json!({"mongohost": "http://h"})).unwrap_err();
    assert!(error.contains("`mongohost` must be an address"), "{error}");
    for (uri, shown) in [
        ("mongodb://u:w0rd@h:1,i/db?tls=true", "mongodb://h:1,i"),
        ("mongodb://h", "mongodb://h"),
        ("mongodb://h/?authSource=x", "mongodb://h"),
    ] {
        let connection = config(json!({"mongohost": uri})).connection;
        assert_eq!(connection.shown_uri(), shown);
    }
}

#[test]
fn nothing_secret_is_printed() {
    let config = config(json!({
        "mongohost": "mongodb://u:s3cret@h", "auth": {"disbatchd": "s3cret"},
        "users": {"a": "s3cret"}, "tokens": ["s3cret"],
    }));
    let printed = format!("{config:?} {config:#?}");
    assert!(!printed.contains("s3cret"), "{printed}");
}

#[test]
fn the_examples_of_the_pages_are_read_without_a_warning() {
    let guide = include_str!("../../../../docs/guide/moving-from-disbatch.md");
    let reference = include_str!("../../../../docs/config-disbatch.md");
    let mut count = 0;
    for page in [guide, reference] {
        for block in page.split("```json\n").skip(1) {
            let (text, _) = block.split_once("```").unwrap();
            // A user's own hash goes there.
            let keys = serde_json::from_str(&text.replace("$argon2id$v=19$…", "p")).unwrap();
            config(keys);
            count += 1;
        }
    }
    assert_eq!(count, 4);
}

#[test]
fn the_example_that_is_shipped_is_read_without_a_warning() {
    let text = include_str!("../../../../packaging/disbatch/config.example.json");
    let (config, warnings) = Config::parse(text, Path::new("/c.json")).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(config.plugins.names(), ["/usr/local/lib/disbatch/demo", "Disbatch::Plugin::Demo"]);
    // Commented-out keys are parsed, too.
    let optional = text.lines().map(|line| match line.trim_start().strip_prefix("# ") {
        Some(rest) if rest.starts_with(['"', '}', ' ']) => rest,
        _ => line,
    });
    let all: String = optional.map(|line| format!("{line}\n")).collect();
    let error = Config::parse(&all, Path::new("/c.json")).unwrap_err().to_string();
    assert!(error.ends_with("`users.alice` is not a complete argon2 hash"), "{error}");
    let (config, warnings) =
        Config::parse(&all.replace("$argon2", "argon2"), Path::new("/c.json")).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert!(config.tls.is_some() && config.orphan_foreign.is_some());
}

#[test]
fn every_key_is_explained() {
    let page = include_str!("../../../../docs/config-disbatch.md");
    for key in read::KEYS {
        assert!(page.contains(&format!("`{key}`")), "docs/config-disbatch.md has no `{key}`");
    }
}

#[test]
fn the_collection_narrows_plugins_and_chooses_queues() {
    let file =
        config(json!({"plugins": ["/a", "/b"], "ignorequeues": ["565e75f03fb6ecd1c8504499"]}));
    let id = ObjectId::parse_str("565b34420cef2c52d6000000").unwrap();
    let (both, warnings) = overlay(
        &file,
        &doc! {
            "label": "production", "active": true, "plugins": ["/b", "/c"], "activequeues": [id],
        },
    );
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!(both.plugins.names(), ["/b"]);
    assert_eq!(both.active_queues, ["565b34420cef2c52d6000000"]);
    assert_eq!(both.ignore_queues, file.ignore_queues);
    let (same, warnings) = overlay(&file, &doc! {"plugins": null});
    assert_eq!((same, warnings), (file.clone(), Vec::new()));
    let (object, _) = overlay(&file, &doc! {"plugins": {"/a": {"program": "/bin/rm"}}});
    assert_eq!(object.plugins.get("/a"), file.plugins.get("/a"));
    assert_eq!(object.plugins.names(), ["/a"]);
    let (none, _) = overlay(&file, &doc! {"ignorequeues": [], "plugins": []});
    assert_eq!((none.ignore_queues.len(), none.plugins.names().len()), (0, 0));
}

#[test]
fn what_is_odd_in_the_collection_stays_as_the_file_has_it() {
    let file = config(json!({"plugins": ["/a"]}));
    for key in ["plugins", "activequeues", "ignorequeues"] {
        for odd in [doc! {key: 1}, doc! {key: "/a"}, doc! {key: ["/a", 1]}] {
            let (same, warnings) = overlay(&file, &odd);
            assert_eq!(same, file);
            let about = format!("the `{key}` of the collection `config` is not a list of texts");
            assert_eq!(warnings, [about]);
        }
    }
}

fn written(keys: Value) -> (tempfile::TempDir, Config) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.json");
    let mut all = json!({"mongohost": "mongodb://h:1", "database": "d"});
    all.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    std::fs::write(&path, format!("# a comment\n{all}")).unwrap();
    let (config, _) = Config::read(&path).unwrap();
    write_files(&config).unwrap();
    (home, config)
}

fn json_of(path: &Path) -> Value {
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn files_for_others_have_their_own_password_only() {
    let (home, config) = written(json!({
        "mongohost": "mongodb://root:r00t@h:1/?ssl=true",
        "auth": {"disbatchd": "p1", "task_runner": "p2", "plugin": "p3"},
        "users": {"a": "b"}, "tokens": ["c"], "tls": {"cert": "/c", "key": "/k"}, "own": [1],
    }));
    assert_eq!(plugin_file(&config), home.path().join("config.json-plugin"));
    for (path, auth) in [
        (plugin_file(&config), json!({"plugin": "p3"})),
        (home.path().join("config.json-task_runner"), json!({"task_runner": "p2"})),
    ] {
        let expected = json!({
            "mongohost": "mongodb://h:1/?ssl=true", "database": "d", "auth": auth, "own": [1],
        });
        assert_eq!(json_of(&path), expected);
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 3);
}

#[test]
fn files_without_a_password_have_no_login() {
    let (_home, config) = written(json!({"auth": {"disbatchd": "p1"}}));
    let expected = json!({"mongohost": "mongodb://h:1", "database": "d", "auth": {}});
    assert_eq!(json_of(&plugin_file(&config)), expected);
}

#[test]
fn files_for_others_are_replaced_when_they_are_not_right() {
    let (_home, config) = written(json!({}));
    let path = plugin_file(&config);
    let right = std::fs::read(&path).unwrap();
    for spoil in [
        |path: &Path| std::fs::write(path, "old").unwrap(),
        |path: &Path| std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap(),
        |path: &Path| {
            std::fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("config.json", path).unwrap();
        },
        |path: &Path| std::fs::remove_file(path).unwrap(),
    ] {
        spoil(&path);
        write_files(&config).unwrap();
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(std::fs::read(&path).unwrap(), right);
        json_of(&path);
    }
}

#[test]
fn files_that_cannot_be_written_are_named() {
    let (home, config) = written(json!({}));
    let config = Config { path: home.path().join("gone/config.json"), ..config };
    let error = write_files(&config).unwrap_err();
    let start = format!(
        "cannot write the file {}: ",
        home.path().join("gone/config.json-plugin").display()
    );
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn a_file_with_passwords_that_everybody_may_read_is_told() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("config.json");
    for (keys, mode, told) in [
        (r#", "auth": {"plugin": "p"}"#, 0o644, true),
        (r#", "auth": {"plugin": "p"}"#, 0o640, false),
        ("", 0o644, false),
    ] {
        std::fs::write(&path, format!(r#"{{"mongohost": "h", "database": "d"{keys}}}"#)).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let (_, warnings) = Config::read(&path).unwrap();
        let about = format!(
            "{} contains passwords, and every user on this host can read it",
            path.display()
        );
        assert_eq!(warnings, if told { vec![about] } else { vec![] });
    }
}
