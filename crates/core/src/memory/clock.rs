//! The store's time, and jobs that come due as it passes.

use crate::job::Job;
use crate::state::State as JobState;
use crate::time::{Moment, Timestamp};

use super::State;

impl State {
    /// Moves to this moment: jobs come due, and if the wall clock was set, durations are shifted
    /// with it.
    pub(super) fn tick(&mut self, moment: Moment) {
        let before = std::mem::replace(&mut self.now, moment.wall);
        if let Some(step) = moment.step(self.offset) {
            self.shift(step);
            self.offset = moment.offset();
            self.note_unexpired(before);
        }
        self.note_due();
    }

    fn shift(&mut self, step: i64) {
        for row in self.jobs.values_mut() {
            if let Some(lease) = &mut row.job.lease {
                lease.expires_at = lease.expires_at.shifted(step);
            }
            if !row.due && row.job.waits_a_while() {
                row.job.run_at = row.job.run_at.shifted(step);
            }
        }
        for row in self.sysids.values_mut() {
            row.shift(step);
        }
        for row in self.types.values_mut() {
            row.spent = row.spent.shifted(step);
        }
        for put_at in self.pieces_waiting.values_mut() {
            *put_at = put_at.shifted(step);
        }
    }

    /// If the clock was set back, jobs may not be expired any more: their types get a new revision.
    fn note_unexpired(&mut self, before: Timestamp) {
        let jobs = self.jobs.values().map(|row| &row.job);
        let back = jobs.filter(|job| job.is_expired(before) && !job.is_expired(self.now));
        let keys: Vec<_> = back.map(|job| job.key.clone()).collect();
        keys.iter().for_each(|key| self.touch(key));
    }

    /// Types whose jobs came due since the last call get a new revision.
    fn note_due(&mut self) {
        let now = self.now;
        let rows = self.jobs.values_mut();
        let due = rows.filter(|row| !row.due && row.job.is_queued() && row.job.run_at <= now);
        let keys: Vec<_> = due
            .map(|row| {
                row.due = true;
                row.job.key.clone()
            })
            .collect();
        keys.iter().for_each(|key| self.touch(key));
    }
}

impl Job {
    pub(super) fn is_queued(&self) -> bool {
        self.state == JobState::Queued
    }

    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

impl super::Row {
    /// Whether a claim may take it.
    pub(super) fn is_ready(&self, now: Timestamp) -> bool {
        self.may_start(now) && !self.job.extra.hidden
    }

    /// Whether a claim, or a take that asks for hidden jobs, may have it.
    pub(super) fn may_start(&self, now: Timestamp) -> bool {
        self.due && self.job.is_queued() && !self.job.is_expired(now)
    }

    /// Updates whether it is due after it was queued or left the queue.
    pub(super) fn requeue(&mut self, now: Timestamp) {
        self.due = self.job.is_queued() && self.job.run_at <= now;
    }
}
