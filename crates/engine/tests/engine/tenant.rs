//! Settings of tenants, on several daemons.

use std::sync::Arc;

use windlass_core::TenantSettings;
use windlass_core::memory::MemoryStore;
use windlass_test_kit::wait::eventually;

use crate::fake::{Daemon, handler, jobs, key};
use crate::{ended, quick};

fn slots_max(slots: u32) -> TenantSettings {
    TenantSettings { slots_max: Some(slots), ..TenantSettings::default() }
}

/// The change is made on one daemon, and the other one, which runs the jobs, follows.
#[tokio::test]
async fn a_tenant_uses_no_more_slots_than_it_may_on_any_daemon() {
    let store = Arc::new(MemoryStore::default());
    let one = Daemon::start_on(store.clone(), quick).await;
    one.engine.set_picking(false);
    let (acme, other) = (key("acme", "t").tenant, key("other", "t"));
    one.engine.tenant_settings_put(acme.clone(), slots_max(1)).await.unwrap();
    let two = Daemon::start_on(store, |options| {
        quick(options);
        options.slots = 4;
    })
    .await;
    two.engine.handler_set(&other, handler()).await.unwrap();
    // Of three types, so that each job is a batch.
    for name in ["t", "u", "v"] {
        let key = key("acme", name);
        two.engine.handler_set(&key, handler()).await.unwrap();
        two.engine.add(&key, jobs(&["hang"]), None).await.unwrap();
    }
    for _ in 0..3 {
        let added = two.engine.add(&other, jobs(&["200"]), None).await.unwrap();
        ended(&two, &other, added.ids[0]).await;
    }
    let running = || two.runner.all_hanging();
    eventually("one runs", || (running() > 0).then_some(())).await;
    assert_eq!(running(), 1);
    one.engine.tenant_settings_put(acme, slots_max(3)).await.unwrap();
    eventually("all run", || (running() == 3).then_some(())).await;
}
