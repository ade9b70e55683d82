//! The key file: made once, shared, replaced, missing, wrong.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::{Client, Cluster, Config, Daemon, Home, Tenant, text};

fn key_file(home: &Home) -> PathBuf {
    home.data().join("secrets.key")
}

/// The keys in the file, the newest last.
fn keys(home: &Home) -> Vec<String> {
    let text = fs::read_to_string(key_file(home)).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Compares the secret with what the payload says.
fn set_handler(tenant: &Tenant, name: &str) {
    let body = format!("[ \"$(cat)\" = \"${name}\" ]");
    let options = json!({"secrets": [name]});
    tenant.handler("t", &json!({"lang": "sh", "body": body, "options": options}));
}

#[track_caller]
fn runs_with(tenant: &Tenant, value: &str) {
    let id = tenant.add_one("t", value);
    let job = tenant.until_end(&id);
    let seen = (&job["state"], &job["attempt"]);
    assert_eq!(seen, (&json!("finished"), &json!(1)), "{}", tenant.log(&id));
}

#[track_caller]
fn fails_with(tenant: &Tenant, sentence: &str) {
    let id = tenant.add_one("t", "x");
    assert_eq!(tenant.until_end(&id)["state"], "failed");
    let log = tenant.log(&id);
    assert!(log.contains(sentence) && !log.contains("hunter"), "{sentence:?} in {log}");
}

fn rekey(client: &Client) -> Value {
    client.post("/v1/secrets/rekey").expect(200).json()
}

fn one_attempt() -> Config {
    Config::new().set("retry.attempts", "1")
}

#[test]
fn the_first_start_makes_a_key_file_for_its_owner_and_others_share_it() {
    let cluster = Cluster::start(3, Config::new());
    let file = key_file(cluster.home());
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let made = keys(cluster.home());
    assert_eq!(made.len(), 1);
    cluster[0].tenant("a").secret("DOOR", "hunter2!");
    let other = cluster[2].tenant("a");
    set_handler(&other, "DOOR");
    runs_with(&other, "hunter2!");
    assert_eq!(keys(cluster.home()), made);
}

#[test]
fn without_its_key_file_a_job_says_so_and_everything_else_works() {
    let mut daemon = Daemon::start(one_attempt());
    let (file, away) = (key_file(daemon.home()), daemon.home().path("away.key"));
    let tenant = daemon.tenant("a");
    tenant.secret("DOOR", "hunter2!");
    set_handler(&tenant, "DOOR");
    runs_with(&tenant, "hunter2!");
    fs::rename(&file, &away).unwrap();
    fails_with(&tenant, "the secret DOOR cannot be read: the key file is missing");
    daemon.terminate();
    daemon.restart();
    let tenant = daemon.tenant("a");
    assert!(!file.exists(), "no other key takes its place while there are secrets");
    assert!(daemon.log.lines().join("\n").contains("the key file is missing"));
    fails_with(&tenant, "the secret DOOR cannot be read: the key file is missing");
    let text_headers = [("Content-Type", "text/plain")];
    let refused = daemon.call("PUT", "/v1/a/secrets/OTHER", &text_headers, b"hunter3!").expect(503);
    assert!(refused.text().contains("put it back"), "{}", refused.text());
    tenant.sh("plain", "true");
    assert_eq!(tenant.until_end(&tenant.add_one("plain", "x"))["state"], "finished");
    assert_eq!(daemon.get("/v1/a/secrets").expect(200).json()["secrets"][0]["name"], "DOOR");
    fs::rename(&away, &file).unwrap();
    runs_with(&tenant, "hunter2!");
    // Without secrets, a new key is as good as the old one.
    daemon.delete("/v1/a/secrets/DOOR").expect(200);
    fs::remove_file(&file).unwrap();
    tenant.secret("DOOR", "hunter4!");
    runs_with(&tenant, "hunter4!");
}

#[test]
fn a_key_file_that_is_wrong_is_named_and_not_used() {
    let daemon = Daemon::start(one_attempt());
    let file = key_file(daemon.home());
    let tenant = daemon.tenant("a");
    tenant.secret("DOOR", "hunter2!");
    set_handler(&tenant, "DOOR");
    let good = fs::read_to_string(&file).unwrap();
    let close = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    close(0o644);
    fails_with(&tenant, "the key file secrets.key is accessible to other users");
    close(0o600);
    runs_with(&tenant, "hunter2!");
    fs::write(&file, "nonsense\n").unwrap();
    fails_with(&tenant, "the key file secrets.key holds something else than keys");
    let wrong = good.replace(good.lines().last().unwrap(), &"0".repeat(64));
    fs::write(&file, wrong).unwrap();
    fails_with(&tenant, "which is not in the key file");
    fs::rename(&file, daemon.home().path("real.key")).unwrap();
    std::os::unix::fs::symlink(daemon.home().path("real.key"), &file).unwrap();
    fails_with(&tenant, "the key file secrets.key is a symbolic link");
    fs::remove_file(&file).unwrap();
    fs::write(&file, good).unwrap();
    close(0o600);
    runs_with(&tenant, "hunter2!");
}

#[test]
fn another_place_for_the_key_file_can_be_chosen_and_handlers_do_not_see_it() {
    let config = one_attempt();
    let elsewhere = config.home.dir().join("elsewhere.key");
    let config = config.set("secrets.key_file", &format!("{elsewhere:?}"));
    let daemon = Daemon::start(config);
    assert!(elsewhere.exists() && !key_file(daemon.home()).exists());
    let tenant = daemon.tenant("a");
    tenant.secret("DOOR", "hunter2!");
    set_handler(&tenant, "DOOR");
    runs_with(&tenant, "hunter2!");
    tenant.sh("thief", &format!("cat {}", elsewhere.display()));
    assert_eq!(tenant.until_end(&tenant.add_one("thief", "x"))["state"], "failed");
}

#[test]
fn a_rekey_replaces_the_key_and_every_secret_stays() {
    let daemon = Daemon::start(one_attempt());
    let before = keys(daemon.home());
    for tenant in ["a", "b"] {
        for number in 0..120 {
            daemon.tenant(tenant).secret(&format!("S{number}"), &format!("hunter{number}"));
        }
    }
    let listed = daemon.get("/v1/a/secrets").expect(200).json();
    let done = rekey(&daemon);
    assert_eq!((&done["resealed"], &done["unreadable"]), (&json!(240), &json!([])));
    let after = keys(daemon.home());
    assert!(after.len() == 1 && after != before);
    assert_eq!(daemon.get("/v1/a/secrets").expect(200).json(), listed, "no new versions");
    let mode = key_file(daemon.home()).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for (tenant, number) in [("a", 0), ("a", 119), ("b", 57)] {
        let tenant = daemon.tenant(tenant);
        set_handler(&tenant, &format!("S{number}"));
        runs_with(&tenant, &format!("hunter{number}"));
    }
}

/// Here the state is made by hand; that a kill leaves this one, the engine's tests show.
#[test]
fn what_a_killed_rekey_leaves_is_readable_and_the_next_one_completes_it() {
    let mut daemon = Daemon::start(one_attempt());
    let tenant = daemon.tenant("a");
    tenant.secret("DOOR", "hunter2!");
    set_handler(&tenant, "DOOR");
    daemon.kill9();
    // Between its new key and the first secret.
    let text = fs::read_to_string(key_file(daemon.home())).unwrap();
    fs::write(key_file(daemon.home()), format!("{text}{}\n", "5a".repeat(32))).unwrap();
    let both = keys(daemon.home());
    assert_eq!(both.len(), 2);
    daemon.restart();
    let tenant = daemon.tenant("a");
    assert!(daemon.log.lines().join("\n").contains("the key file of secrets has old keys"));
    runs_with(&tenant, "hunter2!");
    tenant.secret("OTHER", "hunter3!");
    assert_eq!(rekey(&daemon)["resealed"], 2);
    let new = keys(daemon.home());
    assert!(new.len() == 1 && !both.contains(&new[0]));
    runs_with(&tenant, "hunter2!");
    set_handler(&tenant, "OTHER");
    runs_with(&tenant, "hunter3!");
}

#[test]
fn a_rekey_keeps_the_key_of_what_it_cannot_read_and_says_so() {
    let daemon = Daemon::start(Config::embedded().set("retry.attempts", "1"));
    let tenant = daemon.tenant("a");
    tenant.secret("GOOD", "hunter2!");
    tenant.secret("BAD", "hunter3!");
    let swap = "
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], timeout=30)
store.execute(\"UPDATE secret SET sealed = (SELECT sealed FROM secret WHERE name = 'GOOD')\")
store.commit()
";
    crate::harness::python(swap, &[daemon.home().store().to_str().unwrap()]);
    set_handler(&tenant, "BAD");
    fails_with(&tenant, "the secret BAD cannot be read: what the store has of it is damaged");
    let done = rekey(&daemon);
    assert_eq!(done["resealed"], 1);
    let unreadable = &done["unreadable"][0];
    assert_eq!(
        (text(&unreadable["tenant"]), text(&unreadable["name"])),
        ("a".into(), "BAD".into())
    );
    assert_eq!(keys(daemon.home()).len(), 2, "its key is kept");
    set_handler(&tenant, "GOOD");
    runs_with(&tenant, "hunter2!");
    tenant.secret("BAD", "hunter4!");
    assert_eq!(rekey(&daemon)["unreadable"], json!([]));
    assert_eq!(keys(daemon.home()).len(), 1);
}

/// Two daemons rekey in turns while jobs run and secrets change: every job finds its secret.
#[test]
fn rekeys_under_load_fail_no_job_and_lose_no_secret() {
    const REKEYS: usize = 6;
    let cluster = Cluster::start(2, one_attempt());
    let tenant = cluster[0].tenant("a");
    tenant.secret("DOOR", "hunter2!");
    set_handler(&tenant, "DOOR");
    let over = AtomicBool::new(false);
    let (added, sets) = thread::scope(|scope| {
        let adder = scope.spawn(|| {
            let mut ids = Vec::new();
            while !over.load(Ordering::SeqCst) {
                // The daemon that accepted a job shows it at once.
                let tenant = cluster[ids.len() % 2].tenant("a");
                let id = tenant.add_one("t", "hunter2!");
                tenant.until_end(&id);
                ids.push(id);
            }
            ids
        });
        let setter = scope.spawn(|| {
            let mut sets = 0;
            while !over.load(Ordering::SeqCst) {
                let client = &cluster[sets % 2];
                client.tenant("a").secret(&format!("S{}", sets % 20), &format!("value {sets}"));
                sets += 1;
            }
            sets
        });
        let mut seen = vec![keys(cluster.home())];
        for number in 0..REKEYS {
            assert_eq!(rekey(&cluster[number % 2])["unreadable"], json!([]));
            seen.push(keys(cluster.home()));
        }
        over.store(true, Ordering::SeqCst);
        assert!(seen.iter().all(|keys| keys.len() == 1));
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
        (adder.join().unwrap(), setter.join().unwrap())
    });
    assert!(!added.is_empty() && sets > 0);
    for id in &added {
        let job = tenant.job(id);
        assert_eq!(job["state"], "finished", "{}", tenant.log(id));
    }
    assert_eq!(rekey(&cluster[0])["unreadable"], json!([]));
    set_handler(&tenant, &format!("S{}", (sets - 1) % 20));
    runs_with(&tenant, &format!("value {}", sets - 1));
}
