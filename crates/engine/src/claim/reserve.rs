//! Reservations: a claim's share of the jobs that the scheduler expects of a type, and a slot for a
//! batch. Dropping one returns what was not used.

use std::sync::Arc;

use windlass_core::store::{Claimed, Pick, WaitingType};
use windlass_core::{HandlerId, Priority, TypeKey};

use crate::schedule::{Reserved, Scheduler};
use crate::shared::Shared;

/// The right to claim jobs of one type.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    key: TypeKey,
    floor: Option<Priority>,
    jobs: u32,
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
            reserved: Some(reserved),
            slot: Some(slot),
        }
    }

    /// For a worker: as many jobs of an open type as it wants and as are ready, unless it rests.
    pub(crate) fn of_type(
        shared: &Arc<Shared>,
        of: &WaitingType,
        wanted: u32,
    ) -> Option<Reservation> {
        let wanted = wanted.min(u32::try_from(of.ready).unwrap_or(u32::MAX));
        let now = shared.clock.steady();
        let reserved = shared.ready.scheduler().reserve(&of.key, &of.settings, None, wanted, now);
        let reservation = Reservation {
            shared: shared.clone(),
            key: of.key.clone(),
            floor: None,
            jobs: reserved.jobs,
            reserved: Some(reserved),
            slot: None,
        };
        (reservation.jobs > 0).then_some(reservation)
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
        let front = jobs.iter().map(|claimed| claimed.job.priority).max();
        if let Some(reserved) = self.reserved.take() {
            let mut scheduler = self.shared.ready.scheduler();
            scheduler.answered(&self.key, reserved, left);
            if let Some(front) = front.filter(|_| self.floor.is_none()) {
                scheduler.note_front(&self.key, front);
            }
        }
        self.slot.take().filter(|_| !jobs.is_empty())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.shared.ready.scheduler().give_back(&self.key, reserved);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = self.shared.clock.steady();
        self.shared.ready.scheduler().free_slot(&self.key, self.handler, now);
        self.shared.ready.dispatch_wake.notify_one();
    }
}
