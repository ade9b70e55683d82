//! What clients and operators set: handlers and settings of types and tenants, API keys, secrets,
//! the audit.
//! All of it is synced, except for the times of use of keys, purges, and entries of the audit whose
//! caller says so.

use std::time::Duration;

use async_trait::async_trait;
use windlass_core::audit::AuditEntry;
use windlass_core::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use windlass_core::key::{Key, KeyId, NewKey};
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::secret::{SealedSecret, SecretInfo, SecretName};
use windlass_core::store::{
    AuditList, AuditPage, Audits, Durability, Error, Handlers, KeyRevision, KeyRotate, Keys,
    Secrets, TenantRevision, Tenants,
};
use windlass_core::tenant::TenantSettings;

use super::{RELAXED, SYNCED};
use crate::{PostgresStore, audit, handler, key, secret, tenant, type_row};

#[async_trait]
impl Handlers for PostgresStore {
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
    ) -> Result<(), Error> {
        self.inner.write(SYNCED, |tx| Box::pin(handler::put(tx, id, key, &spec))).await
    }

    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error> {
        self.inner.read(|tx| Box::pin(handler::get(tx, key, version))).await
    }

    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error> {
        self.inner.read(|tx| Box::pin(handler::list(tx, tenant))).await
    }

    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(handler::delete(tx, key))).await
    }

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error> {
        self.inner.write(SYNCED, |tx| Box::pin(type_row::suspend(tx, key, suspended))).await
    }

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error> {
        self.inner.write(SYNCED, |tx| Box::pin(type_row::settings_put(tx, key, &settings))).await
    }

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error> {
        self.inner.read(|tx| Box::pin(type_row::settings_get(tx, key))).await
    }
}

#[async_trait]
impl Keys for PostgresStore {
    async fn key_put(&self, new: NewKey) -> Result<Key, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(key::put(tx, &new))).await
    }

    async fn key_find(&self, id: KeyId) -> Result<Option<Key>, Error> {
        self.inner.read(|tx| Box::pin(key::find(tx, id))).await
    }

    async fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<Key>, Error> {
        self.inner.read(|tx| Box::pin(key::list(tx, tenant, after, limit))).await
    }

    async fn key_revoke(&self, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(key::revoke(tx, tenant, id))).await
    }

    async fn key_rotate(&self, rotate: KeyRotate) -> Result<Option<Key>, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(key::rotate(tx, &rotate))).await
    }

    async fn key_touch(&self, ids: Vec<KeyId>) -> Result<(), Error> {
        self.inner.write(RELAXED, |tx| Box::pin(key::touch(tx, &ids))).await
    }

    async fn key_changed(
        &self,
        since: KeyRevision,
        limit: usize,
    ) -> Result<Vec<(KeyRevision, Key)>, Error> {
        self.inner.read(|tx| Box::pin(key::changed(tx, since, limit))).await
    }
}

#[async_trait]
impl Audits for PostgresStore {
    async fn audit_put(
        &self,
        entries: Vec<AuditEntry>,
        durability: Durability,
    ) -> Result<(), Error> {
        self.inner.write(durability, |tx| Box::pin(audit::put(tx, &entries))).await
    }

    async fn audit_list(&self, list: AuditList) -> Result<AuditPage, Error> {
        self.inner.read(|tx| Box::pin(audit::list(tx, &list))).await
    }

    async fn audit_purge(&self, keep: Duration, limit: usize) -> Result<u64, Error> {
        self.inner.write(RELAXED, |tx| Box::pin(audit::purge(tx, keep, limit))).await
    }
}

#[async_trait]
impl Secrets for PostgresStore {
    async fn secret_put(&self, secret: SealedSecret) -> Result<SecretInfo, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(secret::put(tx, &secret))).await
    }

    async fn secret_get(
        &self,
        tenant: &Tenant,
        names: Vec<SecretName>,
    ) -> Result<Vec<SealedSecret>, Error> {
        self.inner.read(|tx| Box::pin(secret::get(tx, tenant, &names))).await
    }

    async fn secret_list(&self, tenant: &Tenant) -> Result<Vec<SecretInfo>, Error> {
        self.inner.read(|tx| Box::pin(secret::list(tx, tenant))).await
    }

    async fn secret_delete(&self, tenant: &Tenant, name: &SecretName) -> Result<bool, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(secret::delete(tx, tenant, name))).await
    }

    async fn secret_all(
        &self,
        after: Option<(Tenant, SecretName)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, Error> {
        self.inner.read(|tx| Box::pin(secret::all(tx, after.as_ref(), limit))).await
    }

    async fn secret_reseal(&self, secrets: Vec<SealedSecret>) -> Result<u64, Error> {
        self.inner.write(SYNCED, |tx| Box::pin(secret::reseal(tx, &secrets))).await
    }
}

#[async_trait]
impl Tenants for PostgresStore {
    async fn tenant_settings_put(
        &self,
        tenant: &Tenant,
        settings: TenantSettings,
    ) -> Result<(), Error> {
        self.inner.write(SYNCED, |tx| Box::pin(tenant::put(tx, tenant, &settings))).await
    }

    async fn tenant_settings_get(&self, tenant: &Tenant) -> Result<TenantSettings, Error> {
        self.inner.read(|tx| Box::pin(tenant::get(tx, tenant))).await
    }

    async fn tenant_settings_changed(
        &self,
        since: TenantRevision,
        limit: usize,
    ) -> Result<Vec<(TenantRevision, Tenant, TenantSettings)>, Error> {
        self.inner.read(|tx| Box::pin(tenant::changed(tx, since, limit))).await
    }
}
