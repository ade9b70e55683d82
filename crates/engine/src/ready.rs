//! Announcements that jobs may run: to the scheduler, the dispatcher and waiting workers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use windlass_core::store::Rest;
use windlass_core::sync::lock;
use windlass_core::{Timestamp, TypeKey};

use crate::claim::waitlist::Waitlist;
use crate::schedule::Scheduler;

pub(crate) struct ReadySignals {
    scheduler: Mutex<Scheduler>,
    /// Workers waiting for jobs.
    pub waitlist: Waitlist,
    /// Wakes the dispatcher: a job may run, or a slot is free.
    pub dispatch_wake: Arc<Notify>,
    /// The dispatcher's next pass starts with a look at the store.
    pub look_wanted: AtomicBool,
    /// A claim hit a type's concurrency limit: look again when a job ends.
    limit_hit: AtomicBool,
    /// When the earliest known deferred job comes due.
    pub next_due: watch::Sender<Option<Timestamp>>,
}

impl ReadySignals {
    pub(crate) fn new(scheduler: Scheduler) -> ReadySignals {
        ReadySignals {
            scheduler: Mutex::new(scheduler),
            waitlist: Waitlist::default(),
            dispatch_wake: Arc::default(),
            look_wanted: AtomicBool::new(true),
            limit_hit: AtomicBool::new(false),
            next_due: watch::Sender::new(None),
        }
    }

    pub(crate) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        lock(&self.scheduler)
    }

    /// Jobs of these types may run now: informs the scheduler, the dispatcher and waiting workers.
    pub(crate) fn announce(&self, ready: impl IntoIterator<Item = (TypeKey, u64)>) {
        let ready: Vec<(TypeKey, u64)> = ready.into_iter().collect();
        if ready.is_empty() {
            return;
        }
        let mut known = true;
        let mut startable = Vec::with_capacity(ready.len());
        {
            let mut scheduler = self.scheduler();
            for (key, jobs) in &ready {
                known &= scheduler.note(key, *jobs);
                if !scheduler.rests(key) {
                    startable.push((key, *jobs));
                }
            }
        }
        if !known {
            self.look_wanted.store(true, Ordering::SeqCst);
        }
        self.waitlist.wake(startable);
        self.dispatch_wake.notify_one();
    }

    /// The store has answered that these types rest. The dispatcher wakes workers when that is
    /// over, and may be asleep for longer than that.
    pub(crate) fn rest(&self, rests: &[Rest], now: Duration) {
        if !rests.is_empty() {
            self.scheduler().rest(rests, now);
            self.dispatch_wake.notify_one();
        }
    }

    /// A claim found a type at its limit. True if that was not known: room that came before is not
    /// announced, so the caller looks again.
    pub(crate) fn set_limit_hit(&self) -> bool {
        !self.limit_hit.swap(true, Ordering::SeqCst)
    }

    /// A job of this type no longer runs: if a limit held others back, one of them may run now.
    pub(crate) fn announce_room(&self, key: &TypeKey) {
        let settings = self.scheduler().settings(key);
        if settings.is_some_and(|settings| settings.concurrency.is_some()) {
            self.look();
        }
        self.announce_any_room();
    }

    /// A job of some type no longer runs.
    pub(crate) fn announce_any_room(&self) {
        if self.limit_hit.swap(false, Ordering::SeqCst) {
            // Waiting workers do not look again before there is room in their own type.
            if !self.waitlist.is_empty() {
                self.limit_hit.store(true, Ordering::SeqCst);
            }
            self.look();
        }
    }

    /// A job comes due at `at`: the dispatcher must look at the store then.
    pub(crate) fn announce_due(&self, at: Timestamp) {
        let earlier = self.next_due.send_if_modified(|due| {
            let earlier = due.is_none_or(|due| at < due);
            if earlier {
                *due = Some(at);
            }
            earlier
        });
        if earlier {
            self.dispatch_wake.notify_one();
        }
    }

    /// Makes the dispatcher look at the store at once.
    pub(crate) fn look(&self) {
        self.look_wanted.store(true, Ordering::SeqCst);
        self.dispatch_wake.notify_one();
    }
}
