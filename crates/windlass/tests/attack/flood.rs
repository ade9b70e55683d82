//! Many tenants whose jobs sleep: another tenant's first job runs meanwhile.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Config, Daemon, Tenant, field, until};
use crate::users::both_users;

/// Many more than there are shared slots and contexts for all tenants together.
const SLEEPERS: usize = 30;
const SLOTS: usize = 4;
/// Tenants that come late.
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

/// Adds the first job of a new tenant.
fn newcomer(daemon: &Daemon, name: &str, (lang, ends): (&str, &str)) -> (Tenant, String) {
    let late = daemon.tenant(name);
    late.handler("t", &json!({"lang": lang, "body": ends}));
    let id = late.add_one("t", "x");
    (late, id)
}

/// Every tenant runs a job of this handler that does not end, then more tenants a job of that: each
/// ends while all the others sleep.
fn sleepers_keep_nobody_out(lang: &str, sleeps: &str, ends: &str) {
    for user in both_users() {
        let daemon = Daemon::start(config(user));
        let sleepers: Vec<_> =
            (0..SLEEPERS).map(|number| sleeper(&daemon, number, (lang, sleeps))).collect();
        let runs = |(tenant, id): &&(Tenant, String)| tenant.job(id)["state"] == "running";
        let running = || sleepers.iter().filter(runs).count();
        let starts = || {
            let all = daemon.log.events("job_started");
            let of = |start: &&Value| sleepers.iter().any(|(_, id)| field(start, "id") == id);
            all.iter().filter(of).count()
        };
        until("every tenant has a sleeper", starts, |starts| *starts >= SLEEPERS);
        assert_eq!(running(), SLEEPERS);
        for number in 0..LATE {
            let (late, id) = newcomer(&daemon, &format!("late{number}"), (lang, ends));
            late.until_state(&id, "finished");
            assert_eq!(running(), SLEEPERS, "nobody was stopped for it");
        }
        assert_eq!(starts(), SLEEPERS, "nobody was stopped and started again for it");
    }
}

/// The control: without reserved places, a first job waits until a sleeper ends. Both write down
/// what they are, a sleeper when it ends, and all sleepers end when the first job is there.
fn without_reserved_places_it_waits(lang: &str, sleeps: &str, ends: &str) {
    for user in both_users() {
        let daemon = Daemon::start(config(user).set("scheduler.slots_reserved", "0"));
        let (hold, order) = (daemon.home().write("hold", ""), daemon.home().write("order", ""));
        fs::set_permissions(&order, Permissions::from_mode(0o666)).unwrap();
        let placed = |body: &str| {
            let body = body.replace("HOLD", hold.to_str().unwrap());
            body.replace("ORDER", order.to_str().unwrap())
        };
        let (sleeps, ends) = (placed(sleeps), placed(ends));
        let sleepers: Vec<_> = (0..SLOTS)
            .map(|number| newcomer(&daemon, &format!("sleeper{number}"), (lang, &sleeps)))
            .collect();
        for (tenant, id) in &sleepers {
            tenant.until_state(id, "running");
        }
        let (late, id) = newcomer(&daemon, "late", (lang, &ends));
        assert_eq!(late.job(&id)["state"], "queued");
        daemon.home().let_go("hold");
        late.until_state(&id, "finished");
        assert_eq!(daemon.home().lines("order")[0], "sleeper");
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

#[test]
fn without_reserved_slots_sleepers_would_delay_another_tenant() {
    let sleeps = "while [ -e HOLD ]; do sleep 0.05; done; echo sleeper >> ORDER";
    without_reserved_places_it_waits("sh", sleeps, "echo late >> ORDER");
}

#[test]
fn without_reserved_contexts_sleepers_would_delay_another_tenant() {
    let sleeps = "import os, time\nwhile os.path.exists('HOLD'): time.sleep(0.05)\n\
                  open('ORDER', 'a').write('sleeper\\n')";
    without_reserved_places_it_waits("python", sleeps, "open('ORDER', 'a').write('late\\n')");
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
