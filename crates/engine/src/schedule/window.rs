//! The window: the types that are known to have jobs for this daemon, fed by looks at the store and
//! by what happens here.

use std::sync::Arc;

use windlass_core::store::{Revision, WaitingType};
use windlass_core::{Tenant, TypeKey};

use super::{Entry, Scheduler};
use crate::options::Fairness;

/// Types in the window, beside the first one of each tenant.
const WINDOW_TYPES_MAX: usize = 50_000;
/// … of one tenant.
const TENANT_TYPES_MAX: usize = 256;
/// Tenants with a place in the window.
const TENANTS_MAX: usize = 100_000;
/// Newcomers among them that have their first pick to come.
const NEWCOMERS_MAX: usize = 10_000;
/// Idle types that are remembered, with their handlers and settings, for their next job.
const IDLE_TYPES_MAX: usize = 20_000;
/// A tenant that has more types gets them when so few are left to pick.
const TENANT_TYPES_LOW: usize = 1;

impl Scheduler {
    /// `ready` more jobs of a type may run now. False when a look at the store must tell whether
    /// and how the type is run here.
    pub(crate) fn note(&mut self, key: &TypeKey, ready: u64) -> bool {
        let look = self.look;
        let Some(entry) = self.types.get_mut(key) else {
            self.unknown = true;
            return false;
        };
        if entry.handler.is_none() {
            return true;
        }
        entry.noted += ready;
        let before = if entry.noted_in.0 == look { entry.noted_in.1 } else { 0 };
        entry.noted_in = (look, before + ready);
        if !entry.served {
            entry.ready += ready;
        }
        self.place(key);
        true
    }

    /// A look at the store begins: what is noted from here on is not in its answer. True when jobs
    /// of unknown types were noted: the look has to tell of types without a handler too, so that
    /// their next jobs are no reason for another one.
    pub(crate) fn look_begins(&mut self) -> bool {
        self.look += 1;
        std::mem::take(&mut self.unknown)
    }

    /// The store's answer to a look for what changed.
    pub(crate) fn told_changed(&mut self, types: Vec<WaitingType>) {
        for seen in types {
            self.admit(seen);
        }
    }

    /// A page of tenants, each with up to `each` of its first types.
    pub(crate) fn told_first(&mut self, types: Vec<WaitingType>, each: usize) {
        self.welcoming = false;
        for of_tenant in types.chunk_by(|a, b| a.key.tenant == b.key.tenant) {
            self.told_of_tenant(&of_tenant[0].key.tenant, Revision::default(), of_tenant, each);
        }
        self.welcoming = true;
    }

    /// Next types of the tenants that were short of them.
    pub(crate) fn told_next(
        &mut self,
        of: &[(Tenant, Revision)],
        types: &[WaitingType],
        each: usize,
    ) {
        let mut rest = types;
        for (tenant, after) in of {
            let count = rest.iter().take_while(|seen| seen.key.tenant == *tenant).count();
            let (of_tenant, behind) = rest.split_at(count);
            rest = behind;
            self.told_of_tenant(tenant, *after, of_tenant, each);
        }
    }

    /// Tenants that are short of types to pick, though the store has more of theirs; at most
    /// `limit`, each with where it goes on.
    pub(crate) fn take_short(&mut self, limit: usize) -> Vec<(Tenant, Revision)> {
        let short: Vec<Tenant> = self.short.iter().take(limit).cloned().collect();
        let mut of = Vec::with_capacity(short.len());
        for tenant in short {
            self.short.remove(&tenant);
            self.make_room(&tenant);
            if let Some(entry) = self.tenants.get(&tenant) {
                of.push((tenant, entry.after));
            }
        }
        of
    }

    /// The store gave no answer for these.
    pub(crate) fn still_short(&mut self, of: &[(Tenant, Revision)]) {
        of.iter().for_each(|(tenant, _)| self.place_tenant(tenant));
    }

    /// Whether types of the store have a place here: of tenants that are short of them, or of
    /// tenants that were turned away.
    pub(crate) fn wants_types(&self) -> bool {
        !self.short.is_empty() || (self.beyond && self.tenants.len() < TENANTS_MAX / 2)
    }

    /// True once when tenants had to be turned away, and there are places for some of them now.
    pub(crate) fn take_beyond(&mut self) -> bool {
        let places = self.tenants.len() < TENANTS_MAX / 2;
        places && std::mem::take(&mut self.beyond)
    }

    /// After a pick: a type that has had its turn leaves, if others of its tenant wait outside.
    pub(super) fn let_others(&mut self, key: &TypeKey) {
        let more = self.tenants.get(&key.tenant).is_some_and(|tenant| tenant.more);
        if let Some(entry) = self.types.get_mut(key).filter(|_| more)
            && entry.picks >= entry.weight()
        {
            entry.served = true;
            entry.ready = 0;
        }
    }

    /// Puts a type where it belongs after anything about it changed.
    pub(super) fn place(&mut self, key: &TypeKey) {
        let entry = self.types.get(key);
        let open = entry.filter(|entry| self.is_open(key, entry)).map(Entry::weight);
        let waiting = entry.is_some_and(|entry| entry.ready > 0);
        let idle = entry.is_some_and(|entry| entry.ready == 0 && entry.batches_running.is_empty());
        let new = self.welcoming && open.is_some() && !self.tenants.contains_key(&key.tenant);
        if new && self.newcomers.len() < NEWCOMERS_MAX {
            self.newcomers.push_back(key.tenant.clone());
        }
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        tenant.dry = false;
        if waiting {
            self.waiting += usize::from(tenant.waiting.insert(key.name.clone()));
        } else {
            self.waiting -= usize::from(tenant.waiting.remove(&key.name));
        }
        match open {
            Some(weight) => tenant.open.insert(&key.name, u64::from(weight)),
            None => tenant.open.remove(&key.name),
        }
        self.place_tenant(&key.tenant);
        self.set_idle(key, idle);
    }

    fn place_tenant(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        let weight = match self.fairness {
            Fairness::Tenant => 1,
            Fairness::Type => entry.open.weight(),
        };
        let needy = entry.batches_running < self.slots.tenant_min;
        if entry.open.is_empty() {
            self.open.remove(tenant);
        } else {
            self.open.insert(tenant, weight);
        }
        if entry.open.is_empty() || !needy {
            self.needy.remove(tenant);
        } else {
            self.needy.insert(tenant, weight);
        }
        if entry.more && !entry.dry && entry.open.len() <= TENANT_TYPES_LOW {
            self.short.insert(tenant.clone());
        } else {
            self.short.remove(tenant);
        }
        if entry.waiting.is_empty() && !entry.more && entry.batches_running == 0 {
            self.tenants.remove(tenant);
        }
    }

    /// What the store says of a type; false when there is no place for it.
    fn admit(&mut self, seen: WaitingType) -> bool {
        let WaitingType { key, ready, handler, settings, .. } = seen;
        let ours = self.only.as_ref().is_none_or(|only| only.contains(&key.tenant));
        if !ours {
            return true;
        }
        if handler.is_some() && !self.has_place(&key) {
            return false;
        }
        let look = self.look;
        let entry = self.types.entry(key.clone()).or_default();
        let noted = if entry.noted_in.0 == look { entry.noted_in.1 } else { 0 };
        entry.ready = ready + noted;
        (entry.served, entry.picks) = (false, 0);
        if entry.changed_in != look || look == 0 {
            if *entry.settings != settings {
                entry.settings = Arc::new(settings);
            }
            entry.set_handler(handler);
        }
        self.place(&key);
        true
    }

    fn has_place(&mut self, key: &TypeKey) -> bool {
        let Some(tenant) = self.tenants.get_mut(&key.tenant) else {
            self.beyond |= self.tenants.len() >= TENANTS_MAX;
            return self.tenants.len() < TENANTS_MAX;
        };
        let of_tenant = tenant.waiting.len();
        let full = of_tenant >= TENANT_TYPES_MAX || self.waiting >= WINDOW_TYPES_MAX;
        if of_tenant == 0 || !full || tenant.waiting.contains(&key.name) {
            return true;
        }
        tenant.more = true;
        false
    }

    /// Types of one tenant from behind a revision on; fewer than `each` are all that there are.
    fn told_of_tenant(
        &mut self,
        tenant: &Tenant,
        from: Revision,
        types: &[WaitingType],
        each: usize,
    ) {
        let mut after = from;
        let mut turned_away = false;
        let open =
            |scheduler: &Scheduler| scheduler.tenants.get(tenant).map_or(0, |t| t.open.len());
        let open_before = open(self);
        for seen in types {
            if !self.admit(seen.clone()) {
                turned_away = true;
                break;
            }
            after = seen.revision;
        }
        let gained = open(self) > open_before;
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        let at_end = types.len() < each && !turned_away;
        entry.dry = !gained && (at_end || turned_away);
        // Behind the last one the ring begins anew, with what stood before `from`.
        entry.more = !at_end || from > Revision::default();
        entry.after = if at_end { Revision::default() } else { after };
        self.place_tenant(tenant);
    }

    /// Lets types go that take up all places of a tenant and may not be picked now: the ring brings
    /// them back.
    fn make_room(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        if entry.waiting.len() < TENANT_TYPES_MAX / 2 {
            return;
        }
        let key = |name: &_| TypeKey { tenant: tenant.clone(), name: Clone::clone(name) };
        let keys: Vec<TypeKey> = entry.waiting.iter().map(key).collect();
        for key in keys {
            let Some(entry) = self.types.get(&key) else { continue };
            if entry.batches_running.is_empty() && !self.is_open(&key, entry) {
                let entry = self.types.get_mut(&key).expect("a type that was just found");
                (entry.ready, entry.served) = (0, true);
                self.place(&key);
            }
        }
    }

    /// Remembers an idle type for its next job, and forgets the one that has been idle the longest.
    fn set_idle(&mut self, key: &TypeKey, idle: bool) {
        let Some(entry) = self.types.get_mut(key) else { return };
        if idle == (entry.idle > 0) {
            return;
        }
        self.idle_number += 1;
        entry.idle = if idle { self.idle_number } else { 0 };
        if !idle {
            return;
        }
        self.idle.push_back((key.clone(), self.idle_number));
        while self.idle.len() > IDLE_TYPES_MAX {
            let Some((key, number)) = self.idle.pop_front() else { return };
            if self.types.get(&key).is_some_and(|entry| entry.idle == number) {
                self.types.remove(&key);
            }
        }
    }
}
