//! Secrets: sealed here before they reach the store, and opened here for the handlers that name
//! them (`open`). `rekey` seals all of them anew.
//!
//! Keys and store are two places, so they are changed in an order in which each sealed value has
//! its key: nothing is sealed while keys are being dropped (`KeyLock`), and the first key is made
//! only if there is no secret that another key has sealed.

mod open;
mod rekey;

use std::sync::Arc;
use std::time::Duration;

use windlass_core::secret::{
    KeyLock, KeyRing, LockedKeys, NoKeys, SealKeys, SecretInfo, SecretName, SecretValue,
};
use windlass_core::{HandlerOptions, Tenant};

use crate::api::{SecretStatus, SecretUse};
use crate::error::{Error, storage_error, store_error};
use crate::shared::Shared;

pub(crate) use open::{NotOpened, open};
pub(crate) use rekey::rekey;

/// How often locked keys are tried again, for ten seconds in all: a replacement takes as long as
/// sealing all secrets anew.
const LOCK_TRIES_MAX: usize = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn set(
    shared: Arc<Shared>,
    tenant: Tenant,
    name: SecretName,
    value: SecretValue,
) -> Result<SecretInfo, Error> {
    make_first_key(&shared).await?;
    let version = shared.journal.make_id().map_err(storage_error)?;
    // Held until the value is stored: its key must not be dropped before.
    let keys = lock(&shared, KeyLock::Seal).await?;
    let sealed = keys.ring().seal((&tenant, &name, version), &value);
    let sealed = sealed.map_err(|error| Error::Internal(error.to_string()))?;
    let info = shared.store.secret_put(sealed).await.map_err(store_error)?;
    drop(keys);
    Ok(info)
}

pub(crate) async fn delete(
    shared: Arc<Shared>,
    tenant: Tenant,
    name: SecretName,
) -> Result<(), Error> {
    match shared.store.secret_delete(&tenant, &name).await.map_err(store_error)? {
        true => Ok(()),
        false => Err(Error::NotFound("secret")),
    }
}

/// The secrets of a tenant, each with the types whose handlers name it.
pub(crate) async fn list(shared: &Shared, tenant: &Tenant) -> Result<Vec<SecretUse>, Error> {
    let secrets = shared.store.secret_list(tenant).await.map_err(store_error)?;
    let handlers = shared.store.handler_list(tenant).await.map_err(store_error)?;
    let with_use = |info: SecretInfo| {
        let names = |options: &HandlerOptions| options.secrets.contains(&info.name);
        let users = handlers.iter().filter(|handler| names(&handler.spec.options));
        let handlers = users.map(|handler| handler.key.name.clone()).collect();
        SecretUse { info, handlers }
    };
    Ok(secrets.into_iter().map(with_use).collect())
}

/// Which of these secrets there are not.
pub(crate) async fn missing(
    shared: &Shared,
    tenant: &Tenant,
    names: &[SecretName],
) -> Result<Vec<SecretName>, Error> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = shared.store.secret_get(tenant, names.to_vec()).await.map_err(store_error)?;
    let is_known = |name: &SecretName| known.iter().any(|secret| secret.name == *name);
    Ok(names.iter().filter(|name| !is_known(name)).cloned().collect())
}

/// Makes the first key, if there is none. What is wrong with the keys affects secrets alone.
pub(crate) async fn prepare(shared: &Shared) -> Result<SecretStatus, Error> {
    make_first_key(shared).await?;
    let ring = on_keys(shared, |keys| keys.read()).await?.map_err(no_keys)?;
    Ok(SecretStatus { key: ring.newest(), keys: ring.ids().len() })
}

/// While the store has secrets, the key file that they need may be put back: then no other is made.
async fn make_first_key(shared: &Shared) -> Result<(), Error> {
    match on_keys(shared, |keys| keys.read()).await? {
        Err(NoKeys::Missing) => {}
        Ok(_) | Err(NoKeys::Busy | NoKeys::Unusable(_)) => return Ok(()),
    }
    let sealed = shared.store.secret_all(None, 1).await.map_err(store_error)?;
    if !sealed.is_empty() {
        let why = "the key file is missing, and there are secrets that are encrypted with its \
                   keys: put it back, or remove all secrets";
        return Err(Error::Unavailable(why.into()));
    }
    on_keys(shared, |keys| keys.make()).await?.map_err(no_keys)
}

/// Waits for its turn.
async fn lock(shared: &Shared, lock: KeyLock) -> Result<Box<dyn LockedKeys>, Error> {
    for _ in 0..LOCK_TRIES_MAX {
        match on_keys(shared, move |keys| keys.lock(lock)).await? {
            Err(NoKeys::Busy) => tokio::time::sleep(LOCK_PAUSE).await,
            locked => return locked.map_err(no_keys),
        }
    }
    Err(no_keys(NoKeys::Busy))
}

/// Replaces locked keys.
async fn replace(
    mut keys: Box<dyn LockedKeys>,
    ring: KeyRing,
) -> Result<Box<dyn LockedKeys>, Error> {
    let replaced = move || keys.replace(ring).map(|()| keys);
    blocking(replaced).await?.map_err(no_keys)
}

/// Reads or writes a file, which blocks.
async fn on_keys<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&dyn SealKeys) -> T + Send + 'static,
) -> Result<T, Error> {
    let keys = Arc::clone(&shared.seal_keys);
    blocking(move || work(&*keys)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|failed| Error::Internal(format!("the keys of secrets: {failed}")))
}

fn no_keys(reason: NoKeys) -> Error {
    Error::Unavailable(format!("secrets cannot be used: {reason}"))
}
