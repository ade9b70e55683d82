//! Settings of tenants.

use async_trait::async_trait;

use crate::limit::TENANT_SETTINGS_MAX;
use crate::name::Tenant;
use crate::store::{Error, TenantRevision, Tenants};
use crate::tenant::TenantSettings;

use super::{MemoryStore, State};

type Changed = (TenantRevision, Tenant, TenantSettings);

#[async_trait]
impl Tenants for MemoryStore {
    async fn tenant_settings_put(
        &self,
        tenant: &Tenant,
        settings: TenantSettings,
    ) -> Result<(), Error> {
        self.open()?.synced().tenant_settings_put(tenant, settings)
    }

    async fn tenant_settings_get(&self, tenant: &Tenant) -> Result<TenantSettings, Error> {
        let state = self.open()?;
        let row = state.tenants.get(tenant);
        Ok(row.map(|row| row.settings.clone()).unwrap_or_default())
    }

    async fn tenant_settings_changed(
        &self,
        since: TenantRevision,
        limit: usize,
    ) -> Result<Vec<Changed>, Error> {
        Ok(self.open()?.tenant_settings_changed(since, limit))
    }
}

#[derive(Debug, Clone)]
pub(super) struct TenantRow {
    settings: TenantSettings,
    revision: TenantRevision,
}

impl State {
    fn tenant_settings_put(
        &mut self,
        tenant: &Tenant,
        settings: TenantSettings,
    ) -> Result<(), Error> {
        if !self.tenants.contains_key(tenant) && self.tenants.len() >= TENANT_SETTINGS_MAX {
            let message = format!("at most {TENANT_SETTINGS_MAX} tenants have settings");
            return Err(Error::Conflict(message));
        }
        self.tenant_revision.0 += 1;
        let revision = self.tenant_revision;
        self.tenants.insert(tenant.clone(), TenantRow { settings, revision });
        Ok(())
    }

    fn tenant_settings_changed(&self, since: TenantRevision, limit: usize) -> Vec<Changed> {
        let rows = self.tenants.iter().filter(|(_, row)| row.revision > since);
        let mut changed: Vec<Changed> = rows
            .map(|(tenant, row)| (row.revision, tenant.clone(), row.settings.clone()))
            .collect();
        changed.sort_by_key(|(revision, ..)| *revision);
        changed.truncate(limit);
        changed
    }
}
