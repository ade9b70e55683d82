//! Seals every secret anew, under a new key.
//!
//! ```text
//! keys:   old ─► old and new, durable ───────────────────────────► new, durable
//! store:                               ─► sealed anew, in portions,
//!                                         each durable
//! ```
//! At every point each sealed value has its key in the file, so a daemon that is killed leaves
//! everything readable, and the next rekey completes the work. A value that cannot be opened is
//! counted and stays as it is, and so does its key.

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_core::Tenant;
use windlass_core::secret::{KeyLock, KeyRing, SealKeyId, SealedSecret, SecretName, Unsealed};

use super::{lock, make_first_key, replace};
use crate::api::{Rekeyed, UnreadableSecret};
use crate::error::{Error, store_error};
use crate::shared::Shared;

/// Secrets that are sealed anew in one change of the store.
const PORTION: usize = 100;

pub(crate) async fn rekey(shared: Arc<Shared>) -> Result<Rekeyed, Error> {
    make_first_key(&shared).await?;
    let keys = lock(&shared, KeyLock::Replace).await?;
    let ring = keys.ring().with_new_key().map_err(|error| Error::Internal(error.to_string()))?;
    // The key file is not in the store: what the audit says about this must not be lost with a
    // power cut that keeps the new file.
    shared.store.flush().await.map_err(store_error)?;
    let keys = replace(keys, ring).await?;
    let mut pass = Pass::default();
    while let Some(portion) = next_portion(&shared, &pass).await? {
        pass.work_on(&shared, keys.ring(), portion).await?;
    }
    let needed: Vec<SealKeyId> = pass.needed.into_iter().collect();
    let left = keys.ring().only(&needed);
    let key = left.newest();
    drop(replace(keys, left).await?);
    tracing::info!(%key, secrets = pass.resealed, "sealed all secrets under a new key");
    Ok(Rekeyed { key, resealed: pass.resealed, unreadable: pass.unreadable })
}

#[derive(Default)]
struct Pass {
    /// The last secret that was looked at.
    after: Option<(Tenant, SecretName)>,
    resealed: u64,
    unreadable: Vec<UnreadableSecret>,
    /// Keys of values that cannot be opened.
    needed: BTreeSet<SealKeyId>,
}

async fn next_portion(shared: &Shared, pass: &Pass) -> Result<Option<Vec<SealedSecret>>, Error> {
    let portion = shared.store.secret_all(pass.after.clone(), PORTION).await;
    let portion = portion.map_err(store_error)?;
    Ok((!portion.is_empty()).then_some(portion))
}

impl Pass {
    async fn work_on(
        &mut self,
        shared: &Shared,
        ring: &KeyRing,
        portion: Vec<SealedSecret>,
    ) -> Result<(), Error> {
        self.after = portion.last().map(|last| (last.tenant.clone(), last.name.clone()));
        let mut sealed = Vec::with_capacity(portion.len());
        for secret in portion {
            match ring.open(&secret) {
                Ok(value) => {
                    let place = (&secret.tenant, &secret.name, secret.version);
                    let again = ring.seal(place, &value);
                    sealed.push(again.map_err(|error| Error::Internal(error.to_string()))?);
                }
                Err(why) => self.leave(secret, why),
            }
        }
        self.resealed += shared.store.secret_reseal(sealed).await.map_err(store_error)?;
        Ok(())
    }

    fn leave(&mut self, secret: SealedSecret, why: Unsealed) {
        let SealedSecret { tenant, name, sealed, .. } = secret;
        tracing::warn!(%tenant, secret = %name, %why, "a secret cannot be read");
        self.needed.extend(sealed.key());
        self.unreadable.push(UnreadableSecret { tenant, name, why });
    }
}
