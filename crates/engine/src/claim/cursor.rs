//! Where workers that name very many types go on. Each claim looks at a page of the types that
//! match; the next one with the same patterns begins behind it, so that every type has its turn.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use windlass_core::{Tenant, TypeName};

/// Patterns whose place is remembered; when there are more, all begin anew.
const CURSORS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Cursors(Mutex<HashMap<(Tenant, Vec<String>), TypeName>>);

impl Cursors {
    pub(crate) fn get(&self, tenant: &Tenant, patterns: &[String]) -> Option<TypeName> {
        let cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Mostly there are few types, and nothing is remembered.
        if cursors.is_empty() {
            return None;
        }
        cursors.get(&(tenant.clone(), patterns.to_vec())).cloned()
    }

    pub(crate) fn set(&self, tenant: &Tenant, patterns: &[String], at: Option<TypeName>) {
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if at.is_none() && cursors.is_empty() {
            return;
        }
        let key = (tenant.clone(), patterns.to_vec());
        match at {
            Some(at) => {
                if cursors.len() >= CURSORS_MAX {
                    cursors.clear();
                }
                cursors.insert(key, at);
            }
            None => drop(cursors.remove(&key)),
        }
    }
}
