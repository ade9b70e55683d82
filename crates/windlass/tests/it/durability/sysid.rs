//! The numbers of daemons: distinct, released at the end, lost with the lease.

use std::collections::HashSet;
use std::thread;

use windlass_test_kit::wait::PATIENCE;

use crate::harness::{Config, Daemon, refused_start, text, until, until_some};

#[test]
fn s0_19_daemons_that_start_at_once_have_distinct_numbers() {
    const DAEMONS: usize = 10;
    let config = Config::new();
    let starts: Vec<_> = (0..DAEMONS)
        .map(|_| {
            let config = config.clone();
            thread::spawn(move || Daemon::start(config))
        })
        .collect();
    let daemons: Vec<Daemon> = starts.into_iter().map(|start| start.join().unwrap()).collect();
    let numbers: HashSet<u64> = daemons.iter().map(|daemon| daemon.sysid()).collect();
    assert_eq!(numbers.len(), DAEMONS, "{numbers:?}");
    let taken = daemons[3].sysid().to_string();
    let refused = refused_start(&config.flag("--sysid").flag(&taken));
    assert!(refused.stderr.contains(&taken), "{refused:?}");
}

#[test]
fn s0_58_a_released_number_is_free_at_once() {
    let config = Config::new().set("lease.duration", "\"60s\"").flag("--sysid").flag("77");
    let mut daemon = Daemon::start(config);
    assert_eq!(daemon.sysid(), 77);
    assert!(daemon.terminate().success());
    daemon.restart();
    assert_eq!(daemon.sysid(), 77);
}

#[test]
fn s0_58_a_dead_daemons_number_is_free_after_its_lease() {
    let config = Config::new().flag("--sysid").flag("78");
    let mut daemon = Daemon::start(config.clone());
    daemon.kill9();
    let again = until_started(&config);
    assert_eq!(again.sysid(), 78);
}

/// The two share a store, but no directory.
#[test]
fn s0_58_a_daemon_whose_number_was_taken_stops_taking_jobs() {
    const JOBS: usize = 30;
    let mut first = Daemon::start(Config::new().flag("--sysid").flag("79"));
    first.pause();
    let config = first.config.beside().flag("--sysid").flag("79");
    let second = until_started(&config);
    assert_eq!(second.sysid(), 79);
    first.resume();
    let tenant = second.tenant("a");
    let before = first.log.events("job_started").len();
    tenant.sh("t", &second.home().recorder("seen"));
    for n in 0..JOBS {
        let id = tenant.add_one("t", &n.to_string());
        tenant.until_state(&id, "finished");
    }
    assert_eq!(second.home().lines("seen").len(), JOBS);
    assert_ends_with(&mut first, "sysid 79 now belongs to another daemon");
    assert_eq!(first.log.events("job_started").len(), before, "it takes no job under 79");
    assert_eq!(second.log.events("job_started").len(), JOBS);
}

/// A row that every write reads is damaged, so that no beat succeeds. What was accepted runs after
/// the repair.
#[test]
fn a_background_service_that_cannot_go_on_ends_the_daemon_with_a_sentence() {
    const SET: &str = "UPDATE meta SET value = ?1 WHERE name = 'clock_offset'";
    let mut daemon = Daemon::start(Config::embedded().set("lease.duration", "\"1s\""));
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    until("it is in the store", || tenant.type_row("t"), |row| row["ready"] == 1);
    let file = rusqlite::Connection::open(daemon.home().store()).unwrap();
    file.busy_timeout(PATIENCE).unwrap();
    let find = "SELECT value FROM meta WHERE name = 'clock_offset'";
    let offset: i64 = file.query_row(find, [], |row| row.get(0)).unwrap();
    file.execute(SET, ["damaged"]).unwrap();
    assert_ends_with(&mut daemon, "Invalid column type Text");
    file.execute(SET, [offset]).unwrap();
    daemon.restart();
    assert_eq!(daemon.tenant("a").until_claimed("t", "60s")["id"], id.as_str());
}

/// It ends by itself, and its last words are a sentence with these words.
fn assert_ends_with(daemon: &mut Daemon, words: &str) {
    assert_eq!(daemon.until_exit().code(), Some(1));
    let lines = daemon.log.lines();
    let last = lines.last().expect("it says why");
    assert!(last.starts_with("windlass: ") && last.contains(words), "{last}");
}

/// Retries while another daemon holds the wanted number.
fn until_started(config: &Config) -> Daemon {
    until_some("the number is free", || Daemon::try_start(config.clone()).ok())
}

#[test]
fn s0_10_ids_carry_no_number_twice_across_restarts() {
    const ROUNDS: usize = 4;
    const ADDS: usize = 500;
    let mut daemon = Daemon::start(Config::new().flag("--sysid").flag("5"));
    let mut ids = HashSet::new();
    let payloads: Vec<String> = (0..ADDS).map(|n| n.to_string()).collect();
    for _ in 0..ROUNDS {
        let added = daemon.tenant("a").add("t", &payloads);
        let newest = added.iter().map(|id| id.parse::<u64>().unwrap()).max();
        assert!(ids.iter().all(|id: &String| id.parse::<u64>().ok() < newest), "ids grow");
        ids.extend(added);
        assert!(daemon.terminate().success());
        daemon.restart();
    }
    assert_eq!(ids.len(), ROUNDS * ADDS);
    assert_eq!(daemon.tenant("a").list("type=t").len(), ROUNDS * ADDS);
    let listed: HashSet<String> =
        daemon.tenant("a").list("type=t").iter().map(|job| text(&job["id"])).collect();
    assert_eq!(listed, ids);
}
