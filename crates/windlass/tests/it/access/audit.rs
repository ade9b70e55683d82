//! The audit of a real daemon: its durability, its age, its command, and what is not in its file.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, run, text, until, windlass};

fn entries(daemon: &Daemon, query: &str) -> Vec<Value> {
    let page = daemon.get(&format!("/v1/audit?limit=1000{query}")).expect(200).json();
    page["entries"].as_array().unwrap().clone()
}

fn actions(entries: &[Value]) -> Vec<&str> {
    entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect()
}

#[test]
fn an_audited_change_that_was_answered_outlives_a_kill() {
    const ROUNDS: usize = 5;
    let mut daemon = Daemon::start(Config::new());
    for round in 1..=ROUNDS {
        let wish = json!({"role": "viewer", "tenant": "a"});
        let made = daemon.send_json("POST", "/v1/keys", &wish).expect(201).json();
        daemon.post("/v1/a/types/t/suspend").expect(200);
        daemon.kill9();
        daemon.restart();
        let changes = entries(&daemon, "&tenant=a");
        assert_eq!(changes.len(), 2 * round);
        assert_eq!(actions(&changes[..2]), ["type_suspend", "key_create"]);
        assert_eq!((&changes[0]["status"], &changes[1]["status"]), (&json!(200), &json!(201)));
        assert_eq!(changes[1]["id"], made["id"]);
    }
}

#[test]
fn the_first_admin_key_and_a_start_without_keys_are_entered() {
    let mut daemon = Daemon::start(Config::new());
    let first = entries(&daemon, "");
    assert_eq!(actions(&first), ["admin_key_create"]);
    assert_eq!(first[0]["by"], "daemon");
    let key = daemon.key.unwrap();
    assert_eq!(first[0]["id"], key.split('_').nth(1).unwrap());
    assert!(daemon.terminate().success());
    daemon.restart();
    assert_eq!(entries(&daemon, "").len(), 1, "it is the same key");
    assert!(daemon.terminate().success());
    let daemon = Daemon::start(daemon.config.clone().flag("--insecure"));
    let all = entries(&daemon, "");
    assert_eq!(actions(&all), ["start_insecure", "admin_key_create"]);
}

#[test]
fn old_entries_are_removed() {
    let config = Config::new().set("audit.retention", "\"1s\"");
    let daemon = Daemon::start(config.set("job.purge_interval", "\"100ms\""));
    daemon.post("/v1/a/types/t/suspend").expect(200);
    until("no entry is left", || entries(&daemon, "").len(), |count| *count == 0);
}

/// A flood of wrong keys is counted, takes two entries a minute, and the counts outlive a stop.
#[test]
fn a_flood_of_refusals_is_counted_in_few_entries() {
    const FLOOD: u64 = 2000;
    let mut daemon = Daemon::start(Config::new());
    let mut statuses = [0, 0];
    for number in 0..FLOOD {
        let key = format!("Bearer wl_{number:016x}_{number:064x}");
        let headers = [("Authorization", key.as_str())];
        let status = daemon.without_key().call("GET", "/v1/a/jobs", &headers, b"").status;
        statuses[usize::from(status == 429)] += 1;
    }
    assert_eq!(statuses.iter().sum::<u64>(), FLOOD);
    assert!(daemon.terminate().success());
    daemon.restart();
    let refused: Vec<Value> =
        entries(&daemon, "").into_iter().filter(|entry| !entry["reason"].is_null()).collect();
    let count = |reason: &str| {
        let of = refused.iter().filter(|entry| entry["reason"] == reason);
        of.map(|entry| entry["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!([count("wrong_key"), count("limited")], statuses);
    // One more minute may have begun.
    assert!(refused.len() <= 4, "{refused:?}");
}

#[test]
fn no_secret_is_in_the_answers_of_the_audit_nor_in_the_store() {
    let mut daemon = Daemon::start(Config::embedded());
    let wish = json!({"role": "manager", "tenant": "a"});
    let made = daemon.send_json("POST", "/v1/keys", &wish).expect(201).json();
    let key = text(&made["key"]);
    let id = text(&made["id"]);
    let rotated = daemon.send_json("POST", &format!("/v1/keys/{id}/rotate"), &json!({}));
    let rotated = text(&rotated.expect(201).json()["key"]);
    daemon.delete(&format!("/v1/keys/{key}")).expect(400);
    let wrong = format!("wl_{:016x}_{:064x}", 77, 0xfeed_beef_u64);
    daemon.with_key(&wrong).get("/v1/a/jobs").expect(401);
    daemon.with_key(&key).get("/v1/b/jobs").expect(404);
    let secret = |key: &str| key.rsplit('_').next().unwrap().to_owned();
    let secrets = [daemon.key.unwrap(), &key, &rotated, &wrong].map(secret);
    assert!(daemon.terminate().success());
    for file in fs::read_dir(daemon.home().data()).unwrap() {
        let path = file.unwrap().path();
        let is_store = path.file_name().unwrap().to_string_lossy().starts_with("store.db");
        if is_store {
            let bytes = fs::read(&path).unwrap();
            for secret in &secrets {
                let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!is_there, "{} has a secret", path.display());
            }
        }
    }
    daemon.restart();
    let shown = daemon.get("/v1/audit").expect(200).text();
    assert!(shown.contains("wrong_key") && shown.contains("key_rotate"), "{shown}");
    assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
}

#[test]
fn the_command_lists_the_audit() {
    let daemon = Daemon::start(Config::new());
    daemon.post("/v1/a/types/t/suspend").expect(200);
    daemon.post("/v1/b/types/t/suspend").expect(200);
    let wish = json!({"role": "manager", "tenant": "a"});
    let manager = daemon.send_json("POST", "/v1/keys", &wish).expect(201).json();
    let audit = |key: &str, arguments: &[&str]| {
        let mut command = windlass();
        command.args(["audit", "--url", &format!("http://{}", daemon.address)]);
        run(command.args(arguments).env("WINDLASS_KEY", key), b"")
    };
    let admin = daemon.key.unwrap();
    let shown = audit(admin, &[]).ok();
    assert_eq!(shown.lines().count(), 5, "{shown}");
    for word in ["ACTION", "type_suspend", "admin_key_create", "127.0.0.1", "role manager"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let page = audit(admin, &["--limit", "1", "--json"]).json();
    assert_eq!(actions(page["entries"].as_array().unwrap()), ["key_create"]);
    let next = text(&page["next"]);
    let rest = audit(admin, &["--after", &next, "--json", "--since", "1h", "--until", "0s"]).json();
    assert_eq!(rest["entries"].as_array().unwrap().len(), 3, "{rest}");
    let of = audit(admin, &["--of", "b", "--action", "type_suspend", "--json"]).json();
    assert_eq!(of["entries"].as_array().unwrap().len(), 1, "{of}");
    let own = audit(&text(&manager["key"]), &["--json"]).json();
    assert_eq!(own["entries"].as_array().unwrap().len(), 2, "{own}");
    let by = audit(admin, &["--by", &text(&manager["id"])]).ok();
    assert!(by.contains("no matching entries"), "{by}");
    assert_eq!(audit(&text(&manager["key"]), &["--of", "b"]).code, Some(1));
    for wrong in [["--since", "soon"], ["--by", "x"]] {
        assert_eq!(audit(admin, &wrong).code, Some(1), "{wrong:?}");
    }
    assert_eq!(audit(admin, &["--limit", "0"]).code, Some(2));
}
