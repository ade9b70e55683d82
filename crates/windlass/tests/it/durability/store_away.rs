//! The store does not answer: adds continue, and everything runs when it is back.

use std::thread;

use serde_json::json;

use crate::harness::{Cluster, Config, Daemon, StoreLock, ids_of, text, until};

const ADDS: usize = 200;

#[test]
fn s0_21_a_daemon_whose_store_is_away_goes_on_accepting() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let lock = StoreLock::take(&daemon.config);
    let ids: Vec<String> = (0..20).map(|n| tenant.add_one("t", &n.to_string())).collect();
    for id in &ids {
        assert_eq!(tenant.job(id)["state"], "queued", "an accepted job is visible");
    }
    assert!(daemon.home().lines("seen").is_empty());
    drop(lock);
    tenant.until_all(&ids, "finished");
    let mut seen = daemon.home().lines("seen");
    seen.sort();
    let mut wanted: Vec<String> =
        ids.iter().enumerate().map(|(n, id)| format!("{id} {n}")).collect();
    wanted.sort();
    assert_eq!(seen, wanted);
}

/// Longer than a lease: the daemon keeps its number when the store is back.
#[test]
fn s0_21_the_store_may_be_away_for_longer_than_a_lease() {
    let cluster = Cluster::start(2, Config::new().set("lease.duration", "\"1s\""));
    let tenant = cluster[0].tenant("a");
    let lock = StoreLock::take(&cluster.config);
    let first = tenant.add_one("t", "first");
    let started = std::time::Instant::now();
    let mut ids = vec![first];
    until(
        "two leases have passed",
        || {
            ids.push(cluster[ids.len() % 2].tenant("a").add_one("t", "more"));
            started.elapsed().as_secs()
        },
        |seconds| *seconds >= 2,
    );
    drop(lock);
    assert_eq!(tenant.drain("t", ids.len()).len(), ids.len());
    let after = cluster[1].tenant("a").add_one("t", "after");
    assert_eq!(tenant.until_claimed("t", "60s")["id"], after.as_str());
}

#[test]
fn s0_21_readiness_says_what_is_away() {
    let daemon = Daemon::start(Config::new());
    let ready = daemon.get("/readyz").expect(200).json();
    assert!(ready.get("journal").is_some() && ready.get("store").is_some(), "{ready}");
    let lock = StoreLock::take(&daemon.config);
    daemon.get("/healthz").expect(200);
    daemon.get("/readyz").expect(200);
    drop(lock);
    daemon.get("/readyz").expect(200);
}

#[test]
fn s2_1_adds_are_accepted_while_the_queue_is_stopped() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().recorder("seen"));
    let sentinel = tenant.add_one("t", "sentinel");
    tenant.until_state(&sentinel, "finished");
    daemon.stop_picking();
    let mut ids = tenant.add("t", &["x", "y"]);
    let lock = StoreLock::take(&daemon.config);
    ids.extend(tenant.add("t", &["with the store away too"]));
    drop(lock);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == 3);
    assert_eq!(daemon.home().lines("seen").len(), 1, "nothing is picked");
    assert!(ids.iter().all(|id| tenant.job(id)["attempt"] == 0));
    daemon.start_picking();
    tenant.until_all(&ids, "finished");
    assert_eq!(daemon.home().lines("seen").len(), 4);
}

#[test]
fn s2_2_a_hanging_store_and_hanging_handlers_do_not_block_senders() {
    const SENDERS: usize = 8;
    let daemon = Daemon::start(Config::new().set("scheduler.slots", "2"));
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let hanging: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let mut ids = tenant.add("t", &hanging);
    until("handlers hang", || daemon.home().lines("seen").len(), |n| *n >= 2);
    let lock = StoreLock::take(&daemon.config);
    let client = *daemon;
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            thread::spawn(move || {
                let mut connection = client.connection();
                let add = |n| {
                    let headers = [("Content-Type", "text/plain")];
                    let payload = format!("{sender}-{n}");
                    let path = "/v1/a/jobs/t";
                    let answer = connection.call("POST", path, &headers, payload.as_bytes());
                    ids_of(&answer.expect("adds are answered").expect(201)).remove(0)
                };
                (0..ADDS / SENDERS).map(add).collect::<Vec<String>>()
            })
        })
        .collect();
    ids.extend(senders.into_iter().flat_map(|sender| sender.join().unwrap()));
    assert_eq!(ids.len(), hanging.len() + ADDS);
    drop(lock);
    daemon.home().let_go("hold");
    tenant.until_all(&ids, "finished");
}

/// Changes need the store: without it they are eventually refused, and never left hanging.
#[test]
fn s0_21_changes_are_answered_while_the_store_is_away() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let id = tenant.add_one("t", "x");
    until("it is in the store", || tenant.type_row("t"), |row| row["ready"] == 1);
    let lock = StoreLock::take(&daemon.config);
    let handler = json!({"lang": "sh", "body": "true"}).to_string();
    let wish = json!({"types": ["t"], "limit": 1, "lease": "60s"}).to_string();
    let changes = [
        ("POST", format!("jobs/{id}/cancel"), String::new()),
        ("DELETE", format!("jobs/{id}"), String::new()),
        ("POST", "types/t/suspend".to_owned(), String::new()),
        ("PUT", "handlers/t".to_owned(), handler),
        ("POST", "claim".to_owned(), wish),
    ];
    let senders = changes.map(|(method, rest, body)| {
        let tenant = tenant.clone();
        thread::spawn(move || {
            let headers = [("Content-Type", "application/json")];
            tenant.client.call(method, &tenant.path(&rest), &headers, body.as_bytes())
        })
    });
    for sender in senders {
        assert_eq!(sender.join().unwrap().expect(503).error_code(), "unavailable");
    }
    let accepted = tenant.add_one("t", "y");
    drop(lock);
    tenant.sh("t", "true");
    tenant.until_state(&accepted, "finished");
}

/// The answer to an add with a unique key may be another job's id, which only the store knows.
#[test]
fn s0_21_adds_with_a_unique_key_need_the_store_and_are_refused_without_a_trace() {
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let known = tenant.add_with("t", "unique=before", &["x"]).remove(0);
    until("it is in the store", || tenant.type_row("t"), |row| row["ready"] == 1);
    let lock = StoreLock::take(&daemon.config);
    let answer = daemon.send_text("/v1/a/jobs/t?unique=during", "x");
    assert_eq!(answer.expect(503).error_code(), "unavailable");
    let plain = tenant.add_one("t", "y");
    drop(lock);
    let mut pulled: Vec<String> = tenant.drain("t", 2).iter().map(|j| text(&j["id"])).collect();
    pulled.sort();
    assert_eq!(pulled, [known, plain]);
    assert!(tenant.claim("t", 10, "60s").is_empty());
    assert_eq!(tenant.list("").len(), 2);
}
