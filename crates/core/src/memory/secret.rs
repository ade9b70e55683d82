//! Secrets, sealed.

use async_trait::async_trait;

use crate::limit::SECRETS_MAX;
use crate::name::Tenant;
use crate::secret::{Sealed, SealedSecret, SecretInfo, SecretName, SecretVersion};
use crate::store::{Error, Secrets};
use crate::time::Timestamp;

use super::{MemoryStore, State};

#[async_trait]
impl Secrets for MemoryStore {
    async fn secret_put(&self, secret: SealedSecret) -> Result<SecretInfo, Error> {
        self.before("secret_put").await;
        self.open()?.synced().secret_put(secret)
    }

    async fn secret_get(
        &self,
        tenant: &Tenant,
        names: Vec<SecretName>,
    ) -> Result<Vec<SealedSecret>, Error> {
        Ok(self.open()?.secret_get(tenant, &names))
    }

    async fn secret_list(&self, tenant: &Tenant) -> Result<Vec<SecretInfo>, Error> {
        Ok(self.open()?.secret_list(tenant))
    }

    async fn secret_delete(&self, tenant: &Tenant, name: &SecretName) -> Result<bool, Error> {
        Ok(self.open()?.synced().secret_delete(tenant, name))
    }

    async fn secret_all(
        &self,
        after: Option<(Tenant, SecretName)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, Error> {
        Ok(self.open()?.secret_all(after, limit))
    }

    async fn secret_reseal(&self, secrets: Vec<SealedSecret>) -> Result<u64, Error> {
        self.before("secret_reseal").await;
        Ok(self.open()?.synced().secret_reseal(secrets))
    }
}

#[derive(Debug, Clone)]
pub(super) struct SecretRow {
    version: SecretVersion,
    updated_at: Timestamp,
    sealed: Sealed,
}

impl State {
    pub(super) fn secret_put(&mut self, secret: SealedSecret) -> Result<SecretInfo, Error> {
        let SealedSecret { tenant, name, version, sealed } = secret;
        let is_new = !self.secrets.contains_key(&(tenant.clone(), name.clone()));
        if is_new && self.secret_list(&tenant).len() >= SECRETS_MAX {
            return Err(Error::Conflict(format!("a tenant has at most {SECRETS_MAX} secrets")));
        }
        let updated_at = self.now;
        self.secrets.insert((tenant, name.clone()), SecretRow { version, updated_at, sealed });
        Ok(SecretInfo { name, version, updated_at })
    }

    pub(super) fn secret_get(&self, tenant: &Tenant, names: &[SecretName]) -> Vec<SealedSecret> {
        let of_tenant = self.secrets.iter().filter(|((of, _), _)| of == tenant);
        let named = of_tenant.filter(|((_, name), _)| names.contains(name));
        named.map(sealed_secret).collect()
    }

    pub(super) fn secret_list(&self, tenant: &Tenant) -> Vec<SecretInfo> {
        let of_tenant = self.secrets.iter().filter(|((of, _), _)| of == tenant);
        let info = |((_, name), row): (&(Tenant, SecretName), &SecretRow)| SecretInfo {
            name: name.clone(),
            version: row.version,
            updated_at: row.updated_at,
        };
        of_tenant.map(info).collect()
    }

    pub(super) fn secret_delete(&mut self, tenant: &Tenant, name: &SecretName) -> bool {
        self.secrets.remove(&(tenant.clone(), name.clone())).is_some()
    }

    pub(super) fn secret_all(
        &self,
        after: Option<(Tenant, SecretName)>,
        limit: usize,
    ) -> Vec<SealedSecret> {
        let is_behind = |place: &(Tenant, SecretName)| after.as_ref().is_none_or(|at| place > at);
        let rows = self.secrets.iter().filter(|(place, _)| is_behind(place));
        rows.take(limit).map(sealed_secret).collect()
    }

    pub(super) fn secret_reseal(&mut self, secrets: Vec<SealedSecret>) -> u64 {
        let mut replaced = 0;
        for SealedSecret { tenant, name, version, sealed } in secrets {
            let row = self.secrets.get_mut(&(tenant, name));
            if let Some(row) = row.filter(|row| row.version == version) {
                row.sealed = sealed;
                replaced += 1;
            }
        }
        replaced
    }
}

fn sealed_secret(((tenant, name), row): (&(Tenant, SecretName), &SecretRow)) -> SealedSecret {
    SealedSecret {
        tenant: tenant.clone(),
        name: name.clone(),
        version: row.version,
        sealed: row.sealed.clone(),
    }
}
