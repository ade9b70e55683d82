//! The jobs that a client knows, so that cancels, retries and parents refer to real ones. Only the
//! newest are kept.

use std::collections::VecDeque;

use crate::history::JobId;

/// Jobs that are kept of each kind.
pub const KNOWN_JOBS_MAX: usize = 512;

/// A job and its tenant, by index.
pub(super) type Known = (usize, JobId);

/// The newest jobs of one kind.
#[derive(Debug, Default)]
pub(super) struct Newest(VecDeque<Known>);

impl Newest {
    pub(super) fn add(&mut self, job: Known) {
        if self.0.len() == KNOWN_JOBS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(job);
    }

    pub(super) fn any(&self, rng: &mut fastrand::Rng) -> Option<Known> {
        if self.0.is_empty() { None } else { Some(self.0[rng.usize(..self.0.len())]) }
    }

    /// A job of one tenant, searched from a random place on.
    pub(super) fn any_of(&self, tenant: usize, rng: &mut fastrand::Rng) -> Option<JobId> {
        let start = rng.usize(..self.0.len().max(1));
        let turned = self.0.iter().skip(start).chain(self.0.iter().take(start));
        turned.into_iter().find(|job| job.0 == tenant).map(|job| job.1)
    }

    pub(super) fn remove(&mut self, id: JobId) -> bool {
        let place = self.0.iter().position(|job| job.1 == id);
        place.is_some_and(|place| self.0.swap_remove_back(place).is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// All jobs that a client knows.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// Added, and not known to have ended.
    pub(super) open: Newest,
    /// Held by a worker, so that they can be parents.
    pub(super) held: Newest,
    pub(super) ended: Newest,
}

impl Jobs {
    /// Returns whether it was open.
    pub(super) fn ended(&mut self, job: Known) -> bool {
        self.held.remove(job.1);
        let was_open = self.open.remove(job.1);
        if was_open {
            self.ended.add(job);
        }
        was_open
    }

    pub(super) fn gone(&mut self, id: JobId) {
        for kind in [&mut self.open, &mut self.held, &mut self.ended] {
            kind.remove(id);
        }
    }
}
