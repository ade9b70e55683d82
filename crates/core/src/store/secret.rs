//! Secrets. A store has sealed values only: it never sees one in clear. Changes are durable when
//! they return.

use async_trait::async_trait;

use super::Error;
use crate::name::Tenant;
use crate::secret::{SealedSecret, SecretInfo, SecretName};

#[async_trait]
pub trait Secrets: Send + Sync {
    /// Stores a secret in place of the one with this name. `Error::Conflict` if it is new and the
    /// tenant has `SECRETS_MAX`.
    async fn secret_put(&self, secret: SealedSecret) -> Result<SecretInfo, Error>;

    /// Those of the named secrets that there are.
    async fn secret_get(
        &self,
        tenant: &Tenant,
        names: Vec<SecretName>,
    ) -> Result<Vec<SealedSecret>, Error>;

    /// All of a tenant, by name.
    async fn secret_list(&self, tenant: &Tenant) -> Result<Vec<SecretInfo>, Error>;

    /// False if there is none.
    async fn secret_delete(&self, tenant: &Tenant, name: &SecretName) -> Result<bool, Error>;

    /// Secrets of all tenants, by tenant and name, behind `after`.
    async fn secret_all(
        &self,
        after: Option<(Tenant, SecretName)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, Error>;

    /// Replaces the sealed form of values that are still the same: a secret that has another
    /// version by now, or is gone, stays as it is. Returns how many were replaced.
    async fn secret_reseal(&self, secrets: Vec<SealedSecret>) -> Result<u64, Error>;
}
