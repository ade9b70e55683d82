//! Which job is next: shares of tenants and types, weights, no starvation.

use std::collections::HashMap;

use serde_json::json;

use crate::harness::{Config, Daemon, field, text, until};

/// Observed starts. The bounds below are four standard deviations of that many picks.
const PICKS: usize = 160;
const JOBS_PER_TYPE: usize = 180;

/// A backlog of four types, one slot, one job per batch; returns the counts of the first `PICKS`
/// starts.
fn shares(config: Config, types: &[(&str, &str)]) -> HashMap<(String, String), usize> {
    let daemon = Daemon::start(config.one_slot());
    daemon.stop_picking();
    let payloads: Vec<String> = (0..JOBS_PER_TYPE).map(|n| n.to_string()).collect();
    for (name, kind) in types {
        let tenant = daemon.tenant(name);
        tenant.handler(kind, &json!({"lang": "exec", "body": "true", "options": {"batch": 1}}));
        tenant.add(kind, &payloads);
        until("all are in the store", || tenant.type_row(kind), |r| r["ready"] == JOBS_PER_TYPE);
    }
    daemon.start_picking();
    let started = until(
        "enough picks are made",
        || daemon.log.events("job_started"),
        |events| events.len() >= PICKS,
    );
    let mut counts = HashMap::new();
    for event in &started[..PICKS] {
        *counts.entry((text(field(event, "tenant")), text(field(event, "type")))).or_insert(0) += 1;
    }
    counts
}

fn count(shares: &HashMap<(String, String), usize>, tenant: &str, kind: &str) -> usize {
    shares.get(&(tenant.to_owned(), kind.to_owned())).copied().unwrap_or(0)
}

const LOAD: [(&str, &str); 4] = [("a", "t1"), ("a", "t2"), ("a", "t3"), ("b", "t")];

#[test]
fn s2_23_tenants_share_alike_then_their_types() {
    let shares = shares(Config::new().set("scheduler.fairness", "\"tenant\""), &LOAD);
    let b = count(&shares, "b", "t");
    assert!((55..=105).contains(&b), "half of the picks are b's: {shares:?}");
    for kind in ["t1", "t2", "t3"] {
        let own = count(&shares, "a", kind);
        assert!((8..=46).contains(&own), "a sixth of the picks each: {shares:?}");
    }
}

#[test]
fn s2_24_types_share_alike_when_configured_so() {
    let shares = shares(Config::new().set("scheduler.fairness", "\"type\""), &LOAD);
    for (tenant, kind) in LOAD {
        let own = count(&shares, tenant, kind);
        assert!((18..=62).contains(&own), "a quarter of the picks each: {shares:?}");
    }
}

#[test]
fn s2_19_a_type_with_ten_times_the_weight_gets_ten_times_the_picks() {
    let daemon = Daemon::start(Config::new().one_slot());
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    let payloads: Vec<String> = (0..JOBS_PER_TYPE).map(|n| n.to_string()).collect();
    for (kind, weight) in [("heavy", 10), ("light", 1)] {
        tenant.handler(kind, &json!({"lang": "exec", "body": "true", "options": {"batch": 1}}));
        tenant.settings(kind, &json!({"weight": weight}));
        tenant.add(kind, &payloads);
        until("all are in the store", || tenant.type_row(kind), |r| r["ready"] == JOBS_PER_TYPE);
    }
    daemon.start_picking();
    let started = until(
        "enough picks are made",
        || daemon.log.events("job_started"),
        |events| events.len() >= PICKS,
    );
    let heavy = started[..PICKS].iter().filter(|e| field(e, "type") == "heavy").count();
    // 10/11 of 160 is 145, with a standard deviation of 3.6.
    assert!((130..PICKS).contains(&heavy), "{heavy} of {PICKS}");
}

#[test]
fn s2_25_a_lone_type_gets_all_slots() {
    const SLOTS: usize = 6;
    let config = Config::new().set("scheduler.slots", "6").set("scheduler.slots_reserved", "0");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    tenant.sh("t", &daemon.home().holder("seen", "hold"));
    let payloads: Vec<String> = (0..SLOTS).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    until("all slots are busy", || daemon.home().lines("seen").len(), |n| *n == SLOTS);
    daemon.home().let_go("hold");
    tenant.until_all(&ids, "finished");
}

#[test]
fn s2_25_one_job_of_a_new_type_passes_a_long_backlog() {
    const BACKLOG: usize = 20_000;
    let config = Config::new().set("scheduler.slots", "2").set("scheduler.slots_reserved", "0");
    let daemon = Daemon::start(config);
    let tenant = daemon.tenant("a");
    daemon.stop_picking();
    tenant.sh("many", "true");
    tenant.sh("one", "true");
    let payloads: Vec<String> = (0..BACKLOG).map(|n| n.to_string()).collect();
    tenant.add("many", &payloads);
    until("all are in the store", || tenant.type_row("many"), |row| row["ready"] == BACKLOG);
    daemon.start_picking();
    until("the backlog runs", || tenant.type_row("many"), |row| row["finished"] != 0);
    let id = tenant.add_one("one", "x");
    tenant.until_state(&id, "finished");
    let row = tenant.type_row("many");
    let left = row["ready"].as_u64().unwrap();
    assert!(left > BACKLOG as u64 / 2, "the lone job did not wait for the backlog: {row}");
}

/// Hanging jobs of one tenant fill every slot that it may have; others still get theirs.
#[test]
fn s2_13_a_tenant_whose_handlers_hang_does_not_stop_others() {
    const HANGING: usize = 200;
    let config = Config::new().set("scheduler.slots", "4").set("scheduler.slots_reserved", "4");
    let daemon = Daemon::start(config);
    let (a, b) = (daemon.tenant("a"), daemon.tenant("b"));
    a.sh("t", &daemon.home().holder("seen-a", "hold"));
    let payloads: Vec<String> = (0..HANGING).map(|n| n.to_string()).collect();
    a.add("t", &payloads);
    until("a's jobs fill the slots", || daemon.home().lines("seen-a").len(), |n| *n >= 4);
    b.sh("t", &daemon.home().recorder("seen-b"));
    let ids = b.add("t", &["1", "2", "3", "4", "5"]);
    b.until_all(&ids, "finished");
    assert_eq!(daemon.home().lines("seen-b").len(), 5);
    assert!(a.list("state=finished").is_empty());
    daemon.home().let_go("hold");
}

#[test]
fn s2_14_many_types_of_many_tenants_all_complete() {
    const TENANTS: usize = 200;
    const TYPES: usize = 10;
    let daemon = Daemon::start(Config::new());
    let mut connection = daemon.connection();
    for tenant in 0..TENANTS {
        for kind in 0..TYPES {
            let path = format!("/v1/tenant-{tenant}/jobs/type-{kind}");
            let headers = [("Content-Type", "text/plain")];
            connection.call("POST", &path, &headers, b"1\n2").unwrap().expect(201);
        }
    }
    for number in 0..TENANTS {
        let tenant = daemon.tenant(&format!("tenant-{number}"));
        let jobs = tenant.drain("*", TYPES * 2);
        assert_eq!(jobs.len(), TYPES * 2);
    }
    let last = daemon.tenant(&format!("tenant-{}", TENANTS - 1));
    assert_eq!(last.get("types").expect(200).json().as_array().map(Vec::len), Some(TYPES));
    last.sh("type-0", "true");
    let id = last.add_one("type-0", "x");
    last.until_state(&id, "finished");
}

#[test]
fn s2_11_a_backlog_is_drained_in_order_and_completely() {
    const BACKLOG: usize = 20_000;
    const BATCH: usize = 1000;
    let daemon = Daemon::start(Config::new());
    let tenant = daemon.tenant("a");
    let payloads: Vec<String> = (0..BACKLOG).map(|n| n.to_string()).collect();
    let ids = tenant.add("t", &payloads);
    until("all are in the store", || tenant.type_row("t"), |row| row["ready"] == BACKLOG);
    let mut order = Vec::new();
    loop {
        let jobs = tenant.claim("t", BATCH, "60s");
        if jobs.is_empty() {
            break;
        }
        order.extend(jobs.iter().map(|job| text(&job["id"])));
    }
    assert_eq!(order, ids);
}
