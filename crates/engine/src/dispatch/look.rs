//! Looks at the store for types that have jobs for this daemon, and wakes workers that wait for
//! them. A look reads what has changed since the last one. Feeding fills the scheduler's window
//! with types of tenants that are short of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use windlass_core::store::{self, ChangedLook, ChangedTypes, Revision, WaitingType};
use windlass_core::{Tenant, TypeKey};

use crate::house::service::Backoff;
use crate::schedule::window::TENANT_TYPES_MAX;
use crate::shared::Shared;

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
/// Between polls of a store that notifies of other daemons' work: a notification may be lost on a
/// half-open connection.
const HINTED_POLL: Duration = Duration::from_secs(5);
/// The pause after a failed look.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// What the dispatcher has seen of the store, and when it looks again.
pub(super) struct Look {
    shared: Arc<Shared>,
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
    pub(super) blind: Option<String>,
}

impl Look {
    pub(super) fn new(shared: Arc<Shared>) -> Look {
        let poll = Backoff::new(shared.options.poll_min, shared.options.poll_max);
        let now = Instant::now();
        Look {
            shared,
            poll,
            poll_at: now,
            look_from: now,
            feed_from: now,
            seen: None,
            seen_unhandled: Revision::default(),
            round: None,
            blind: None,
        }
    }

    /// Looks at the store for waiting types if there is a reason to: one page of each kind.
    pub(super) async fn if_due(&mut self) {
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
            (looked, did) = (self.changes(due).await, true);
            if looked.is_ok() && (due || wanted) {
                self.poll.reset();
            }
            let ended = Instant::now();
            self.look_from = ended + (ended - began) * LOOK_SHARE;
            let hinted = self.shared.store.capabilities().wakes;
            self.poll_at = ended + if hinted { HINTED_POLL } else { self.poll.pause() };
        }
        let began = Instant::now();
        if looked.is_ok() && began >= self.feed_from && self.feed_wanted() {
            (looked, did) = (self.feed().await, true);
            let ended = Instant::now();
            self.feed_from = ended + (ended - began) * LOOK_SHARE;
        }
        if did {
            let why = |error: &store::Error| format!("cannot read which types have jobs: {error}");
            self.blind = looked.as_ref().err().map(why);
        }
        if looked.is_err() {
            self.shared.ready.look_wanted.store(true, Ordering::SeqCst);
            self.look_from = began + LOOK_PAUSE;
            self.feed_from = self.look_from;
        }
    }

    /// One page of changes since the last look: of types with a handler, and of types that workers
    /// wait for.
    async fn changes(&mut self, due: bool) -> Result<(), store::Error> {
        self.shared.ready.look_wanted.store(false, Ordering::SeqCst);
        let next_due = self.shared.ready.next_due.send_replace(None);
        let looked = self.all_changes().await;
        let shared = &self.shared;
        match &looked {
            Ok(()) if due => shared.ready.waitlist.wake_hidden(),
            Ok(()) => {}
            // The due job is still due.
            Err(_) => next_due.into_iter().for_each(|at| shared.ready.announce_due(at)),
        }
        looked
    }

    async fn all_changes(&mut self) -> Result<(), store::Error> {
        let newest = self.changes_of_handled().await?;
        self.changes_of_unhandled(newest).await?;
        self.ask_about_unknown().await
    }

    /// Returns the newest revision in the store.
    async fn changes_of_handled(&mut self) -> Result<Revision, store::Error> {
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
    async fn changes_of_unhandled(&mut self, newest: Revision) -> Result<(), store::Error> {
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

    /// Asks which of the types that made this look necessary have no handler, so that their next
    /// jobs do not.
    async fn ask_about_unknown(&self) -> Result<(), store::Error> {
        let shared = &self.shared;
        let unknown = shared.ready.scheduler().unknown_types();
        if unknown.is_empty() {
            return Ok(());
        }
        let without = shared.store.type_unhandled(unknown.clone()).await?;
        shared.ready.scheduler().note_unhandled(&unknown, &without);
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
        let startable = types.iter().filter(|of| scheduler.may_start(&of.key, &of.settings, now));
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
    pub(super) fn wake_rested(&self) {
        let rested = self.shared.ready.scheduler().take_rested(self.shared.clock.steady());
        self.shared.ready.waitlist.wake(rested.iter().map(|(key, jobs)| (key, u64::from(*jobs))));
    }

    /// How long the dispatcher can sleep unless it is woken.
    pub(super) fn pause(&self) -> Duration {
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
        let due = due.map(|due| due.max(look));
        let others = [rested, due, looking, feeding].into_iter().flatten();
        others.fold(poll.max(look), Duration::min)
    }
}

/// A page of changes; no more types of a tenant than the window has room for.
fn changed_look(since: Option<Revision>, handled: bool) -> ChangedLook {
    ChangedLook { since, handled, each: TENANT_TYPES_MAX, limit: LOOK_TYPES_MAX }
}
