//! Reservations: a claim's share of a type's rate and slots. Dropping one returns what was not
//! used.

use std::sync::Arc;

use windlass_core::store::{Claimed, Pick, WaitingType};
use windlass_core::{HandlerId, Priority, TypeKey, TypeSettings};

use crate::schedule::{Reserved, Scheduler};
use crate::shared::Shared;

/// The right to claim jobs of one type.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    key: TypeKey,
    floor: Option<Priority>,
    jobs: u32,
    /// The type has a rate: the length of its rest depends on what is used.
    rated: bool,
    /// Present until the claim is answered.
    reserved: Option<Reserved>,
    slot: Option<Slot>,
}

/// The slot of one running batch; dropping it frees the slot.
pub(crate) struct Slot {
    shared: Arc<Shared>,
    key: TypeKey,
    handler: HandlerId,
    /// The number of the store's last report on the type before the reservation.
    last_report: u64,
}

impl Slot {
    /// The type of its batch.
    pub(crate) fn key(&self) -> &TypeKey {
        &self.key
    }

    pub(crate) fn last_report(&self) -> u64 {
        self.last_report
    }
}

impl Reservation {
    /// For a batch of the scheduler's pick, with a slot. Must not be dropped while the scheduler is
    /// locked.
    pub(crate) fn batch(
        shared: &Arc<Shared>,
        scheduler: &mut Scheduler,
        pick: Pick,
        handler: HandlerId,
    ) -> Reservation {
        let settings = scheduler.settings(&pick.key).unwrap_or_default();
        let now = shared.clock.steady();
        let reserved = scheduler.reserve(&pick.key, &settings, Some(handler), pick.limit, now);
        let last_report = reserved.last_report;
        let slot = Slot { shared: shared.clone(), key: pick.key.clone(), handler, last_report };
        Reservation {
            shared: shared.clone(),
            key: pick.key,
            floor: pick.floor,
            jobs: reserved.jobs,
            rated: settings.rate.is_some(),
            reserved: Some(reserved),
            slot: Some(slot),
        }
    }

    /// For a worker: as many jobs of an open type as it wants, as are ready, and as may start now.
    pub(crate) fn of_type(
        shared: &Arc<Shared>,
        of: &WaitingType,
        wanted: u32,
    ) -> Option<Reservation> {
        let wanted = wanted.min(u32::try_from(of.ready).unwrap_or(u32::MAX));
        let reservation = Reservation::of_rate(shared, &of.key, &of.settings, wanted);
        (reservation.jobs > 0).then_some(reservation)
    }

    /// For a search of the store: as many starts as the type's rate allows.
    pub(crate) fn of_rate(
        shared: &Arc<Shared>,
        key: &TypeKey,
        settings: &TypeSettings,
        wanted: u32,
    ) -> Reservation {
        let now = shared.clock.steady();
        let reserved = shared.ready.scheduler().reserve(key, settings, None, wanted, now);
        let rated = settings.rate.is_some();
        if rated {
            // The dispatcher wakes workers when the rest is over, and may be asleep for longer than
            // that.
            shared.ready.dispatch_wake.notify_one();
        }
        Reservation {
            shared: shared.clone(),
            key: key.clone(),
            floor: None,
            jobs: reserved.jobs,
            rated,
            reserved: Some(reserved),
            slot: None,
        }
    }

    pub(crate) fn key(&self) -> &TypeKey {
        &self.key
    }

    pub(crate) fn jobs(&self) -> u32 {
        self.jobs
    }

    pub(crate) fn floor(&self) -> Option<Priority> {
        self.floor
    }

    /// The claim got these jobs and would get `left` more. Returns the slot if there are jobs to
    /// run in it.
    pub(crate) fn answered(mut self, jobs: &[Claimed], left: u64) -> Option<Slot> {
        let got = jobs.len() as u32;
        let front = jobs.iter().map(|claimed| claimed.job.priority).max();
        if let Some(reserved) = self.reserved.take() {
            let now = self.shared.clock.steady();
            let mut scheduler = self.shared.ready.scheduler();
            scheduler.answered(&self.key, reserved, got, left, now);
            if let Some(front) = front.filter(|_| self.floor.is_none()) {
                scheduler.note_front(&self.key, front);
            }
            drop(scheduler);
            self.wake_if_unused(got);
        }
        self.slot.take().filter(|_| got > 0)
    }

    /// `jobs` starts were used; it is not known how many more jobs there are.
    pub(crate) fn used(mut self, jobs: u32) {
        self.release(jobs);
    }

    fn release(&mut self, used: u32) {
        if let Some(reserved) = self.reserved.take() {
            let now = self.shared.clock.steady();
            self.shared.ready.scheduler().give_back(&self.key, reserved, used, now);
            self.wake_if_unused(used);
        }
    }

    /// The type may start jobs earlier than planned.
    fn wake_if_unused(&self, used: u32) {
        if self.rated && used < self.jobs {
            self.shared.ready.dispatch_wake.notify_one();
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(0);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = self.shared.clock.steady();
        self.shared.ready.scheduler().free_slot(&self.key, self.handler, now);
        self.shared.ready.dispatch_wake.notify_one();
    }
}
