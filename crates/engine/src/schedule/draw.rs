//! The draw: a random tenant with a slot left, then a random type by weight, then perhaps the
//! neighbour whose context is warm.

use std::collections::HashSet;

use windlass_core::{HandlerId, Tenant, TypeKey};

use super::Scheduler;
use crate::options::Fairness;

/// Random tries before a draw looks at every candidate.
const TRIES_MAX: usize = 32;
/// How many picks a warm type may be ahead of a cold one of its tenant.
const WARM_LEAD_MAX: i32 = 16;

impl Scheduler {
    pub(super) fn draw(
        &mut self,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
    ) -> Option<TypeKey> {
        match self.fairness {
            Fairness::Tenant => {
                let tenant = self.draw_tenant(rng)?;
                let first = self.draw_type_of(&tenant, rng)?;
                let second = self.draw_type_of(&tenant, rng)?;
                Some(self.prefer_warm(first, second, warm))
            }
            Fairness::Type => {
                let open = self.open_types.members();
                let may_run = |key: &TypeKey| self.has_slot(&key.tenant);
                let weight = |key: &TypeKey| self.weight(key);
                draw_by_weight(open, rng, self.weight_max, weight, may_run).cloned()
            }
        }
    }

    fn draw_tenant(&self, rng: &mut fastrand::Rng) -> Option<Tenant> {
        let open = self.open_tenants.members();
        draw_by_weight(open, rng, 1, |_| 1, |tenant| self.has_slot(tenant)).cloned()
    }

    fn draw_type_of(&self, tenant: &Tenant, rng: &mut fastrand::Rng) -> Option<TypeKey> {
        let open = self.tenants.get(tenant)?.open.members();
        let key_of = |name: &_| TypeKey { tenant: tenant.clone(), name: Clone::clone(name) };
        let weight = |name: &_| self.weight(&key_of(name));
        draw_by_weight(open, rng, self.weight_max, weight, |_| true).map(key_of)
    }

    fn weight(&self, key: &TypeKey) -> u32 {
        self.types.get(key).and_then(|entry| entry.settings.weight).unwrap_or(1)
    }

    /// A shared slot is for everybody; a reserved one is for tenants that have next to nothing.
    fn has_slot(&self, tenant: &Tenant) -> bool {
        if self.batches_running < self.slots.shared {
            return true;
        }
        let running = self.tenants.get(tenant).map_or(0, |tenant| tenant.batches_running);
        self.batches_running < self.slots.shared + self.slots.reserved
            && running < self.slots.tenant_min
    }

    /// Takes the warm one of two candidates, as long as neither has been moved too far from its
    /// fair share by that.
    fn prefer_warm(
        &mut self,
        first: TypeKey,
        second: TypeKey,
        warm: &HashSet<HandlerId>,
    ) -> TypeKey {
        let is_warm = |scheduler: &Scheduler, key: &TypeKey| {
            scheduler.types[key].handler.is_some_and(|handler| warm.contains(&handler))
        };
        let debts = (self.types[&first].debt, self.types[&second].debt);
        let helps = !is_warm(self, &first) && is_warm(self, &second);
        let repays = debts.0 <= -WARM_LEAD_MAX && debts.1 > 0;
        let within = debts.0 < WARM_LEAD_MAX && debts.1 > -WARM_LEAD_MAX;
        if first == second || !(helps && within || repays) {
            return first;
        }
        self.types.get_mut(&first).expect("a drawn type is known").debt += 1;
        self.types.get_mut(&second).expect("a drawn type is known").debt -= 1;
        second
    }
}

/// Draws one candidate with a chance in proportion to its weight, by trying at random and keeping
/// a candidate with probability weight / `weight_max`. Constant time where most candidates are
/// allowed and of similar weight; after too many tries, an exact draw over all of them.
fn draw_by_weight<'a, T>(
    candidates: &'a [T],
    rng: &mut fastrand::Rng,
    weight_max: u32,
    weight: impl Fn(&T) -> u32,
    allowed: impl Fn(&T) -> bool,
) -> Option<&'a T> {
    if candidates.is_empty() {
        return None;
    }
    for _ in 0..TRIES_MAX {
        let candidate = &candidates[rng.usize(..candidates.len())];
        if rng.u32(..weight_max) < weight(candidate) && allowed(candidate) {
            return Some(candidate);
        }
    }
    let allowed: Vec<&T> = candidates.iter().filter(|candidate| allowed(candidate)).collect();
    let total: u64 = allowed.iter().map(|candidate| u64::from(weight(candidate))).sum();
    let mut mark = if total == 0 { return None } else { rng.u64(..total) };
    allowed.into_iter().find(|candidate| {
        let weight = u64::from(weight(candidate));
        let hit = mark < weight;
        mark = mark.saturating_sub(weight);
        hit
    })
}
