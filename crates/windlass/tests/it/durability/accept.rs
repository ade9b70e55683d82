//! What the answer to an add promises: the daemon's journal, or the store.

use std::fs;

use serde_json::json;
use windlass_test_servers::{Database, Kind};

use crate::harness::{Config, Daemon, Door, Store, StoreLock, ids_of, until};

/// A daemon whose machine is lost with its disk, and one on another machine that knows only the
/// store.
struct Machines {
    lost: Daemon,
    left: Daemon,
}

impl Machines {
    /// Neither picks jobs yet.
    fn start(config: Config) -> Machines {
        let other = config.beside();
        let machines = Machines { lost: Daemon::start(config), left: Daemon::start(other) };
        machines.lost.stop_picking();
        machines.left.stop_picking();
        machines.left.tenant("a").sh("t", &machines.left.home().recorder("seen"));
        machines
    }

    /// The jobs that ran on the machine that is left.
    #[track_caller]
    fn lose(mut self, ids: &[String]) -> Vec<String> {
        self.lost.kill9();
        fs::remove_dir_all(self.lost.home().data()).unwrap();
        self.left.start_picking();
        self.left.tenant("a").until_all(ids, "finished");
        self.left.home().lines("seen")
    }
}

/// Not the file of an embedded store, which would be lost with the directory.
fn on_server() -> Config {
    Config::on(Store::Server(Database::in_own(Kind::Postgres)))
}

#[test]
fn an_add_that_asks_for_the_store_survives_the_loss_of_its_daemons_disk() {
    let machines = Machines::start(on_server());
    let tenant = machines.lost.tenant("a");
    let mut ids = tenant.add_with("t", "durable=store", &["x", "y"]);
    let jobs = json!({"jobs": [{"payload": "z", "durable": "store"}, {"payload": "w"}]});
    let path = "/v1/a/jobs/t";
    ids.extend(ids_of(&machines.lost.send_json("POST", path, &jobs).expect(201)));
    let large = vec![b'v'; 3 << 20];
    let headers = [("Content-Type", "application/octet-stream")];
    let path = "/v1/a/jobs/large?durable=store";
    let large_id = ids_of(&machines.lost.call("POST", path, &headers, &large).expect(201));
    let left = machines.left.tenant("a");
    let payload = left.get(&format!("jobs/{}/payload", large_id[0])).expect(200);
    assert_eq!(payload.body.len(), large.len());
    assert_eq!(machines.lose(&ids).len(), ids.len());
}

#[test]
fn a_daemon_that_accepts_in_the_store_loses_nothing_with_its_disk() {
    let config = on_server();
    let machines = Machines::start(config.flag("--accept").flag("store"));
    let tenant = machines.lost.tenant("a");
    let mut ids = tenant.add("t", &["x", "y"]);
    let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", "k")];
    let keyed = || machines.lost.call("POST", "/v1/a/jobs/t", &headers, b"z");
    ids.extend(ids_of(&keyed().expect(201)));
    assert_eq!(ids_of(&keyed().expect(200)), ids[2..]);
    assert_eq!(machines.lose(&ids).len(), ids.len());
}

/// The daemon knows that its store does not answer, and lets nobody wait for it.
#[track_caller]
fn until_away(daemon: &Daemon) {
    let ready = || daemon.get("/readyz").json();
    until("the store is known to be away", ready, |ready| ready["store"] != "ok");
}

#[test]
fn without_the_store_an_add_that_needs_it_is_refused_and_says_so() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let known = tenant.add_with("t", "durable=store", &["x"]).remove(0);
    let lock = StoreLock::take(&daemon.config);
    until_away(&daemon);
    let path = "/v1/a/jobs/t?durable=store";
    let refused = daemon.send_text(path, "y").expect(503);
    assert_eq!(refused.error_code(), "unavailable");
    assert!(refused.text().contains("durable=store"), "{}", refused.text());
    let headers = [("Content-Type", "text/plain"), ("Idempotency-Key", "k")];
    assert_eq!(daemon.call("POST", path, &headers, b"z").expect(503).error_code(), "unavailable");
    let plain = tenant.add_one("t", "plain");
    drop(lock);
    let mut pulled = tenant.drain("t", 2);
    pulled.sort_by_key(|job| job["id"].to_string());
    let pulled: Vec<&str> = pulled.iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(pulled, [known, plain]);
    assert!(tenant.claim("t", 10, "60s").is_empty(), "what was refused does not run");
}

/// One add may also ask for less than its daemon promises.
#[test]
fn an_add_may_ask_for_the_journal_only() {
    let daemon = Daemon::start(Config::new().set("accept", "\"store\""));
    let tenant = daemon.tenant("a");
    let lock = StoreLock::take(&daemon.config);
    until_away(&daemon);
    daemon.send_text("/v1/a/jobs/t", "x").expect(503);
    let id = tenant.add_with("t", "durable=journal", &["y"]).remove(0);
    drop(lock);
    assert_eq!(tenant.until_claimed("t", "60s")["id"], id.as_str());
    let refused = daemon.send_text("/v1/a/jobs/t?durable=disk", "x").expect(400);
    assert!(refused.text().contains("neither journal nor store"), "{}", refused.text());
}

#[test]
fn the_bedrock_door_follows_its_daemon() {
    let config = on_server();
    let other = config.beside();
    let mut door = Door::start_with(config.set("accept", "\"store\""));
    door.stop_picking();
    let id = door.named("n");
    door.daemon.kill9();
    fs::remove_dir_all(door.home().data()).unwrap();
    let left = Door::start_with(other);
    until("it is there", || left.about("QueryJob", id).line, |line| line == "200 OK");
    left.take(id, "n");
}
