//! Candidates: tenants of which one is picked next, by a draw or in the order of what they used.

use std::collections::{BTreeSet, HashMap};

use windlass_core::Tenant;

use super::usage::Level;
use super::weighted::WeightedSet;
use crate::options::Fairness;

#[derive(Debug)]
pub(super) enum Candidates {
    Drawn(WeightedSet<Tenant>),
    Ordered(Order),
}

impl Candidates {
    pub(super) fn new(fairness: Fairness) -> Candidates {
        match fairness {
            Fairness::Tenant => Candidates::Ordered(Order::default()),
            Fairness::Draw | Fairness::Type => Candidates::Drawn(WeightedSet::default()),
        }
    }

    pub(super) fn contains(&self, tenant: &Tenant) -> bool {
        match self {
            Candidates::Drawn(set) => set.contains(tenant),
            Candidates::Ordered(order) => order.places.contains_key(tenant),
        }
    }

    /// Adds a tenant, or changes its weight or level. A smaller `rank` goes first among equal
    /// levels.
    pub(super) fn put(&mut self, tenant: &Tenant, weight: u64, level: Level, rank: u64) {
        match self {
            Candidates::Drawn(set) => set.insert(tenant, weight),
            Candidates::Ordered(order) => order.put(tenant, level, rank),
        }
    }

    pub(super) fn remove(&mut self, tenant: &Tenant) {
        match self {
            Candidates::Drawn(set) => set.remove(tenant),
            Candidates::Ordered(order) => order.remove(tenant),
        }
    }
}

/// Tenants in the order of their levels.
#[derive(Debug, Default)]
pub(super) struct Order {
    order: BTreeSet<(Level, u64, Tenant)>,
    places: HashMap<Tenant, (Level, u64)>,
}

impl Order {
    /// The tenant that has used the least.
    pub(super) fn first(&self) -> Option<&Tenant> {
        self.order.first().map(|(_, _, tenant)| tenant)
    }

    fn put(&mut self, tenant: &Tenant, level: Level, rank: u64) {
        if self.places.get(tenant) != Some(&(level, rank)) {
            self.remove(tenant);
            self.places.insert(tenant.clone(), (level, rank));
            self.order.insert((level, rank, tenant.clone()));
        }
    }

    fn remove(&mut self, tenant: &Tenant) {
        if let Some((level, rank)) = self.places.remove(tenant) {
            self.order.remove(&(level, rank, tenant.clone()));
        }
    }
}
