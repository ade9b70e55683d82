//! Shares, slots and limits of the scheduler, with a fixed seed.

use std::time::Duration;

use windlass_core::TypeName;
use windlass_core::store::{Revision, WaitingType};

use super::*;

mod by_use;

pub(super) const NOW: Duration = Duration::from_secs(3600);

pub(super) fn key(tenant: &str, name: &str) -> TypeKey {
    TypeKey::new(tenant, name).unwrap()
}

pub(super) fn handler() -> Option<HandlerId> {
    HandlerId::new(1)
}

pub(super) fn waiting(tenant: &str, name: &str, ready: u64) -> WaitingType {
    let settings = TypeSettings::default();
    let revision = Revision::default();
    WaitingType { key: key(tenant, name), ready, handler: handler(), settings, revision }
}

pub(super) fn scheduler(fairness: Fairness, types: Vec<WaitingType>) -> Scheduler {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let mut scheduler = Scheduler::new(fairness, slots, None);
    let read: Vec<_> = types.iter().filter_map(|t| Some((t.key.clone(), t.handler?))).collect();
    look(&mut scheduler, types);
    for (key, handler) in read {
        scheduler.set_contexts(&key, handler, None);
    }
    scheduler
}

pub(super) fn look(scheduler: &mut Scheduler, types: Vec<WaitingType>) {
    scheduler.look_begins();
    scheduler.apply_changes(types);
}

/// A batch of one job starts.
pub(super) fn start(scheduler: &mut Scheduler, key: &TypeKey) -> Reserved {
    let settings = scheduler.settings(key).unwrap();
    scheduler.reserve(key, &settings, handler(), 1, NOW)
}

/// The store has answered that a type with this rate has started all that it may for now.
pub(super) fn rest(scheduler: &mut Scheduler, key: &TypeKey, rate: f64) {
    let time = Duration::from_secs_f64(f64::from(burst(rate)) / rate);
    scheduler.rest(&[Rest { key: key.clone(), rate, time }], NOW);
}

/// The estimated number of waiting jobs of a type.
fn ready(scheduler: &Scheduler, key: &TypeKey) -> u64 {
    scheduler.types.get(key).map_or(0, |entry| entry.ready)
}

fn shares(scheduler: &mut Scheduler, picks: usize) -> HashMap<TypeKey, f64> {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut shares = HashMap::new();
    for _ in 0..picks {
        let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
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
    for fairness in [Fairness::Tenant, Fairness::Draw] {
        let shares = shares(&mut scheduler(fairness, glut_of_a()), 10_000);
        assert!((shares[&key("b", "t")] - 50.0).abs() <= 1.5, "{shares:?}");
        for name in ["x", "y", "z"] {
            assert!((shares[&key("a", name)] - 16.7).abs() <= 1.3, "{shares:?}");
        }
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
        let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
        start(&mut scheduler, &pick.key);
    }
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
}

#[test]
fn s2_13_a_tenant_that_hangs_in_every_slot_does_not_keep_another_out() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 100)]);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..4 {
        start(&mut scheduler, &key("a", "t"));
    }
    look(&mut scheduler, vec![waiting("b", "t", 2)]);
    let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
    assert_eq!(pick.key, key("b", "t"));
    start(&mut scheduler, &pick.key);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none(), "b has its minimum");
    scheduler.free_slot(&pick.key, handler().unwrap(), NOW);
    let (next, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
    assert_eq!(next.key, key("b", "t"), "its minimum is free again");
}

/// The store counts running jobs: the scheduler asks for no more than it reports.
#[test]
fn s0_60_select_reserve_answer_and_free_keep_count() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    let mut rng = fastrand::Rng::with_seed(1);
    let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
    assert_eq!(pick.limit, 3);
    let settings = TypeSettings::default();
    let reserved = scheduler.reserve(&pick.key, &settings, handler(), 2, NOW);
    assert_eq!(scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap().0.limit, 1);
    scheduler.answered(&pick.key, reserved, 1);
    let last = scheduler.reserve(&pick.key, &settings, handler(), 1, NOW);
    scheduler.answered(&pick.key, last, 0);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
    (0..2).for_each(|_| scheduler.free_slot(&pick.key, handler().unwrap(), NOW));
    assert_eq!(scheduler.batches_running, 0);
    assert!(scheduler.types[&pick.key].batches_running.is_empty());
    look(&mut scheduler, vec![waiting("a", "t", 3)]);
    assert_eq!(scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap().0.limit, 3);
    let reserved = scheduler.reserve(&pick.key, &settings, None, 3, NOW);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
    scheduler.give_back(&pick.key, reserved);
    assert_eq!(scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap().0.limit, 3);
}

#[test]
fn types_without_a_runnable_handler_are_not_picked() {
    let mut bare = waiting("a", "bare", 5);
    bare.handler = None;
    let mut scheduler = scheduler(Fairness::Tenant, vec![bare, waiting("a", "t", 5)]);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
        assert_eq!(pick.key, key("a", "t"));
    }
    assert!(!scheduler.tenants[&key("a", "t").tenant].waiting.contains(&key("a", "bare").name));
    assert!(scheduler.note(&key("a", "bare"), 1), "no look is needed for its jobs");
    assert!(!scheduler.types.contains_key(&key("a", "bare")), "it takes no place of others");
    scheduler.set_unrunnable(&key("a", "t"), handler().unwrap());
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
}

#[test]
fn s2_37_a_daemon_for_one_tenant_picks_no_other() {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let only = HashSet::from([key("b", "t").tenant]);
    let mut scheduler = Scheduler::new(Fairness::Tenant, slots, Some(only));
    look(&mut scheduler, glut_of_a());
    let shares = shares(&mut scheduler, 100);
    assert_eq!(shares.into_keys().collect::<Vec<_>>(), [key("b", "t")]);
}

#[test]
fn a_claims_answer_closes_a_type_and_what_was_noted_meanwhile_opens_it() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 5)]);
    let (t, settings) = (key("a", "t"), TypeSettings::default());
    let reserved = scheduler.reserve(&t, &settings, None, 2, NOW);
    scheduler.answered(&t, reserved, 0);
    assert_eq!(ready(&scheduler, &t), 0);
    scheduler.note(&t, 5);
    let reserved = scheduler.reserve(&t, &settings, None, 2, NOW);
    scheduler.note(&t, 1);
    scheduler.answered(&t, reserved, 0);
    assert_eq!(ready(&scheduler, &t), 1);
    let reserved = scheduler.reserve(&t, &settings, None, 1, NOW);
    scheduler.answered(&t, reserved, 40);
    assert_eq!(ready(&scheduler, &t), 40, "another daemon's jobs are there");
}

#[test]
fn what_is_noted_during_a_look_at_the_store_is_not_lost() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
    scheduler.look_begins();
    assert!(scheduler.note(&key("a", "t"), 1) && scheduler.note(&key("a", "t"), 2));
    assert!(!scheduler.note(&key("a", "u"), 3), "another look must tell of it");
    scheduler.apply_changes(vec![waiting("a", "t", 2)]);
    assert_eq!(ready(&scheduler, &key("a", "t")), 5);
    look(&mut scheduler, vec![waiting("a", "t", 5), waiting("a", "u", 3)]);
    assert_eq!(ready(&scheduler, &key("a", "t")), 5);
    assert_eq!(ready(&scheduler, &key("a", "u")), 3);
}

#[test]
fn what_is_changed_here_during_a_look_at_the_store_is_not_undone_by_its_answer() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    scheduler.look_begins();
    let settings = TypeSettings { weight: Some(2), ..TypeSettings::default() };
    scheduler.set_settings(&key("a", "t"), settings.clone());
    let same = WaitingType { settings: settings.clone(), ..waiting("a", "t", 3) };
    assert!(scheduler.apply_changes(vec![same]).is_none());
    assert!(scheduler.apply_changes(vec![waiting("a", "t", 3)]).is_some(), "it is asked again");
    assert_eq!(*scheduler.settings(&key("a", "t")).unwrap(), settings);
    look(&mut scheduler, vec![waiting("a", "t", 3)]);
    assert_eq!(scheduler.settings(&key("a", "t")).unwrap().weight, None);
}

#[test]
fn one_batch_goes_ahead_until_the_handler_says_how_many_may() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(1);
    look(&mut scheduler, vec![waiting("a", "t", 100)]);
    let t = key("a", "t");
    let mut start = |scheduler: &mut Scheduler| {
        let picked = scheduler.select(&HashSet::new(), &mut rng, NOW).is_some();
        picked.then(|| start(scheduler, &t)).is_some()
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
    start(&mut scheduler, &t);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
    scheduler.set_handler(&t, HandlerId::new(2).unwrap());
    let (_, version) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
    assert_eq!(Some(version), HandlerId::new(2));
}

#[test]
fn a_type_over_its_rate_rests() {
    let mut slow = waiting("a", "t", 100);
    slow.settings.rate = Some(2.0);
    let settings = slow.settings.clone();
    let mut scheduler = scheduler(Fairness::Tenant, vec![slow]);
    let mut rng = fastrand::Rng::with_seed(1);
    let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
    assert_eq!(pick.limit, 2);
    let reserved = scheduler.reserve(&pick.key, &settings, handler(), 2, NOW);
    scheduler.free_slot(&pick.key, handler().unwrap(), NOW);
    assert!(
        scheduler.select(&HashSet::new(), &mut rng, NOW).is_none(),
        "it is not known yet whether more of its jobs may start"
    );
    rest(&mut scheduler, &pick.key, 2.0);
    assert_eq!(scheduler.reserve(&pick.key, &settings, None, 9, NOW).jobs, 0, "pulls count too");
    scheduler.answered(&pick.key, reserved, 98);
    assert!(scheduler.rests(&pick.key));
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
    let rested = scheduler.next_rested_at().unwrap();
    assert_eq!(rested, NOW + Duration::from_secs(1));
    assert_eq!(scheduler.take_rested(rested), [(pick.key.clone(), 2)]);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_some());
    let reserved = scheduler.reserve(&pick.key, &settings, None, 2, rested);
    assert_eq!(reserved.jobs, 2);
}

#[test]
fn a_claim_may_start_jobs_of_a_type_unless_it_rests() {
    let mut slow = waiting("a", "t", 100);
    slow.settings.rate = Some(1.0);
    let mut scheduler = scheduler(Fairness::Tenant, vec![slow.clone()]);
    let may_start = |scheduler: &mut Scheduler, slow: &WaitingType, now| {
        scheduler.may_start(&slow.key, &slow.settings, now)
    };
    assert!(may_start(&mut scheduler, &slow, NOW) && !scheduler.rests(&slow.key));
    rest(&mut scheduler, &slow.key, 1.0);
    assert!(scheduler.rests(&slow.key) && !may_start(&mut scheduler, &slow, NOW));
    let over = NOW + Duration::from_secs(1);
    assert!(may_start(&mut scheduler, &slow, over), "its rest is over");
    slow.settings.rate = None;
    assert!(may_start(&mut scheduler, &slow, NOW), "it has no rate any more");
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
            let (pick, _) = scheduler.select(&warm, &mut rng, NOW).unwrap();
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
    let mut picks = (0..100).map(|_| scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap());
    assert_eq!(picks.by_ref().filter(|pick| pick.0.floor.is_some()).count(), 10);
}

#[test]
fn every_second_floor_is_just_below_the_most_urgent_jobs() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1000)]);
    let mut rng = fastrand::Rng::with_seed(3);
    let just_below = Priority::new(499).unwrap();
    scheduler.note_front(&key("a", "t"), Priority::new(500).unwrap());
    let picks = (0..1000).map(|_| scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap());
    let floors: Vec<Priority> = picks.filter_map(|(pick, _)| pick.floor).collect();
    assert_eq!(floors.len(), 100);
    assert!(floors.iter().skip(1).step_by(2).all(|floor| *floor == just_below));
    let others: HashSet<&Priority> = floors.iter().step_by(2).collect();
    assert!(others.len() > 30, "the others are anywhere: {others:?}");
}

#[test]
fn an_idle_type_is_remembered_with_its_handler_and_a_new_one_asks_for_a_look() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
    let t = key("a", "t");
    let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
    scheduler.answered(&t, reserved, 0);
    let mut rng = fastrand::Rng::with_seed(3);
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_none());
    assert!(scheduler.note(&t, 1), "its handler is known");
    assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_some());
    assert!(!scheduler.note(&key("a", "new"), 1));
}

/// A store with types of one tenant that never run out of jobs.
struct Ring(Vec<WaitingType>);

impl Ring {
    fn of(types: i64) -> Ring {
        let of_type = |n: i64| WaitingType {
            revision: Revision(n),
            handler: HandlerId::new(n),
            ..waiting("a", &format!("t{n}"), 1000)
        };
        Ring((1..=types).map(of_type).collect())
    }

    fn next(&self, of: &[(Tenant, Option<TypeName>)], each: usize) -> Vec<WaitingType> {
        let behind = |after: &Option<TypeName>| {
            let at =
                |after: &TypeName| self.0.iter().position(|of_type| of_type.key.name == *after);
            &self.0[after.as_ref().and_then(at).map_or(0, |at| at + 1)..]
        };
        of.iter().flat_map(|(_, after)| behind(after).iter().take(each).cloned()).collect()
    }
}

#[test]
fn more_types_than_have_a_place_take_turns() {
    const TYPES: i64 = 2000;
    let (ring, each) = (Ring::of(TYPES), 32);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    scheduler.feed_first(ring.0[..each].to_vec(), each);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut picked: HashMap<TypeKey, usize> = HashMap::new();
    for _ in 0..2 * TYPES {
        let of = scheduler.take_short(1);
        if !of.is_empty() {
            scheduler.look_begins();
            scheduler.feed_next(&of, &ring.next(&of, each), each);
        }
        let (pick, version) = scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap();
        let settings = TypeSettings::default();
        let reserved = scheduler.reserve(&pick.key, &settings, Some(version), 1, NOW);
        scheduler.answered(&pick.key, reserved, 999);
        scheduler.free_slot(&pick.key, version, NOW);
        *picked.entry(pick.key).or_default() += 1;
        assert!(scheduler.waiting <= 300, "the window is bounded");
    }
    assert_eq!(picked.len(), TYPES as usize, "each had its turn in two rounds");
    assert!(picked.values().all(|picks| *picks <= 4), "and none many more than others");
}

#[test]
fn a_tenant_with_very_many_types_does_not_keep_others_out_of_the_window() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    look(&mut scheduler, Ring::of(5000).0);
    assert!(scheduler.waiting <= 300);
    look(&mut scheduler, vec![waiting("b", "t", 1)]);
    let shares = shares(&mut scheduler, 1000);
    assert!(shares[&key("b", "t")] > 40.0, "{}", shares[&key("b", "t")]);
}

#[test]
fn idle_types_are_forgotten_when_there_are_too_many() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    for n in 0..30_000 {
        let t = waiting("a", &format!("t{n}"), 1);
        look(&mut scheduler, vec![t.clone()]);
        let reserved = scheduler.reserve(&t.key, &t.settings, None, 1, NOW);
        scheduler.answered(&t.key, reserved, 0);
    }
    assert_eq!(scheduler.types.len(), 20_000);
    assert!(scheduler.note(&key("a", "t29999"), 1), "the newest are remembered");
    assert!(scheduler.tenants.len() <= 1);
}

#[test]
fn a_tenant_with_a_first_job_does_not_wait_behind_thousands_of_others() {
    let mut scheduler = scheduler(Fairness::Draw, vec![]);
    let glut = (0..5000).map(|n| waiting(&format!("glut{n:04}"), "t", 1000));
    scheduler.look_begins();
    scheduler.feed_first(glut.collect(), 4);
    let mut rng = fastrand::Rng::with_seed(3);
    for round in 0..3 {
        look(&mut scheduler, vec![waiting("new", "t", 1)]);
        let mut picks =
            (0..2).map(|_| scheduler.select(&HashSet::new(), &mut rng, NOW).unwrap().0.key);
        let t =
            picks.find(|picked| *picked == key("new", "t")).expect("one of two picks is for it");
        assert!(picks.all(|picked| picked != t), "round {round}: it has one");
        let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
        scheduler.answered(&t, reserved, 0);
    }
}

#[test]
fn a_type_is_not_taken_for_empty_before_a_claim_says_so() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    let t = key("a", "t");
    scheduler.taken(&t, 1);
    assert_eq!(ready(&scheduler, &t), 2);
    scheduler.taken(&t, 2);
    assert_eq!(ready(&scheduler, &t), 1, "another daemon may have added jobs");
    let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
    scheduler.give_back(&t, reserved);
    assert_eq!(ready(&scheduler, &t), 1);
    let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
    scheduler.answered(&t, reserved, 0);
    assert_eq!(ready(&scheduler, &t), 0);
}

#[test]
fn jobs_taken_by_name_bring_no_type_back_that_had_its_turn_or_lost_its_handler() {
    let ring = Ring::of(4);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    scheduler.feed_first(ring.0.clone(), 4);
    let (pick, version) =
        scheduler.select(&HashSet::new(), &mut fastrand::Rng::with_seed(3), NOW).unwrap();
    scheduler.reserve(&pick.key, &TypeSettings::default(), Some(version), 1, NOW);
    let other = ring.0.iter().find(|of_type| of_type.key != pick.key).unwrap().key.clone();
    scheduler.handler_gone(&other, scheduler.last_report(&other));
    for key in [&pick.key, &other] {
        scheduler.taken(key, 1);
        assert_eq!(ready(&scheduler, key), 0);
    }
}

/// Runs one job of each type that can be picked; returns how many.
fn run_all(scheduler: &mut Scheduler, rng: &mut fastrand::Rng) -> usize {
    let mut picked = 0;
    while let Some((pick, version)) = scheduler.select(&HashSet::new(), rng, NOW) {
        let settings = scheduler.settings(&pick.key).unwrap();
        let reserved = scheduler.reserve(&pick.key, &settings, Some(version), 1, NOW);
        if let Some(rate) = settings.rate {
            rest(scheduler, &pick.key, rate);
        }
        scheduler.answered(&pick.key, reserved, 0);
        scheduler.free_slot(&pick.key, version, NOW);
        picked += 1;
    }
    picked
}

/// Feeds a page of next types to the tenants that are short of them; false when none is.
fn feed(scheduler: &mut Scheduler, ring: &Ring, each: usize) -> bool {
    let of = scheduler.take_short(64);
    scheduler.look_begins();
    scheduler.feed_next(&of, &ring.next(&of, each), each);
    !of.is_empty()
}

/// The page after a full last page is empty, and comes when the tenant has no running jobs.
#[test]
fn an_empty_last_page_does_not_end_the_turns_of_a_tenants_types() {
    let ring = Ring::of(4 + 32);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(3);
    scheduler.feed_first(ring.0[..4].to_vec(), 4);
    for _ in 0..100 {
        run_all(&mut scheduler, &mut rng);
        assert!(feed(&mut scheduler, &ring, 32), "it has types that are ready");
    }
}

#[test]
fn a_type_that_finds_no_place_behind_types_that_rest_gets_its_turn() {
    let mut ring = Ring::of(257);
    ring.0[..256].iter_mut().for_each(|of_type| of_type.settings.rate = Some(0.001));
    let last = ring.0[256].key.clone();
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(3);
    look(&mut scheduler, ring.0[..256].to_vec());
    assert_eq!(run_all(&mut scheduler, &mut rng), 256);
    look(&mut scheduler, ring.0[256..].to_vec());
    for _ in 0..20 {
        feed(&mut scheduler, &ring, 32);
        if let Some((pick, _)) = scheduler.select(&HashSet::new(), &mut rng, NOW) {
            assert_eq!(pick.key, last);
            return;
        }
    }
    panic!("nobody looks at it");
}

#[test]
fn a_type_turned_away_from_a_full_window_comes_in_when_there_is_room() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(3);
    let tenants: Vec<String> = (0..250).map(|n| format!("full{n}")).collect();
    let types = |tenant| (0..200).map(move |n| waiting(tenant, &format!("t{n}"), 1));
    let all: Vec<WaitingType> = tenants.iter().flat_map(|tenant| types(tenant)).collect();
    look(&mut scheduler, all.clone());
    let mut ring = Ring::of(2);
    ring.0[0].settings.rate = Some(0.001);
    look(&mut scheduler, ring.0[..1].to_vec());
    rest(&mut scheduler, &ring.0[0].key, 0.001);
    look(&mut scheduler, ring.0[1..].to_vec());
    for of_type in all {
        let reserved = scheduler.reserve(&of_type.key, &of_type.settings, None, 1, NOW);
        scheduler.answered(&of_type.key, reserved, 0);
    }
    assert!(scheduler.wants_types() && feed(&mut scheduler, &ring, 32));
    let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW).expect("it is here");
    assert_eq!(pick.key, ring.0[1].key);
}

#[test]
fn a_new_rate_changes_the_current_rest_wherever_it_comes_from() {
    let mut slow = waiting("a", "t", 100);
    slow.settings.rate = Some(0.001);
    for rate in [Some(1000.0), None] {
        let settings = TypeSettings { rate, ..TypeSettings::default() };
        for here in [true, false] {
            let mut scheduler = scheduler(Fairness::Tenant, vec![slow.clone()]);
            let reserved = start(&mut scheduler, &slow.key);
            rest(&mut scheduler, &slow.key, 0.001);
            scheduler.answered(&slow.key, reserved, 99);
            assert!(scheduler.rests(&slow.key));
            if here {
                scheduler.set_settings(&slow.key, settings.clone());
            } else {
                let last_report = WaitingType { settings: settings.clone(), ..slow.clone() };
                look(&mut scheduler, vec![last_report]);
            }
            let rested = scheduler.take_rested(NOW + Duration::from_millis(1));
            assert_eq!(rested.len(), 1, "waiting workers hear of it, too: {rate:?} {here}");
            assert!(!scheduler.rests(&slow.key));
            let mut rng = fastrand::Rng::with_seed(1);
            assert!(scheduler.select(&HashSet::new(), &mut rng, NOW).is_some());
        }
    }
}

#[test]
fn a_claim_that_a_look_has_overtaken_does_not_close_a_type() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 1)]);
    let t = key("a", "t");
    let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
    look(&mut scheduler, vec![waiting("a", "t", 5)]);
    scheduler.answered(&t, reserved, 0);
    assert_eq!(ready(&scheduler, &t), 1, "the look may be the newer one");
    let reserved = scheduler.reserve(&t, &TypeSettings::default(), None, 1, NOW);
    scheduler.answered(&t, reserved, 0);
    assert_eq!(ready(&scheduler, &t), 0, "an empty claim puts it right");
}

#[test]
fn a_type_that_had_its_turn_is_open_for_its_next_job_when_all_others_are_here() {
    let ring = Ring::of(5);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let mut rng = fastrand::Rng::with_seed(3);
    scheduler.feed_first(ring.0[..4].to_vec(), 4);
    run_all(&mut scheduler, &mut rng);
    while feed(&mut scheduler, &Ring(vec![]), 32) {}
    for of_type in &ring.0[..4] {
        assert!(scheduler.note(&of_type.key, 1));
    }
    assert_eq!(run_all(&mut scheduler, &mut rng), 4);
}

#[test]
fn tenants_that_are_short_of_types_take_turns() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    let tenants: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
    let types = |tenant| (1..=4).map(move |n| waiting(tenant, &format!("t{n}"), 1));
    scheduler.set_unrunnable(&key("a0", "t1"), handler().unwrap());
    scheduler.feed_first(tenants.iter().flat_map(|tenant| types(tenant)).collect(), 4);
    let mut seen = HashSet::new();
    for _ in 0..10 {
        let of = scheduler.take_short(10);
        assert_eq!(of.len(), 10);
        seen.extend(of.iter().map(|(tenant, _)| tenant.clone()));
        scheduler.still_short(&of);
    }
    assert_eq!(seen.len(), 100);
    assert_eq!(scheduler.take_short(200).len(), 100, "none was answered");
}

/// A missed event costs a poll, not for ever.
#[test]
fn a_dry_tenant_is_tried_again_with_each_poll() {
    let ring = Ring::of(36);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    ring.0.iter().for_each(|of_type| {
        scheduler.set_unrunnable(&of_type.key, of_type.handler.unwrap());
    });
    scheduler.feed_first(ring.0[..4].to_vec(), 4);
    let pages = (0..100).take_while(|_| feed(&mut scheduler, &ring, 32)).count();
    assert!((2..10).contains(&pages), "a whole round, and then it is dry: {pages}");
    assert!(!scheduler.wants_types());
    scheduler.retry_dry(64);
    assert!(scheduler.wants_types() && feed(&mut scheduler, &ring, 32));
}

#[test]
fn a_dry_tenant_asks_again_when_one_of_its_types_changes() {
    let ring = Ring::of(36);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    ring.0.iter().for_each(|of_type| {
        scheduler.set_unrunnable(&of_type.key, of_type.handler.unwrap());
    });
    scheduler.feed_first(ring.0[..4].to_vec(), 4);
    while feed(&mut scheduler, &ring, 32) {}
    assert!(!scheduler.wants_types());
    scheduler.set_handler(&ring.0[0].key, HandlerId::new(99).unwrap());
    assert!(scheduler.wants_types());
}

#[test]
fn a_tenant_of_which_a_look_told_only_a_part_gets_the_others_from_its_ring() {
    let ring = Ring::of(300);
    let mut scheduler = scheduler(Fairness::Tenant, vec![]);
    look(&mut scheduler, ring.0[..4].to_vec());
    scheduler.has_more(&ring.0[0].key.tenant);
    let mut rng = fastrand::Rng::with_seed(3);
    let mut picked = HashSet::new();
    for _ in 0..600 {
        feed(&mut scheduler, &ring, 32);
        let Some((pick, version)) = scheduler.select(&HashSet::new(), &mut rng, NOW) else {
            continue;
        };
        let settings = TypeSettings::default();
        let reserved = scheduler.reserve(&pick.key, &settings, Some(version), 1, NOW);
        scheduler.answered(&pick.key, reserved, 9);
        scheduler.free_slot(&pick.key, version, NOW);
        picked.insert(pick.key);
    }
    assert_eq!(picked.len(), 300);
}

#[test]
fn an_answer_that_is_not_taken_is_asked_for_again() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    scheduler.look_begins();
    scheduler.set_handler(&key("a", "t"), HandlerId::new(2).unwrap());
    let newer =
        WaitingType { handler: HandlerId::new(3), revision: Revision(7), ..waiting("a", "t", 3) };
    assert_eq!(scheduler.apply_changes(vec![newer.clone()]), Some(Revision(6)));
    scheduler.look_begins();
    assert_eq!(scheduler.apply_changes(vec![newer]), None);
    assert_eq!(scheduler.types[&key("a", "t")].handler, HandlerId::new(3));
}

#[test]
fn a_handler_that_was_reported_meanwhile_is_not_taken_for_gone() {
    let mut scheduler = scheduler(Fairness::Tenant, vec![waiting("a", "t", 3)]);
    let t = key("a", "t");
    let last_report = scheduler.last_report(&t);
    look(&mut scheduler, vec![waiting("a", "t", 3)]);
    scheduler.handler_gone(&t, last_report);
    assert_eq!(scheduler.types[&t].handler, handler());
    let last_report = scheduler.last_report(&t);
    scheduler.handler_gone(&t, last_report);
    assert_eq!(scheduler.types[&t].handler, None);
}
