//! The audit.

use std::time::Duration;

use crate::audit::AuditEntry;
use crate::limit::AUDIT_LOOK_MAX;
use crate::store::{AuditList, AuditPage};

use super::State;

impl State {
    pub(super) fn audit_put(&mut self, entries: Vec<AuditEntry>) {
        self.audit.extend(entries.into_iter().map(|entry| (entry.cursor(), entry)));
    }

    pub(super) fn audit_list(&self, list: &AuditList) -> AuditPage {
        let (mut entries, mut looked) = (Vec::new(), 0);
        let is_before = |entry: &&AuditEntry| list.before.is_none_or(|at| entry.cursor() < at);
        for entry in self.audit.values().rev().filter(is_before) {
            looked += 1;
            if list.filter.has(entry) {
                entries.push(entry.clone());
            }
            if entries.len() >= list.limit || looked == AUDIT_LOOK_MAX {
                return AuditPage { entries, next: Some(entry.cursor()) };
            }
        }
        AuditPage { entries, next: None }
    }

    pub(super) fn audit_purge(&mut self, keep: Duration, limit: usize) -> u64 {
        let until = self.now - keep;
        let old = self.audit.keys().take_while(|cursor| cursor.at <= until).take(limit);
        let old: Vec<_> = old.copied().collect();
        for cursor in &old {
            self.audit.remove(cursor);
        }
        old.len() as u64
    }
}
