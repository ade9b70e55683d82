//! The draw: a random tenant that has a slot left, then a random type by weight, then perhaps
//! another type whose context is warm. Constant time for any number of tenants and types.

use std::collections::HashSet;

use windlass_core::{HandlerId, Tenant, TypeKey};

use super::Scheduler;
use crate::options::Fairness;

/// How many picks a warm type may be ahead of a cold type of the same tenant.
const WARM_LEAD_MAX: i32 = 16;

impl Scheduler {
    pub(super) fn draw(
        &mut self,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
    ) -> Option<TypeKey> {
        let tenant = self.draw_tenant(rng)?;
        let first = self.draw_type_of(&tenant, rng)?;
        match self.fairness {
            Fairness::Tenant => {
                let second = self.draw_type_of(&tenant, rng)?;
                Some(self.prefer_warm(first, second, warm))
            }
            Fairness::Type => Some(first),
        }
    }

    /// Shared slots are for all tenants; reserved ones only for needy tenants.
    fn draw_tenant(&mut self, rng: &mut fastrand::Rng) -> Option<Tenant> {
        self.newcomer_next = !self.newcomer_next;
        let newcomer = if self.newcomer_next { None } else { self.next_newcomer() };
        if newcomer.is_some() {
            return newcomer;
        }
        if self.batches_running < self.slots.shared {
            return self.open.draw(rng).cloned();
        }
        let reserved = self.batches_running < self.slots.shared + self.slots.reserved;
        self.needy.draw(rng).filter(|_| reserved).cloned()
    }

    /// The next newcomer that still has jobs to run, if there is a slot for it.
    fn next_newcomer(&mut self) -> Option<Tenant> {
        let shared = self.batches_running < self.slots.shared;
        if !shared && self.batches_running >= self.slots.shared + self.slots.reserved {
            return None;
        }
        while let Some(tenant) = self.newcomers.pop_front() {
            let among = if shared { &self.open } else { &self.needy };
            if among.contains(&tenant) {
                return Some(tenant);
            }
        }
        None
    }

    fn draw_type_of(&self, tenant: &Tenant, rng: &mut fastrand::Rng) -> Option<TypeKey> {
        let name = self.tenants.get(tenant)?.open.draw(rng)?.clone();
        Some(TypeKey { tenant: tenant.clone(), name })
    }

    /// Prefers the warm one of two candidates, as long as neither gets too far from its fair share.
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
