//! Decisions about the jobs of a turn: orders to stop, time limits, deaths. Each first hears what
//! the context has said.

use std::time::Duration;

use windlass_core::AttemptId;
use windlass_core::runner::Stop;
use windlass_core::time::format_duration;

use super::{Phase, Turn, report_unbegun};
use crate::context::message::{Answer, Stage};
use crate::context::start::{GARBAGE, obituary};

impl Turn<'_> {
    /// Hears all that the context has said so far, and keeps it from beginning further jobs.
    /// Nothing is decided about a job before this.
    pub(super) async fn halt(&mut self) {
        self.halted = true;
        self.context.process.halt().await;
        if !self.hear_said().await {
            self.garbled().await;
        }
        if self.phase == Phase::Jobs {
            self.announce().await;
        }
    }

    /// This job is to end. One that runs is killed with its context. One that has not begun does
    /// not begin, and is reported at once; at a shutdown it is given back, unless it was said to
    /// have started. One that has ended keeps its result.
    pub(super) async fn stop(&mut self, id: AttemptId, why: Stop) {
        let Some(place) = self.ids.iter().position(|known| *known == id) else { return };
        self.halt().await;
        let is_current = place == self.running();
        let may_run = matches!(self.phase, Phase::BeforeEach | Phase::Jobs);
        if is_current && (may_run || self.at > place && self.phase == Phase::AfterEach) {
            self.die(why.as_str(), Some(why)).await;
        }
        let waits = self.flights[place].as_ref().is_some_and(|flight| !flight.has_ended());
        if waits && (why != Stop::Shutdown || *self.around.announced == Some(id)) {
            self.flights[place] = None;
            report_unbegun(id, why, self.around.reports, *self.around.announced).await;
        }
    }

    pub(super) async fn crowded(&mut self, reason: &str) {
        self.halt().await;
        if self.phase != Phase::Over {
            self.die(reason, None).await;
        }
    }

    /// The time limit of what runs now has passed, unless its end lies unread in the channel.
    pub(super) async fn time_out(&mut self) {
        let (at, phase) = (self.at, self.phase);
        let limit = self.limit - self.since;
        self.halt().await;
        if (self.at, self.phase) == (at, phase) {
            let reason = format!("{} after {}", Stop::TimedOut.as_str(), format_duration(limit));
            self.die(&reason, Some(Stop::TimedOut)).await;
        }
    }

    /// The context ended by itself.
    pub(super) async fn gone(&mut self) {
        let status = self.context.process.bury().await;
        self.drain_all();
        let reason = obituary(status);
        self.blame(&reason, None).await;
    }

    /// What the context says cannot be understood, and nothing behind that is worth hearing.
    pub(super) async fn garbled(&mut self) {
        self.context.process.kill().await;
        self.drain_all();
        self.blame(GARBAGE, None).await;
    }

    /// The context, which was halted, is killed because of the job, or script, that runs now. If
    /// that has ended before, nobody is to blame: no other job has begun since the halt.
    async fn die(&mut self, reason: &str, stopped: Option<Stop>) {
        let (at, phase) = (self.at, self.phase);
        self.context.process.kill().await;
        self.drain_all();
        self.context.process.hear_channel();
        self.hear_said().await;
        if (self.at, self.phase) == (at, phase) {
            return self.blame(reason, stopped).await;
        }
        self.spent = true;
        self.marks = None;
        self.phase = Phase::Over;
    }

    /// The context is dead. What runs now is to blame.
    async fn blame(&mut self, reason: &str, stopped: Option<Stop>) {
        self.spent = true;
        self.marks = None;
        let took = self.since.elapsed();
        match self.phase {
            Phase::Jobs => self.fail_current(reason, stopped, took).await,
            // An order to stop is about one job; the others run elsewhere.
            Phase::BeforeEach if stopped.is_some_and(|why| why != Stop::TimedOut) => {
                self.fail_current(reason, stopped, took).await;
            }
            // No script runs between two batches: what an earlier job left in the context ended it.
            Phase::BeforeEach if !self.around.has_before_each => {
                if self.around.is_fresh {
                    self.fail_current(reason, stopped, took).await;
                }
            }
            // The jobs are done, whatever becomes of the context.
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
        if let Some(flight) = self.current() {
            flight.fail(reason, stopped, took);
        }
    }

    pub(super) async fn script_failed(&mut self, phase: Phase, answer: &Answer<'_>) {
        let message = answer.message.as_deref().unwrap_or("no reason was given");
        let reason = format!("{} failed: {message}", stage_of(phase).as_str());
        if phase == Phase::BeforeEach {
            // No job runs, so no mark is written.
            self.marks = None;
        }
        self.fail_all(phase, &reason, None).await;
        self.phase = Phase::Over;
    }

    /// A script around the batch is to blame, so all jobs of the batch are concerned.
    async fn fail_all(&mut self, phase: Phase, reason: &str, stopped: Option<Stop>) {
        let took = self.since.elapsed() / self.flights.len().max(1) as u32;
        for at in 0..self.flights.len() {
            let Some(flight) = &mut self.flights[at] else { continue };
            if phase == Phase::AfterEach {
                flight.undo(reason);
            } else if !flight.has_ended() {
                if *self.around.announced != Some(flight.assignment.id) {
                    self.around.reports.started(flight.assignment.id).await;
                }
                flight.fail(reason, stopped, took);
            }
        }
    }
}

fn stage_of(phase: Phase) -> Stage {
    if phase == Phase::BeforeEach { Stage::BeforeEach } else { Stage::AfterEach }
}
