//! The draw: a tenant that has a slot left, then a random type by weight, then perhaps another type
//! whose context is warm.

use std::collections::HashSet;
use std::time::Duration;

use windlass_core::{HandlerId, Tenant, TypeKey};

use super::Scheduler;
use super::candidates::Candidates;
use super::tenant::Room;
use crate::options::Fairness;

/// How many picks a warm type may be ahead of a cold type of the same tenant.
const WARM_LEAD_MAX: i32 = 16;

impl Scheduler {
    pub(super) fn draw(
        &mut self,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
        now: Duration,
    ) -> Option<TypeKey> {
        let room = self.slots.room(self.batches_running, self.kept_slots)?;
        let tenant = self.draw_tenant(room, rng, now)?;
        let first = self.draw_type_of(&tenant, rng)?;
        match self.fairness {
            Fairness::Tenant | Fairness::Draw => {
                let second = self.draw_type_of(&tenant, rng)?;
                Some(self.prefer_warm(first, second, warm))
            }
            Fairness::Type => Some(first),
        }
    }

    fn draw_tenant(
        &mut self,
        room: Room,
        rng: &mut fastrand::Rng,
        now: Duration,
    ) -> Option<Tenant> {
        self.newcomer_next = !self.newcomer_next;
        let newcomer = if self.newcomer_next { None } else { self.next_newcomer(room) };
        if newcomer.is_some() {
            return newcomer;
        }
        match self.among(room) {
            Candidates::Drawn(set) => set.draw(rng).cloned(),
            Candidates::Ordered(_) => self.least_used(room, now),
        }
    }

    fn among(&self, room: Room) -> &Candidates {
        match room {
            Room::Shared => &self.open,
            Room::Reserved => &self.needy,
            Room::Kept => &self.kept,
        }
    }

    /// The tenant that has used the least. The time of running batches is charged when their tenant
    /// comes first, so what is charged is too little only for tenants further back. Ends, because
    /// each tenant is charged once.
    fn least_used(&mut self, room: Room, now: Duration) -> Option<Tenant> {
        loop {
            let Candidates::Ordered(order) = self.among(room) else { return None };
            let first = order.first()?.clone();
            let before = self.tenants.get(&first)?.level;
            let level = self.count_use(&first, now);
            if level == before {
                if room == Room::Shared {
                    self.floor = self.floor.max(level);
                }
                return Some(first);
            }
            self.place_tenant(&first);
        }
    }

    /// The next newcomer that still has jobs to run, if there is a slot for it.
    fn next_newcomer(&mut self, room: Room) -> Option<Tenant> {
        while let Some(tenant) = self.newcomers.pop_front() {
            if self.among(room).contains(&tenant) {
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

#[cfg(test)]
mod tests {
    use windlass_core::store::WaitingType;

    use super::*;
    use crate::schedule::Slots;
    use crate::schedule::tests::{NOW, key, look, scheduler, start, waiting};

    const MAX: i32 = WARM_LEAD_MAX;

    /// Whether the second of two types with these debts is picked if these handlers are warm: 1 is
    /// that of the first type, 2 that of the second.
    fn picks_second(debts: [i32; 2], warm: &[i64]) -> bool {
        let of_type = |n: i64| WaitingType {
            handler: HandlerId::new(n),
            ..waiting("a", &format!("t{n}"), 1)
        };
        let mut scheduler = scheduler(Fairness::Tenant, vec![of_type(1), of_type(2)]);
        let (first, second) = (key("a", "t1"), key("a", "t2"));
        let keys = [&first, &second];
        for (key, debt) in keys.into_iter().zip(debts) {
            scheduler.types.get_mut(key).unwrap().debt = debt;
        }
        let warm = warm.iter().filter_map(|n| HandlerId::new(*n)).collect();
        let picked = scheduler.prefer_warm(first.clone(), second.clone(), &warm) == second;
        let by = i32::from(picked);
        assert_eq!(keys.map(|key| scheduler.types[key].debt), [debts[0] + by, debts[1] - by]);
        picked
    }

    #[test]
    fn a_warm_type_is_preferred_until_it_or_the_other_is_too_far_from_its_share() {
        assert!(picks_second([0, 0], &[2]));
        assert!(![&[] as &[_], &[1], &[1, 2]].iter().any(|warm| picks_second([0, 0], warm)));
        assert!(picks_second([MAX - 1, 1 - MAX], &[2]));
        assert!(!picks_second([MAX, 0], &[2]), "the cold one has waited for long enough");
        assert!(!picks_second([0, -MAX], &[2]), "the warm one is too far ahead");
    }

    #[test]
    fn a_type_that_is_too_far_ahead_gives_picks_back_to_those_that_are_owed_some() {
        assert!(picks_second([-MAX, 1], &[1]));
        assert!(!picks_second([1 - MAX, 1], &[1]), "it is not too far ahead");
        assert!(!picks_second([-MAX, 0], &[1]), "the other is owed none");
    }

    fn two_picks(scheduler: &mut Scheduler) -> Vec<TypeKey> {
        let mut rng = fastrand::Rng::with_seed(3);
        let pick = |_| scheduler.select(&HashSet::new(), &mut rng, NOW).map(|(pick, _)| pick.key);
        (0..2).filter_map(pick).collect()
    }

    fn glut(scheduler: &mut Scheduler) {
        let types = (0..1000).map(|n| waiting(&format!("glut{n:03}"), "t", 1));
        scheduler.feed_first(types.collect(), 4);
    }

    #[test]
    fn a_newcomer_goes_first_in_reserved_slots_too_and_gets_none_beyond_them() {
        let busy = key("busy", "t");
        let mut scheduler = scheduler(Fairness::Draw, vec![waiting("busy", "t", 100)]);
        glut(&mut scheduler);
        for _ in 0..4 {
            start(&mut scheduler, &busy);
        }
        look(&mut scheduler, vec![waiting("new", "t", 1)]);
        let picks = two_picks(&mut scheduler);
        assert!(picks.len() == 2 && picks.contains(&key("new", "t")), "{picks:?}");
        start(&mut scheduler, &key("new", "t"));
        start(&mut scheduler, &key("glut000", "t"));
        look(&mut scheduler, vec![waiting("newer", "t", 1)]);
        assert_eq!(two_picks(&mut scheduler), []);
    }

    #[test]
    fn a_newcomer_goes_first_in_shared_slots_though_no_tenant_has_a_minimum() {
        let slots = Slots { shared: 2, reserved: 1, tenant_min: 0 };
        let mut scheduler = Scheduler::new(Fairness::Draw, slots, None);
        glut(&mut scheduler);
        look(&mut scheduler, vec![waiting("new", "t", 1)]);
        assert!(two_picks(&mut scheduler).contains(&key("new", "t")));
        for of in ["glut000", "glut001"] {
            start(&mut scheduler, &key(of, "t"));
        }
        look(&mut scheduler, vec![waiting("newer", "t", 1)]);
        assert_eq!(two_picks(&mut scheduler), [], "the reserved slot is not for it");
    }
}
