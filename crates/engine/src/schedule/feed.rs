//! The feed: brings types from the store into the window.
//!
//! A tenant's types in the store form a ring, ordered by name. A tenant with few types left to
//! pick asks for the next page of its ring:
//!
//! ```text
//!   Whole ── a type finds no place ──► Partial ◄── few are left to pick ──► Short ── asks ──► page
//!
//!   a page ends in  Whole    one page had all types of the tenant
//!                   Partial  there are more
//!                   Crowded  the window is full       ── there is room again ──────► Partial
//!                   Dry      nothing can be picked    ── something changed, or a poll ► Partial
//! ```
//!
//! A tenant is dry only after a full round through its types that brought none to pick and during
//! which none of them changed, or when all of its places are taken by types that cannot be picked.
//! Each poll tries a few dry tenants again, so that a missed event costs a moment and not for ever.

use windlass_core::store::WaitingType;
use windlass_core::{Tenant, TypeKey, TypeName};

use super::Scheduler;
use super::window::{TENANT_TYPES_MAX, TENANTS_MAX, WINDOW_TYPES_MAX};

/// A tenant gets more types when it has no more than this many left to pick.
const TENANT_TYPES_LOW: usize = 1;

/// Which types a tenant has in the store beside those in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Feed {
    /// None: all of its types are in the window.
    #[default]
    Whole,
    /// More types, and enough in the window to pick from.
    Partial,
    /// More types, and few in the window to pick from: it is in `Scheduler::short`.
    Short,
    /// More types, none of which can be picked now: it is in `Scheduler::dry`.
    Dry,
    /// More types, and no room in the window: it is in `Scheduler::crowded`.
    Crowded,
}

impl Scheduler {
    /// Takes a page of tenants, each with up to `each` of its first types.
    pub(crate) fn feed_first(&mut self, types: Vec<WaitingType>, each: usize) {
        self.welcoming = false;
        for of_tenant in types.chunk_by(|a, b| a.key.tenant == b.key.tenant) {
            self.feed_tenant(&of_tenant[0].key.tenant, None, of_tenant, each);
        }
        self.welcoming = true;
    }

    /// Takes the next types of tenants that were short of them.
    pub(crate) fn feed_next(
        &mut self,
        of: &[(Tenant, Option<TypeName>)],
        types: &[WaitingType],
        each: usize,
    ) {
        let mut rest = types;
        for (tenant, after) in of {
            let count = rest.iter().take_while(|seen| seen.key.tenant == *tenant).count();
            let (of_tenant, behind) = rest.split_at(count);
            rest = behind;
            self.feed_tenant(tenant, after.as_ref(), of_tenant, each);
        }
    }

    /// Tenants that are short of types, though the store has more; at most `limit`, each with the
    /// name after which it continues.
    pub(crate) fn take_short(&mut self, limit: usize) -> Vec<(Tenant, Option<TypeName>)> {
        for _ in 0..limit {
            let Some(tenant) = self.room().then(|| self.crowded.pop()).flatten() else { break };
            self.set_feed(&tenant, Feed::Partial);
            self.place_tenant(&tenant);
        }
        let mut of = Vec::new();
        while of.len() < limit {
            let Some(tenant) = self.short.pop() else { break };
            self.make_room(&tenant);
            // It has been asked for: it is in no line until the answer comes.
            self.set_feed(&tenant, Feed::Partial);
            if let Some(entry) = self.tenants.get_mut(&tenant) {
                entry.stirred &= entry.after.is_some();
                of.push((tenant, entry.after.clone()));
            }
        }
        of
    }

    /// The store did not answer for these.
    pub(crate) fn still_short(&mut self, of: &[(Tenant, Option<TypeName>)]) {
        of.iter().for_each(|(tenant, _)| self.place_tenant(tenant));
    }

    /// Tries some of the dry tenants again.
    pub(crate) fn retry_dry(&mut self, limit: usize) {
        for _ in 0..limit {
            let Some(tenant) = self.dry.pop() else { return };
            self.set_feed(&tenant, Feed::Partial);
            self.place_tenant(&tenant);
        }
    }

    /// Whether there is room for types from the store: of short tenants, or of tenants that were
    /// turned away.
    pub(crate) fn wants_types(&self) -> bool {
        !self.short.is_empty()
            || (self.room() && !self.crowded.is_empty())
            || (self.beyond && self.tenants.len() < TENANTS_MAX / 2)
    }

    /// True, once, when tenants were turned away and there is room for some of them now.
    pub(crate) fn take_beyond(&mut self) -> bool {
        let places = self.tenants.len() < TENANTS_MAX / 2;
        places && std::mem::take(&mut self.beyond)
    }

    /// The store has types of this tenant that it did not report.
    pub(crate) fn has_more(&mut self, tenant: &Tenant) {
        if self.tenants.contains_key(tenant) {
            self.turned_away(tenant);
        }
    }

    /// After a pick: a type that has had its turn leaves the window if others of its tenant wait
    /// outside and another one remains here to pick.
    pub(super) fn let_others(&mut self, key: &TypeKey) {
        let Some(tenant) = self.tenants.get(&key.tenant) else { return };
        let others = tenant.feed != Feed::Whole && tenant.open.len() > 1;
        if let Some(entry) = self.types.get_mut(key).filter(|_| others)
            && entry.picks >= entry.weight()
        {
            entry.served = true;
            entry.ready = 0;
        }
    }

    /// There was no room for a type of this tenant.
    pub(super) fn turned_away(&mut self, tenant: &Tenant) {
        let full = self.waiting >= WINDOW_TYPES_MAX;
        self.set_feed(tenant, if full { Feed::Crowded } else { Feed::Partial });
        self.place_tenant(tenant);
    }

    /// A type of this tenant changed: there may be others to pick.
    pub(super) fn stir(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        entry.stirred = true;
        if entry.feed == Feed::Dry {
            self.set_feed(tenant, Feed::Partial);
        }
    }

    /// Decides whether a tenant that has more types in the store is short of them.
    pub(super) fn weigh_feed(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        let few = entry.open.len() <= TENANT_TYPES_LOW;
        match entry.feed {
            Feed::Partial | Feed::Short => {
                self.set_feed(tenant, if few { Feed::Short } else { Feed::Partial });
            }
            // Types that cannot be picked may make room.
            Feed::Crowded if entry.open.is_empty() => self.set_feed(tenant, Feed::Short),
            Feed::Whole | Feed::Dry | Feed::Crowded => {}
        }
    }

    fn set_feed(&mut self, tenant: &Tenant, feed: Feed) {
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        entry.feed = feed;
        for (line, of) in [
            (&mut self.short, Feed::Short),
            (&mut self.dry, Feed::Dry),
            (&mut self.crowded, Feed::Crowded),
        ] {
            if of == feed {
                line.push(tenant);
            } else {
                line.remove(tenant);
            }
        }
    }

    /// Whether there is room for types of tenants that were turned away.
    fn room(&self) -> bool {
        self.waiting < WINDOW_TYPES_MAX / 2
    }

    /// Takes types of one tenant that follow the name `from`; fewer than `each` means that
    /// there are no more.
    fn feed_tenant(
        &mut self,
        tenant: &Tenant,
        from: Option<&TypeName>,
        types: &[WaitingType],
        each: usize,
    ) {
        let open =
            |scheduler: &Scheduler| scheduler.tenants.get(tenant).map_or(0, |t| t.open.len());
        let open_before = open(self);
        let stirred = self.tenants.get(tenant).is_some_and(|entry| entry.stirred);
        let admitted = types.iter().take_while(|seen| self.admit((*seen).clone())).count();
        let gained = open(self) > open_before;
        let full = self.waiting >= WINDOW_TYPES_MAX;
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        entry.stirred = stirred || gained;
        let turned_away = admitted < types.len();
        let at_end = types.len() < each && !turned_away;
        let feed = match (turned_away, at_end) {
            (true, _) if gained && full => Feed::Crowded,
            // All of its places are taken by types that cannot be picked.
            (true, _) if !gained => Feed::Dry,
            (false, true) if from.is_none() => Feed::Whole,
            (false, true) if !entry.stirred => Feed::Dry,
            _ => Feed::Partial,
        };
        // After the last type the ring starts over.
        let last = admitted.checked_sub(1).map_or(from, |last| Some(&types[last].key.name));
        entry.after = last.filter(|_| !at_end).cloned();
        self.set_feed(tenant, feed);
        self.place_tenant(tenant);
    }

    /// Where room is scarce, drops types that cannot be picked now: the ring brings them back.
    fn make_room(&mut self, tenant: &Tenant) {
        let Some(entry) = self.tenants.get(tenant) else { return };
        let scarce = entry.waiting.len() >= TENANT_TYPES_MAX / 2
            || (self.waiting >= WINDOW_TYPES_MAX && entry.open.is_empty());
        if !scarce {
            return;
        }
        let key = |name: &_| TypeKey { tenant: tenant.clone(), name: Clone::clone(name) };
        let mut keys: Vec<TypeKey> = entry.waiting.iter().map(key).collect();
        // Always in the same order, so that a run can be repeated.
        keys.sort_unstable();
        for key in keys {
            let Some(entry) = self.types.get(&key) else { continue };
            if entry.batches_running.is_empty() && !self.is_open(&key, entry) {
                let entry = self.types.get_mut(&key).expect("a type that was just found");
                (entry.ready, entry.served) = (0, true);
                self.place(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
