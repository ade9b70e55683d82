//! The window: the types known to have jobs for this daemon, filled by looks at the store and by
//! events in this daemon.

use std::sync::Arc;

use windlass_core::store::{Revision, WaitingType};
use windlass_core::{Tenant, TypeKey, TypeSettings};

use super::feed::Feed;
use super::{Entry, Scheduler};
use crate::options::Fairness;

/// Types in the window, not counting the first one of each tenant.
pub(super) const WINDOW_TYPES_MAX: usize = 50_000;
/// … of one tenant.
pub(crate) const TENANT_TYPES_MAX: usize = 256;
/// Tenants in the window.
pub(super) const TENANTS_MAX: usize = 100_000;
/// Newcomers that wait for their first pick.
const NEWCOMERS_MAX: usize = 10_000;
/// Idle types that are remembered with their handlers and settings.
const IDLE_TYPES_MAX: usize = 20_000;

impl Scheduler {
    /// `ready` more jobs of a type may run now. False when only a look at the store can show
    /// whether the type runs here.
    pub(crate) fn note(&mut self, key: &TypeKey, ready: u64) -> bool {
        let look = self.look;
        let served = self.is_served(key);
        let Some(entry) = self.types.get_mut(key).filter(|entry| entry.handler.is_some()) else {
            return self.unhandled.contains(key, look);
        };
        entry.noted += ready;
        let before = if entry.noted_in.0 == look { entry.noted_in.1 } else { 0 };
        entry.noted_in = (look, before + ready);
        if !served {
            entry.ready += ready;
        }
        self.place(key);
        true
    }

    /// A look at the store begins: jobs noted from here on are not in its answer.
    pub(crate) fn look_begins(&mut self) {
        self.look += 1;
    }

    /// Applies the store's answer to a look for changes. Returns the revision at which the next
    /// look must begin if some of the answer was ignored because it may be outdated.
    pub(crate) fn apply_changes(&mut self, types: Vec<WaitingType>) -> Option<Revision> {
        let mut again = None;
        for seen in types {
            let (tenant, before) = (seen.key.tenant.clone(), Revision(seen.revision.0 - 1));
            let known = self.types.get(&seen.key);
            if known.is_some_and(|entry| entry.is_newer_than(&seen, self.look)) {
                again.get_or_insert(before);
            }
            if !self.admit(seen) {
                self.turned_away(&tenant);
            }
        }
        again
    }

    /// Updates a type's place in all sets after it changed.
    pub(super) fn place(&mut self, key: &TypeKey) {
        let entry = self.types.get(key);
        let open = entry.filter(|entry| self.is_open(key, entry)).map(Entry::weight);
        let waiting = entry.is_some_and(|entry| entry.ready > 0);
        let idle = entry.is_some_and(|entry| entry.ready == 0 && entry.batches_running.is_empty());
        let new = self.welcoming && open.is_some() && !self.tenants.contains_key(&key.tenant);
        let drawn = self.fairness != Fairness::Tenant;
        if new && drawn && self.newcomers.len() < NEWCOMERS_MAX {
            self.newcomers.push_back(key.tenant.clone());
        }
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        if waiting {
            self.waiting += usize::from(tenant.waiting.insert(key.name.clone()));
        } else {
            self.waiting -= usize::from(tenant.waiting.remove(&key.name));
        }
        match open {
            Some(weight) => tenant.open.insert(&key.name, u64::from(weight)),
            None => tenant.open.remove(&key.name),
        }
        self.stir(&key.tenant);
        self.place_tenant(&key.tenant);
        self.set_idle(key, idle);
    }

    pub(super) fn place_tenant(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        let share = self.share(tenant);
        let may = !entry.open.is_empty() && entry.batches_running < share.slots_max;
        if may && !self.open.contains(tenant) {
            self.catch_up(tenant);
        }
        let Some(entry) = self.tenants.get(tenant) else { return };
        let weight = u64::from(share.weight)
            * match self.fairness {
                Fairness::Tenant | Fairness::Draw => 1,
                Fairness::Type => entry.open.weight(),
            };
        let kept = entry.batches_running < share.slots_min;
        let needy = kept || entry.batches_running < self.slots.tenant_min;
        for (candidates, is_one) in
            [(&mut self.open, true), (&mut self.needy, needy), (&mut self.kept, kept)]
        {
            if may && is_one {
                candidates.put(tenant, weight, entry.level, entry.rank);
            } else {
                candidates.remove(tenant);
            }
        }
        if entry.waiting.is_empty() && entry.feed == Feed::Whole && entry.batches_running == 0 {
            if entry.level > self.floor {
                self.past.put(tenant, entry.level);
            }
            self.tenants.remove(tenant);
        }
        self.weigh_feed(tenant);
    }

    /// Whether a type has had its turn and waits for the ring to bring it back. There is no ring if
    /// all types of its tenant are in the window.
    pub(super) fn is_served(&mut self, key: &TypeKey) -> bool {
        let ring = self.tenants.get(&key.tenant).is_some_and(|t| t.feed != Feed::Whole);
        let Some(entry) = self.types.get_mut(key) else { return false };
        entry.served &= ring;
        entry.served
    }

    /// Applies the store's report on a type; false when there is no room for it.
    pub(super) fn admit(&mut self, seen: WaitingType) -> bool {
        let ours = self.only.as_ref().is_none_or(|only| only.contains(&seen.key.tenant));
        if seen.handler.is_none() {
            self.unhandled.insert(&seen.key);
        } else {
            self.unhandled.remove(&seen.key);
        }
        if !ours || (seen.handler.is_none() && !self.types.contains_key(&seen.key)) {
            self.rates.follow(&seen.key, seen.settings.rate);
            return true;
        }
        if seen.handler.is_some() && !self.has_place(&seen.key) {
            return false;
        }
        self.reports += 1;
        let (look, reports) = (self.look, self.reports);
        let WaitingType { key, ready, handler, settings, .. } = seen;
        let entry = self.types.entry(key.clone()).or_default();
        let noted = if entry.noted_in.0 == look { entry.noted_in.1 } else { 0 };
        (entry.ready, entry.last_report) = (ready + noted, reports);
        (entry.served, entry.picks) = (false, 0);
        if entry.changed_in != look || look == 0 {
            entry.set_handler(handler);
            self.put_settings(&key, settings);
        }
        self.place(&key);
        true
    }

    /// Applies settings from any source. A new rate ends the current rest.
    pub(super) fn put_settings(&mut self, key: &TypeKey, settings: TypeSettings) {
        self.rates.follow(key, settings.rate);
        if let Some(entry) = self.types.get_mut(key).filter(|entry| *entry.settings != settings) {
            entry.settings = Arc::new(settings);
        }
    }

    fn has_place(&mut self, key: &TypeKey) -> bool {
        let Some(tenant) = self.tenants.get(&key.tenant) else {
            self.beyond |= self.tenants.len() >= TENANTS_MAX;
            return self.tenants.len() < TENANTS_MAX;
        };
        let of_tenant = tenant.waiting.len();
        let full = of_tenant >= TENANT_TYPES_MAX || self.waiting >= WINDOW_TYPES_MAX;
        of_tenant == 0 || !full || tenant.waiting.contains(&key.name)
    }

    /// Remembers an idle type for its next job; forgets the longest idle one when there are too
    /// many.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::{NOW, handler, key, scheduler, start, waiting};

    #[test]
    fn newcomers_are_remembered_up_to_a_bound() {
        let tenants = (0..=NEWCOMERS_MAX).map(|n| waiting(&format!("a{n}"), "t", 1));
        let scheduler = scheduler(Fairness::Draw, tenants.collect());
        assert_eq!(scheduler.newcomers.len(), NEWCOMERS_MAX);
    }

    #[test]
    fn only_a_type_without_jobs_and_batches_is_idle() {
        let t = key("a", "t");
        let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
        let is_idle = |scheduler: &Scheduler| scheduler.types[&t].idle > 0;
        assert!(!is_idle(&scheduler), "it has a job");
        let reserved = start(&mut scheduler, &t);
        scheduler.answered(&t, reserved, 0);
        assert!(!is_idle(&scheduler), "it has a batch");
        scheduler.free_slot(&t, handler().unwrap(), NOW);
        assert!(is_idle(&scheduler));
        scheduler.note(&t, 1);
        assert!(!is_idle(&scheduler));
    }
}
