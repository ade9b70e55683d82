//! The list of all daemons of a queue: who is alive, who is gone, and what waits in their journals.

use serde_json::{Value, json};
use windlass_test_servers::{Database, Kind, postgres};

use crate::harness::{Cluster, Config, Daemon, Store, StoreLock, find_keys, run, until, windlass};

fn daemons(daemon: &Daemon) -> Vec<Value> {
    let page = daemon.get("/v1/daemons").expect(200).json();
    page["daemons"].as_array().unwrap().clone()
}

#[track_caller]
fn until_state(daemon: &Daemon, sysid: u64, state: &str) -> Value {
    let find = || daemons(daemon).into_iter().find(|seen| seen["sysid"] == sysid);
    let seen =
        until("it is so", find, |seen| seen.as_ref().is_some_and(|seen| seen["state"] == state));
    seen.unwrap()
}

#[test]
fn every_daemon_shows_all_of_them() {
    let first = Daemon::start(Config::new());
    let second = Daemon::start(first.config.beside());
    for daemon in [&first, &second] {
        let both = || daemons(daemon);
        let alive = |all: &Vec<Value>| all.iter().filter(|seen| seen["state"] == "alive").count();
        let both = until("both are there", both, |all| alive(all) == 2);
        assert_eq!(both.len(), 2);
        for (seen, real) in both.iter().zip([&first, &second]) {
            assert_eq!(seen["sysid"], real.sysid());
            assert_eq!(seen["listen"], real.address.to_string());
            assert_eq!(seen["version"], env!("CARGO_PKG_VERSION"));
            assert_eq!(seen["picking"], true);
            assert_eq!(seen["journal"]["waiting"], 0);
            let host = seen["host"].as_str().unwrap();
            assert!(!host.is_empty());
            let layers = &real.status()["layers_missing"];
            assert_eq!(&seen["layers_missing"], layers);
            assert!(seen["started_at"].as_str() <= seen["last_beat_at"].as_str(), "{seen}");
        }
    }
    until("both count", || first.status(), |status| status["daemons"]["alive"] == 2);
    let page = first.get("/v1/daemons?limit=1").expect(200).json();
    assert_eq!(page["daemons"].as_array().unwrap().len(), 1);
    let next = page["next"].as_str().unwrap();
    let rest = first.get(&format!("/v1/daemons?limit=1&after={next}")).expect(200).json();
    assert_eq!(rest["daemons"][0]["sysid"], second.sysid());
}

#[test]
fn what_changes_is_seen_by_the_others() {
    let first = Daemon::start(Config::new());
    let second = Daemon::start(first.config.beside());
    let sysid = second.sysid();
    second.stop_picking();
    let seen = || until_state(&first, sysid, "alive");
    until("it does not pick", seen, |seen| seen["picking"] == false);
    second.start_picking();
    let tenant = second.tenant("a");
    first.stop_picking();
    tenant.sh("t", &second.home().holder("seen", "hold"));
    tenant.add_one("t", "x");
    until("its job is seen", seen, |seen| seen["picking"] == true && seen["running"] == 1);
    second.home().let_go("hold");
    until("its end is seen", seen, |seen| seen["running"] == 0);
}

#[test]
fn a_daemon_that_stops_is_listed_no_more() {
    let first = Daemon::start(Config::new());
    let mut second = Daemon::start(first.config.beside());
    until("both are there", || daemons(&first).len(), |n| *n == 2);
    assert!(second.terminate().success());
    assert_eq!(daemons(&first).len(), 1);
}

/// Its jobs wait for its data directory, and for nothing else.
#[test]
fn a_daemon_that_is_gone_is_shown_with_what_waits_in_its_journal() {
    const JOBS: u64 = 25;
    let database = Database::in_shared(postgres());
    let first = Daemon::start(Config::on(Store::Server(database.clone())));
    let mut second = Daemon::start(first.config.beside());
    let sysid = second.sysid();
    // Its beats reach the store, and its jobs do not.
    let lock = StoreLock::of_tables(&database, "^job");
    let payloads: Vec<String> = (0..JOBS).map(|n| n.to_string()).collect();
    second.tenant("a").add("t", &payloads);
    let seen = || until_state(&first, sysid, "alive");
    until("its jobs are seen", seen, |seen| seen["journal"]["waiting"] == JOBS);
    second.kill9();
    drop(lock);
    let gone = until_state(&first, sysid, "gone");
    assert_eq!(gone["journal"]["waiting"], JOBS, "{gone}");
    assert!(gone["journal"]["bytes"].as_u64() > Some(0), "{gone}");
    assert_eq!((&gone["picking"], &gone["running"]), (&false.into(), &0.into()));
    let counts = json!({"alive": 1, "gone": 1, "jobs_left": JOBS});
    until("they are counted", || first.status(), |status| status["daemons"] == counts);
    second.restart();
    let all = || first.tenant("a").type_row("t");
    until("its jobs are in the store", all, |row| row["ready"] == JOBS);
    until("nothing is left", || first.status(), |status| status["daemons"]["jobs_left"] == 0);
}

#[test]
fn the_command_lists_them_for_people_and_programs() {
    let cluster = Cluster::start(2, Config::new());
    until("both are there", || daemons(&cluster[0]).len(), |n| *n == 2);
    let command = |more: &[&str]| {
        let mut command = windlass();
        find_keys(&mut command);
        command.args(["daemons", "--url", &format!("http://{}", cluster[0].address)]).args(more);
        run(&mut command, b"").ok()
    };
    let shown = command(&[]);
    assert!(shown.starts_with("SYSID") && shown.lines().count() == 3, "{shown}");
    assert!(shown.contains(&cluster[1].address.to_string()), "{shown}");
    let json: Value = serde_json::from_str(&command(&["--json"])).unwrap();
    assert_eq!(json["daemons"].as_array().unwrap().len(), 2);
}

#[test]
fn without_the_store_the_list_is_unavailable() {
    let database = Database::in_own(Kind::Postgres);
    let daemon = Daemon::start(Config::on(Store::Server(database.clone())));
    database.server().kill();
    assert_eq!(daemon.get("/v1/daemons").expect(503).error_code(), "unavailable");
    assert_eq!(daemon.status()["daemons"], Value::Null);
}
