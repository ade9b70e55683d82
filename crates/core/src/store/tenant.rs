//! Settings of tenants. Changes are durable when they return.

use async_trait::async_trait;

use super::Error;
use crate::name::Tenant;
use crate::tenant::TenantSettings;

#[async_trait]
pub trait Tenants: Send + Sync {
    /// Replaces the settings of a tenant, whether it has any jobs or not. `Error::Conflict` if it
    /// is new and `TENANT_SETTINGS_MAX` tenants have settings.
    async fn tenant_settings_put(
        &self,
        tenant: &Tenant,
        settings: TenantSettings,
    ) -> Result<(), Error>;

    /// The default if none were put.
    async fn tenant_settings_get(&self, tenant: &Tenant) -> Result<TenantSettings, Error>;

    /// Settings that were put after a revision, in the order of their changes, each with the
    /// revision of its latest one.
    async fn tenant_settings_changed(
        &self,
        since: TenantRevision,
        limit: usize,
    ) -> Result<Vec<(TenantRevision, Tenant, TenantSettings)>, Error>;
}

/// The number of a change of settings; the default is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantRevision(pub i64);
