//! Shares, slots and limits of the scheduler, with a fixed seed.

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn key(tenant: &str, name: &str) -> TypeKey {
    TypeKey::new(tenant, name).unwrap()
}

fn handler() -> Option<HandlerId> {
    HandlerId::new(1)
}

fn waiting(tenant: &str, name: &str, ready: u64) -> WaitingType {
    let settings = TypeSettings::default();
    WaitingType { key: key(tenant, name), ready, handler: handler(), settings }
}

fn scheduler(fairness: Fairness, types: Vec<WaitingType>) -> Scheduler {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let mut scheduler = Scheduler::new(fairness, slots, None);
    scheduler.look_begins();
    let read: Vec<_> = types.iter().filter_map(|t| Some((t.key.clone(), t.handler?))).collect();
    scheduler.look_ends(types);
    for (key, handler) in read {
        scheduler.set_contexts(&key, handler, None);
    }
    scheduler
}

fn shares(scheduler: &mut Scheduler, picks: usize) -> HashMap<TypeKey, f64> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut shares = HashMap::new();
    for _ in 0..picks {
        let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
        *shares.entry(pick.key).or_insert(0.0) += 100.0 / picks as f64;
    }
    shares
}

fn glut_of_a() -> Vec<WaitingType> {
    let mut types: Vec<_> = ["x", "y", "z"].map(|name| waiting("a", name, 333_333)).into();
    types.push(waiting("b", "t", 1000));
    types
}

#[test]
fn s2_23_tenants_share_alike_and_so_do_the_types_of_one() {
    let shares = shares(&mut scheduler(Fairness::Tenant, glut_of_a()), 10_000);
    assert!((shares[&key("b", "t")] - 50.0).abs() <= 1.5, "{shares:?}");
    for name in ["x", "y", "z"] {
        assert!((shares[&key("a", name)] - 16.7).abs() <= 1.3, "{shares:?}");
    }
}

#[test]
fn s2_24_types_share_alike_when_configured() {
    let shares = shares(&mut scheduler(Fairness::Type, glut_of_a()), 10_000);
    for share in shares.values() {
        assert!((share - 25.0).abs() <= 1.3, "{shares:?}");
    }
}

#[test]
fn s2_19_weights_share_out_and_starve_nobody() {
    let mut heavy = waiting("a", "heavy", 1000);
    heavy.settings.weight = Some(10);
    let mut types = vec![heavy, waiting("a", "light", 1000)];
    let two = shares(&mut scheduler(Fairness::Tenant, types.clone()), 11_000);
    assert!((two[&key("a", "heavy")] - 90.9).abs() <= 1.5, "{two:?}");
    assert!(two[&key("a", "light")] > 0.0);

    types.extend((0..100).map(|n| waiting("a", &format!("t{n}"), 10)));
    let many = shares(&mut scheduler(Fairness::Type, types), 11_000);
    assert!((many[&key("a", "heavy")] - 9.0).abs() <= 1.5, "{many:?}");
}

#[test]
fn s2_25_a_lone_type_gets_every_shared_slot() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 100)]);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..4 {
        let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
        scheduler.started(&pick.key, handler().unwrap(), 1, NOW);
    }
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
}

#[test]
fn s2_13_a_tenant_that_hangs_in_every_slot_does_not_keep_another_out() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 100)]);
    let mut rng = fastrand::Rng::with_seed(1);
    (0..4).for_each(|_| scheduler.started(&key("a", "t"), handler().unwrap(), 1, NOW));
    scheduler.note(&key("b", "t"), 1);
    scheduler.set_handler(&key("b", "t"), handler());
    let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
    assert_eq!(pick.key, key("b", "t"));
    scheduler.started(&pick.key, handler().unwrap(), 1, NOW);
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none(), "b has its minimum");
}

#[test]
fn s0_60_select_started_and_stopped_keep_count() {
    let mut limited = waiting("a", "t", 100);
    limited.settings.concurrency = Some(3);
    let mut scheduler = scheduler(Fairness::Tenant, vec![limited]);
    let mut rng = fastrand::Rng::with_seed(1);
    let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
    assert_eq!(pick.limit, 3);
    scheduler.started(&pick.key, handler().unwrap(), 2, NOW);
    assert_eq!(scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap().0.limit, 1);
    scheduler.started(&pick.key, handler().unwrap(), 1, NOW);
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
    for jobs in [2, 1] {
        scheduler.jobs_stopped(&pick.key, jobs);
        scheduler.batch_stopped(&pick.key, handler().unwrap());
    }
    assert_eq!(scheduler.types[&pick.key].jobs_running, 0);
    assert_eq!(scheduler.batches_running, 0);
    assert_eq!(scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap().0.limit, 3);
}

#[test]
fn types_without_a_runnable_handler_are_not_picked() {
    let mut bare = waiting("a", "bare", 5);
    bare.handler = None;
    let mut scheduler = scheduler(Fairness::Tenant, vec![bare, waiting("a", "t", 5)]);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
        assert_eq!(pick.key, key("a", "t"));
    }
    scheduler.set_unrunnable(handler().unwrap());
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
    assert_eq!(scheduler.waiting_of(&key("a", "t").tenant, NOW).len(), 2, "workers still see them");
}

#[test]
fn s2_37_a_daemon_for_one_tenant_picks_no_other() {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let only = HashSet::from([key("b", "t").tenant]);
    let mut scheduler = Scheduler::new(Fairness::Tenant, slots, Some(only));
    scheduler.look_begins();
    scheduler.look_ends(glut_of_a());
    let shares = shares(&mut scheduler, 100);
    assert_eq!(shares.into_keys().collect::<Vec<_>>(), [key("b", "t")]);
}

#[test]
fn a_short_claim_closes_a_type_and_what_was_noted_meanwhile_opens_it() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 5)]);
    let t = key("a", "t");
    let noted = scheduler.claiming(&t, 2);
    scheduler.claimed(&t, 2, 1, noted);
    assert!(scheduler.waiting_of(&t.tenant, NOW).is_empty());
    scheduler.note(&t, 5);
    let noted = scheduler.claiming(&t, 2);
    scheduler.note(&t, 1);
    scheduler.claimed(&t, 2, 0, noted);
    assert_eq!(scheduler.waiting_of(&t.tenant, NOW)[0].1, 1);
}

#[test]
fn what_is_noted_during_a_look_at_the_store_is_not_lost() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    scheduler.look_begins();
    scheduler.note(&key("a", "t"), 3);
    scheduler.look_ends(vec![waiting("a", "u", 1)]);
    assert_eq!(scheduler.waiting_of(&key("a", "t").tenant, NOW).len(), 1, "t is not known yet");
    scheduler.look_begins();
    scheduler.look_ends(vec![waiting("a", "t", 3), waiting("a", "u", 1)]);
    assert_eq!(scheduler.waiting_of(&key("a", "t").tenant, NOW).len(), 2);
}

#[test]
fn what_is_changed_here_during_a_look_at_the_store_is_not_undone_by_its_answer() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    scheduler.look_begins();
    let settings = TypeSettings { concurrency: Some(2), ..TypeSettings::default() };
    scheduler.set_settings(&key("a", "t"), settings.clone());
    scheduler.look_ends(vec![waiting("a", "t", 3)]);
    assert_eq!(*scheduler.settings(&key("a", "t")).unwrap(), settings);
    scheduler.look_begins();
    scheduler.look_ends(vec![waiting("a", "t", 3)]);
    assert_eq!(scheduler.settings(&key("a", "t")).unwrap().concurrency, None);
}

#[test]
fn one_batch_goes_ahead_until_the_handler_says_how_many_may() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(1);
    scheduler.look_begins();
    scheduler.look_ends(vec![waiting("a", "t", 100)]);
    let t = key("a", "t");
    let mut start = |scheduler: &mut Scheduler| {
        let picked = scheduler.select(NOW, &HashSet::new(), &mut rng).is_some();
        picked.then(|| scheduler.started(&t, handler().unwrap(), 1, NOW)).is_some()
    };
    assert!(start(&mut scheduler) && !start(&mut scheduler));
    scheduler.set_contexts(&key("a", "t"), handler().unwrap(), Some(2));
    assert!(start(&mut scheduler) && !start(&mut scheduler));
    scheduler.set_contexts(&key("a", "t"), handler().unwrap(), None);
    assert!(start(&mut scheduler));
}

#[test]
fn batches_of_an_old_version_do_not_keep_a_new_one_waiting() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 100)]);
    let mut rng = fastrand::Rng::with_seed(1);
    let t = key("a", "t");
    scheduler.set_contexts(&t, handler().unwrap(), Some(1));
    scheduler.started(&t, handler().unwrap(), 1, NOW);
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
    scheduler.set_handler(&t, HandlerId::new(2));
    let (_, version) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
    assert_eq!(Some(version), HandlerId::new(2));
}

#[test]
fn a_type_over_its_rate_rests() {
    let mut slow = waiting("a", "t", 100);
    slow.settings.rate = Some(2.0);
    let mut scheduler = scheduler(Fairness::Tenant, vec![slow]);
    let mut rng = fastrand::Rng::with_seed(1);
    let (pick, _) = scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap();
    assert_eq!(pick.limit, 2);
    scheduler.started(&pick.key, handler().unwrap(), 2, NOW);
    scheduler.jobs_stopped(&pick.key, 2);
    scheduler.batch_stopped(&pick.key, handler().unwrap());
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
    let rested = scheduler.next_rested_at().unwrap();
    assert_eq!(rested, NOW + Duration::from_secs(1));
    scheduler.spend_rate(&pick.key, 2, NOW);
    assert!(scheduler.select(rested, &HashSet::new(), &mut rng).is_none(), "it rests longer");
    let rested = NOW + Duration::from_secs(2);
    assert!(scheduler.select(rested, &HashSet::new(), &mut rng).is_some());
}

#[test]
fn warm_types_go_first_within_a_bound() {
    let mut cold = waiting("a", "cold", 1000);
    cold.handler = HandlerId::new(2);
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "warm", 1000), cold]);
    let warm = HashSet::from([handler().unwrap()]);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut picked = |picks: usize| {
        let mut warm_picks = 0;
        for _ in 0..picks {
            let (pick, _) = scheduler.select(NOW, &warm, &mut rng).unwrap();
            warm_picks += usize::from(pick.key == key("a", "warm"));
        }
        warm_picks
    };
    let first = picked(40);
    assert!(first > 25, "the warm type goes ahead: {first} of 40");
    let rest = picked(4000);
    assert!((1850..2150).contains(&rest), "the cold type keeps its share: {rest} of 4000");
}

#[test]
fn one_pick_in_ten_has_a_floor_so_that_no_priority_starves() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1000)]);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut picks = (0..100).map(|_| scheduler.select(NOW, &HashSet::new(), &mut rng).unwrap());
    assert_eq!(picks.by_ref().filter(|pick| pick.0.floor.is_some()).count(), 10);
}

#[test]
fn an_idle_type_is_remembered_with_its_handler_and_a_new_one_asks_for_a_look() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
    scheduler.look_begins();
    scheduler.look_ends(vec![]);
    let mut rng = fastrand::Rng::with_seed(3);
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_none());
    assert!(scheduler.note(&key("a", "t"), 1), "its handler is known");
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_some());
    assert!(!scheduler.note(&key("a", "new"), 1));
}

#[test]
fn a_new_type_is_asked_about_once_and_then_known() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let (t, other) = (key("a", "t"), key("b", "t"));
    assert!(!scheduler.note(&t, 1) && !scheduler.note(&other, 1));
    assert_eq!(scheduler.unknown_of(&t.tenant), std::slice::from_ref(&t));
    let settings = TypeSettings { concurrency: Some(3), ..TypeSettings::default() };
    scheduler.learn(&t, settings, handler());
    assert!(scheduler.unknown_of(&t.tenant).is_empty() && scheduler.note(&t, 1));
    let limited = scheduler.limited_of(&t.tenant, NOW);
    assert_eq!((limited.len(), limited[0].1.concurrency, limited[0].2), (1, Some(3), false));
    let mut rng = fastrand::Rng::with_seed(3);
    assert!(scheduler.select(NOW, &HashSet::new(), &mut rng).is_some(), "its handler runs it");
    // A look that does not tell of a type that waits does not make it known.
    scheduler.look_begins();
    scheduler.note(&other, 1);
    scheduler.look_ends(vec![]);
    assert_eq!(scheduler.unknown_of(&other.tenant), [other]);
    scheduler.set_settings(&t, TypeSettings::default());
    assert!(scheduler.limited_of(&t.tenant, NOW).is_empty());
}

#[test]
fn those_who_wait_may_hope_for_no_more_than_a_type_gives() {
    let limited = |name, concurrency, rate| WaitingType {
        settings: TypeSettings { concurrency, rate, ..TypeSettings::default() },
        ..waiting("a", name, 50)
    };
    let types = vec![limited("free", None, None), limited("two", Some(2), None)];
    let types: Vec<_> = types.into_iter().chain([limited("slow", None, Some(5.0))]).collect();
    let keys: Vec<TypeKey> = types.iter().map(|of| of.key.clone()).collect();
    let [free, two, slow]: [TypeKey; 3] = keys.clone().try_into().unwrap();
    let mut scheduler = scheduler(Fairness::Tenant, types);
    let hope = [(free.clone(), 50), (two.clone(), 2), (slow.clone(), 5)];
    assert_eq!(scheduler.hope_for(keys.clone()), hope);
    scheduler.spend_rate(&slow, 5, NOW);
    assert_eq!(scheduler.hope_for(keys), hope[..2], "it rests");
    assert!(scheduler.take_rested(NOW).is_empty());
    let later = NOW + Duration::from_secs(1);
    assert_eq!(scheduler.take_rested(later), [(slow, 5)]);
    assert!(scheduler.take_rested(later).is_empty(), "it is told once");
}
