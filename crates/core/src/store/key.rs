//! API keys. Changes are durable when they return, except for the times of use.

use std::time::Duration;

use async_trait::async_trait;

use super::Error;
use crate::key::{Key, KeyId, NewKey};
use crate::name::Tenant;

#[async_trait]
pub trait Keys: Send + Sync {
    /// Stores a key. One that is already there, with the same digest, stays as it is.
    /// `Error::Conflict` if its id has another digest, or if there are `KEYS_MAX` keys, or
    /// `TENANT_KEYS_MAX` of its tenant. Removes keys that ended longer than `KEY_RETENTION` ago.
    async fn key_put(&self, new: NewKey) -> Result<Key, Error>;

    async fn key_find(&self, id: KeyId) -> Result<Option<Key>, Error>;

    /// Keys of one tenant or, with `None`, all keys; by id, behind `after`.
    async fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<Key>, Error>;

    /// Ends a key, now and for ever. `None` if there is no such key, or if it is not one of the
    /// tenant that is named. A key that was revoked before keeps the time of that.
    async fn key_revoke(&self, tenant: Option<&Tenant>, id: KeyId) -> Result<Option<Key>, Error>;

    /// Replaces a key that is in force by a new one for the same owner, in one change. The old one
    /// expires after the overlap, unless it does before. `None` as for a revocation;
    /// `Error::Conflict` if it is not in force, or if there is no room for the new one.
    async fn key_rotate(&self, rotate: KeyRotate) -> Result<Option<Key>, Error>;

    /// Notes that keys are used now, unless that was noted within `KEY_TOUCH_INTERVAL`. Relaxed.
    async fn key_touch(&self, ids: Vec<KeyId>) -> Result<(), Error>;

    /// Keys that were put, revoked or rotated after a revision, in the order of their changes, each
    /// with the revision of its latest one. Times of use do not count.
    async fn key_changed(
        &self,
        since: KeyRevision,
        limit: usize,
    ) -> Result<Vec<(KeyRevision, Key)>, Error>;
}

/// The number of a change of keys; the default is before the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRevision(pub i64);

#[derive(Debug, Clone)]
pub struct KeyRotate {
    /// Only a key of this tenant.
    pub tenant: Option<Tenant>,
    pub old: KeyId,
    /// Its owner is the owner of the old one.
    pub new: KeyReplacement,
    pub overlap: Duration,
}

/// The new text of a key.
#[derive(Debug, Clone)]
pub struct KeyReplacement {
    pub id: KeyId,
    pub digest: crate::key::KeyDigest,
    pub lifetime: Option<Duration>,
}
