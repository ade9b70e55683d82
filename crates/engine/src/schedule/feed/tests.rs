//! What tenants ask the store for, and which types make room.

use super::*;
use crate::options::Fairness;
use crate::schedule::TenantEntry;
use crate::schedule::tests::{NOW, handler, key, look, scheduler, start, waiting};

#[test]
fn tenants_that_were_turned_away_are_asked_for_once_when_half_of_the_places_are_free() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let wants = |scheduler: &mut Scheduler| {
        let wants = scheduler.wants_types();
        assert_eq!(scheduler.take_beyond(), wants);
        wants
    };
    assert!(!wants(&mut scheduler), "nobody was turned away");
    let tenants: Vec<Tenant> =
        (0..TENANTS_MAX).map(|n| Tenant::new(&format!("a{n}")).unwrap()).collect();
    for tenant in &tenants {
        scheduler.tenants.insert(tenant.clone(), TenantEntry::default());
    }
    look(&mut scheduler, vec![waiting("late", "t", 1)]);
    assert!(scheduler.types.is_empty() && !wants(&mut scheduler));
    tenants[TENANTS_MAX / 2..].iter().for_each(|tenant| drop(scheduler.tenants.remove(tenant)));
    assert!(!wants(&mut scheduler), "half of the places are taken");
    scheduler.tenants.remove(&tenants[0]);
    assert!(wants(&mut scheduler) && !wants(&mut scheduler));
}

#[test]
fn a_tenant_that_found_the_window_full_gets_more_types_when_half_of_it_is_free() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
    scheduler.waiting = WINDOW_TYPES_MAX;
    look(&mut scheduler, vec![waiting("a", "u", 1)]);
    for waiting in [WINDOW_TYPES_MAX, WINDOW_TYPES_MAX / 2] {
        scheduler.waiting = waiting;
        assert!(!scheduler.wants_types() && scheduler.take_short(1).is_empty());
    }
    scheduler.waiting = WINDOW_TYPES_MAX / 2 - 1;
    assert!(scheduler.wants_types());
    assert_eq!(scheduler.take_short(1), [(key("a", "t").tenant, None)]);
}

/// The types that are left of a tenant that asks for more: one is open, one has a batch, and
/// `resting` others rest.
fn left_of(resting: usize) -> usize {
    let mut slow = waiting("a", "batch", 9);
    slow.settings.rate = Some(0.001);
    let rest = |n| WaitingType { key: key("a", &format!("t{n}")), ..slow.clone() };
    let mut types: Vec<WaitingType> = (0..resting).map(rest).collect();
    types.extend([slow.clone(), waiting("a", "open", 9)]);
    let mut scheduler = scheduler(Fairness::Tenant, types.clone());
    for of_type in &types[..=resting] {
        let handler = handler().filter(|_| of_type.key == slow.key);
        scheduler.reserve(&of_type.key, &of_type.settings, handler, 1, NOW);
    }
    scheduler.has_more(&slow.key.tenant);
    assert_eq!(scheduler.take_short(1).len(), 1);
    let left = &scheduler.tenants[&slow.key.tenant].waiting;
    assert!(["batch", "open"].iter().all(|name| left.contains(&key("a", name).name)));
    left.len()
}

#[test]
fn types_that_rest_make_room_for_others_of_their_tenant_when_it_has_many() {
    let many = TENANT_TYPES_MAX / 2;
    assert_eq!(left_of(many - 3), many - 1, "there is room for more");
    assert_eq!(left_of(many - 2), 2);
}

#[test]
fn a_type_that_had_its_turn_leaves_if_others_wait_outside_and_another_one_is_here() {
    let left = |names: &[&str], others: bool| {
        let types = names.iter().map(|name| waiting("a", name, 9)).collect();
        let mut scheduler = scheduler(Fairness::Tenant, types);
        if others {
            scheduler.has_more(&key("a", "t").tenant);
        }
        let mut rng = fastrand::Rng::with_seed(3);
        let (pick, _) = scheduler.select(&Default::default(), &mut rng).unwrap();
        start(&mut scheduler, &pick.key);
        scheduler.types[&pick.key].ready
    };
    assert_eq!(left(&["t", "u"], true), 0);
    assert_eq!(left(&["t", "u"], false), 8, "no others wait");
    assert_eq!(left(&["t"], true), 8, "it is the last one here");
}
