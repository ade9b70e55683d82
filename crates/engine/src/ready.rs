//! Who hears that jobs may run: the scheduler, the dispatcher and workers that wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, watch};

use windlass_core::sync::lock;
use windlass_core::{Timestamp, TypeKey};

use crate::claim::waitlist::Waitlist;
use crate::schedule::Scheduler;

pub(crate) struct ReadySignals {
    scheduler: Mutex<Scheduler>,
    /// Workers that wait for jobs.
    pub waitlist: Waitlist,
    /// Wakes the dispatcher: something may run, or a slot is free.
    pub dispatch_wake: Arc<Notify>,
    /// The dispatcher's next pass begins with a look at the store.
    pub look_wanted: AtomicBool,
    /// A claim hit a type's concurrency limit: look again when a job ends.
    pub limit_hit: AtomicBool,
    /// The earliest moment at which a job that is deferred comes due, as far as we know.
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

    /// Jobs of these types may run now: tells the scheduler, the dispatcher and waiting workers.
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

    /// A job of this type runs no more: where a limit kept others back, there may be room for one.
    pub(crate) fn announce_room(&self, key: &TypeKey) {
        let settings = self.scheduler().settings(key);
        if settings.is_some_and(|settings| settings.concurrency.is_some()) {
            self.look();
        }
        self.announce_any_room();
    }

    /// A job of some type runs no more.
    pub(crate) fn announce_any_room(&self) {
        if self.limit_hit.load(Ordering::SeqCst) {
            // Those who wait do not look again before there is room in their own type.
            self.limit_hit.store(!self.waitlist.is_empty(), Ordering::SeqCst);
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
