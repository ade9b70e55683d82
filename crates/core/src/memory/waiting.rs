//! Which types are open. Every change of a type or of one of its jobs gives the type a new
//! revision: more often than necessary, never too rarely.

use std::collections::BTreeMap;

use crate::glob;
use crate::job::Job;
use crate::name::{Tenant, TypeKey, TypeName};
use crate::state::State as JobState;
use crate::store::{ChangedLook, ChangedTypes, NamedLook, NamedTypes, Rest, Revision, WaitingType};

use super::{State, TypeRow};

impl State {
    pub(super) fn type_changed(&mut self, look: &ChangedLook) -> ChangedTypes {
        let newest = Revision(self.revision);
        let changed = |key: &TypeKey, row: &TypeRow| {
            look.since.is_some_and(|since| row.revision > since)
                && look.handled == self.is_handled(key)
        };
        let (mut types, mut more, mut up_to) = (Vec::new(), false, newest);
        let mut by_tenant: BTreeMap<Tenant, usize> = BTreeMap::new();
        for of_type in self.open(changed) {
            let of_tenant = by_tenant.entry(of_type.key.tenant.clone()).or_default();
            if *of_tenant < look.each && types.len() == look.limit {
                more = true;
                up_to = Revision(of_type.revision.0 - 1);
                break;
            }
            if *of_tenant < look.each {
                types.push(of_type);
            }
            *of_tenant += 1;
        }
        by_tenant.retain(|_, of_tenant| *of_tenant > look.each);
        let cut = by_tenant.into_keys().collect();
        self.reported += types.len() as u64;
        let waiting = self.jobs.values().filter(|row| row.job.is_queued() && !row.due);
        let next_due_at = waiting.map(|row| row.job.run_at).min();
        ChangedTypes { types, cut, up_to, newest, more, next_due_at }
    }

    pub(super) fn type_first(
        &mut self,
        after: Option<&Tenant>,
        each: usize,
        limit: usize,
    ) -> Vec<WaitingType> {
        let wanted = |key: &TypeKey, _: &TypeRow| {
            after.is_none_or(|after| key.tenant > *after) && self.is_handled(key)
        };
        let mut by_tenant: BTreeMap<Tenant, Vec<WaitingType>> = BTreeMap::new();
        for waiting in self.open_by_name(wanted) {
            let of_tenant = by_tenant.entry(waiting.key.tenant.clone()).or_default();
            if of_tenant.len() < each {
                of_tenant.push(waiting);
            }
        }
        let mut page = Vec::new();
        for of_tenant in by_tenant.into_values() {
            if page.len() >= limit {
                break;
            }
            page.extend(of_tenant);
        }
        self.reported += page.len() as u64;
        page
    }

    pub(super) fn type_next(
        &mut self,
        of: &[(Tenant, Option<TypeName>)],
        each: usize,
    ) -> Vec<WaitingType> {
        let mut page = Vec::new();
        for (tenant, after) in of {
            let wanted = |key: &TypeKey, _: &TypeRow| {
                let behind = after.as_ref().is_none_or(|after| key.name > *after);
                key.tenant == *tenant && behind && self.is_handled(key)
            };
            page.extend(self.open_by_name(wanted).into_iter().take(each));
        }
        self.reported += page.len() as u64;
        page
    }

    pub(super) fn type_named(&mut self, look: &NamedLook) -> NamedTypes {
        self.named_looks += 1;
        let (names, globs): (Vec<_>, Vec<_>) =
            look.names.iter().partition(|text| glob::is_literal(text));
        let named = |key: &TypeKey| {
            key.tenant == look.tenant && names.iter().any(|name| *name == key.name.as_str())
        };
        let mut types = self.open(|key, _| named(key));
        let matches = |key: &TypeKey, _: &TypeRow| {
            key.tenant == look.tenant
                && look.after.as_ref().is_none_or(|after| key.name > *after)
                && !named(key)
                && globs.iter().any(|pattern| glob::matches(pattern, key.name.as_str()))
        };
        let mut found = self.open_by_name(matches);
        let room = look.limit.saturating_sub(types.len());
        let next = (found.len() > room).then(|| {
            found.truncate(room);
            found.last().map(|last| last.key.name.clone()).or_else(|| look.after.clone())
        });
        types.extend(found);
        let asked = |key: &TypeKey| {
            key.tenant == look.tenant
                && look.names.iter().any(|text| glob::matches(text, key.name.as_str()))
        };
        let mut limited = self.types.iter().filter(|(_, row)| row.settings.concurrency.is_some());
        let full = limited.any(|(key, row)| asked(key) && self.is_full(key, row));
        self.reported += types.len() as u64;
        NamedTypes { types, next: next.flatten(), full }
    }

    pub(super) fn type_unhandled(&mut self, mut keys: Vec<TypeKey>) -> Vec<TypeKey> {
        self.handlers_asked += 1;
        keys.retain(|key| !self.is_handled(key));
        keys
    }

    /// This type may have changed: gives it a new revision.
    pub(super) fn touch(&mut self, key: &TypeKey) {
        self.revision += 1;
        let revision = Revision(self.revision);
        self.type_row(key).revision = revision;
    }

    /// How many more jobs of a type may run.
    pub(super) fn room(&self, key: &TypeKey) -> u64 {
        let concurrency = self.types.get(key).and_then(|row| row.settings.concurrency);
        let running = |job: &&Job| job.key == *key && job.state == JobState::Running;
        concurrency.map_or(u64::MAX, |most| {
            let running = self.jobs.values().map(|row| &row.job).filter(running).count() as u64;
            u64::from(most).saturating_sub(running)
        })
    }

    /// How many more jobs of a type may start now, by its `rate`.
    pub(super) fn starts_left(&self, key: &TypeKey) -> u32 {
        let row = self.types.get(key);
        let rate = row.and_then(|row| Some((row.settings.rate?, row.spent)));
        rate.map_or(u32::MAX, |(rate, spent)| spent.left(rate, self.now))
    }

    /// So many jobs of a type have started.
    pub(super) fn spend(&mut self, key: &TypeKey, jobs: u32) {
        let now = self.now;
        if let Some(row) = self.types.get_mut(key)
            && let Some(rate) = row.settings.rate
        {
            row.spent = row.spent.after(jobs, rate, now);
        }
    }

    /// The rest of a type that started so many jobs, if it may start no more.
    pub(super) fn rest(&self, key: &TypeKey, started: u32) -> Option<Rest> {
        let row = self.types.get(key)?;
        Rest::of(key, (row.settings.rate?, row.spent), started, self.now)
    }

    fn is_handled(&self, key: &TypeKey) -> bool {
        self.types.get(key).is_some_and(|row| row.in_force.is_some())
    }

    fn is_full(&self, key: &TypeKey, row: &TypeRow) -> bool {
        row.settings.concurrency.is_some()
            && self.jobs.values().any(|row| row.job.key == *key && row.is_ready(self.now))
            && self.room(key) == 0
    }

    fn open_by_name(&self, wanted: impl Fn(&TypeKey, &TypeRow) -> bool) -> Vec<WaitingType> {
        let mut open = self.open(wanted);
        open.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        open
    }

    /// The open ones of these types, by revision.
    fn open(&self, wanted: impl Fn(&TypeKey, &TypeRow) -> bool) -> Vec<WaitingType> {
        let types = self.types.iter().filter(|(key, row)| !row.suspended && wanted(key, row));
        let mut ready: BTreeMap<&TypeKey, (u64, &TypeRow)> =
            types.map(|(key, row)| (key, (0, row))).collect();
        if ready.is_empty() {
            return Vec::new();
        }
        for row in self.jobs.values().filter(|row| row.is_ready(self.now)) {
            if let Some((ready, _)) = ready.get_mut(&row.job.key) {
                *ready += 1;
            }
        }
        let open = ready.into_iter().filter_map(|(key, (ready, row))| {
            let ready = if ready == 0 { 0 } else { ready.min(self.room(key)) };
            (ready > 0).then(|| WaitingType {
                key: key.clone(),
                ready,
                handler: row.in_force,
                settings: row.settings.clone(),
                revision: row.revision,
            })
        });
        let mut open: Vec<WaitingType> = open.collect();
        open.sort_by_key(|waiting| waiting.revision);
        open
    }
}
