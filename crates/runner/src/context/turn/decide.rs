//! Decisions about the jobs of a turn: orders to stop, time limits, deaths. Each first reads
//! everything that the context has written.

use std::time::Duration;

use windlass_core::AttemptId;
use windlass_core::runner::Stop;
use windlass_core::time::format_duration;

use super::{Phase, Turn, report_unbegun};
use crate::context::message::{ContextAnswer, Stage};
use crate::context::start::{GARBAGE, describe_exit};

impl Turn<'_> {
    /// Reads everything that the context has written so far, and keeps it from beginning further
    /// jobs. Nothing is decided about a job before this.
    pub(super) async fn halt(&mut self) {
        let is_first = !self.halted;
        self.halted = true;
        self.context.process.halt().await;
        if !self.handle_buffered().await {
            self.invalid_answer().await;
        }
        if is_first {
            self.last = self.at;
        }
        if self.phase == Phase::Jobs {
            self.announce().await;
        }
    }

    /// Stops this job. A running one is killed with its context. One that has not begun does not
    /// begin, and is reported at once; at a shutdown it is returned, unless it was reported as
    /// started. One that has ended keeps its result.
    pub(super) async fn stop(&mut self, id: AttemptId, why: Stop) {
        let Some(place) = self.ids.iter().position(|known| *known == id) else { return };
        self.halt().await;
        let is_current = place == self.running();
        let may_run = matches!(self.phase, Phase::BeforeEach | Phase::Jobs);
        if is_current && (may_run || self.at > place && self.phase == Phase::AfterEach) {
            self.kill_context(why.as_str(), Some(why)).await;
        }
        let waits = self.flights[place].as_ref().is_some_and(|flight| !flight.has_ended());
        if waits && (why != Stop::Shutdown || *self.parameters.announced == Some(id)) {
            if let Some(flight) = self.flights[place].take() {
                self.held.release(&flight);
            }
            report_unbegun(id, why, self.parameters.reports, *self.parameters.announced).await;
        }
    }

    pub(super) async fn over_limit(&mut self, reason: &str) {
        self.halt().await;
        if self.phase != Phase::Over {
            self.kill_context(reason, None).await;
        }
    }

    /// The time limit of the running job or script has passed, unless its end is still unread in
    /// the channel.
    pub(super) async fn time_out(&mut self) {
        let (at, phase) = (self.at, self.phase);
        let limit = self.limit - self.since;
        self.halt().await;
        if (self.at, self.phase) == (at, phase) {
            let reason = format!("{} after {}", Stop::TimedOut.as_str(), format_duration(limit));
            self.kill_context(&reason, Some(Stop::TimedOut)).await;
        }
    }

    /// The context exited by itself.
    pub(super) async fn exited(&mut self) {
        let status = self.context.process.wait_for_exit().await;
        self.drain_all();
        let reason = describe_exit(status);
        self.context_died(&reason, None).await;
    }

    /// The context wrote something invalid, and nothing after that counts.
    pub(super) async fn invalid_answer(&mut self) {
        self.context.process.kill().await;
        self.drain_all();
        self.context_died(GARBAGE, None).await;
    }

    /// Kills the halted context because of the running job or script. If that has ended before,
    /// nothing is to blame: no other job has begun since the halt.
    async fn kill_context(&mut self, reason: &str, stopped: Option<Stop>) {
        let (at, phase) = (self.at, self.phase);
        self.context.process.kill().await;
        self.drain_all();
        self.context.process.read_channel();
        self.handle_buffered().await;
        if (self.at, self.phase) == (at, phase) {
            return self.context_died(reason, stopped).await;
        }
        self.spent = true;
        self.marks = None;
        self.phase = Phase::Over;
    }

    /// The context is dead, because of what was running.
    async fn context_died(&mut self, reason: &str, stopped: Option<Stop>) {
        self.spent = true;
        self.marks = None;
        let took = self.since.elapsed();
        match self.phase {
            Phase::Jobs => self.fail_current(reason, stopped, took).await,
            // An order to stop concerns one job; the others run elsewhere.
            Phase::BeforeEach if stopped.is_some_and(|why| why != Stop::TimedOut) => {
                self.fail_current(reason, stopped, took).await;
            }
            // No script runs between two batches: an earlier job left something that ended the
            // context.
            Phase::BeforeEach if !self.parameters.has_before_each => {
                if self.parameters.is_fresh {
                    self.fail_current(reason, stopped, took).await;
                }
            }
            // The jobs are done, whatever happens to the context.
            Phase::AfterEach if stopped.is_some_and(|why| why != Stop::TimedOut) => {}
            phase @ (Phase::BeforeEach | Phase::AfterEach) => {
                let reason = format!("{}: {reason}", stage_of(phase).as_str());
                self.fail_all(phase, &reason, stopped).await;
            }
            Phase::Over => {}
        }
        self.phase = Phase::Over;
    }

    async fn fail_current(&mut self, reason: &str, stopped: Option<Stop>, took: Duration) {
        self.announce().await;
        self.change_current(|flight| flight.fail(reason, stopped, took));
    }

    pub(super) async fn script_failed(&mut self, phase: Phase, answer: &ContextAnswer<'_>) {
        let message = answer.message.as_deref().unwrap_or("no reason was given");
        let reason = format!("{} failed: {message}", stage_of(phase).as_str());
        if phase == Phase::BeforeEach {
            // No job runs, so no mark is written.
            self.marks = None;
        }
        self.fail_all(phase, &reason, None).await;
        self.phase = Phase::Over;
    }

    /// A script around the batch failed, which affects all jobs of the batch.
    async fn fail_all(&mut self, phase: Phase, reason: &str, stopped: Option<Stop>) {
        let took = self.since.elapsed() / self.flights.len().max(1) as u32;
        for at in 0..self.flights.len() {
            let Some(flight) = &mut self.flights[at] else { continue };
            if phase == Phase::AfterEach {
                self.held.change(flight, |flight| flight.undo(reason));
            } else if !flight.has_ended() {
                if *self.parameters.announced != Some(flight.assignment.id) {
                    self.parameters.reports.started(flight.assignment.id).await;
                }
                self.held.change(flight, |flight| flight.fail(reason, stopped, took));
            }
        }
    }
}

fn stage_of(phase: Phase) -> Stage {
    if phase == Phase::BeforeEach { Stage::BeforeEach } else { Stage::AfterEach }
}
