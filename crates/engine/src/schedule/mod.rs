//! The scheduler: which type gives the next batch. Pure; time and luck come from the caller.
//!
//! It knows the types with jobs that may run now, and what runs in this daemon. Tenant first, then
//! one of its types by weight (or any type of any tenant by weight, if so configured): a glut of
//! one tenant or type delays that one and no other. Numbers of waiting jobs are estimates: adds
//! raise them at once, claims lower them, and each look at the store puts them right.
//!
//! The store picks within a type: the most urgent job, then what is due the longest. Now and then a
//! pick has a floor, which gives less urgent jobs their turn.

mod draw;
mod limit;
mod set;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::limit::PRIORITY_MAX;
use windlass_core::store::{Pick, WaitingType};
use windlass_core::{HandlerId, Priority, Tenant, Timestamp, TypeKey, TypeName, TypeSettings};

use crate::options::Fairness;
use limit::Remembered;
use set::IndexedSet;

/// Idle types that are remembered, with their handlers and settings, for their next job.
const TYPES_KNOWN_MAX: usize = 100_000;
/// One pick in so many has a floor.
const FLOOR_EVERY: u64 = 10;

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
    /// Tenants with at least one type that may be picked, and all those types.
    open_tenants: IndexedSet<Tenant>,
    open_types: IndexedSet<TypeKey>,
    /// Types over their rate, by when they may be picked again.
    resting: BTreeSet<(Timestamp, TypeKey)>,
    /// Handlers that this machine cannot run.
    unrunnable: HashSet<HandlerId>,
    batches_running: usize,
    picks: u64,
    /// The largest weight among `types`.
    weight_max: u32,
    remembered: Remembered,
}

/// What is known of one type.
#[derive(Debug, Default)]
struct Entry {
    /// A look at the store has told its handler and settings.
    known: bool,
    ready: u64,
    /// All jobs ever noted, and how many of them when the newest look at the store began: those
    /// after that are not in its answer.
    noted: u64,
    noted_before_look: u64,
    /// Its handler or settings were changed here since that look began: its answer is older.
    changed_in_look: bool,
    handler: Option<HandlerId>,
    /// Most batches of this handler at once; `None` until the handler has been read, when one
    /// batch goes ahead.
    contexts: Option<u32>,
    settings: Arc<TypeSettings>,
    jobs_running: u64,
    /// Running batches, by the version of the handler for which they were picked.
    batches_running: BTreeMap<HandlerId, usize>,
    rest_until: Option<Timestamp>,
    /// Picks that a type with a warm context took before this one (or, negative, took itself).
    debt: i32,
}

#[derive(Debug, Default)]
struct TenantEntry {
    /// Types that may be picked here, and all types with jobs that may run.
    open: IndexedSet<TypeName>,
    waiting: IndexedSet<TypeName>,
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
            open_tenants: IndexedSet::default(),
            open_types: IndexedSet::default(),
            resting: BTreeSet::new(),
            unrunnable: HashSet::new(),
            batches_running: 0,
            picks: 0,
            weight_max: 1,
            remembered: Remembered::default(),
        }
    }

    // ---- what waits ------------------------------------------------------------------------

    /// `ready` more jobs of a type may run now. False when a look at the store must tell first
    /// how the type is run.
    pub(crate) fn note(&mut self, key: &TypeKey, ready: u64) -> bool {
        let entry = self.types.entry(key.clone()).or_default();
        entry.ready += ready;
        entry.noted += ready;
        let known = entry.known;
        if !known {
            self.remembered.unknown.insert(key);
        }
        self.reopen(key);
        known
    }

    /// A look at the store begins: what is noted from here on is not in its answer.
    pub(crate) fn look_begins(&mut self) {
        for entry in self.types.values_mut() {
            entry.noted_before_look = entry.noted;
            entry.changed_in_look = false;
        }
    }

    /// The store's answer to a look.
    pub(crate) fn look_ends(&mut self, waiting: Vec<WaitingType>) {
        for entry in self.types.values_mut() {
            entry.ready = entry.noted - entry.noted_before_look;
        }
        for seen in waiting {
            let entry = self.types.entry(seen.key).or_default();
            entry.known = true;
            entry.ready += seen.ready;
            if entry.changed_in_look {
                continue;
            }
            entry.set_handler(seen.handler);
            if *entry.settings != seen.settings {
                entry.settings = Arc::new(seen.settings);
            }
        }
        if self.types.len() > TYPES_KNOWN_MAX {
            self.types.retain(|_, entry| entry.ready > 0 || !entry.batches_running.is_empty());
        }
        if !self.unrunnable.is_empty() {
            let in_force: HashSet<_> = self.types.values().filter_map(|e| e.handler).collect();
            self.unrunnable.retain(|handler| in_force.contains(handler));
        }
        let weights = self.types.values().filter_map(|entry| entry.settings.weight);
        self.weight_max = weights.max().unwrap_or(1);
        self.remember_all();
        self.reopen_all();
    }

    pub(crate) fn set_handler(&mut self, key: &TypeKey, handler: Option<HandlerId>) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.set_handler(handler);
            entry.changed_in_look = true;
            self.reopen(key);
        }
    }

    /// The handler has been read: this is the most batches of it that run at once.
    pub(crate) fn set_contexts(&mut self, key: &TypeKey, handler: HandlerId, most: Option<u32>) {
        let entry = self.types.get_mut(key).filter(|entry| entry.handler == Some(handler));
        if let Some(entry) = entry {
            entry.contexts = Some(most.unwrap_or(u32::MAX));
            self.reopen(key);
        }
    }

    pub(crate) fn set_settings(&mut self, key: &TypeKey, settings: TypeSettings) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.settings = Arc::new(settings);
            entry.changed_in_look = true;
            self.weight_max = self.weight_max.max(entry.settings.weight.unwrap_or(1));
            self.remember(key);
            self.reopen(key);
        }
    }

    /// A suspended type gives nothing; a resumed one comes back with the next look at the store.
    pub(crate) fn suspend(&mut self, key: &TypeKey) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.ready = 0;
            self.reopen(key);
        }
    }

    pub(crate) fn set_unrunnable(&mut self, handler: HandlerId) {
        self.unrunnable.insert(handler);
        self.reopen_all();
    }

    pub(crate) fn settings(&self, key: &TypeKey) -> Option<Arc<TypeSettings>> {
        self.types.get(key).map(|entry| entry.settings.clone())
    }

    /// Waiting types of one tenant, for pulling workers: name, estimate and settings.
    /// Types over their rate are left out, and those of which the store has not told yet.
    pub(crate) fn waiting_of(
        &mut self,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Vec<(TypeKey, u64, Arc<TypeSettings>)> {
        self.wake_rested(now);
        let Some(of_tenant) = self.tenants.get(tenant) else { return Vec::new() };
        let key_of = |name: &TypeName| TypeKey { tenant: tenant.clone(), name: name.clone() };
        let waiting = of_tenant.waiting.members().iter().map(key_of);
        waiting
            .filter_map(|key| {
                let may_run = |entry: &&Entry| entry.known && entry.rest_until.is_none();
                let entry = self.types.get(&key).filter(may_run)?;
                Some((key, entry.ready, entry.settings.clone()))
            })
            .collect()
    }

    // ---- select, started, stopped ------------------------------------------------------------

    /// Picks the type of the next batch, with its handler, if there is one that may be picked and a
    /// slot for it.
    /// The pick's limit is the number of jobs that the type's settings allow now.
    pub(crate) fn select(
        &mut self,
        now: Timestamp,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
    ) -> Option<(Pick, HandlerId)> {
        self.wake_rested(now);
        let key = self.draw(warm, rng)?;
        let entry = &self.types[&key];
        let handler = entry.handler?;
        let mut limit = entry.ready.min(u64::from(u32::MAX)) as u32;
        if let Some(most) = entry.settings.concurrency {
            limit = limit.min(most.saturating_sub(entry.jobs_running.min(u64::from(most)) as u32));
        }
        limit = limit.min(burst(&entry.settings));
        Some((Pick { limit: limit.max(1), floor: self.next_floor(rng), key }, handler))
    }

    /// A claim for a pick is on its way: its jobs are not waiting for anybody else here. Answers
    /// with how many jobs of the type have been noted so far.
    pub(crate) fn claiming(&mut self, key: &TypeKey, asked: u32) -> u64 {
        let Some(entry) = self.types.get_mut(key) else { return 0 };
        entry.ready = entry.ready.saturating_sub(u64::from(asked));
        let noted = entry.noted;
        self.reopen(key);
        noted
    }

    /// The claim is answered. Fewer jobs than asked for means that no more were there, but for
    /// those that were noted since it began, with `noted` of them before.
    pub(crate) fn claimed(&mut self, key: &TypeKey, asked: u32, got: u32, noted: u64) {
        let Some(entry) = self.types.get_mut(key) else { return };
        if got < asked {
            entry.ready = entry.noted.saturating_sub(noted);
        }
        self.reopen(key);
    }

    /// A batch of `jobs`, picked for this version of the handler, starts.
    pub(crate) fn started(&mut self, key: &TypeKey, handler: HandlerId, jobs: u64, now: Timestamp) {
        self.batches_running += 1;
        self.tenants.entry(key.tenant.clone()).or_default().batches_running += 1;
        let entry = self.types.entry(key.clone()).or_default();
        *entry.batches_running.entry(handler).or_default() += 1;
        entry.jobs_running += jobs;
        self.spend_rate(key, jobs, now);
    }

    /// `jobs` of the type have started outside the slots (a worker pulled them).
    pub(crate) fn spend_rate(&mut self, key: &TypeKey, jobs: u64, now: Timestamp) {
        let Some(entry) = self.types.get_mut(key) else { return };
        if let Some(rate) = entry.settings.rate {
            let from = entry.rest_until.map_or(now, |until| until.max(now));
            entry.rest_until = Some(from + Duration::from_secs_f64(jobs as f64 / rate));
        }
        self.reopen(key);
    }

    /// `jobs` of a running batch are over, or were never there.
    pub(crate) fn jobs_stopped(&mut self, key: &TypeKey, jobs: u64) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.jobs_running = entry.jobs_running.saturating_sub(jobs);
            self.reopen(key);
        }
    }

    /// A batch is over, and its slot is free.
    pub(crate) fn batch_stopped(&mut self, key: &TypeKey, handler: HandlerId) {
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
        self.reopen(key);
    }

    /// When the next type that is over its rate may be picked again.
    pub(crate) fn next_rested_at(&self) -> Option<Timestamp> {
        self.resting.first().map(|(at, _)| *at)
    }

    // ---- inside ------------------------------------------------------------------------------

    fn next_floor(&mut self, rng: &mut fastrand::Rng) -> Option<Priority> {
        self.picks += 1;
        let due = self.picks.is_multiple_of(FLOOR_EVERY);
        due.then(|| Priority::new(i64::from(rng.u16(0..=PRIORITY_MAX))).ok()).flatten()
    }

    fn wake_rested(&mut self, now: Timestamp) {
        while let Some((at, key)) = self.resting.first().cloned() {
            if at > now {
                return;
            }
            self.resting.remove(&(at, key.clone()));
            let entry = self.types.get_mut(&key).filter(|entry| entry.rest_until == Some(at));
            if let Some(entry) = entry {
                entry.rest_until = None;
                self.reopen(&key);
                self.remembered.rested.insert(key);
            }
        }
    }

    fn reopen_all(&mut self) {
        self.open_tenants = IndexedSet::default();
        self.open_types = IndexedSet::default();
        self.tenants.retain(|_, tenant| {
            tenant.open = IndexedSet::default();
            tenant.waiting = IndexedSet::default();
            tenant.batches_running > 0
        });
        let keys: Vec<TypeKey> = self.types.keys().cloned().collect();
        keys.iter().for_each(|key| self.reopen(key));
    }

    /// Puts a type where it belongs after anything about it changed: among those that may be
    /// picked, or not.
    fn reopen(&mut self, key: &TypeKey) {
        let ours = self.only.as_ref().is_none_or(|only| only.contains(&key.tenant));
        let entry = self.types.get(key);
        let open = ours && entry.is_some_and(|entry| self.is_open(entry));
        let waiting = entry.is_some_and(|entry| entry.ready > 0);
        if let Some(until) = entry.and_then(|entry| entry.rest_until) {
            self.resting.insert((until, key.clone()));
        }
        let tenant = self.tenants.entry(key.tenant.clone()).or_default();
        if waiting {
            tenant.waiting.insert(&key.name)
        } else {
            tenant.waiting.remove(&key.name)
        }
        if open {
            tenant.open.insert(&key.name);
            self.open_types.insert(key);
            self.open_tenants.insert(&key.tenant);
            return;
        }
        tenant.open.remove(&key.name);
        self.open_types.remove(key);
        if tenant.open.is_empty() {
            self.open_tenants.remove(&key.tenant);
        }
        if tenant.waiting.is_empty() && tenant.batches_running == 0 {
            self.tenants.remove(&key.tenant);
        }
    }

    fn is_open(&self, entry: &Entry) -> bool {
        let Some(handler) = entry.handler.filter(|handler| !self.unrunnable.contains(handler))
        else {
            return false;
        };
        let most = entry.settings.concurrency.map_or(u64::MAX, u64::from);
        let contexts = entry.contexts.unwrap_or(1) as usize;
        entry.ready > 0
            && entry.jobs_running < most
            && entry.batches_running.get(&handler).is_none_or(|running| *running < contexts)
            && entry.rest_until.is_none()
    }
}

impl Entry {
    fn set_handler(&mut self, handler: Option<HandlerId>) {
        if self.handler != handler {
            self.handler = handler;
            self.contexts = None;
        }
    }
}

/// The most jobs of a type that may start at one moment: what its rate allows in a second.
pub(crate) fn burst(settings: &TypeSettings) -> u32 {
    settings.rate.map_or(u32::MAX, |rate| (rate as u32).max(1))
}

#[cfg(test)]
mod tests;
