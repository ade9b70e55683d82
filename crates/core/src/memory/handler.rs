//! Handlers and their versions.

use crate::handler::{Handler, HandlerId};
use crate::limit::HANDLER_VERSIONS_MAX;
use crate::name::{Tenant, TypeKey};

use super::State;

impl State {
    pub(super) fn handler_put(&mut self, mut handler: Handler) {
        self.touch(&handler.key);
        handler.spec.options = handler.spec.options.clamped();
        let row = self.type_row(&handler.key);
        row.in_force = Some(handler.id);
        row.versions.retain(|version| version.id != handler.id);
        row.versions.push(handler);
        let surplus = row.versions.len().saturating_sub(HANDLER_VERSIONS_MAX);
        row.versions.drain(..surplus);
    }

    pub(super) fn handler_get(&self, key: &TypeKey, version: Option<HandlerId>) -> Option<Handler> {
        let row = self.types.get(key)?;
        let id = version.or(row.in_force)?;
        row.versions.iter().find(|version| version.id == id).cloned()
    }

    /// The map is already sorted by tenant and name.
    pub(super) fn handler_list(&self, tenant: &Tenant) -> Vec<Handler> {
        let keys = self.types.keys().filter(|key| key.tenant == *tenant);
        keys.filter_map(|key| self.handler_get(key, None)).collect()
    }

    pub(super) fn handler_delete(&mut self, key: &TypeKey) -> bool {
        if !self.types.contains_key(key) {
            return false;
        }
        self.touch(key);
        self.type_row(key).in_force.take().is_some()
    }
}
