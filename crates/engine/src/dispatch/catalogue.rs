//! Handlers by version. A version never changes, so this cache is never stale.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use windlass_core::store::Error;
use windlass_core::sync::lock;
use windlass_core::{Handler, HandlerId, Store, TypeKey};

/// Cached versions; when there are more, the cache is cleared.
const CATALOGUE_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Catalogue(Mutex<HashMap<HandlerId, Arc<Handler>>>);

impl Catalogue {
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
        let Some(handler) = store.handler_get(key, Some(version)).await? else { return Ok(None) };
        let handler = Arc::new(handler);
        self.add(handler.clone());
        Ok(Some(handler))
    }

    pub(crate) fn add(&self, handler: Arc<Handler>) {
        let mut versions = lock(&self.0);
        if versions.len() >= CATALOGUE_MAX {
            versions.clear();
        }
        versions.insert(handler.id, handler);
    }

    pub(crate) fn known(&self, version: HandlerId) -> Option<Arc<Handler>> {
        lock(&self.0).get(&version).cloned()
    }
}
