//! What the scheduler knows of types that may not give all that they have: for workers that ask
//! the store itself, and for those who wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use windlass_core::{HandlerId, Tenant, Timestamp, TypeKey, TypeName, TypeSettings};

use super::{Entry, Scheduler, burst};

/// The types of which something must be remembered.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// With a limit of their own.
    limited: Types,
    /// With jobs, and nobody has told yet how they are run.
    pub unknown: Types,
    /// Over their rate before, and not any more.
    pub rested: HashSet<TypeKey>,
}

/// Types, found by tenant.
#[derive(Debug, Default)]
pub(super) struct Types(HashMap<Tenant, HashSet<TypeName>>);

impl Types {
    pub(super) fn insert(&mut self, key: &TypeKey) {
        self.0.entry(key.tenant.clone()).or_default().insert(key.name.clone());
    }

    /// False when it was not there.
    fn remove(&mut self, key: &TypeKey) -> bool {
        let Some(names) = self.0.get_mut(&key.tenant) else { return false };
        let removed = names.remove(&key.name);
        if names.is_empty() {
            self.0.remove(&key.tenant);
        }
        removed
    }

    fn of(&self, tenant: &Tenant) -> impl Iterator<Item = TypeKey> {
        let key = |name: &TypeName| TypeKey { tenant: tenant.clone(), name: name.clone() };
        self.0.get(tenant).into_iter().flatten().map(key)
    }
}

impl Scheduler {
    /// Types with jobs of which no look at the store has told yet.
    pub(crate) fn unknown_of(&self, tenant: &Tenant) -> Vec<TypeKey> {
        self.remembered.unknown.of(tenant).collect()
    }

    /// How a type is run of which no look at the store has told yet.
    pub(crate) fn learn(
        &mut self,
        key: &TypeKey,
        settings: TypeSettings,
        handler: Option<HandlerId>,
    ) {
        if self.remembered.unknown.remove(key)
            && let Some(entry) = self.types.get_mut(key).filter(|entry| !entry.known)
        {
            entry.known = true;
            entry.settings = Arc::new(settings);
            entry.set_handler(handler);
            self.remember(key);
            self.reopen(key);
        }
    }

    /// Types with a limit, and whether they are over their rate now.
    pub(crate) fn limited_of(
        &mut self,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Vec<(TypeName, Arc<TypeSettings>, bool)> {
        self.wake_rested(now);
        let limited = self.remembered.limited.of(tenant);
        let of_type = |key: TypeKey| {
            let entry = self.types.get(&key)?;
            Some((key.name, entry.settings.clone(), entry.rest_until.is_some()))
        };
        limited.filter_map(of_type).collect()
    }

    /// How many jobs of each of these types somebody who waits may hope for.
    pub(crate) fn hope_for(&self, keys: impl IntoIterator<Item = TypeKey>) -> Vec<(TypeKey, u64)> {
        let hope = |key: TypeKey| {
            let entry = self.types.get(&key).filter(|entry| entry.rest_until.is_none())?;
            let most = entry.settings.concurrency.unwrap_or(u32::MAX).min(burst(&entry.settings));
            Some((key, entry.ready.min(u64::from(most))))
        };
        keys.into_iter().filter_map(hope).filter(|(_, jobs)| *jobs > 0).collect()
    }

    /// Types that were over their rate and are not any more, since this was last asked.
    pub(crate) fn take_rested(&mut self, now: Timestamp) -> Vec<(TypeKey, u64)> {
        self.wake_rested(now);
        let rested = std::mem::take(&mut self.remembered.rested);
        self.hope_for(rested)
    }

    /// After the settings of a type were told.
    pub(super) fn remember(&mut self, key: &TypeKey) {
        if self.types.get(key).is_some_and(Entry::has_limit) {
            self.remembered.limited.insert(key);
        } else {
            self.remembered.limited.remove(key);
        }
    }

    /// After a look: what is known of all types is new.
    pub(super) fn remember_all(&mut self) {
        let remembered = Remembered {
            rested: std::mem::take(&mut self.remembered.rested),
            ..Remembered::default()
        };
        let before = std::mem::replace(&mut self.remembered, remembered).unknown;
        for (key, entry) in &self.types {
            if entry.has_limit() {
                self.remembered.limited.insert(key);
            }
            let told = entry.known || entry.ready == 0;
            if !told && before.0.get(&key.tenant).is_some_and(|names| names.contains(&key.name)) {
                self.remembered.unknown.insert(key);
            }
        }
    }
}

impl Entry {
    fn has_limit(&self) -> bool {
        self.settings.concurrency.is_some() || self.settings.rate.is_some()
    }
}
