//! Cursors of workers that name very many types. Each claim reads one page of the matching types;
//! the next claim with the same patterns continues after it, so that every type gets its turn.

use std::collections::HashMap;
use std::sync::Mutex;

use windlass_core::sync::lock;
use windlass_core::{Tenant, TypeName};

/// Remembered cursors, and the bytes of their patterns; when there are more, all are forgotten.
const CURSORS_MAX: usize = 10_000;
const CURSORS_BYTES_MAX: usize = 16 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Cursors(Mutex<Table>);

type Key = (Tenant, Vec<String>);

#[derive(Default)]
struct Table {
    places: HashMap<Key, TypeName>,
    /// The bytes of all keys.
    bytes: usize,
}

impl Cursors {
    pub(crate) fn get(&self, tenant: &Tenant, patterns: &[String]) -> Option<TypeName> {
        let table = lock(&self.0);
        // Usually there are few types, and no cursors.
        if table.places.is_empty() {
            return None;
        }
        table.places.get(&(tenant.clone(), patterns.to_vec())).cloned()
    }

    pub(crate) fn set(&self, tenant: &Tenant, patterns: &[String], at: Option<TypeName>) {
        let mut table = lock(&self.0);
        if at.is_none() && table.places.is_empty() {
            return;
        }
        let key = (tenant.clone(), patterns.to_vec());
        let bytes = bytes(&key);
        if table.places.remove(&key).is_some() {
            table.bytes -= bytes;
        }
        let Some(at) = at.filter(|_| bytes <= CURSORS_BYTES_MAX) else { return };
        if table.places.len() >= CURSORS_MAX || table.bytes + bytes > CURSORS_BYTES_MAX {
            *table = Table::default();
        }
        table.bytes += bytes;
        table.places.insert(key, at);
    }
}

fn bytes((tenant, patterns): &Key) -> usize {
    let patterns = patterns.iter().map(|text| size_of::<String>() + text.len());
    tenant.as_str().len() + patterns.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_remembered_within_a_bound_of_bytes() {
        let (cursors, tenant) = (Cursors::default(), Tenant::new("acme").unwrap());
        let at = || TypeName::new("t").ok();
        let long = |n: usize| vec![format!("{n}{}", "x".repeat(CURSORS_BYTES_MAX / 4))];
        for n in 0..10 {
            cursors.set(&tenant, &long(n), at());
            assert_eq!(cursors.get(&tenant, &long(n)), at());
            assert!(lock(&cursors.0).bytes <= CURSORS_BYTES_MAX);
        }
        for n in 0..10 {
            cursors.set(&tenant, &long(n), None);
        }
        let table = lock(&cursors.0);
        assert!(table.places.is_empty() && table.bytes == 0);
    }
}
