//! Handlers and settings of types. Writes are durable when they return. Numbers are clamped to
//! their ranges (`limit`) when they are read.

use async_trait::async_trait;

use super::Error;
use crate::handler::{Handler, HandlerId, HandlerSpec, TypeSettings};
use crate::name::{Tenant, TypeKey};

#[async_trait]
pub trait Handlers: Send + Sync {
    /// Puts a new version in force. The newest `HANDLER_VERSIONS_MAX` versions are kept.
    async fn handler_put(
        &self,
        id: HandlerId,
        key: &TypeKey,
        spec: HandlerSpec,
    ) -> Result<(), Error>;

    /// The version in force, or the one asked for (also after the handler was deleted).
    async fn handler_get(
        &self,
        key: &TypeKey,
        version: Option<HandlerId>,
    ) -> Result<Option<Handler>, Error>;

    /// The versions in force, by type name.
    async fn handler_list(&self, tenant: &Tenant) -> Result<Vec<Handler>, Error>;

    /// Leaves the type without a handler; false when it had none.
    async fn handler_delete(&self, key: &TypeKey) -> Result<bool, Error>;

    async fn type_suspend(&self, key: &TypeKey, suspended: bool) -> Result<(), Error>;

    async fn type_settings_put(&self, key: &TypeKey, settings: TypeSettings) -> Result<(), Error>;

    async fn type_settings_get(&self, key: &TypeKey) -> Result<TypeSettings, Error>;
}
