//! Many tenants whose jobs sleep: another tenant's first job runs meanwhile.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Config, Daemon, Tenant, until};
use crate::users::both_users;

/// Many more than there are shared slots and contexts for all tenants together.
const SLEEPERS: usize = 30;
const SLOTS: usize = 4;
/// A first job starts at once, which takes a new process or context; far less than this.
const START_MAX: Duration = Duration::from_secs(5);
/// Tenants that come late. A machine can be busy for a while, but not with each of them.
const LATE: usize = 3;

fn config(config: Config) -> Config {
    let slots = SLOTS.to_string();
    config.set("scheduler.slots", &slots).set("contexts.max", &slots).set("stop_grace", "\"0s\"")
}

/// A tenant with more sleepers than it may have in reserved slots; returns the id of the first.
fn sleeper(daemon: &Daemon, number: usize, (lang, sleeps): (&str, &str)) -> (Tenant, String) {
    let tenant = daemon.tenant(&format!("sleeper{number}"));
    tenant.handler("t", &json!({"lang": lang, "body": sleeps}));
    let id = tenant.add_one("t", "x");
    tenant.add("t", &["y", "z"]);
    (tenant, id)
}

/// How long the first job of a new tenant waits for its start.
fn wait_of_a_newcomer(daemon: &Daemon, name: &str, (lang, ends): (&str, &str)) -> Duration {
    let late = daemon.tenant(name);
    late.handler("t", &json!({"lang": lang, "body": ends}));
    let added = Instant::now();
    let id = late.add_one("t", "x");
    until("it has started", || late.job(&id), |job| job["state"] != "queued");
    let waited = added.elapsed();
    late.until_state(&id, "finished");
    waited
}

/// Every tenant runs a job of this handler that does not end, then more tenants a job of that.
fn sleepers_keep_nobody_out(lang: &str, sleeps: &str, ends: &str) {
    for user in both_users() {
        let daemon = Daemon::start(config(user));
        let sleepers: Vec<_> =
            (0..SLEEPERS).map(|number| sleeper(&daemon, number, (lang, sleeps))).collect();
        let runs = |(tenant, id): &&(Tenant, String)| tenant.job(id)["state"] == "running";
        let running = || sleepers.iter().filter(runs).count();
        until("every tenant has a sleeper", running, |running| *running == SLEEPERS);
        let late = (0..LATE).map(|number| format!("late{number}"));
        let waits = late.map(|name| wait_of_a_newcomer(&daemon, &name, (lang, ends)));
        let least = waits.min().unwrap();
        assert!(least < START_MAX, "each of {LATE} first jobs waited for {least:?} and more");
        assert_eq!(running(), SLEEPERS, "nobody was stopped for it");
    }
}

#[test]
fn sleepers_of_many_tenants_in_slots_delay_no_other_tenant() {
    sleepers_keep_nobody_out("sh", "sleep 1000", "true");
}

#[test]
fn sleepers_of_many_tenants_in_contexts_delay_no_other_tenant() {
    sleepers_keep_nobody_out("python", "import time; time.sleep(1000)", "return 200");
}

/// More tenants than all places: then their time limits make room, and whoever runs nothing comes
/// before the next jobs of the others.
fn beyond_all_places_time_limits_make_room(lang: &str, sleeps: &str, ends: &str) {
    const RESERVED: usize = 6;
    const PLACES: usize = SLOTS + RESERVED;
    for user in both_users() {
        let limits = config(user).set("scheduler.slots_reserved", &RESERVED.to_string());
        let daemon = Daemon::start(limits.set("job.timeout", "\"2s\""));
        let sleepers: Vec<_> =
            (0..2 * PLACES).map(|number| sleeper(&daemon, number, (lang, sleeps))).collect();
        let running = || -> usize {
            let of = |(tenant, _): &(Tenant, String)| tenant.list("state=running").len();
            sleepers.iter().map(of).sum()
        };
        until("all places are taken", running, |running| *running >= PLACES - 1);
        let late = daemon.tenant("late");
        late.handler("t", &json!({"lang": lang, "body": ends}));
        let id = late.add_one("t", "x");
        late.until_state(&id, "finished");
        let mut waits = 0;
        for (tenant, _) in &sleepers {
            waits += tenant.list("state=queued&type=t").len();
        }
        assert!(waits > 0, "it came before jobs that were added earlier");
    }
}

#[test]
fn beyond_the_reserved_slots_time_limits_make_room_for_a_first_job() {
    beyond_all_places_time_limits_make_room("sh", "sleep 1000", "true");
}

#[test]
fn beyond_the_reserved_contexts_time_limits_make_room_for_a_first_job() {
    let sleeps = "import time; time.sleep(1000)";
    beyond_all_places_time_limits_make_room("python", sleeps, "return 200");
}
