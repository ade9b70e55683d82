//! Opens the secrets that a handler names, for one batch.

use std::sync::Arc;

use windlass_core::secret::{
    KeyRing, NoKeys, OpenSecret, OpenSecrets, SealedSecret, SecretName, Unsealed,
};
use windlass_core::{Handler, store};

use super::on_keys;
use crate::shared::Shared;

/// Keys and store are read one after the other; a rekey in between may drop the key of what was
/// read. The second time, both are new.
const TRIES_MAX: usize = 2;

/// Why the jobs of a batch have no secrets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotOpened {
    /// Their attempts have failed; the text is for their log.
    Failed(String),
    /// The store does not answer. No job is at fault.
    Away(String),
}

/// Reads the store and the keys each time, so that a change is in force with the next batch.
pub(crate) async fn open(
    shared: &Shared,
    handler: &Handler,
) -> Result<Arc<OpenSecrets>, NotOpened> {
    let names = &handler.spec.options.secrets;
    if names.is_empty() {
        return Ok(Arc::default());
    }
    let mut tries = 1;
    loop {
        let sealed = shared.store.secret_get(&handler.key.tenant, names.clone()).await;
        let sealed = sealed.map_err(|error| match error {
            store::Error::Unavailable(_) => NotOpened::Away(error.to_string()),
            error => NotOpened::Failed(unreadable(&names[0], &error)),
        })?;
        let is_there = |name: &SecretName| sealed.iter().any(|secret| secret.name == *name);
        if let Some(name) = names.iter().find(|name| !is_there(name)) {
            return Err(NotOpened::Failed(absent(name)));
        }
        let ring = on_keys(shared, |keys| keys.read()).await;
        let ring = ring.map_err(|error| NotOpened::Failed(unreadable(&names[0], &error)))?;
        match open_all(ring, &sealed) {
            Err((_, Unopened::Sealed(Unsealed::NoKey(_)))) if tries < TRIES_MAX => tries += 1,
            Err((name, why)) => return Err(NotOpened::Failed(unreadable(&name, &why))),
            Ok(secrets) => return Ok(Arc::new(secrets)),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Unopened {
    #[error(transparent)]
    Keys(NoKeys),
    #[error(transparent)]
    Sealed(Unsealed),
}

fn open_all(
    ring: Result<KeyRing, NoKeys>,
    sealed: &[SealedSecret],
) -> Result<OpenSecrets, (SecretName, Unopened)> {
    let ring = match (ring, sealed.first()) {
        (Ok(ring), _) => ring,
        (Err(why), Some(first)) => return Err((first.name.clone(), Unopened::Keys(why))),
        (Err(_), None) => return Ok(OpenSecrets::default()),
    };
    let open = |secret: &SealedSecret| {
        let (name, version) = (secret.name.clone(), secret.version);
        match ring.open(secret) {
            Ok(value) => Ok(OpenSecret { name, version, value }),
            Err(why) => Err((name, Unopened::Sealed(why))),
        }
    };
    Ok(OpenSecrets::new(sealed.iter().map(open).collect::<Result<_, _>>()?))
}

fn absent(name: &SecretName) -> String {
    format!("there is no secret {name}; set it with: windlass secret set {name}")
}

fn unreadable(name: &SecretName, why: &dyn std::fmt::Display) -> String {
    format!("the secret {name} cannot be read: {why}")
}
