//! Dispatch: while there are free slots, pick a type, claim a small batch, and hand it to the
//! runner.
//!
//! Wake-ups instead of polling: adds and ended jobs of this daemon wake it at once. It learns of
//! other daemons' work from the store's notifications, or by polling at growing intervals.

pub(crate) mod batch;
pub(crate) mod catalogue;
mod caught;
pub(crate) mod policy;
pub(crate) mod progress;
pub(crate) mod running;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::store::{self, ChangedLook, ChangedTypes, Claimed, Hold, Revision, WaitingType};
use windlass_core::{Handler, HandlerId, Payload, Tenant, TypeKey};

use crate::claim;
use crate::claim::reserve::{Reservation, Slot};
use crate::dispatch::policy::Policy;
use crate::dispatch::running::RunningJob;
use crate::error::Error;
use crate::house::service::{Backoff, Failed, Next, Service};
use crate::schedule::window::TENANT_TYPES_MAX;
use crate::settle::queue::SettleItem;
use crate::shared::Shared;

/// Batches in one claim.
const PICKS_MAX: usize = 64;
/// Looks at the store may take one part in this many of the daemon's time.
const LOOK_SHARE: u32 = 10;
/// Types in one page of a look.
const LOOK_TYPES_MAX: usize = 1000;
/// Types of each tenant in a round through all tenants.
const FIRST_TYPES: usize = 4;
/// Dry tenants that each poll tries again.
const DRY_TENANTS_MAX: usize = 64;
/// Short tenants that get more types in one look, and how many types each.
const SHORT_TENANTS_MAX: usize = 64;
const NEXT_TYPES: usize = 32;
/// The pause after a failed claim.
const CLAIM_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Dispatch {
    shared: Arc<Shared>,
    batches: TaskTracker,
    poll: Backoff,
    poll_at: Instant,
    /// No look before this moment, so that many waiting types do not use up the daemon's time.
    look_from: Instant,
    /// The same for feeding the window. Looks for changes do not wait for it.
    feed_from: Instant,
    /// The last seen revision of types with a handler.
    seen: Option<Revision>,
    /// The same for types without a handler, which only workers take. It advances while no worker
    /// waits.
    seen_unhandled: Revision,
    /// The progress of a round through all tenants of the store, while one is under way.
    round: Option<Option<Tenant>>,
    /// The error of the last look, if it failed.
    blind: Option<String>,
}

impl Dispatch {
    pub(crate) fn new(shared: Arc<Shared>, batches: TaskTracker) -> Dispatch {
        let poll = Backoff::new(shared.options.poll_min, shared.options.poll_max);
        let now = Instant::now();
        let (seen, seen_unhandled, round) = (None, Revision::default(), None);
        Dispatch {
            shared,
            batches,
            poll,
            poll_at: now,
            look_from: now,
            feed_from: now,
            seen,
            seen_unhandled,
            round,
            blind: None,
        }
    }

    /// Looks at the store for waiting types if there is a reason to: one page of each kind.
    async fn look_if_due(&mut self) {
        let began = Instant::now();
        let shared = &self.shared;
        let due = shared.ready.next_due.borrow().is_some_and(|at| at <= shared.now());
        let wanted = shared.ready.look_wanted.load(Ordering::SeqCst);
        let polling = began >= self.poll_at;
        let (mut looked, mut did) = (Ok(()), false);
        if (due || wanted || polling) && began >= self.look_from {
            if polling {
                shared.ready.scheduler().retry_dry(DRY_TENANTS_MAX);
            }
            (looked, did) = (self.look_for_changes(due).await, true);
            if looked.is_ok() && (due || wanted) {
                self.poll.reset();
            }
            self.look_from = Instant::now() + began.elapsed() * LOOK_SHARE;
            self.poll_at = Instant::now() + self.poll.pause();
        }
        let began = Instant::now();
        if looked.is_ok() && began >= self.feed_from && self.feed_wanted() {
            (looked, did) = (self.feed().await, true);
            self.feed_from = Instant::now() + began.elapsed() * LOOK_SHARE;
        }
        if did {
            let why = |error: &store::Error| format!("cannot see what waits: {error}");
            self.blind = looked.as_ref().err().map(why);
        }
        if looked.is_err() {
            self.shared.ready.look_wanted.store(true, Ordering::SeqCst);
            self.look_from = began + CLAIM_PAUSE;
            self.feed_from = self.look_from;
        }
    }

    /// One page of changes since the last look: of types with a handler, and of types that workers
    /// wait for.
    async fn look_for_changes(&mut self, due: bool) -> Result<(), store::Error> {
        self.shared.ready.look_wanted.store(false, Ordering::SeqCst);
        let next_due = self.shared.ready.next_due.send_replace(None);
        let looked = match self.look_for_handled().await {
            Ok(newest) => self.look_for_unhandled(newest).await,
            Err(error) => Err(error),
        };
        let shared = &self.shared;
        match &looked {
            Ok(()) if due => shared.ready.waitlist.wake_hidden(),
            Ok(()) => {}
            // The due job is still due.
            Err(_) => next_due.into_iter().for_each(|at| shared.ready.announce_due(at)),
        }
        looked
    }

    /// Returns the newest revision in the store.
    async fn look_for_handled(&mut self) -> Result<Revision, store::Error> {
        let shared = &self.shared;
        shared.ready.scheduler().look_begins();
        let changed = shared.store.type_changed(changed_look(self.seen, true)).await?;
        let ChangedTypes { types, cut, up_to, newest, more, next_due_at } = changed;
        self.wake_workers(&types, &cut);
        next_due_at.into_iter().for_each(|at| shared.ready.announce_due(at));
        let mut scheduler = shared.ready.scheduler();
        let again = scheduler.apply_changes(types);
        cut.iter().for_each(|tenant| scheduler.has_more(tenant));
        drop(scheduler);
        if self.seen.replace(again.unwrap_or(up_to)).is_none() {
            self.round = Some(None);
        }
        if more || again.is_some() {
            shared.ready.look_wanted.store(true, Ordering::SeqCst);
        }
        Ok(newest)
    }

    /// If no worker waits, older changes can be skipped: a worker that comes later looks for itself
    /// first.
    async fn look_for_unhandled(&mut self, newest: Revision) -> Result<(), store::Error> {
        let shared = &self.shared;
        if shared.ready.waitlist.is_empty() {
            self.seen_unhandled = newest;
            return Ok(());
        }
        let look = changed_look(Some(self.seen_unhandled), false);
        let ChangedTypes { types, cut, up_to, more, .. } = shared.store.type_changed(look).await?;
        self.wake_workers(&types, &cut);
        shared.ready.scheduler().apply_changes(types);
        self.seen_unhandled = up_to;
        if more {
            shared.ready.look_wanted.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Wakes workers that wait for types that opened, including workers that came during the look.
    fn wake_workers(&self, types: &[WaitingType], cut: &[Tenant]) {
        let shared = &self.shared;
        if shared.ready.waitlist.is_empty() {
            return;
        }
        let now = shared.clock.steady();
        let mut scheduler = shared.ready.scheduler();
        let startable = types.iter().filter(|of_type| scheduler.may_start(of_type, now));
        let ready: Vec<(&TypeKey, u64)> =
            startable.map(|of_type| (&of_type.key, of_type.ready)).collect();
        drop(scheduler);
        shared.ready.waitlist.wake(ready);
        cut.iter().for_each(|tenant| shared.ready.waitlist.wake_all_of(tenant));
    }

    /// Whether there are types in the store for which the window has room.
    fn feed_wanted(&self) -> bool {
        self.round.is_some() || self.shared.ready.scheduler().wants_types()
    }

    /// Feeds the window from the store: a page of a round through all tenants, and the next types
    /// of tenants that are short of them.
    async fn feed(&mut self) -> Result<(), store::Error> {
        let shared = &self.shared;
        if shared.ready.scheduler().take_beyond() {
            self.round = Some(None);
        }
        if let Some(after) = self.round.take() {
            shared.ready.scheduler().look_begins();
            let (each, limit) = (FIRST_TYPES, LOOK_TYPES_MAX);
            let first = shared.store.type_first(after.clone(), each, limit).await;
            let first = first.inspect_err(|_| self.round = Some(after))?;
            let last = first.last().map(|of_type| of_type.key.tenant.clone());
            self.round = last.filter(|_| first.len() >= limit).map(Some);
            shared.ready.scheduler().feed_first(first, each);
        }
        let short = shared.ready.scheduler().take_short(SHORT_TENANTS_MAX);
        if !short.is_empty() {
            shared.ready.scheduler().look_begins();
            let next = shared.store.type_next(short.clone(), NEXT_TYPES).await;
            // Without an answer they stay short and are asked for again.
            let answer = next.as_deref().unwrap_or_default();
            let mut scheduler = shared.ready.scheduler();
            match &next {
                Ok(_) => scheduler.feed_next(&short, answer, NEXT_TYPES),
                Err(_) => scheduler.still_short(&short),
            }
            drop(scheduler);
            next?;
        }
        Ok(())
    }

    /// Wakes workers that wait for types whose rest is over.
    fn wake_rested(&self) {
        let rested = self.shared.ready.scheduler().take_rested(self.shared.clock.steady());
        self.shared.ready.waitlist.wake(rested.iter().map(|(key, jobs)| (key, u64::from(*jobs))));
    }

    /// Picks types for the free slots and reserves their jobs.
    fn pick(&self) -> Vec<Reservation> {
        let shared = &self.shared;
        let mut reservations = Vec::new();
        if !shared.picking.load(Ordering::SeqCst) {
            return reservations;
        }
        let warm = shared.runner.warm().into_iter().collect();
        let mut scheduler = shared.ready.scheduler();
        let mut rng = shared.rng();
        let mut left = BATCH_JOBS_MAX as u32;
        while reservations.len() < PICKS_MAX && left > 0 {
            let Some((mut pick, handler)) = scheduler.select(&warm, &mut rng) else { break };
            pick.limit = pick.limit.min(self.batch_max(handler)).min(left);
            let reservation = Reservation::batch(shared, &mut scheduler, pick, handler);
            left -= reservation.jobs();
            reservations.push(reservation);
        }
        reservations
    }

    /// The first batch of an unknown handler is one job, which loads the handler.
    fn batch_max(&self, handler: HandlerId) -> u32 {
        let known = self.shared.catalogue.known(handler);
        known.map_or(1, |handler| self.shared.runner.batch_max(&handler).max(1))
    }

    async fn claim(&self, reservations: Vec<Reservation>) -> Result<(), store::Error> {
        let shared = &self.shared;
        let hold = Hold::Beat(shared.daemon.grant.boot);
        // Under way until all claimed jobs are in the running table.
        let (filled, _under_way) = claim::claim(shared, reservations, hold).await?;
        for (jobs, slot) in filled {
            if let Some(slot) = slot {
                self.start_batch(slot, jobs).await;
            }
        }
        Ok(())
    }

    async fn start_batch(&self, slot: Slot, jobs: Vec<Claimed>) {
        let shared = &self.shared;
        let key = slot.key();
        let handler = self.handler_for(&slot, jobs[0].handler).await;
        let settings = shared.ready.scheduler().settings(key).unwrap_or_default();
        let policy = Arc::new(Policy::of(handler.as_deref(), &settings, &shared.options));
        let mut running = Vec::with_capacity(jobs.len());
        for Claimed { job, payload, .. } in jobs {
            let Some(lease) = job.lease else { continue };
            let claimed = RunningJob::new(job, lease.token, policy.clone());
            shared.running.insert(claimed.clone());
            running.push((claimed, payload));
        }
        match handler {
            Some(handler) => {
                self.batches.spawn(caught::run(shared.clone(), handler, slot, running));
            }
            None => {
                drop(slot);
                self.hand_back(running).await;
            }
        }
    }

    /// The handler to run, if there is one that this machine can run.
    async fn handler_for(&self, slot: &Slot, version: Option<HandlerId>) -> Option<Arc<Handler>> {
        let (shared, key) = (&self.shared, slot.key());
        let version = version.or_else(|| {
            shared.ready.scheduler().handler_gone(key, slot.last_report());
            None
        })?;
        let handler = match shared.catalogue.get(shared.store.as_ref(), key, version).await {
            Ok(handler) => handler?,
            Err(error) => {
                tracing::warn!(%error, r#type = %key, "cannot read a handler");
                return None;
            }
        };
        // The check looks for programs on the disk; a handler with a warm context has passed it.
        let is_warm = shared.runner.warm().contains(&version);
        let unfit = (!is_warm).then(|| shared.runner.check(&handler.spec).err()).flatten();
        if let Some(why) = unfit {
            tracing::warn!(r#type = %key, %why, "this machine cannot run a handler");
            shared.ready.scheduler().set_unrunnable(key, version);
            return None;
        }
        let batches_max = shared.runner.batches_max(&handler);
        let mut scheduler = shared.ready.scheduler();
        scheduler.set_handler(key, version);
        scheduler.set_contexts(key, version, batches_max);
        drop(scheduler);
        Some(handler)
    }

    /// Releases jobs whose handler was removed in the meantime.
    async fn hand_back(&self, jobs: Vec<(RunningJob, Payload)>) {
        for (running, _) in jobs {
            self.shared.settle.send(SettleItem::release(running, None)).await;
        }
    }

    /// How long the dispatcher can sleep unless it is woken.
    fn pause(&self) -> Duration {
        let shared = &self.shared;
        let now = shared.now();
        let rested = shared.ready.scheduler().next_rested_at();
        let rested = rested.map(|at| at.saturating_sub(shared.clock.steady()));
        let due = shared.ready.next_due.borrow().map(|at| at.since(now));
        let instant = Instant::now();
        let look = self.look_from.saturating_duration_since(instant);
        let looking = shared.ready.look_wanted.load(Ordering::SeqCst).then_some(look);
        let feed = self.feed_from.saturating_duration_since(instant);
        let feeding = self.feed_wanted().then_some(feed);
        let poll = self.poll_at.saturating_duration_since(instant);
        let poll = (!shared.store.capabilities().wakes).then_some(poll);
        let (due, poll) = (due.map(|due| due.max(look)), poll.map(|poll| poll.max(look)));
        [rested, due, looking, feeding, poll].into_iter().flatten().min().unwrap_or(Duration::MAX)
    }
}

/// A page of changes; no more types of a tenant than the window has room for.
fn changed_look(since: Option<Revision>, handled: bool) -> ChangedLook {
    ChangedLook { since, handled, each: TENANT_TYPES_MAX, limit: LOOK_TYPES_MAX }
}

#[async_trait]
impl Service for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    /// The scheduler may count jobs as claimed that the panic kept from being claimed.
    async fn recover(&mut self) -> Result<(), Error> {
        self.shared.ready.look();
        Ok(())
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        self.look_if_due().await;
        self.wake_rested();
        let wanted = self.pick();
        let mut next = Next::Now;
        if wanted.is_empty() {
            next = Next::After(self.pause());
        } else if let Err(error) = self.claim(wanted).await {
            return Err(Failed::new(format!("cannot claim jobs: {error}"), CLAIM_PAUSE));
        }
        match &self.blind {
            None => Ok(next),
            Some(why) => Err(Failed::new(why, next.pause())),
        }
    }
}
