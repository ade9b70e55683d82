//! What handlers of a daemon cannot do, and what happens to those that try.

use serde_json::json;

use crate::harness::{Config, Daemon, refused_start, run, runtime_key, windlass};

#[test]
fn a_handler_sees_nothing_of_the_daemons_data_and_writes_nothing_else() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let data = daemon.home().data();
    let outside = data.with_file_name("outside");
    let for_commands = runtime_key(daemon.address);
    assert!(for_commands.exists());
    for (name, body) in [
        ("list", format!("ls {}", data.display())),
        ("store", format!("cat {}", daemon.home().store().display())),
        ("key", format!("cat {}/admin.key", data.display())),
        ("key-for-commands", format!("cat {}", for_commands.display())),
        ("scratch", format!("ls {}", data.join("scratch").display())),
        ("shadow", "cat /etc/shadow".to_owned()),
        ("write", format!("echo x > {}", outside.display())),
    ] {
        tenant.sh(name, &format!("{body} || exit 65"));
        let id = tenant.add_one(name, "x");
        tenant.until_state(&id, "failed");
        let log = tenant.log(&id);
        let refused = ["Permission denied", "No such file", "nonexistent"];
        assert!(refused.iter().any(|words| log.contains(words)), "{name}: {log}");
    }
    assert!(!outside.exists());
    let own = "echo x > file; ls /usr > list; cat file; echo x > /tmp/of-a-windlass-handler";
    tenant.sh("own", own);
    let id = tenant.add_one("own", "x");
    tenant.until_state(&id, "finished");
    assert!(!std::path::Path::new("/tmp/of-a-windlass-handler").exists());
}

#[test]
fn a_handler_has_the_limits_that_it_says_and_a_bad_one_is_named() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let set = |options: serde_json::Value| {
        let body = json!({"lang": "sh", "body": "ulimit -d; ulimit -f", "options": options});
        daemon.send_json("PUT", "/v1/a/handlers/t", &body)
    };
    for (options, field) in [
        (json!({"memory": "1KB"}), "options.memory"),
        (json!({"memory": 5}), "options.memory"),
        (json!({"cpu": "0s"}), "options.cpu"),
        (json!({"processes": 0}), "options.processes"),
        (json!({"file_size": "0B"}), "options.file_size"),
    ] {
        let refused = set(options).expect(400).text();
        assert!(refused.contains(field), "{field}: {refused}");
    }
    set(json!({"memory": "64MB", "file_size": "1MB"})).expect(200);
    let id = tenant.add_one("t", "x");
    tenant.until_state(&id, "finished");
    let log = tenant.log(&id);
    assert!(log.contains("65536\n2048\n"), "{log}");
}

#[test]
fn the_daemons_own_data_cannot_be_opened_to_handlers() {
    let config = Config::new();
    let data = config.home.data();
    for path in [data.clone(), data.parent().unwrap().to_owned(), data.join("journal")] {
        for key in ["isolation.read", "isolation.write"] {
            let refused = refused_start(&config.clone().set(key, &format!("[{path:?}]")));
            assert!(refused.stderr.contains(key), "{refused:?}");
        }
    }
    let refused = refused_start(&config.set("isolation.read", "[\"relative\"]"));
    assert!(refused.stderr.contains("absolute paths"), "{refused:?}");
}

#[test]
fn the_status_says_which_layers_are_missing() {
    let missing = |level: &str| {
        let daemon = Daemon::start(Config::new().set("isolation.level", &format!("{level:?}")));
        let url = format!("http://{}", daemon.address);
        let shown = run(windlass().args(["status", "--url", &url]), b"").ok();
        (daemon.status()["layers_missing"].to_string(), shown)
    };
    for text in <[String; 2]>::from(missing("off")) {
        assert!(text.contains("isolation.level is off"), "{text}");
    }
    // Without namespaces, system call filter and network policy it would not start.
    for text in <[String; 2]>::from(missing("required")) {
        let words = ["isolation.level", "namespaces", "system call filter", "network policy"];
        assert!(!words.iter().any(|word| text.contains(word)), "{text}");
    }
}
