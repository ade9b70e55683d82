//! What tenants ask the store for, and which types make room.

use super::*;
use crate::options::Fairness;
use crate::schedule::TenantEntry;
use crate::schedule::tests::{NOW, key, look, rest, scheduler, start, waiting};

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

#[test]
fn a_tenant_that_found_the_window_full_makes_room_with_a_type_that_rests() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![slow_type("t")]);
    let t = key("a", "t");
    rest(&mut scheduler, &t, SLOW);
    scheduler.waiting = WINDOW_TYPES_MAX;
    look(&mut scheduler, vec![waiting("a", "u", 1)]);
    assert_eq!(scheduler.take_short(1), [(t.tenant.clone(), None)]);
    assert_eq!(scheduler.types[&t].ready, 0);
}

const SLOW: f64 = 0.001;

/// A type with jobs that rests once it has started one.
fn slow_type(name: &str) -> WaitingType {
    let mut slow = waiting("a", name, 9);
    slow.settings.rate = Some(SLOW);
    slow
}

/// A tenant with this many types, all of which rest, in a window with `waiting` types.
fn tenant_that_rests(types: usize, waiting: usize) -> Scheduler {
    let types: Vec<WaitingType> = (0..types).map(|n| slow_type(&format!("t{n}"))).collect();
    let mut scheduler = scheduler(Fairness::Tenant, types.clone());
    for of_type in types {
        rest(&mut scheduler, &of_type.key, SLOW);
    }
    scheduler.waiting = waiting;
    scheduler
}

#[test]
fn what_a_tenant_asks_for_next_depends_on_why_a_type_of_its_page_found_no_place() {
    let after = |types, window| {
        let mut scheduler = tenant_that_rests(types, window);
        let of = [(key("a", "t").tenant, None)];
        scheduler.feed_next(&of, &[waiting("a", "u", 9), waiting("a", "v", 9)], 2);
        let TenantEntry { feed, after, .. } = &scheduler.tenants[&of[0].0];
        (*feed, after.clone())
    };
    let u = Some(key("a", "u").name);
    assert_eq!(after(1, WINDOW_TYPES_MAX - 1), (Feed::Crowded, u.clone()), "the window is full");
    let own = TENANT_TYPES_MAX - 1;
    assert_eq!(after(own, own), (Feed::Short, u), "its own places are");
    assert_eq!(after(1, WINDOW_TYPES_MAX), (Feed::Dry, None), "it brought nothing to pick");
}

#[test]
fn a_round_that_brought_a_type_to_pick_is_followed_by_another_one() {
    let after_round = |page: &[WaitingType]| {
        let mut scheduler = tenant_that_rests(1, 1);
        scheduler.has_more(&key("a", "t").tenant);
        let of = scheduler.take_short(1);
        scheduler.feed_next(&of, page, 1);
        let of = scheduler.take_short(1);
        assert_eq!(of, [(key("a", "t").tenant, Some(page[0].key.name.clone()))]);
        scheduler.feed_next(&of, &[], 1);
        scheduler.tenants[&of[0].0].feed
    };
    assert_eq!(after_round(&[waiting("a", "u", 9)]), Feed::Short);
    assert_eq!(after_round(&[WaitingType { handler: None, ..waiting("a", "u", 9) }]), Feed::Dry);
}

/// The types that are left of a tenant that asks for more: one is open, one has a batch, and
/// `resting` others rest.
fn left_of(resting: usize) -> usize {
    let slow = slow_type("batch");
    let other = |n| WaitingType { key: key("a", &format!("t{n}")), ..slow.clone() };
    let mut types: Vec<WaitingType> = (0..resting).map(other).collect();
    types.extend([slow.clone(), waiting("a", "open", 9)]);
    let mut scheduler = scheduler(Fairness::Tenant, types.clone());
    for of_type in &types[..=resting] {
        if of_type.key == slow.key {
            start(&mut scheduler, &of_type.key);
        }
        rest(&mut scheduler, &of_type.key, SLOW);
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
        let (pick, _) = scheduler.select(&Default::default(), &mut rng, NOW).unwrap();
        start(&mut scheduler, &pick.key);
        scheduler.types[&pick.key].ready
    };
    assert_eq!(left(&["t", "u"], true), 0);
    assert_eq!(left(&["t", "u"], false), 8, "no others wait");
    assert_eq!(left(&["t"], true), 8, "it is the last one here");
}
