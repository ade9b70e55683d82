//! The scheduler: picks the type of the next batch. Pure; time and randomness come from the caller.
//!
//! ```text
//!   store ── what changed, in pages ──►┌──────── window ────────┐
//!   store ── each tenant's first types ►│ tenant ─ types         │── draw ──► pick
//!   store ── a tenant's next types ───►│ tenant ─ types … more  │
//!   own adds, ends, claims' answers ──►└────────────────────────┘
//! ```
//!
//! Tenant first: the one that has used the least time of slots for its weight (`usage`), or a
//! random one. Then one of its types by weight. If so configured, any type of any tenant by weight.
//! A glut of one tenant or type delays no other. Within a type the store picks the most urgent job,
//! then the one that has been due the longest. Some picks have a floor, which gives less urgent
//! jobs their turn.
//!
//! A tenant that had no jobs before does not wait behind thousands of others for its first pick. By
//! use, no other tenant gets more than one pick before it. In a draw, every second pick goes to
//! such newcomers, once each, in order of arrival.
//!
//! **Cost.** The scheduler keeps a bounded window of the types that have a handler and jobs to
//! claim; all others cost nothing. An add, an end and a pick take constant time, but for the order
//! of tenants, whose cost grows with the logarithm of their number. A look at the store reads one
//! page of changes since the last look.
//!
//! **Turns.** If a tenant's types do not all fit, they take turns (`feed`): a type that has been
//! picked as often as its weight allows leaves the window, and the tenant's next types, in the
//! store's order, come in its place. So a ready type waits for about as many picks of its tenant as
//! the weights of the tenant's ready types add up to. The last type of a tenant in the window stays
//! until the next ones have arrived. There is room for `TENANTS_MAX` tenants; others come in, in
//! order of their names, as tenants run out of jobs.
//!
//! **Numbers are estimates.** Adds raise them at once. Claims lower them and report how many more a
//! claim would get, so a type with jobs is never taken for empty. A number that is too high costs
//! an empty claim. Limits do not depend on them: the store counts running jobs and starts; `rate`
//! remembers which types rest.

mod candidates;
mod draw;
mod feed;
mod line;
pub(crate) mod rate;
mod tenant;
mod unhandled;
mod usage;
mod weighted;
pub(crate) mod window;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use windlass_core::limit::PRIORITY_MAX;
use windlass_core::rate::burst;
use windlass_core::store::{Pick, Rest, WaitingType};
use windlass_core::{HandlerId, Priority, Tenant, TypeKey, TypeSettings};

use crate::options::Fairness;
use candidates::Candidates;
use line::Line;
use rate::Rates;
use tenant::{Kept, Share, TenantEntry};
use unhandled::Unhandled;
use usage::{Level, Past};

/// One pick in this many has a floor. Every second floor is just below the type's most urgent jobs,
/// the others are random.
const FLOOR_EVERY: u64 = 10;
/// Remembered handlers that this machine cannot run; when there are more, all are tried again.
const UNRUNNABLE_MAX: usize = 10_000;

/// How many batches one daemon runs at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    /// Batches of all tenants.
    pub shared: usize,
    /// Additional batches of tenants that have fewer than `tenant_min`, or than are kept for them.
    pub reserved: usize,
    pub tenant_min: usize,
}

#[derive(Debug)]
pub(crate) struct Scheduler {
    fairness: Fairness,
    slots: Slots,
    /// Run only these tenants' jobs.
    only: Option<HashSet<Tenant>>,
    types: HashMap<TypeKey, Entry>,
    tenants: HashMap<Tenant, TenantEntry>,
    /// Tenants with settings.
    shares: HashMap<Tenant, Share>,
    /// Tenants with at least one open type that may have one more batch, and those of them that
    /// `Room` names.
    open: Candidates,
    needy: Candidates,
    kept: Candidates,
    kept_slots: Kept,
    /// The level of the last pick among all open tenants, when one of them had used the least.
    floor: Level,
    past: Past,
    /// Tenants that became open so far.
    arrivals: u64,
    /// The latest time that a caller has named.
    now: Duration,
    /// Tenants that had no jobs until now: in a draw, they get every second pick, once each, in
    /// order of arrival.
    newcomers: VecDeque<Tenant>,
    newcomer_next: bool,
    /// Whether new tenants count as newcomers; those from a round through the store do not.
    welcoming: bool,
    /// Types in the window.
    waiting: usize,
    /// Idle types, the longest idle first; entries may be outdated.
    idle: VecDeque<(TypeKey, u64)>,
    idle_number: u64,
    unhandled: Unhandled,
    /// Tenants whose feed is in these states.
    short: Line<Tenant>,
    dry: Line<Tenant>,
    crowded: Line<Tenant>,
    /// Tenants were turned away: the next round through all tenants lets them in.
    beyond: bool,
    /// The number of the current look at the store.
    look: u64,
    /// The number of the store's latest report on a type.
    reports: u64,
    rates: Rates,
    unrunnable: HashSet<HandlerId>,
    batches_running: usize,
    picks: u64,
}

/// The state of one type.
#[derive(Debug, Default)]
struct Entry {
    /// An estimate of how many jobs a claim would get. The type is in the window while it is above
    /// 0.
    ready: u64,
    /// All jobs ever noted.
    noted: u64,
    /// The look during which jobs were last noted, and how many: its answer does not include them.
    noted_in: (u64, u64),
    /// The look during which its handler or settings were changed here: its answer may be older.
    changed_in: u64,
    /// The number of the store's last report on it.
    last_report: u64,
    handler: Option<HandlerId>,
    /// Maximum number of batches of this handler at once. `None` until the handler has been read;
    /// until then one batch may run.
    contexts: Option<u32>,
    settings: Arc<TypeSettings>,
    /// Running batches, by the handler version for which they were picked.
    batches_running: BTreeMap<HandlerId, usize>,
    /// The priority of its most urgent job at the last claim.
    front: Option<Priority>,
    /// The claim of a batch is under way, and the type has a rate: only the answer says whether
    /// more of its jobs may start.
    starts_asked: bool,
    /// Picks since it entered the window.
    picks: u32,
    /// It has had its turn, and others of its tenant wait for theirs: a look readmits it.
    served: bool,
    /// Its number in `idle`; 0 for a type that is not idle.
    idle: u64,
    /// Picks that warm types got in place of this one (negative: that it got in place of others).
    debt: i32,
}

impl Scheduler {
    pub(crate) fn new(fairness: Fairness, slots: Slots, only: Option<HashSet<Tenant>>) -> Self {
        Scheduler {
            fairness,
            slots,
            only,
            types: HashMap::new(),
            tenants: HashMap::new(),
            shares: HashMap::new(),
            open: Candidates::new(fairness),
            needy: Candidates::new(fairness),
            kept: Candidates::new(fairness),
            kept_slots: Kept::default(),
            floor: Level::EMPTY,
            past: Past::default(),
            arrivals: 0,
            now: Duration::ZERO,
            newcomers: VecDeque::new(),
            newcomer_next: true,
            welcoming: true,
            waiting: 0,
            idle: VecDeque::new(),
            idle_number: 0,
            unhandled: Unhandled::default(),
            short: Line::default(),
            dry: Line::default(),
            crowded: Line::default(),
            beyond: false,
            look: 0,
            reports: 0,
            rates: Rates::default(),
            unrunnable: HashSet::new(),
            batches_running: 0,
            picks: 0,
        }
    }

    // ---- select, reserve, answer -------------------------------------------------------------

    /// Picks the type of the next batch, with its handler, if there is an open type and a slot for
    /// it.
    pub(crate) fn select(
        &mut self,
        warm: &HashSet<HandlerId>,
        rng: &mut fastrand::Rng,
        now: Duration,
    ) -> Option<(Pick, HandlerId)> {
        let key = self.draw(warm, rng, now)?;
        self.charge_pick(&key.tenant, now);
        let entry = self.types.get_mut(&key)?;
        let handler = entry.handler?;
        entry.picks = entry.picks.saturating_add(1);
        let limit = entry.ready.min(u64::from(u32::MAX)) as u32;
        let limit = limit.min(entry.settings.rate.map_or(u32::MAX, burst));
        let front = entry.front;
        Some((Pick { limit: limit.max(1), floor: self.next_floor(front, rng), key }, handler))
    }

    /// Reserves `wanted` jobs of a type for a claim, unless it rests: no other claim of this daemon
    /// counts on them. With a handler, also takes a slot for a batch of that version.
    pub(crate) fn reserve(
        &mut self,
        key: &TypeKey,
        settings: &TypeSettings,
        handler: Option<HandlerId>,
        wanted: u32,
        now: Duration,
    ) -> Reserved {
        let jobs = if self.may_start(key, settings, now) { wanted } else { 0 };
        let mut reserved = Reserved { jobs, noted: 0, last_report: 0 };
        if let Some(entry) = self.types.get_mut(key) {
            entry.ready = entry.ready.saturating_sub(u64::from(jobs));
            (reserved.noted, reserved.last_report) = (entry.noted, entry.last_report);
        }
        if let Some(handler) = handler {
            self.batch_begins(&key.tenant, now);
            let entry = self.types.entry(key.clone()).or_default();
            *entry.batches_running.entry(handler).or_default() += 1;
            entry.starts_asked = settings.rate.is_some();
        }
        self.let_others(key);
        self.place(key);
        reserved
    }

    /// The claim is answered: it would get `left` more jobs, not counting those noted since it
    /// began.
    pub(crate) fn answered(&mut self, key: &TypeKey, reserved: Reserved, left: u64) {
        let served = self.is_served(key);
        self.starts_answered(key);
        if let Some(entry) = self.types.get_mut(key).filter(|_| !served) {
            entry.ready = left + entry.noted.saturating_sub(reserved.noted);
            // A later look has reported on the type and may be newer.
            if entry.last_report != reserved.last_report {
                entry.may_have_more();
            }
        }
        self.place(key);
    }

    /// The claim did not happen, or the type rests: its jobs wait as before.
    pub(crate) fn give_back(&mut self, key: &TypeKey, reserved: Reserved) {
        self.starts_answered(key);
        let served = self.is_served(key);
        if let Some(entry) = self.types.get_mut(key).filter(|_| !served) {
            entry.ready += u64::from(reserved.jobs);
            entry.may_have_more();
        }
        self.place(key);
    }

    /// The most urgent job of a claim without a floor had this priority.
    pub(crate) fn note_front(&mut self, key: &TypeKey, front: Priority) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.front = Some(front);
        }
    }

    fn starts_answered(&mut self, key: &TypeKey) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.starts_asked = false;
        }
    }

    /// The store has answered that these types rest.
    pub(crate) fn rest(&mut self, rests: &[Rest], now: Duration) {
        for rest in rests {
            self.rates.rest(rest, now);
            self.place(&rest.key);
        }
    }

    /// Jobs of a type were taken by name.
    pub(crate) fn taken(&mut self, key: &TypeKey, jobs: u64) {
        if let Some(entry) = self.types.get_mut(key) {
            entry.ready = entry.ready.saturating_sub(jobs);
            entry.may_have_more();
            self.place(key);
        }
    }

    /// A batch has ended and frees its slot.
    pub(crate) fn free_slot(&mut self, key: &TypeKey, handler: HandlerId, now: Duration) {
        self.batch_ends(&key.tenant, now);
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

    /// When the next rest of a type ends.
    pub(crate) fn next_rested_at(&self) -> Option<Duration> {
        self.rates.next_end()
    }

    /// Types whose rest is over, each with how many jobs it may start now.
    pub(crate) fn take_rested(&mut self, now: Duration) -> Vec<(TypeKey, u32)> {
        let rested = self.rates.take_rested(now);
        rested.iter().for_each(|(key, _)| self.place(key));
        rested
    }

    /// Whether jobs of a type cannot start because it rests. Workers are woken when that is over.
    pub(crate) fn rests(&self, key: &TypeKey) -> bool {
        self.rates.rests(key)
    }

    /// Whether a claim may start jobs of a type with these settings.
    pub(crate) fn may_start(
        &mut self,
        key: &TypeKey,
        settings: &TypeSettings,
        now: Duration,
    ) -> bool {
        self.rates.follow(key, settings.rate);
        !self.rates.rests_at(key, now)
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

    /// The number of the store's last report on a type, for `handler_gone`.
    pub(crate) fn last_report(&self, key: &TypeKey) -> u64 {
        self.types.get(key).map_or(0, |entry| entry.last_report)
    }

    /// The store answered that a type has no handler, some time after `last_report`. A later report
    /// may be newer and stays; if it is not, the next claim finds out.
    pub(crate) fn handler_gone(&mut self, key: &TypeKey, last_report: u64) {
        if let Some(entry) =
            self.types.get_mut(key).filter(|entry| entry.last_report == last_report)
        {
            entry.set_handler(None);
            self.place(key);
        }
    }

    /// The handler has been read: `most` of its batches may run at once.
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
            && !entry.starts_asked
            && !self.rates.rests(key)
    }
}

/// What one claim has reserved of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reserved {
    pub jobs: u32,
    /// Jobs of the type noted before the reservation.
    noted: u64,
    /// The number of the store's last report on the type.
    pub last_report: u64,
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

    /// Other daemons may have added jobs, and no look reports them while the type is open: only a
    /// claim can show that it is empty.
    fn may_have_more(&mut self) {
        if self.handler.is_some() && !self.served {
            self.ready = self.ready.max(1);
        }
    }

    /// Whether its handler or settings were changed here during a look that reports others.
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
