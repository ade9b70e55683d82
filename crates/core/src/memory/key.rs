//! API keys.

use crate::key::{Key, KeyCounts, KeyId, NewKey, Standing};
use crate::limit::{KEY_RETENTION, KEY_TOUCH_INTERVAL};
use crate::name::Tenant;
use crate::store::{Error, KeyReplacement, KeyRevision, KeyRotate};

use super::State;

/// A key, and the revision of its latest change.
#[derive(Debug, Clone)]
pub(super) struct KeyRow {
    key: Key,
    revision: KeyRevision,
}

impl State {
    pub(super) fn key_put(&mut self, new: NewKey) -> Result<Key, Error> {
        if let Some(known) = self.api_keys.get(&new.id) {
            return match known.key.digest == new.digest {
                true => Ok(known.key.clone()),
                false => Err(Error::Conflict("there is another key with this id".into())),
            };
        }
        let forgotten = self.now - KEY_RETENTION;
        self.api_keys.retain(|_, row| row.key.ends_at().is_none_or(|at| at > forgotten));
        self.key_counts(new.owner.tenant.as_ref()).room_for(&new).map_err(Error::Conflict)?;
        let key = Key::made(new, self.now);
        self.key_write(key.clone());
        Ok(key)
    }

    pub(super) fn key_find(&self, id: KeyId) -> Option<Key> {
        self.api_keys.get(&id).map(|row| row.key.clone())
    }

    pub(super) fn key_list(
        &self,
        tenant: Option<&Tenant>,
        after: Option<KeyId>,
        limit: usize,
    ) -> Vec<Key> {
        let keys = self.api_keys.values().map(|row| &row.key);
        let keys = keys.filter(|key| is_of(key, tenant) && Some(key.id) > after);
        keys.take(limit).cloned().collect()
    }

    pub(super) fn key_revoke(&mut self, tenant: Option<&Tenant>, id: KeyId) -> Option<Key> {
        let key = self.key_find(id).filter(|key| is_of(key, tenant))?;
        if key.revoked_at.is_some() {
            return Some(key);
        }
        let key = Key { revoked_at: Some(self.now), ..key };
        self.key_write(key.clone());
        Some(key)
    }

    pub(super) fn key_rotate(&mut self, rotate: KeyRotate) -> Result<Option<Key>, Error> {
        let KeyRotate { tenant, old, new, overlap } = rotate;
        let Some(old) = self.key_find(old).filter(|key| is_of(key, tenant.as_ref())) else {
            return Ok(None);
        };
        if old.standing(self.now) != Standing::InForce {
            return Err(Error::Conflict("the key is no longer in force".into()));
        }
        let KeyReplacement { id, digest, lifetime } = new;
        let new = self.key_put(NewKey { id, digest, owner: old.owner.clone(), lifetime })?;
        let ends_at = self.now + overlap;
        let expires_at = Some(old.expires_at.map_or(ends_at, |at| at.min(ends_at)));
        self.key_write(Key { expires_at, ..old });
        Ok(Some(new))
    }

    pub(super) fn key_touch(&mut self, ids: &[KeyId]) {
        let (now, before) = (self.now, self.now - KEY_TOUCH_INTERVAL);
        for id in ids {
            if let Some(row) = self.api_keys.get_mut(id)
                && row.key.last_used_at.is_none_or(|at| at <= before)
            {
                row.key.last_used_at = Some(now);
            }
        }
    }

    pub(super) fn key_changed(&self, since: KeyRevision, limit: usize) -> Vec<(KeyRevision, Key)> {
        let rows = self.api_keys.values().filter(|row| row.revision > since);
        let mut changed: Vec<_> = rows.map(|row| (row.revision, row.key.clone())).collect();
        changed.sort_by_key(|(revision, _)| *revision);
        changed.truncate(limit);
        changed
    }

    fn key_counts(&self, tenant: Option<&Tenant>) -> KeyCounts {
        let keys = self.api_keys.values().map(|row| &row.key);
        KeyCounts { all: self.api_keys.len(), own: keys.filter(|key| is_of(key, tenant)).count() }
    }

    fn key_write(&mut self, key: Key) {
        self.key_revision.0 += 1;
        let revision = self.key_revision;
        self.api_keys.insert(key.id, KeyRow { key, revision });
    }
}

/// Without a tenant, all keys are meant.
fn is_of(key: &Key, tenant: Option<&Tenant>) -> bool {
    tenant.is_none_or(|tenant| key.owner.tenant.as_ref() == Some(tenant))
}
