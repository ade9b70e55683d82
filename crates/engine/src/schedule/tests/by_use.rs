//! Fairness by use: tenants with jobs that never run out share the time of the slots, on a
//! simulated clock. A model with plain numbers says what each has used.

use std::collections::BTreeMap;

use windlass_core::TenantSettings;

use super::super::tenant::{Kept, Room};
use super::super::usage::{HALF_LIFE, PICK_COST};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn tenant(name: &str) -> Tenant {
    key(name, "t").tenant
}

fn settings(weight: Option<u32>, min: Option<u32>, max: Option<u32>) -> TenantSettings {
    TenantSettings { weight, slots_min: min, slots_max: max }
}

/// What the model knows of a tenant. Times are seconds divided by the weight.
struct Account {
    /// How long its next batches run.
    length: Duration,
    weight: f64,
    /// What it used, without forgetting.
    total: f64,
    /// What it used, half of it forgotten each half-life; lifted like the scheduler's.
    level: f64,
    running: usize,
    open_since: Option<Duration>,
    last_pick: Option<Duration>,
}

struct Stage {
    scheduler: Scheduler,
    rng: fastrand::Rng,
    now: Duration,
    accounts: BTreeMap<String, Account>,
    /// Running batches, by their end.
    running: BTreeMap<(Duration, u64), String>,
    batches: u64,
    /// The level of the last pick, in the model's numbers.
    floor: f64,
}

impl Stage {
    fn new(shared: usize, seed: u64) -> Stage {
        let slots = Slots { shared, reserved: 0, tenant_min: 1 };
        Stage {
            scheduler: Scheduler::new(Fairness::Tenant, slots, None),
            rng: fastrand::Rng::with_seed(seed),
            now: NOW,
            accounts: BTreeMap::new(),
            running: BTreeMap::new(),
            batches: 0,
            floor: 0.0,
        }
    }

    /// The tenant has jobs from now on.
    fn joins(&mut self, name: &str, length: Duration, weight: u32) {
        let new = settings(Some(weight), None, None);
        self.scheduler.set_tenant(&tenant(name), &new, self.now);
        look(&mut self.scheduler, vec![waiting(name, "t", 1_000_000)]);
        self.scheduler.set_contexts(&key(name, "t"), handler().unwrap(), None);
        let account = self.accounts.entry(name.to_owned()).or_insert(Account {
            length,
            weight: f64::from(weight),
            total: 0.0,
            level: 0.0,
            running: 0,
            open_since: None,
            last_pick: None,
        });
        (account.length, account.open_since) = (length, Some(self.now));
        account.weight = f64::from(weight);
        account.level = account.level.max(self.floor);
    }

    /// The tenant has no more jobs; its batches run on.
    fn leaves(&mut self, name: &str) {
        let t = key(name, "t");
        let reserved = self.scheduler.reserve(&t, &TypeSettings::default(), None, 1, self.now);
        self.scheduler.answered(&t, reserved, 0);
        self.accounts.get_mut(name).unwrap().open_since = None;
    }

    fn pick(&mut self) -> Option<String> {
        let (pick, version) = self.scheduler.select(&HashSet::new(), &mut self.rng, self.now)?;
        let name = pick.key.tenant.as_str().to_owned();
        let settings = TypeSettings::default();
        self.scheduler.reserve(&pick.key, &settings, Some(version), 1, self.now);
        self.batches += 1;
        let account = self.accounts.get_mut(&name).unwrap();
        self.floor = self.floor.max(account.level);
        account.level += PICK_COST.as_secs_f64() / account.weight;
        (account.running, account.last_pick) = (account.running + 1, Some(self.now));
        self.running.insert((self.now + account.length, self.batches), name.clone());
        Some(name)
    }

    /// Time passes until the next batch ends.
    fn batch_ends(&mut self) {
        let ((at, _), name) = self.running.pop_first().unwrap();
        let passed = (at - self.now).as_secs_f64();
        let half_life = HALF_LIFE.as_secs_f64();
        let kept = (-passed / half_life).exp2();
        // One batch's time, of which some is forgotten by the end.
        let grown = half_life / std::f64::consts::LN_2 * (1.0 - kept);
        for account in self.accounts.values_mut() {
            let batches = account.running as f64 / account.weight;
            account.total += batches * passed;
            account.level = account.level * kept + batches * grown;
        }
        self.floor *= kept;
        self.now = at;
        self.accounts.get_mut(&name).unwrap().running -= 1;
        self.scheduler.free_slot(&key(&name, "t"), handler().unwrap(), at);
    }

    /// Runs for so long with all slots busy.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            while self.pick().is_some() {}
            self.batch_ends();
        }
    }

    fn total(&self, name: &str) -> f64 {
        self.accounts[name].total
    }
}

#[track_caller]
fn assert_near(is: f64, should: f64, within: f64) {
    assert!((is - should).abs() <= within, "{is} is not {should}");
}

#[test]
fn a_tenant_with_long_jobs_gets_no_more_time_than_one_with_short_jobs() {
    let mut stage = Stage::new(4, 1);
    stage.joins("long", 30 * SECOND, 1);
    stage.joins("short", SECOND / 10, 1);
    stage.run(3600 * SECOND);
    assert_near(stage.total("short"), 2.0 * 3600.0, 0.06 * 7200.0);
    assert_near(stage.total("long"), 2.0 * 3600.0, 0.06 * 7200.0);
}

#[test]
fn tenants_share_the_time_by_their_weights() {
    let mut stage = Stage::new(8, 1);
    for (name, weight) in [("one", 1), ("two", 2), ("five", 5)] {
        stage.joins(name, SECOND, weight);
    }
    stage.run(3600 * SECOND);
    // Each account is divided by its weight.
    for name in ["one", "two", "five"] {
        assert_near(stage.total(name), 3600.0, 50.0);
    }
    let heavier = settings(Some(16), None, None);
    stage.scheduler.set_tenant(&tenant("two"), &heavier, stage.now);
    stage.accounts.get_mut("two").unwrap().weight = 16.0;
    stage.accounts.values_mut().for_each(|account| account.total = 0.0);
    stage.run(3600 * SECOND);
    let share = 8.0 / 22.0 * 3600.0;
    for name in ["one", "two", "five"] {
        assert_near(stage.total(name), share, 60.0);
    }
}

#[test]
fn a_tenant_that_pauses_saves_up_no_time_and_gets_rid_of_none_that_it_used() {
    let mut stage = Stage::new(4, 1);
    stage.joins("busy", SECOND, 1);
    stage.joins("pausing", SECOND, 1);
    stage.run(60 * SECOND);
    stage.leaves("pausing");
    stage.run(600 * SECOND);
    stage.accounts.values_mut().for_each(|account| account.total = 0.0);
    stage.joins("pausing", SECOND, 1);
    stage.run(60 * SECOND);
    assert_near(stage.total("pausing"), 120.0, 10.0);

    // It takes all slots with long batches, and leaves and comes back at once.
    let mut stage = Stage::new(4, 1);
    stage.joins("long", 60 * SECOND, 1);
    (0..4).for_each(|_| drop(stage.pick().unwrap()));
    stage.joins("other", SECOND, 1);
    stage.leaves("long");
    (0..4).for_each(|_| stage.batch_ends());
    assert!(!stage.scheduler.tenants.contains_key(&tenant("long")));
    stage.joins("long", 60 * SECOND, 1);
    let picked = (0..4).map(|_| stage.pick().unwrap()).collect::<Vec<_>>();
    assert_eq!(picked, ["other"; 4], "it has used more");
    // What it used is forgotten by and by.
    stage.run(12 * HALF_LIFE);
    assert!(stage.running.values().any(|name| name == "long"));
}

#[test]
fn a_tenant_that_is_far_ahead_has_its_next_pick_within_the_bound() {
    const OTHERS: usize = 50;
    let mut stage = Stage::new(4, 1);
    stage.joins("ahead", 3600 * SECOND, 1);
    (0..4).for_each(|_| drop(stage.pick().unwrap()));
    let others: Vec<String> = (0..OTHERS).map(|n| format!("t{n}")).collect();
    others.iter().for_each(|name| stage.joins(name, SECOND, 1));
    (0..4).for_each(|_| stage.batch_ends());
    let ahead = stage.accounts["ahead"].level - stage.accounts["t0"].level;
    assert!(ahead > 1000.0, "{ahead} s ahead");
    let picks = (ahead / PICK_COST.as_secs_f64()).log2();
    let bound = stage.now + HALF_LIFE.mul_f64(picks) + SECOND * OTHERS as u32 / 4;
    while !stage.running.values().any(|name| name == "ahead") {
        assert!(stage.now <= bound);
        stage.run(SECOND);
    }
    assert!(stage.total("t0") > 1.0, "the others went first");
}

#[test]
fn slots_are_kept_for_a_tenant_and_only_for_it() {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let mut scheduler = Scheduler::new(Fairness::Tenant, slots, None);
    let mut rng = fastrand::Rng::with_seed(1);
    scheduler.set_tenant(&tenant("kept"), &settings(None, Some(2), None), NOW);
    let all = ["a", "b", "c", "d"].map(|name| waiting(name, "t", 100));
    look(&mut scheduler, all.to_vec());
    for of in &all {
        scheduler.set_contexts(&of.key, handler().unwrap(), None);
    }
    let mut start_next = |scheduler: &mut Scheduler| {
        let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW)?;
        start(scheduler, &pick.key);
        Some(pick.key)
    };
    (0..4).for_each(|_| drop(start_next(&mut scheduler).unwrap()));
    look(&mut scheduler, vec![waiting("e", "t", 100)]);
    assert_eq!(start_next(&mut scheduler), None, "two of six slots are kept");
    look(&mut scheduler, vec![waiting("kept", "t", 100)]);
    scheduler.set_contexts(&key("kept", "t"), handler().unwrap(), None);
    for _ in 0..2 {
        assert_eq!(start_next(&mut scheduler), Some(key("kept", "t")));
    }
    assert_eq!(start_next(&mut scheduler), None, "all six are taken");
    scheduler.free_slot(&key("a", "t"), handler().unwrap(), NOW);
    assert_eq!(start_next(&mut scheduler), Some(key("e", "t")), "it has none yet");
    scheduler.free_slot(&key("kept", "t"), handler().unwrap(), NOW);
    assert_eq!(start_next(&mut scheduler), Some(key("kept", "t")), "it is kept again");
    scheduler.free_slot(&key("kept", "t"), handler().unwrap(), NOW);
    scheduler.set_tenant(&tenant("kept"), &TenantSettings::default(), NOW);
    assert_eq!(scheduler.kept_slots, Kept::default());
    assert_eq!(start_next(&mut scheduler), Some(key("a", "t")), "it has none; nothing is kept");
}

#[test]
fn however_many_slots_are_kept_half_of_the_shared_ones_are_left_for_others() {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let mut scheduler = Scheduler::new(Fairness::Tenant, slots, None);
    let mut rng = fastrand::Rng::with_seed(1);
    scheduler.set_tenant(&tenant("kept"), &settings(None, Some(100_000), None), NOW);
    let mut start_all = |scheduler: &mut Scheduler, name| {
        look(scheduler, vec![waiting(name, "t", 100)]);
        scheduler.set_contexts(&key(name, "t"), handler().unwrap(), None);
        let mut started = 0;
        while let Some((pick, _)) = scheduler.select(&HashSet::new(), &mut rng, NOW) {
            start(scheduler, &pick.key);
            started += usize::from(pick.key == key(name, "t"));
        }
        started
    };
    assert_eq!(start_all(&mut scheduler, "other"), 2);
    assert_eq!(start_all(&mut scheduler, "kept"), 4);
    // A daemon that runs other tenants' jobs keeps nothing for it.
    let only = Some(HashSet::from([tenant("other")]));
    let mut scheduler = Scheduler::new(Fairness::Tenant, slots, only);
    scheduler.set_tenant(&tenant("kept"), &settings(None, Some(100_000), None), NOW);
    assert_eq!(start_all(&mut scheduler, "other"), 4);
}

/// A minimum that is set while all slots are in use takes effect when one is free.
#[test]
fn no_slot_is_kept_beyond_the_last_one() {
    let slots = Slots { shared: 4, reserved: 2, tenant_min: 1 };
    let kept = Kept { used: 0, owed: 1 };
    assert_eq!(slots.room(5, kept), Some(Room::Kept));
    assert_eq!(slots.room(6, kept), None);
}

/// Those from a page of all tenants come after those that are new.
#[test]
fn newcomers_have_their_first_pick_in_the_order_of_their_arrival() {
    let mut stage = Stage::new(8, 1);
    for (name, welcoming) in [("d", false), ("c", false), ("e", true), ("b", true), ("a", true)] {
        stage.scheduler.welcoming = welcoming;
        stage.joins(name, SECOND, 1);
    }
    let picks: Vec<String> = (0..5).map(|_| stage.pick().unwrap()).collect();
    assert_eq!(picks, ["e", "b", "a", "d", "c"]);
}

#[test]
fn a_tenant_uses_no_more_slots_than_it_may() {
    for fairness in [Fairness::Tenant, Fairness::Draw, Fairness::Type] {
        let mut scheduler = scheduler(fairness, vec![waiting("a", "t", 100)]);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut start_next = |scheduler: &mut Scheduler| {
            let (pick, _) = scheduler.select(&HashSet::new(), &mut rng, NOW)?;
            start(scheduler, &pick.key);
            Some(())
        };
        scheduler.set_tenant(&tenant("a"), &settings(None, None, Some(2)), NOW);
        assert!(start_next(&mut scheduler).is_some() && start_next(&mut scheduler).is_some());
        assert!(start_next(&mut scheduler).is_none(), "{fairness:?}");
        scheduler.set_tenant(&tenant("a"), &settings(None, None, Some(3)), NOW);
        assert!(start_next(&mut scheduler).is_some() && start_next(&mut scheduler).is_none());
        scheduler.free_slot(&key("a", "t"), handler().unwrap(), NOW);
        assert!(start_next(&mut scheduler).is_some() && start_next(&mut scheduler).is_none());
    }
}

#[test]
fn a_draw_follows_the_weights_of_tenants() {
    let mut scheduler = scheduler(Fairness::Draw, glut_of_a());
    scheduler.set_tenant(&tenant("b"), &settings(Some(3), None, None), NOW);
    let shares = shares(&mut scheduler, 10_000);
    assert_near(shares[&key("b", "t")], 75.0, 1.5);
}

/// The bounds of `docs/guide/fairness.md`, with random tenants, weights, lengths and pauses. A
/// seed that fails reproduces the run.
#[test]
fn no_tenant_waits_longer_than_the_bound() {
    for seed in 0..40 {
        bounds_hold(seed);
    }
}

fn bounds_hold(seed: u64) {
    const LONGEST: Duration = Duration::from_secs(100);
    let mut random = fastrand::Rng::with_seed(seed);
    let slots = random.usize(1..8);
    let mut stage = Stage::new(slots, seed);
    let tenants: Vec<(String, u32)> =
        (0..random.usize(2..20)).map(|n| (format!("t{n}"), 1 << random.u32(..4))).collect();
    // Newcomers that have not been picked yet, and whose picks came before theirs.
    let mut before: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..2000 {
        let (name, weight) = &tenants[random.usize(..tenants.len())];
        let is_open = |stage: &Stage| {
            stage.accounts.get(name).is_some_and(|account| account.open_since.is_some())
        };
        match random.u8(..10) {
            0 if !is_open(&stage) => {
                let is_new = !stage.accounts.contains_key(name);
                let length = LONGEST.mul_f64(random.f64().powi(4)) + Duration::from_millis(1);
                stage.joins(name, length, *weight);
                if is_new {
                    before.insert(name.clone(), Vec::new());
                }
            }
            1 if is_open(&stage) && random.u8(..4) == 0 => {
                stage.leaves(name);
                before.remove(name);
            }
            _ => {}
        }
        while let Some(picked) = stage.pick() {
            before.remove(&picked);
            for (newcomer, others) in &mut before {
                assert!(!others.contains(&picked), "seed {seed}: {picked} twice, {newcomer} not");
                others.push(picked.clone());
            }
            check_levels(&stage, &picked, LONGEST, seed);
        }
        if !stage.running.is_empty() {
            stage.batch_ends();
        }
    }
}

/// After a pick: the tenant had used no more than any other that could have been picked. So it is
/// never ahead of one by more than its batches may still run.
fn check_levels(stage: &Stage, picked: &str, longest: Duration, seed: u64) {
    let pick = PICK_COST.as_secs_f64();
    let account = &stage.accounts[picked];
    let level = account.level - pick / account.weight;
    for (name, other) in stage.accounts.iter().filter(|(_, other)| other.open_since.is_some()) {
        let bound = other.level + pick * 1e-3 + other.level * 1e-9;
        let ahead = format!("seed {seed}: {picked} at {level}, {name} at {}", other.level);
        assert!(level <= bound || name == picked, "{ahead}");
        // Of one that was picked while this one waited, as many batches ran on as there are slots.
        if account.open_since.is_some_and(|since| other.last_pick > Some(since)) {
            let may = stage.scheduler.slots.shared as f64 * longest.as_secs_f64() + pick;
            assert!(other.level <= account.level + may / other.weight, "{ahead}");
        }
    }
}
