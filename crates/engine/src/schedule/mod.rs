//! The scheduler: which type gives the next batch. Pure; time and chance come from the caller.
//!
//! ```text
//!   store ── what changed, in pages ──►┌──────── window ────────┐
//!   store ── each tenant's first types ►│ tenant ─ types         │── draw ──► pick
//!   store ── a tenant's next types ───►│ tenant ─ types … more  │
//!   own adds, ends, claims' answers ──►└────────────────────────┘
//! ```
//!
//! Tenant first, then one of its types by weight (or any type of any tenant by weight, if so
//! configured): a glut of one tenant or type delays that one and no other. The store picks within a
//! type: the most urgent job, then what is due the longest. Now and then a pick has a floor, which
//! gives less urgent jobs their turn.
//!
//! A tenant that had nothing to do does not wait behind thousands of others for its first pick:
//! every second pick goes to such newcomers, once each, in the order in which they came.
//!
//! **What it costs.** The scheduler keeps a bounded window of the types that a claim would get jobs
//! of and this daemon has a handler for; all others cost it nothing. A draw, an add and an end take
//! constant time. A look at the store is one page of what changed since the last one.
//!
//! **Who gets a turn.** The types of a tenant that do not all fit take turns (`feed`): one that has
//! been picked as often as its weight says leaves the window, and the tenant's next types, in the
//! order in which the store keeps them, come in its place. So a type that is ready waits for about
//! as many picks of its tenant as the weights of the tenant's ready types add up to; a type that is
//! alone here goes on until the next ones have come. Each tenant keeps at least one type in the
//! window while it has a place there; there are places for `TENANTS_MAX`, and beyond them tenants
//! come in, in the order of their names, as others run out of jobs.
//!
//! **Numbers are estimates.** Adds raise them at once, claims lower them and say how many more a
//! claim would get, so that a type is never taken for empty that is not. Too high costs an empty
//! claim. Limits do not depend on them: the store counts running jobs, `rate` counts starts.

mod draw;
mod feed;
mod line;
pub(crate) mod rate;
mod weighted;
pub(crate) mod window;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::limit::PRIORITY_MAX;
use windlass_core::store::{Pick, WaitingType};
use windlass_core::{HandlerId, Priority, Tenant, TypeKey, TypeName, TypeSettings};

use crate::options::Fairness;
use feed::Feed;
use line::Line;
use rate::Rates;
use weighted::WeightedSet;

/// One pick in so many has a floor. Every second one is just below the type's most urgent jobs,
/// the others are anywhere.
const FLOOR_EVERY: u64 = 10;
/// Handlers that this machine cannot run; when there are more, all are tried once again.
const UNRUNNABLE_MAX: usize = 10_000;

/// What one daemon may run at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    /// Batches for everybody.
    pub shared: usize,
    /// Further batches, for tenants that have fewer than `tenant_min`.
    pub reserved: usize,
    pub tenant_min: usize,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    fairness: Fairness,
    slots: Slots,
    /// Only these tenants' jobs are run here.
    only: Option<HashSet<Tenant>>,
    types: HashMap<TypeKey, Entry>,
    tenants: HashMap<Tenant, TenantEntry>,
    /// Tenants with at least one type that may be picked, and those of them that have fewer batches
    /// than the minimum. They weigh alike, or as much as their types, as the fairness says.
    open: WeightedSet<Tenant>,
    needy: WeightedSet<Tenant>,
    /// Tenants that had nothing to do and have since: they have every second pick, in the order in
    /// which they came, each one.
    newcomers: VecDeque<Tenant>,
    newcomer_next: bool,
    /// Tenants that come now are newcomers; those that a round through the store brings are not.
    welcoming: bool,
    /// Types in the window.
    waiting: usize,
    /// Idle types, the longest idle first; an entry may be outdated.
    idle: VecDeque<(TypeKey, u64)>,
    idle_number: u64,
    /// Types that have no handler: their jobs are no reason for a look at the store.
    unhandled: HashSet<TypeKey>,
    /// Tenants in these states of their feed.
    short: Line<Tenant>,
    dry: Line<Tenant>,
    crowded: Line<Tenant>,
    /// Tenants were turned away: the next round through all of them lets them in.
    beyond: bool,
    /// Numbers the looks at the store.
    look: u64,
    /// Numbers what the store told of types.
    tells: u64,
    rates: Rates,
    unrunnable: HashSet<HandlerId>,
    batches_running: usize,
    picks: u64,
}

/// What is known of one type.
#[derive(Debug, Default)]
struct Entry {
    /// About how many jobs a claim would get. The type is in the window while it is above 0.
    ready: u64,
    /// All jobs ever noted.
    noted: u64,
    /// During which look the newest jobs were noted, and how many: its answer is older.
    noted_in: (u64, u64),
    /// During which look its handler or settings were changed here: its answer may be older.
    changed_in: u64,
    /// When the store last told of it, by number.
    told: u64,
    handler: Option<HandlerId>,
    /// Most batches of this handler at once; `None` until the handler has been read, when one
    /// batch goes ahead.
    contexts: Option<u32>,
    settings: Arc<TypeSettings>,
    /// Running batches, by the version of the handler for which they were picked.
    batches_running: BTreeMap<HandlerId, usize>,
    /// The priority of its most urgent jobs, when they were last claimed.
    front: Option<Priority>,
    /// Picks since it came into the window.
    picks: u32,
    /// It has had its turn, and others of its tenant wait for theirs: a look lets it in again.
    served: bool,
    /// Stands in `idle` under this number; 0 for a type that is not idle.
    idle: u64,
    /// Picks that a type with a warm context took before this one (or, negative, took itself).
    debt: i32,
}

#[derive(Debug, Default)]
struct TenantEntry {
    /// Types that may be picked, and all that are in the window.
    open: WeightedSet<TypeName>,
    waiting: HashSet<TypeName>,
    feed: Feed,
    /// Behind which type the next ones of the ring are.
    after: Option<TypeName>,
    /// Since the round through the ring began, it brought a type to pick, or something about one of
    /// the tenant's types changed.
    stirred: bool,
    batches_running: usize,
}

impl Scheduler {
    pub(crate) fn new(fairness: Fairness, slots: Slots, only: Option<HashSet<Tenant>>) -> Self {
        Scheduler {
            fairness,
            slots,
            only,
            types: HashMap::new(),
            tenants: HashMap::new(),
            open: WeightedSet::default(),
            needy: WeightedSet::default(),
            newcomers: VecDeque::new(),
            newcomer_next: true,
            welcoming: true,
            waiting: 0,
            idle: VecDeque::new(),
            idle_number: 0,
            unhandled: HashSet::new(),
            short: Line::default(),
            dry: Line::default(),
            crowded: Line::default(),
            beyond: false,
            look: 0,
            tells: 0,
            rates: Rates::default(),
            unrunnable: HashSet::new(),
            batches_running: 0,
            picks: 0,
        }
    }

    // ---- select, reserve, answer -------------------------------------------------------------

    /// Picks the type of the next batch, with its handler, if there is one that may be picked and a
    /// slot for it.
    pub(crate) fn select(
        &mut self,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
    ) -> Option<(Pick, HandlerId)> {
        let key = self.draw(warm, rng)?;
        let entry = self.types.get_mut(&key)?;
        let handler = entry.handler?;
        entry.picks = entry.picks.saturating_add(1);
        let limit = entry.ready.min(u64::from(u32::MAX)) as u32;
        let limit = limit.min(rate::burst(&entry.settings));
        let front = entry.front;
        Some((Pick { limit: limit.max(1), floor: self.next_floor(front, rng), key }, handler))
    }

    /// Reserves `wanted` jobs of a type for a claim: no other claim of this daemon counts on them,
    /// and they count for the type's rate. With a handler, a slot for a batch of that version is
    /// taken too.
    pub(crate) fn reserve(
        &mut self,
        key: &TypeKey,
        settings: &TypeSettings,
        handler: Option<HandlerId>,
        wanted: u32,
        now: Duration,
    ) -> Reserved {
        let jobs = self.rates.reserve(key, settings, wanted, now);
        let mut reserved = Reserved { jobs, noted: 0, told: 0 };
        if let Some(entry) = self.types.get_mut(key) {
            entry.ready = entry.ready.saturating_sub(u64::from(jobs));
            (reserved.noted, reserved.told) = (entry.noted, entry.told);
        }
        if let Some(handler) = handler {
            self.batches_running += 1;
            self.tenants.entry(key.tenant.clone()).or_default().batches_running += 1;
            let entry = self.types.entry(key.clone()).or_default();
            *entry.batches_running.entry(handler).or_default() += 1;
        }
        self.let_others(key);
        self.place(key);
        reserved
    }

    /// The claim is answered: how many of the reserved jobs it got, and how many more it would get,
    /// beside those that were noted since it began.
    pub(crate) fn answered(
        &mut self,
        key: &TypeKey,
        reserved: Reserved,
        got: u32,
        left: u64,
        now: Duration,
    ) {
        self.rates.give_back(key, reserved.jobs.saturating_sub(got), now);
        let served = self.is_served(key);
        if let Some(entry) = self.types.get_mut(key).filter(|_| !served) {
            entry.ready = left + entry.noted.saturating_sub(reserved.noted);
            // A look has told of it since, and may be the newer one.
            if entry.told != reserved.told {
                entry.may_have_more();
            }
        }
        self.place(key);
    }

    /// The claim did not happen, or says nothing of how many more there are: all but the `used`
    /// starts go back.
    pub(crate) fn give_back(
        &mut self,
        key: &TypeKey,
        reserved: Reserved,
        used: u32,
        now: Duration,
    ) {
        self.rates.give_back(key, reserved.jobs.saturating_sub(used), now);
        let served = self.is_served(key);
        if let Some(entry) = self.types.get_mut(key).filter(|_| !served) {
            entry.ready += u64::from(reserved.jobs.saturating_sub(used));
            entry.may_have_more();
        }
        self.place(key);
    }

    /// The most urgent job that a claim without a floor took has this priority.
    pub(crate) fn note_front(&mut self, key: &TypeKey, front: Priority) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.front = Some(front);
        }
    }

    /// Jobs of a type without a rate were taken by name.
    pub(crate) fn taken(&mut self, key: &TypeKey, jobs: u64) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.ready = entry.ready.saturating_sub(jobs);
            entry.may_have_more();
            self.place(key);
        }
    }

    /// A batch is over, and its slot is free.
    pub(crate) fn free_slot(&mut self, key: &TypeKey, handler: HandlerId) {
        self.batches_running -= 1;
        if let Some(tenant) = self.tenants.get_mut(&key.tenant) {
            tenant.batches_running -= 1;
        }
        if let Some(entry) = self.types.get_mut(key)
            && let Some(running) = entry.batches_running.get_mut(&handler)
        {
            *running -= 1;
            if *running == 0 {
                entry.batches_running.remove(&handler);
            }
        }
        self.place(key);
    }

    /// When the next type that is over its rate may be picked again.
    pub(crate) fn next_rested_at(&self) -> Option<Duration> {
        self.rates.next_end()
    }

    /// Types that were over their rate and are not any more, with what each may start now.
    pub(crate) fn take_rested(&mut self, now: Duration) -> Vec<(TypeKey, u32)> {
        let rested = self.rates.take_rested(now);
        rested.iter().for_each(|(key, _)| self.place(key));
        rested
    }

    /// Whether a type is over its rate.
    pub(crate) fn rests(&self, key: &TypeKey) -> bool {
        self.rates.rests(key)
    }

    /// Whether a claim may start jobs of a type with the settings that the store tells of now.
    pub(crate) fn may_start(&mut self, of: &WaitingType, now: Duration) -> bool {
        self.rates.follow(&of.key, of.settings.rate);
        !self.rates.rests_at(&of.key, now)
    }

    // ---- what changes from outside -----------------------------------------------------------

    pub(crate) fn set_handler(&mut self, key: &TypeKey, handler: HandlerId) {
        let look = self.look;
        self.unhandled.remove(key);
        if let Some(entry) = self.types.get_mut(key) {
            entry.set_handler(Some(handler));
            entry.changed_in = look;
            self.place(key);
        }
    }

    /// When the store last told of a type, by number: for `handler_gone`.
    pub(crate) fn told(&self, key: &TypeKey) -> u64 {
        self.types.get(key).map_or(0, |entry| entry.told)
    }

    /// The store said that a type has no handler, some time after `told`. What it told since may be
    /// newer, and stays: if it is not, the next claim finds out.
    pub(crate) fn handler_gone(&mut self, key: &TypeKey, told: u64) {
        if let Some(entry) = self.types.get_mut(key).filter(|entry| entry.told == told) {
            entry.set_handler(None);
            self.place(key);
        }
    }

    /// The handler has been read: this is the most batches of it that run at once.
    pub(crate) fn set_contexts(&mut self, key: &TypeKey, handler: HandlerId, most: Option<u32>) {
        let entry = self.types.get_mut(key).filter(|entry| entry.handler == Some(handler));
        if let Some(entry) = entry {
            entry.contexts = Some(most.unwrap_or(u32::MAX));
            self.place(key);
        }
    }

    pub(crate) fn set_settings(&mut self, key: &TypeKey, settings: TypeSettings) {
        self.put_settings(key, settings);
        let look = self.look;
        if let Some(entry) = self.types.get_mut(key) {
            entry.changed_in = look;
            self.place(key);
        }
    }

    pub(crate) fn set_unrunnable(&mut self, key: &TypeKey, handler: HandlerId) {
        if self.unrunnable.len() >= UNRUNNABLE_MAX {
            self.unrunnable.clear();
        }
        self.unrunnable.insert(handler);
        self.place(key);
    }

    pub(crate) fn settings(&self, key: &TypeKey) -> Option<Arc<TypeSettings>> {
        self.types.get(key).map(|entry| entry.settings.clone())
    }

    // ---- inside ------------------------------------------------------------------------------

    fn next_floor(&mut self, front: Option<Priority>, rng: &mut fastrand::Rng) -> Option<Priority> {
        self.picks += 1;
        let drawn = rng.u16(0..=PRIORITY_MAX);
        let near = self.picks.is_multiple_of(2 * FLOOR_EVERY);
        let below = front.filter(|_| near).and_then(|front| front.get().checked_sub(1));
        let due = self.picks.is_multiple_of(FLOOR_EVERY);
        due.then(|| Priority::new(i64::from(below.unwrap_or(drawn))).ok()).flatten()
    }

    fn is_open(&self, key: &TypeKey, entry: &Entry) -> bool {
        let Some(handler) = entry.handler.filter(|handler| !self.unrunnable.contains(handler))
        else {
            return false;
        };
        let contexts = entry.contexts.unwrap_or(1) as usize;
        entry.ready > 0
            && entry.batches_running.get(&handler).is_none_or(|running| *running < contexts)
            && !self.rates.rests(key)
    }
}

/// What was reserved of a type for one claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserved {
    pub jobs: u32,
    /// Jobs of the type noted before.
    noted: u64,
    /// When the store had last told of it.
    pub told: u64,
}

impl Entry {
    fn set_handler(&mut self, handler: Option<HandlerId>) {
        if self.handler != handler {
            self.handler = handler;
            self.contexts = None;
        }
        if handler.is_none() {
            self.ready = 0;
        }
    }

    /// Nobody said that there is nothing more: other daemons add jobs too, and no look tells of
    /// them while the type is open. Only a claim finds out.
    fn may_have_more(&mut self) {
        if self.handler.is_some() && !self.served {
            self.ready = self.ready.max(1);
        }
    }

    /// Its handler or settings were changed here during the look that tells something else of it.
    fn is_newer_than(&self, seen: &WaitingType, look: u64) -> bool {
        let same = self.handler == seen.handler && *self.settings == seen.settings;
        self.changed_in == look && !same
    }

    fn weight(&self) -> u32 {
        self.settings.weight.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests;
