//! Settings of tenants: put, read back, and how daemons learn of changes.

use windlass_core::store::TenantRevision;
use windlass_core::{Tenant, TenantSettings};

use crate::Harness;
use crate::fixture::{Subject, acme, globex};

fn weight(weight: u32) -> TenantSettings {
    TenantSettings { weight: Some(weight), ..TenantSettings::default() }
}

fn all_set() -> TenantSettings {
    TenantSettings { weight: Some(1000), slots_min: Some(2), slots_max: Some(100_000) }
}

async fn put(store: &Subject, tenant: Tenant, settings: TenantSettings) {
    store.tenant_settings_put(&tenant, settings).await.unwrap();
}

async fn get(store: &Subject, tenant: Tenant) -> TenantSettings {
    store.tenant_settings_get(&tenant).await.unwrap()
}

/// What changed after a revision, and the newest revision.
async fn changed(
    store: &Subject,
    since: TenantRevision,
    limit: usize,
) -> (Vec<(Tenant, TenantSettings)>, TenantRevision) {
    let changed = store.tenant_settings_changed(since, limit).await.unwrap();
    let newest = changed.last().map_or(since, |(revision, ..)| *revision);
    assert!(changed.is_sorted_by(|a, b| a.0 < b.0) && newest >= since);
    (changed.into_iter().map(|(_, tenant, settings)| (tenant, settings)).collect(), newest)
}

pub async fn settings_of_a_tenant_come_back_and_are_replaced(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    assert_eq!(get(&store, acme()).await, TenantSettings::default());
    put(&store, acme(), all_set()).await;
    assert_eq!(get(&store, acme()).await, all_set());
    assert_eq!(get(&store, globex()).await, TenantSettings::default());
    put(&store, acme(), weight(3)).await;
    assert_eq!(get(&store, acme()).await, weight(3), "what is left out is no longer set");
    put(&store, acme(), TenantSettings::default()).await;
    assert_eq!(get(&store, acme()).await, TenantSettings::default());
}

pub async fn changed_settings_are_read_in_pages_in_the_order_of_their_changes(
    harness: &dyn Harness,
) {
    let store = Subject::fresh(harness).await;
    let start = TenantRevision::default();
    assert_eq!(changed(&store, start, 10).await, (vec![], start));
    let tenant = |number: u32| Tenant::new(&format!("t{number}")).unwrap();
    for number in [3, 1, 2] {
        put(&store, tenant(number), weight(number)).await;
    }
    put(&store, tenant(3), weight(30)).await;
    let (first, seen) = changed(&store, start, 2).await;
    assert_eq!(first, [(tenant(1), weight(1)), (tenant(2), weight(2))]);
    let (rest, seen) = changed(&store, seen, 2).await;
    assert_eq!(rest, [(tenant(3), weight(30))], "each once, with its latest change");
    assert_eq!(changed(&store, seen, 2).await, (vec![], seen));
    put(&store, tenant(1), TenantSettings::default()).await;
    let (removed, seen) = changed(&store, seen, 2).await;
    assert_eq!(removed, [(tenant(1), TenantSettings::default())], "a daemon learns of this, too");
    put(&store, tenant(1), TenantSettings::default()).await;
    assert_eq!(changed(&store, seen, 2).await.0.len(), 1, "a put without a change is one");
}

pub async fn settings_that_are_put_by_daemons_at_once_are_all_reported(harness: &dyn Harness) {
    const DAEMONS: u32 = 4;
    const PUTS: u32 = 25;
    let store = Subject::fresh(harness).await;
    let second = harness.second().await.unwrap_or_else(|| store.store.clone());
    let tenant = |number: u32| Tenant::new(&format!("t{number}")).unwrap();
    let daemons = (0..DAEMONS).map(|daemon| {
        let store = if daemon % 2 == 0 { store.store.clone() } else { second.clone() };
        tokio::spawn(async move {
            for put in 0..PUTS {
                let number = daemon * PUTS + put + 1;
                store.tenant_settings_put(&tenant(number), weight(number)).await.unwrap();
            }
        })
    });
    let daemons: Vec<_> = daemons.collect();
    // Reads what has changed while the others put: no revision appears behind one that was seen.
    let (mut seen, mut read) = (TenantRevision::default(), Vec::new());
    while !daemons.iter().all(|daemon| daemon.is_finished()) {
        let (page, newest) = changed(&store, seen, 1000).await;
        read.extend(page);
        seen = newest;
    }
    for daemon in daemons {
        daemon.await.unwrap();
    }
    read.extend(changed(&store, seen, 1000).await.0);
    read.sort_by_key(|(_, settings)| settings.weight);
    let all: Vec<_> = (1..=DAEMONS * PUTS).map(|n| (tenant(n), weight(n))).collect();
    assert_eq!(read, all);
}

pub async fn settings_of_tenants_are_durable(harness: &dyn Harness) {
    let store = Subject::fresh(harness).await;
    put(&store, acme(), all_set()).await;
    let (_, seen) = changed(&store, TenantRevision::default(), 10).await;
    let Some(undone) = harness.undo_relaxed(store.store).await else { return };
    let store = Subject::of(harness, undone);
    assert_eq!(get(&store, acme()).await, all_set());
    put(&store, globex(), weight(2)).await;
    let (after, _) = changed(&store, seen, 10).await;
    assert_eq!(after, [(globex(), weight(2))], "its revision is a new one");
}
