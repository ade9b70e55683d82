//! What the jobs of one batch hold in the daemon until they are reported: logs, emitted jobs and
//! results. With an `afterEach`, that is all of them together.
//!
//! A batch that reaches the bound is halted: the running job goes on to its end, and is bounded by
//! what one attempt may emit and return. The jobs that have ended are reported after `afterEach`,
//! and the others run in another turn.

use crate::context::flight::Flight;
use crate::output::Stream;

/// From this many bytes on, a batch begins no further job.
const BATCH_HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct HeldBytes(usize);

impl HeldBytes {
    pub(super) fn of(flights: &[Flight]) -> HeldBytes {
        HeldBytes(flights.iter().map(Flight::held_bytes).sum())
    }

    /// Every change of a job that is not reported yet is made through this.
    pub(super) fn change(&mut self, flight: &mut Flight, change: impl FnOnce(&mut Flight)) {
        let before = flight.held_bytes();
        change(flight);
        self.0 = self.0.saturating_sub(before) + flight.held_bytes();
    }

    /// Adds output to a job, unless there is none or the job has been reported.
    pub(super) fn push(&mut self, flight: Option<&mut Flight>, stream: Stream, bytes: &[u8]) {
        if let Some(flight) = flight.filter(|_| !bytes.is_empty()) {
            self.change(flight, |flight| flight.output.push(stream, bytes));
        }
    }

    /// The job is reported, and no longer held.
    pub(super) fn release(&mut self, flight: &Flight) {
        self.0 = self.0.saturating_sub(flight.held_bytes());
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.0 >= BATCH_HELD_BYTES_MAX
    }
}
