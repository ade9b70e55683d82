//! API keys. The store has them; every daemon keeps a copy in memory (`table`), against which
//! requests are checked without the store, also while it is away. `watch` keeps the copy fresh: a
//! change is in force here before it is answered, and on other daemons after their next poll.

mod table;
mod watch;

use std::sync::Arc;

use windlass_core::key::{Key, KeyId, NewKey};
use windlass_core::name::Tenant;
use windlass_core::store::KeyRotate;

use crate::error::{Error, store_error};
use crate::shared::Shared;

pub(crate) use table::KeyTable;
pub(crate) use watch::KeyWatch;

pub(crate) async fn create(shared: Arc<Shared>, new: NewKey) -> Result<Key, Error> {
    new.check()?;
    let key = shared.store.key_put(new).await.map_err(store_error)?;
    note_change(&shared, &key).await;
    Ok(key)
}

pub(crate) async fn revoke(
    shared: Arc<Shared>,
    tenant: Option<Tenant>,
    id: KeyId,
) -> Result<Key, Error> {
    let revoked = shared.store.key_revoke(tenant.as_ref(), id).await.map_err(store_error)?;
    let key = revoked.ok_or(Error::NotFound("key"))?;
    note_change(&shared, &key).await;
    Ok(key)
}

pub(crate) async fn rotate(shared: Arc<Shared>, rotate: KeyRotate) -> Result<Key, Error> {
    let rotated = shared.store.key_rotate(rotate).await.map_err(store_error)?;
    let key = rotated.ok_or(Error::NotFound("key"))?;
    note_change(&shared, &key).await;
    Ok(key)
}

/// After a change that the store has made: it is answered even if the copy cannot be brought up to
/// date, because the text of a new key is shown only once. The key itself is in force here at once.
async fn note_change(shared: &Shared, key: &Key) {
    if let Err(error) = refresh(shared).await {
        tracing::warn!(%error, "the copy of the keys is brought up to date later");
        shared.keys.put(key.clone());
    }
}

/// Brings the copy of the keys up to date.
pub(crate) async fn refresh(shared: &Shared) -> Result<(), Error> {
    shared.keys.refresh(shared.store.as_ref(), shared.now()).await.map_err(store_error)
}
