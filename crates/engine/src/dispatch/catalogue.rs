//! Handlers by version, as they are in force here: with what the operator allows of their options.
//! A version never changes, so this cache is never stale.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use windlass_core::store::Error;
use windlass_core::sync::lock;
use windlass_core::{Handler, HandlerId, Maxima, Store, TypeKey};

/// Cached versions; when there are more, the cache is cleared.
const CATALOGUE_MAX: usize = 10_000;

pub(crate) struct Catalogue {
    maxima: Maxima,
    versions: Mutex<HashMap<HandlerId, Arc<Handler>>>,
}

impl Catalogue {
    pub(crate) fn new(maxima: Maxima) -> Catalogue {
        Catalogue { maxima, versions: Mutex::default() }
    }

    /// One version of a handler; `None` when the store no longer has it.
    pub(crate) async fn get(
        &self,
        store: &dyn Store,
        key: &TypeKey,
        version: HandlerId,
    ) -> Result<Option<Arc<Handler>>, Error> {
        if let Some(known) = self.known(version) {
            return Ok(Some(known));
        }
        let Some(mut handler) = store.handler_get(key, Some(version)).await? else {
            return Ok(None);
        };
        self.maxima.lower(&mut handler.spec.options);
        let handler = Arc::new(handler);
        self.add(handler.clone());
        Ok(Some(handler))
    }

    pub(crate) fn add(&self, handler: Arc<Handler>) {
        let mut versions = lock(&self.versions);
        if versions.len() >= CATALOGUE_MAX {
            versions.clear();
        }
        versions.insert(handler.id, handler);
    }

    pub(crate) fn known(&self, version: HandlerId) -> Option<Arc<Handler>> {
        lock(&self.versions).get(&version).cloned()
    }
}
