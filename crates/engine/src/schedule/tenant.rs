//! What the scheduler knows of a tenant: its types, its slots and what it has used.

use std::collections::HashSet;
use std::time::Duration;

use windlass_core::{Tenant, TenantSettings, TypeName};

use super::feed::Feed;
use super::usage::Level;
use super::weighted::WeightedSet;
use super::{Scheduler, Slots};

#[derive(Debug)]
pub(super) struct TenantEntry {
    /// Open types, and all types in the window.
    pub(super) open: WeightedSet<TypeName>,
    pub(super) waiting: HashSet<TypeName>,
    pub(super) feed: Feed,
    /// The type after which the ring continues.
    pub(super) after: Option<TypeName>,
    /// Since the current round through the ring began, it brought a type to pick, or a type of the
    /// tenant changed.
    pub(super) stirred: bool,
    pub(super) batches_running: usize,
    /// What it has used, with the time of its running batches up to `counted_to`.
    pub(super) level: Level,
    pub(super) counted_to: Duration,
    /// Its place among tenants of the same level.
    pub(super) rank: u64,
}

impl Default for TenantEntry {
    fn default() -> TenantEntry {
        TenantEntry {
            open: WeightedSet::default(),
            waiting: HashSet::new(),
            feed: Feed::default(),
            after: None,
            stirred: false,
            batches_running: 0,
            level: Level::EMPTY,
            counted_to: Duration::ZERO,
            rank: 0,
        }
    }
}

/// The part of a tenant's settings that the scheduler applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) weight: u32,
    pub(super) slots_min: usize,
    pub(super) slots_max: usize,
}

impl Share {
    pub(super) const DEFAULT: Share = Share { weight: 1, slots_min: 0, slots_max: usize::MAX };

    fn of(settings: &TenantSettings) -> Share {
        Share {
            weight: settings.weight.unwrap_or(Share::DEFAULT.weight),
            slots_min: settings.slots_min.map_or(Share::DEFAULT.slots_min, |slots| slots as usize),
            slots_max: settings.slots_max.map_or(Share::DEFAULT.slots_max, |slots| slots as usize),
        }
    }
}

/// Which tenants there is a slot for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// All that do not use as many as they may.
    Shared,
    /// Those that have fewer than the minimum of every tenant, or than are kept for them.
    Reserved,
    /// Those that have fewer than are kept for them.
    Kept,
}

/// Slots that are kept for tenants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Those that their tenants use.
    pub(super) used: usize,
    /// Those that they do not.
    pub(super) owed: usize,
}

impl Slots {
    pub(super) fn room(&self, running: usize, kept: Kept) -> Option<Room> {
        let all = self.shared + self.reserved;
        // However many are kept, half of the shared ones are left for others.
        let kept_max = all - self.shared.div_ceil(2);
        let owed = kept.owed.min(kept_max.saturating_sub(kept.used));
        let has_room = running + owed < all;
        match () {
            () if has_room && running < self.shared => Some(Room::Shared),
            () if has_room => Some(Room::Reserved),
            () if owed > 0 && running < all => Some(Room::Kept),
            () => None,
        }
    }
}

impl Scheduler {
    /// Applies the settings of a tenant from now on.
    pub(crate) fn set_tenant(&mut self, tenant: &Tenant, settings: &TenantSettings, now: Duration) {
        if self.only.as_ref().is_some_and(|only| !only.contains(tenant)) {
            return;
        }
        self.count_use(tenant, now);
        let before = self.kept_for(tenant);
        match Share::of(settings) {
            Share::DEFAULT => drop(self.shares.remove(tenant)),
            share => drop(self.shares.insert(tenant.clone(), share)),
        }
        self.count_kept(before, tenant);
        self.place_tenant(tenant);
    }

    pub(super) fn share(&self, tenant: &Tenant) -> Share {
        self.shares.get(tenant).copied().unwrap_or(Share::DEFAULT)
    }

    /// A batch of the tenant begins.
    pub(super) fn batch_begins(&mut self, tenant: &Tenant, now: Duration) {
        self.batches_change(tenant, now, |batches| batches + 1);
    }

    /// A batch of the tenant has ended.
    pub(super) fn batch_ends(&mut self, tenant: &Tenant, now: Duration) {
        self.batches_change(tenant, now, |batches| batches - 1);
    }

    /// Charges a pick.
    pub(super) fn charge_pick(&mut self, tenant: &Tenant, now: Duration) {
        let weight = self.share(tenant).weight;
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.level = entry.level.after_pick(weight, now);
        }
        self.place_tenant(tenant);
    }

    /// Charges what the batches of a tenant have used until now, and returns its level.
    pub(super) fn count_use(&mut self, tenant: &Tenant, now: Duration) -> Level {
        self.now = self.now.max(now);
        let weight = self.share(tenant).weight;
        let Some(entry) = self.tenants.get_mut(tenant) else { return Level::EMPTY };
        let (from, batches) = (entry.counted_to, entry.batches_running);
        entry.level = entry.level.after_running(batches, weight, from, self.now);
        entry.counted_to = self.now;
        entry.level
    }

    /// Returns what a tenant used before it was forgotten, and lifts a tenant that may be picked
    /// from now on to the level of those that could be picked before: none saves up time.
    pub(super) fn catch_up(&mut self, tenant: &Tenant) {
        let now = self.now;
        self.count_use(tenant, now);
        let past = self.past.take(tenant);
        self.arrivals += 1;
        let rank = if self.welcoming { self.arrivals } else { u64::MAX / 2 + self.arrivals };
        let Some(entry) = self.tenants.get_mut(tenant) else { return };
        entry.level = entry.level.max(past.unwrap_or(Level::EMPTY)).max(self.floor);
        entry.rank = rank;
    }

    fn kept_for(&self, tenant: &Tenant) -> Kept {
        let running = self.tenants.get(tenant).map_or(0, |entry| entry.batches_running);
        let kept = self.share(tenant).slots_min;
        Kept { used: kept.min(running), owed: kept.saturating_sub(running) }
    }

    /// Takes over what changed of the slots that are kept for a tenant.
    fn count_kept(&mut self, before: Kept, tenant: &Tenant) {
        let after = self.kept_for(tenant);
        self.kept_slots.used = self.kept_slots.used - before.used + after.used;
        self.kept_slots.owed = self.kept_slots.owed - before.owed + after.owed;
    }

    fn batches_change(&mut self, tenant: &Tenant, now: Duration, change: impl Fn(usize) -> usize) {
        self.count_use(tenant, now);
        let before = self.kept_for(tenant);
        self.batches_running = change(self.batches_running);
        let now = self.now;
        let entry = self.tenants.entry(tenant.clone()).or_default();
        entry.batches_running = change(entry.batches_running);
        entry.counted_to = now;
        self.count_kept(before, tenant);
    }
}
