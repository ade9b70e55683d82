//! Settings of tenants. The store has them; every daemon reads what has changed (`watch`) and
//! applies it. A change is in force here before it is answered, and on other daemons within a
//! second.

mod watch;

use std::sync::Arc;

use tokio::sync::Mutex;

use windlass_core::store::TenantRevision;
use windlass_core::{Tenant, TenantSettings};

use crate::error::{Error, store_error};
use crate::shared::Shared;

pub(crate) use watch::TenantWatch;

/// Changed settings that are read at once.
const PAGE_TENANTS_MAX: usize = 1000;

/// Up to which change the settings have been applied. Locked while they are read.
#[derive(Default)]
pub(crate) struct TenantsSeen(Mutex<TenantRevision>);

pub(crate) async fn put(
    shared: Arc<Shared>,
    tenant: Tenant,
    settings: TenantSettings,
) -> Result<(), Error> {
    settings.check()?;
    shared.store.tenant_settings_put(&tenant, settings).await.map_err(store_error)?;
    // The store has them: the answer does not depend on this daemon reading them now.
    if let Err(error) = refresh(&shared).await {
        tracing::warn!(%error, "the settings of tenants are applied later");
    }
    Ok(())
}

/// Applies what has changed since the last time. The loop ends with the last change.
pub(crate) async fn refresh(shared: &Shared) -> Result<(), Error> {
    let mut seen = shared.tenants_seen.0.lock().await;
    loop {
        let changed = shared.store.tenant_settings_changed(*seen, PAGE_TENANTS_MAX).await;
        let changed = changed.map_err(store_error)?;
        let Some((newest, ..)) = changed.last() else { return Ok(()) };
        let newest = *newest;
        let was_last = changed.len() < PAGE_TENANTS_MAX;
        let now = shared.clock.steady();
        for (_, tenant, settings) in changed {
            shared.ready.scheduler().set_tenant(&tenant, &settings, now);
        }
        // Only now: after a panic, the same page is read again.
        *seen = newest;
        // A tenant may use more slots now.
        shared.ready.dispatch_wake.notify_one();
        if was_last {
            return Ok(());
        }
    }
}
