//! One batch in one context, from the request to the last answer.
//!
//! ```text
//! ask ─► beforeEach ─► job 0 ─► job 1 ─► … ─► job n ─► afterEach
//!          begun        end 0    end 1          end n      done
//! ```
//! The context works ahead without waiting for us. An `end` is also the start of the next job, so
//! the job that a death, a time limit or an order to stop concerns is always known: the first one
//! without an `end`. The jobs after it have not started, and run in another turn.
//!
//! That holds only for what has been read. So everything that the context has written is read
//! before anything is decided: an order or a time limit first halts the batch (`halt`), then the
//! channel is read, and only then is it clear which job the decision concerns. A job that has ended
//! by then keeps its result, and one that has not begun never will.
//!
//! What the jobs of a batch hold until they are reported is bounded (`held`): a batch that reaches
//! the bound is halted too, and its other jobs run in another turn.

mod decide;
mod held;

use std::sync::Arc;
use std::time::Duration;

use memchr::memmem;
use tokio::time::Instant;
use windlass_core::runner::{Reports, Stop};
use windlass_core::{AttemptId, Clock};

use self::held::HeldBytes;
use crate::context::flight::Flight;
use crate::context::message::{ContextAnswer, Kind};
use crate::context::nonce::Nonce;
use crate::context::process::ContextEvent;
use crate::context::result;
use crate::context::start::Context;
use crate::mask::Mask;
use crate::output::Stream;
use crate::process::stopped_before_start;
use crate::stop::Watch;

/// A context that has written nothing to its ordinary outputs for this many jobs is not asked for
/// marks.
const QUIET_JOBS_MIN: u32 = 200;
/// How long the marks of a job may arrive after its end. They are written before it, so this is
/// reached only if a handler has closed or redirected an output.
const MARK_WAIT_MAX: Duration = Duration::from_millis(200);

/// How long to read a context before yielding: one that never stops writing must not delay the
/// renewal of leases.
const TURN_MAX: Duration = Duration::from_millis(1);

/// What a turn needs besides its context and its jobs.
pub(super) struct TurnParameters<'a> {
    pub(super) watch: &'a mut Watch,
    pub(super) reports: &'a dyn Reports,
    pub(super) clock: &'a dyn Clock,
    pub(super) mask: &'a Arc<Mask>,
    /// Cost of starting the context and loading the handler.
    pub(super) start_time: Duration,
    /// The job last reported as started.
    pub(super) announced: &'a mut Option<AttemptId>,
    /// Whether the context has not run any job before.
    pub(super) is_fresh: bool,
    pub(super) has_before_each: bool,
    /// Whether reports wait for `afterEach`, which is part of each job's cost and success.
    pub(super) has_after_each: bool,
}

/// Whether the context can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTurn {
    Usable,
    Spent,
}

pub(super) struct Turn<'a> {
    context: &'a mut Context,
    parameters: TurnParameters<'a>,
    ids: Vec<AttemptId>,
    nonces: Vec<Nonce>,
    /// Absent once the job has been reported.
    flights: Vec<Option<Flight>>,
    phase: Phase,
    /// The first job without an `end`.
    at: usize,
    /// Whether the context is halted: it begins no further job of this batch, except perhaps the
    /// first without an `end`.
    halted: bool,
    /// The last job that may still end: of those without an `end` at a halt, only the first has
    /// begun.
    last: usize,
    held: HeldBytes,
    /// The first job without a report.
    reported: usize,
    marks: Option<Marks>,
    /// Deadline of the running job or script.
    limit: Instant,
    since: Instant,
    last_timeout: Duration,
    /// Cost of the scripts, shared by all jobs.
    scripts: Duration,
    spent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    BeforeEach,
    Jobs,
    AfterEach,
    Over,
}

/// The position in the ordinary outputs: the job that each belongs to now, and the beginning of
/// what may become a mark.
#[derive(Default)]
struct Marks {
    at: [usize; 2],
    held: [Vec<u8>; 2],
    /// Since when the first report has been waiting for its marks.
    missing_since: Option<Instant>,
}

impl<'a> Turn<'a> {
    /// The request has been sent; `flights` are its jobs, in order.
    pub(super) fn new(
        context: &'a mut Context,
        parameters: TurnParameters<'a>,
        flights: Vec<Flight>,
        nonces: Vec<Nonce>,
        marked: bool,
    ) -> Turn<'a> {
        let now = Instant::now();
        let limit = now + flights.first().map_or(Duration::ZERO, |job| job.assignment.timeout);
        Turn {
            context,
            scripts: parameters.start_time,
            parameters,
            ids: flights.iter().map(|flight| flight.assignment.id).collect(),
            nonces,
            last_timeout: flights.last().map_or(Duration::ZERO, |job| job.assignment.timeout),
            last: flights.len(),
            held: HeldBytes::of(&flights),
            flights: flights.into_iter().map(Some).collect(),
            phase: Phase::BeforeEach,
            at: 0,
            halted: false,
            reported: 0,
            marks: marked.then(Marks::default),
            limit,
            since: now,
            spent: false,
        }
    }

    /// Whether outputs have to be marked in the next turn of this context.
    pub(super) fn marks_wanted(context: &Context) -> bool {
        context.quiet_jobs < QUIET_JOBS_MIN
    }

    /// Reads until the batch is over or the context is dead. Reports every job that has started or
    /// was stopped, and returns the others.
    pub(super) async fn run(mut self) -> (AfterTurn, Vec<Flight>) {
        let mut yielded_at = Instant::now();
        while self.phase != Phase::Over {
            if yielded_at.elapsed() >= TURN_MAX {
                tokio::task::yield_now().await;
                yielded_at = Instant::now();
            }
            let limit = self.marks.as_ref().and_then(|marks| marks.missing_since);
            let limit = limit.map_or(self.limit, |since| self.limit.min(since + MARK_WAIT_MAX));
            let ids = &self.ids[self.running()..];
            match self.context.process.listen(limit, self.parameters.watch, ids).await {
                ContextEvent::Answer(frame) => {
                    if !self.handle(&frame).await {
                        self.invalid_answer().await;
                    }
                }
                ContextEvent::Raw(stream, bytes) => self.raw(stream, &bytes),
                ContextEvent::InvalidFrame => self.invalid_answer().await,
                ContextEvent::Exited => self.exited().await,
                ContextEvent::OverLimit(reason) => self.over_limit(&reason).await,
                ContextEvent::Stopped(id, why) => self.stop(id, why).await,
                ContextEvent::TimedOut if Instant::now() < self.limit => self.late_marks().await,
                ContextEvent::TimedOut => self.time_out().await,
            }
            self.report_ended().await;
            if self.phase == Phase::Jobs && self.held.is_too_much() && !self.halted {
                self.halt().await;
            }
        }
        self.finish().await
    }

    /// The index of the job that runs now, or after which `afterEach` runs.
    fn running(&self) -> usize {
        match self.phase {
            Phase::AfterEach => self.at.saturating_sub(1),
            _ => self.at.min(self.ids.len() - 1),
        }
    }

    fn current_id(&self) -> AttemptId {
        self.ids[self.running()]
    }

    /// Changes the job that the current output belongs to. False if it has been reported.
    fn change_current(&mut self, change: impl FnOnce(&mut Flight)) -> bool {
        let at = self.running();
        let flight = self.flights[at].as_mut();
        flight.map(|flight| self.held.change(flight, change)).is_some()
    }

    /// Whether the bootstrap speaks for the first job without an `end`: only it knows the nonce.
    fn is_of_current(&self, answer: &ContextAnswer<'_>) -> bool {
        let nonce = self.nonces.get(self.at).map(Nonce::as_str);
        nonce.is_some() && answer.nonce.as_deref() == nonce
    }

    /// Handles what has been read already. False if any of it is invalid.
    async fn handle_buffered(&mut self) -> bool {
        while self.phase != Phase::Over {
            match self.context.process.next_buffered() {
                Some(ContextEvent::Answer(frame)) if self.handle(&frame).await => {}
                Some(_) => return false,
                None => return true,
            }
        }
        true
    }

    /// Handles one answer. False if it is not expected now.
    async fn handle(&mut self, frame: &[u8]) -> bool {
        let Some(answer) = &ContextAnswer::parse(frame) else { return false };
        match (answer.kind, self.phase) {
            (Kind::Output, _) => {
                // Output that bypassed the language's streams before this line comes first.
                self.drain();
                self.change_current(|flight| answer.output_to(&mut flight.output));
            }
            (Kind::Begun, Phase::BeforeEach) => {
                self.scripts += answer.us();
                self.phase = Phase::Jobs;
                self.start_next().await;
            }
            (Kind::Emit, Phase::Jobs) if self.is_of_current(answer) => {
                let now = self.parameters.clock.now();
                self.change_current(|flight| flight.emit(answer, now));
            }
            (Kind::Progress, Phase::Jobs) if self.is_of_current(answer) => {
                self.announce().await;
                let message = answer.message.as_deref().unwrap_or_default();
                let message = self.parameters.mask.text(message).into_owned();
                let percent = answer.percent.unwrap_or_default();
                self.parameters.reports.progress(self.current_id(), percent, message).await;
            }
            (Kind::End, Phase::Jobs) if self.is_of_current(answer) && self.at <= self.last => {
                self.announce().await;
                let data = result::prepare_aside(self.parameters.mask, answer.data).await;
                // A job that was stopped before it began cannot end.
                if !self.change_current(|flight| flight.end(answer, data)) {
                    return false;
                }
                self.at += 1;
                if self.at == self.flights.len() {
                    self.await_after_each();
                } else {
                    self.start_next().await;
                }
            }
            (Kind::Halted, Phase::Jobs) if self.halted && self.is_of_current(answer) => {
                self.await_after_each();
            }
            (Kind::Done, Phase::AfterEach) => {
                self.scripts += answer.us();
                self.phase = Phase::Over;
            }
            (Kind::Failed, phase @ (Phase::BeforeEach | Phase::AfterEach)) => {
                self.script_failed(phase, answer).await;
            }
            _ => return false,
        }
        true
    }

    /// The first job without an `end` runs now, unless the batch was halted.
    async fn start_next(&mut self) {
        let flight = self.flights[self.at].as_ref();
        self.since = Instant::now();
        self.limit = self.since + flight.map_or(self.last_timeout, |job| job.assignment.timeout);
        if !self.halted {
            self.announce().await;
        }
    }

    /// Reports the running job as started, unless that has been done.
    async fn announce(&mut self) {
        let id = self.current_id();
        if *self.parameters.announced != Some(id) && self.flights[self.running()].is_some() {
            *self.parameters.announced = Some(id);
            self.parameters.reports.started(id).await;
        }
    }

    fn await_after_each(&mut self) {
        self.phase = Phase::AfterEach;
        self.since = Instant::now();
        self.limit = self.since + self.last_timeout;
    }

    /// Takes what the ordinary outputs are known to hold.
    fn drain(&mut self) {
        for (stream, bytes) in self.context.process.drain() {
            self.raw(stream, &bytes);
        }
    }

    /// Takes everything that the ordinary outputs hold now.
    fn drain_all(&mut self) {
        for (stream, bytes) in self.context.process.drain_all() {
            self.raw(stream, &bytes);
        }
    }

    /// Bytes from an ordinary output: marks, or the time, tell which job they belong to.
    fn raw(&mut self, stream: Stream, bytes: &[u8]) {
        let which = stream as usize;
        let Some(marks) = &mut self.marks else {
            self.context.quiet_jobs = 0;
            self.change_current(|flight| flight.output.push(stream, bytes));
            return;
        };
        let held = &mut self.held;
        let mark = &self.context.mark;
        let mut rest = std::mem::take(&mut marks.held[which]);
        rest.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(found) = memmem::find(&rest[start..], mark) {
            let flight = flight_at(&mut self.flights, marks.at[which]);
            held.push(flight, stream, &rest[start..start + found]);
            self.context.quiet_jobs *= u32::from(found == 0);
            marks.at[which] += 1;
            start += found + mark.len();
        }
        let tail = &rest[start..];
        // Only the first byte of a truncated mark is zero.
        let mark_start = memchr::memrchr(0, tail).filter(|at| mark.starts_with(&tail[*at..]));
        let mark_start = mark_start.unwrap_or(tail.len());
        let flight = flight_at(&mut self.flights, marks.at[which]);
        held.push(flight, stream, &tail[..mark_start]);
        self.context.quiet_jobs *= u32::from(mark_start == 0);
        marks.held[which] = tail[mark_start..].to_vec();
    }

    /// The marks have not arrived in time, or have not been read.
    async fn late_marks(&mut self) {
        self.drain_all();
        self.report_ended().await;
        let since = self.marks.as_ref().and_then(|marks| marks.missing_since);
        if since.is_some_and(|since| since.elapsed() >= MARK_WAIT_MAX) {
            self.give_up_marks();
        }
    }

    /// The marks are missing: an output was closed or redirected, and the context cannot be reused.
    fn give_up_marks(&mut self) {
        self.marks = None;
        self.spent = true;
    }

    /// Reports ended jobs whose output is complete.
    async fn report_ended(&mut self) {
        if self.parameters.has_after_each && self.phase != Phase::Over {
            return;
        }
        let share = self.scripts / self.flights.len() as u32;
        while self.reported < self.flights.len() {
            let slot = &mut self.flights[self.reported];
            match slot {
                None => {
                    self.reported += 1;
                    continue;
                }
                Some(flight) if !flight.has_ended() => break,
                Some(_) => {}
            }
            if let Some(marks) = &mut self.marks {
                if marks.at.iter().any(|at| *at <= self.reported) && self.context.process.is_whole()
                {
                    marks.missing_since.get_or_insert_with(Instant::now);
                    break;
                }
                marks.missing_since = None;
            }
            let Some(flight) = slot.take() else { break };
            self.held.release(&flight);
            self.reported += 1;
            self.context.quiet_jobs = self.context.quiet_jobs.saturating_add(1);
            let id = flight.assignment.id;
            if let Some(report) = flight.report(share) {
                self.parameters.reports.ended(id, report).await;
            }
        }
    }

    /// The batch is over: sends the last reports and returns what is left.
    async fn finish(mut self) -> (AfterTurn, Vec<Flight>) {
        while self.marks.is_some() && self.reported < self.at {
            let limit = Instant::now() + MARK_WAIT_MAX;
            match self.context.process.listen(limit, self.parameters.watch, &[]).await {
                ContextEvent::Raw(stream, bytes) => self.raw(stream, &bytes),
                _ => {
                    self.drain_all();
                    self.report_ended().await;
                    if self.reported < self.at {
                        self.give_up_marks();
                    }
                }
            }
            self.report_ended().await;
        }
        let spent = self.spent || !self.context.process.is_whole();
        let after = if spent { AfterTurn::Spent } else { AfterTurn::Usable };
        (after, self.flights.into_iter().flatten().collect())
    }
}

/// Reports a job that was stopped before it began. `announced` was already reported as started.
pub(super) async fn report_unbegun(
    id: AttemptId,
    why: Stop,
    reports: &dyn Reports,
    announced: Option<AttemptId>,
) {
    if announced != Some(id) {
        reports.started(id).await;
    }
    reports.ended(id, stopped_before_start(why)).await;
}

/// The job that output after this many marks belongs to, unless it has been reported.
fn flight_at(flights: &mut [Option<Flight>], marks: usize) -> Option<&mut Flight> {
    let at = marks.min(flights.len() - 1);
    flights[at].as_mut()
}
