//! One batch in one context, from the request to the last answer.
//!
//! ```text
//! ask ─► beforeEach ─► job 0 ─► job 1 ─► … ─► job n ─► afterEach
//!          begun        end 0    end 1          end n      done
//! ```
//! The context works ahead without waiting for us. An `end` is also the start of the next job, so
//! the one job that a death, a time limit or an order to stop is about is always known: the first
//! one without an `end`. Jobs behind it have not started, and run elsewhere.

use std::time::Duration;

use memchr::memmem;
use tokio::time::Instant;
use windlass_core::runner::{Reports, Stop};
use windlass_core::time::format_duration;
use windlass_core::{AttemptId, Clock};

use super::flight::Flight;
use super::message::{Answer, Kind, Stage};
use super::process::Heard;
use super::start::{Context, GARBAGE, obituary};
use crate::output::Stream;
use crate::process::report_stopped;
use crate::stop::Watch;

/// A context that wrote nothing to its ordinary outputs for so many jobs is not asked to mark them.
const QUIET_JOBS_MIN: u32 = 200;
/// How long the marks of a job may come after its end. They were written before it, so this is
/// reached only when a handler has closed or redirected an output.
const MARK_WAIT_MAX: Duration = Duration::from_millis(200);

/// How long a context is listened to before others have their turn: one that never stops talking
/// must not keep leases from being renewed.
const TURN_MAX: Duration = Duration::from_millis(1);

/// What a turn needs besides its context and its jobs.
pub(super) struct Around<'a> {
    pub(super) watch: &'a mut Watch,
    pub(super) reports: &'a dyn Reports,
    pub(super) clock: &'a dyn Clock,
    /// What starting the context and loading the handler took.
    pub(super) start_time: Duration,
    /// The context has run no job before.
    pub(super) is_fresh: bool,
    pub(super) has_before_each: bool,
    /// Reports wait for `afterEach`, because it is part of each job's cost and success.
    pub(super) has_after_each: bool,
}

/// Whether the context can be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Usable,
    Spent,
}

pub(super) struct Turn<'a> {
    context: &'a mut Context,
    around: Around<'a>,
    ids: Vec<AttemptId>,
    /// A job that was reported is no longer here.
    flights: Vec<Option<Flight>>,
    phase: Phase,
    /// The first job without an `end`.
    at: usize,
    /// The first job without a report.
    reported: usize,
    marks: Option<Marks>,
    /// When the running job, or script, must have ended.
    limit: Instant,
    since: Instant,
    last_timeout: Duration,
    /// Cost of the scripts, to be shared by all jobs.
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

/// Where the ordinary outputs stand: the job that each belongs to now, and the beginning of what
/// may become a mark.
#[derive(Default)]
struct Marks {
    at: [usize; 2],
    held: [Vec<u8>; 2],
    /// Since when the first report waits for its marks.
    missing_since: Option<Instant>,
}

impl<'a> Turn<'a> {
    /// The request was asked; `flights` are its jobs, in order.
    pub(super) fn new(
        context: &'a mut Context,
        around: Around<'a>,
        flights: Vec<Flight>,
        marked: bool,
    ) -> Turn<'a> {
        let now = Instant::now();
        let limit = now + flights.first().map_or(Duration::ZERO, |job| job.assignment.timeout);
        Turn {
            context,
            scripts: around.start_time,
            around,
            ids: flights.iter().map(|flight| flight.assignment.id).collect(),
            last_timeout: flights.last().map_or(Duration::ZERO, |job| job.assignment.timeout),
            flights: flights.into_iter().map(Some).collect(),
            phase: Phase::BeforeEach,
            at: 0,
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

    /// Listens until the batch is over or the context is dead. Reports every job that has started,
    /// and gives back the others.
    pub(super) async fn run(mut self) -> (After, Vec<Flight>) {
        let mut yielded_at = Instant::now();
        while self.phase != Phase::Over {
            if yielded_at.elapsed() >= TURN_MAX {
                tokio::task::yield_now().await;
                yielded_at = Instant::now();
            }
            let limit = self.marks.as_ref().and_then(|marks| marks.missing_since);
            let limit = limit.map_or(self.limit, |since| self.limit.min(since + MARK_WAIT_MAX));
            let ids = &self.ids[self.at.min(self.ids.len() - 1)..];
            match self.context.process.listen(limit, self.around.watch, ids).await {
                Heard::Answer(frame) => match Answer::parse(&frame) {
                    Some(answer) => self.hear(&answer).await,
                    None => self.die(GARBAGE, None).await,
                },
                Heard::Raw(stream, bytes) => self.raw(stream, &bytes),
                Heard::Garbage => self.die(GARBAGE, None).await,
                Heard::Gone => self.gone().await,
                Heard::Crowded(reason) => self.die(&reason, None).await,
                Heard::Stopped(id, why) if id == self.current_id() => {
                    self.die(why.as_str(), Some(why)).await;
                }
                Heard::Stopped(id, why) => self.skip(id, why).await,
                Heard::TimedOut if Instant::now() < self.limit => self.give_up_marks(),
                Heard::TimedOut => self.time_out().await,
            }
            self.report_ended().await;
        }
        self.finish().await
    }

    fn current_id(&self) -> AttemptId {
        self.ids[self.at.min(self.ids.len() - 1)]
    }

    /// The job that what is said now is about.
    fn current(&mut self) -> Option<&mut Flight> {
        let at = self.at.min(self.flights.len() - 1);
        self.flights[at].as_mut()
    }

    async fn hear(&mut self, answer: &Answer<'_>) {
        match (answer.kind, self.phase) {
            (Kind::Output, _) => {
                // What went round the language's own streams before this line comes before it.
                self.drain();
                if let Some(flight) = self.current() {
                    answer.output_to(&mut flight.output);
                }
            }
            (Kind::Begun, Phase::BeforeEach) => {
                self.scripts += answer.us();
                self.phase = Phase::Jobs;
                self.start_next().await;
            }
            (Kind::Emit, Phase::Jobs) => {
                let now = self.around.clock.now();
                if let Some(flight) = self.current() {
                    flight.emit(answer, now);
                }
            }
            (Kind::Progress, Phase::Jobs) => {
                let message = answer.message.as_deref().unwrap_or_default().to_owned();
                let percent = answer.percent.unwrap_or_default();
                self.around.reports.progress(self.current_id(), percent, message).await;
            }
            (Kind::End, Phase::Jobs) if answer.job == Some(self.at) => {
                if let Some(flight) = self.current() {
                    flight.end(answer);
                }
                self.at += 1;
                if self.at == self.flights.len() {
                    self.phase = Phase::AfterEach;
                    self.since = Instant::now();
                    self.limit = self.since + self.last_timeout;
                } else {
                    self.start_next().await;
                }
            }
            (Kind::Done, Phase::AfterEach) => {
                self.scripts += answer.us();
                self.phase = Phase::Over;
            }
            (Kind::Failed, phase @ (Phase::BeforeEach | Phase::AfterEach)) => {
                self.script_failed(phase, answer).await;
            }
            _ => self.die(GARBAGE, None).await,
        }
    }

    /// The first job without an `end` runs now.
    async fn start_next(&mut self) {
        let Some(flight) = &self.flights[self.at] else {
            // It was stopped before its turn, and the context does not know: the others go on
            // elsewhere.
            self.context.process.kill().await;
            self.spent = true;
            self.marks = None;
            self.phase = Phase::Over;
            return;
        };
        let (id, timeout) = (flight.assignment.id, flight.assignment.timeout);
        self.since = Instant::now();
        self.limit = self.since + timeout;
        self.around.reports.started(id).await;
    }

    /// A job that waits behind others is to end: it is reported at once. The context may begin it
    /// all the same, in the moment before it is killed at the job's turn. At a shutdown
    /// all that wait are given back, so nothing has to be done for one of them.
    async fn skip(&mut self, id: AttemptId, why: Stop) {
        let Some(at) = self.ids.iter().position(|known| *known == id) else { return };
        if why != Stop::Shutdown && self.flights[at].take().is_some() {
            report_stopped(id, why, self.around.reports).await;
        }
    }

    async fn script_failed(&mut self, phase: Phase, answer: &Answer<'_>) {
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
                self.around.reports.started(flight.assignment.id).await;
                flight.fail(reason, stopped, took);
            }
        }
        self.at = self.flights.len();
    }

    /// The context is killed because of the job, or script, that runs now.
    async fn die(&mut self, reason: &str, stopped: Option<Stop>) {
        self.context.process.kill().await;
        self.drain();
        self.blame(reason, stopped).await;
    }

    async fn time_out(&mut self) {
        let limit = self.limit - self.since;
        let reason = format!("{} after {}", Stop::TimedOut.as_str(), format_duration(limit));
        self.die(&reason, Some(Stop::TimedOut)).await;
    }

    /// The context ended by itself.
    async fn gone(&mut self) {
        let status = self.context.process.bury().await;
        self.drain();
        let reason = obituary(status);
        self.blame(&reason, None).await;
    }

    /// The context is dead. What runs now is to blame.
    async fn blame(&mut self, reason: &str, stopped: Option<Stop>) {
        self.spent = true;
        self.marks = None;
        let took = self.since.elapsed();
        match self.phase {
            Phase::Jobs => {
                if let Some(flight) = self.current() {
                    flight.fail(reason, stopped, took);
                }
            }
            // An order to stop is about one job; the others run elsewhere.
            Phase::BeforeEach if stopped.is_some_and(|why| why != Stop::TimedOut) => {
                let id = self.current_id();
                self.around.reports.started(id).await;
                if let Some(flight) = self.current() {
                    flight.fail(reason, stopped, took);
                }
            }
            // No script runs between two batches: what an earlier job left in the context ended it.
            Phase::BeforeEach if !self.around.has_before_each => {
                if self.around.is_fresh {
                    let id = self.current_id();
                    self.around.reports.started(id).await;
                    if let Some(flight) = self.current() {
                        flight.fail(reason, stopped, took);
                    }
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

    /// Takes what the ordinary outputs hold now.
    fn drain(&mut self) {
        for (stream, bytes) in self.context.process.drain() {
            self.raw(stream, &bytes);
        }
    }

    /// Bytes from an ordinary output: the job they belong to is known by the marks, or by the time.
    fn raw(&mut self, stream: Stream, bytes: &[u8]) {
        let which = stream as usize;
        let Some(marks) = &mut self.marks else {
            self.context.quiet_jobs = 0;
            if let Some(flight) = self.current() {
                flight.output.push(stream, bytes);
            }
            return;
        };
        let mark = &self.context.mark;
        let mut rest = std::mem::take(&mut marks.held[which]);
        rest.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(found) = memmem::find(&rest[start..], mark) {
            push(&mut self.flights, marks.at[which], stream, &rest[start..start + found]);
            self.context.quiet_jobs *= u32::from(found == 0);
            marks.at[which] += 1;
            start += found + mark.len();
        }
        let tail = &rest[start..];
        // Of a mark that is cut only its first byte is zero.
        let mark_start = memchr::memrchr(0, tail).filter(|at| mark.starts_with(&tail[*at..]));
        let mark_start = mark_start.unwrap_or(tail.len());
        push(&mut self.flights, marks.at[which], stream, &tail[..mark_start]);
        self.context.quiet_jobs *= u32::from(mark_start == 0);
        marks.held[which] = tail[mark_start..].to_vec();
    }

    /// The marks do not come: an output was closed or redirected, and the context is not whole.
    fn give_up_marks(&mut self) {
        self.marks = None;
        self.spent = true;
    }

    /// Reports what has ended, as far as its output is complete.
    async fn report_ended(&mut self) {
        if self.around.has_after_each && self.phase != Phase::Over {
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
            self.reported += 1;
            self.context.quiet_jobs = self.context.quiet_jobs.saturating_add(1);
            let id = flight.assignment.id;
            if let Some(report) = flight.report(share) {
                self.around.reports.ended(id, report).await;
            }
        }
    }

    /// The batch is over: the last reports, and what is left.
    async fn finish(mut self) -> (After, Vec<Flight>) {
        while self.marks.is_some() && self.reported < self.at {
            let limit = Instant::now() + MARK_WAIT_MAX;
            match self.context.process.listen(limit, self.around.watch, &[]).await {
                Heard::Raw(stream, bytes) => self.raw(stream, &bytes),
                _ => self.give_up_marks(),
            }
            self.report_ended().await;
        }
        let spent = self.spent || !self.context.process.is_whole();
        let after = if spent { After::Spent } else { After::Usable };
        (after, self.flights.into_iter().flatten().collect())
    }
}

fn stage_of(phase: Phase) -> Stage {
    if phase == Phase::BeforeEach { Stage::BeforeEach } else { Stage::AfterEach }
}

fn push(flights: &mut [Option<Flight>], at: usize, stream: Stream, bytes: &[u8]) {
    let at = at.min(flights.len() - 1);
    if let Some(flight) = flights[at].as_mut().filter(|_| !bytes.is_empty()) {
        flight.output.push(stream, bytes);
    }
}
