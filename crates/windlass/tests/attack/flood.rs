//! Many tenants whose jobs sleep: another tenant's first job runs meanwhile.

use serde_json::json;

use crate::harness::{Config, Daemon, Tenant, until};

/// Many more than there are slots and contexts for all tenants together.
const SLEEPERS: usize = 30;
const SLOTS: &str = "4";

/// Every tenant runs a job of this handler that does not end, then one more tenant a job of that.
fn sleepers_keep_nobody_out(lang: &str, sleeps: &str, ends: &str) {
    let config = Config::new()
        .set("scheduler.slots", SLOTS)
        .set("contexts.max", SLOTS)
        .set("stop_grace", "\"0s\"");
    let daemon = Daemon::start(config);
    let sleepers: Vec<_> = (0..SLEEPERS)
        .map(|n| {
            let tenant = daemon.tenant(&format!("sleeper{n}"));
            tenant.handler("t", &json!({"lang": lang, "body": sleeps}));
            let id = tenant.add_one("t", "x");
            // More of one tenant than it may have in reserved slots.
            tenant.add("t", &["y", "z"]);
            (tenant, id)
        })
        .collect();
    let runs = |tenant: &Tenant, id: &String| tenant.job(id)["state"] == "running";
    let running = || sleepers.iter().filter(|(tenant, id)| runs(tenant, id)).count();
    until("every tenant has a sleeper", running, |running| *running == SLEEPERS);
    let late = daemon.tenant("late");
    late.handler("t", &json!({"lang": lang, "body": ends}));
    let id = late.add_one("t", "x");
    late.until_state(&id, "finished");
    assert_eq!(running(), SLEEPERS, "nobody was stopped for it");
}

#[test]
fn sleepers_of_many_tenants_in_slots_delay_no_other_tenant() {
    sleepers_keep_nobody_out("sh", "sleep 1000", "true");
}

#[test]
fn sleepers_of_many_tenants_in_contexts_delay_no_other_tenant() {
    sleepers_keep_nobody_out("python", "import time; time.sleep(1000)", "return 200");
}
