//! The jobs that a worker holds, from acceptance until their end is in the table.
//!
//! ```text
//! accepted ─► Queued ─► Starting ─► Running ─► Ended ─► gone
//!                └────────┴── not ours any more, or handed back ──► gone
//! ```
//! While a job is held, its lease is renewed. A client that waits for a job is answered when its
//! end is in the table, when the job is gone, or when the database has been silent for too long.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_core::launch::{Running, SignalTo};

use super::queue::Queue;
use super::{STOPS, manual};
use crate::table::{End, Row, Unwritten};
use crate::wire::Json;

/// Maximum number of unwritten ends, and bytes of their output; beyond that nothing is started.
pub(super) const ENDS_MAX: usize = 10_000;
pub(super) const END_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum size of one write, which has at least one end.
const WRITE_ENDS_MAX: usize = super::ROWS_AT_ONCE_MAX;
const WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a client waits for a database that does not answer. Longer than a single transaction
/// may take, so that a slow database is not mistaken for a dead one.
pub(super) const DATABASE_SILENCE_MAX: Duration = Duration::from_secs(90);

/// The answer to a client that waits for a job: how it ended, or why it did not run.
pub(super) type ManualResult = Result<Json, String>;

pub(super) struct State {
    pub(super) queue: Queue,
    held: HashMap<u64, HeldJob>,
    /// Ids requested by a client that are being accepted.
    reserved_ids: HashSet<u64>,
    ends: VecDeque<End>,
    /// Including those being written.
    unwritten: usize,
    unwritten_bytes: usize,
    /// When the database was asked to start jobs, until it answers.
    start_asked_at: Option<Instant>,
    /// When the database was asked to write ends, until it answers.
    write_asked_at: Option<Instant>,
    /// Rows accepted again while their job still runs; they only have to be marked.
    again: Vec<Row>,
    /// Rows being returned to the table.
    going_back: usize,
    /// The worker stops, so jobs are killed instead of awaited.
    killing: bool,
}

struct HeldJob {
    row: Row,
    phase: Phase,
    waiter: Option<oneshot::Sender<ManualResult>>,
    /// A client waited, but the database was silent for too long.
    wait_given_up: bool,
}

enum Phase {
    Queued,
    Starting,
    Running(Arc<dyn Running>),
    Ended,
}

impl HeldJob {
    fn new(row: Row, waiter: Option<oneshot::Sender<ManualResult>>) -> HeldJob {
        HeldJob { row, phase: Phase::Queued, waiter, wait_given_up: false }
    }
}

impl State {
    pub(super) fn new(queue: Queue) -> State {
        State {
            queue,
            held: HashMap::new(),
            reserved_ids: HashSet::new(),
            ends: VecDeque::new(),
            unwritten: 0,
            unwritten_bytes: 0,
            start_asked_at: None,
            write_asked_at: None,
            again: Vec::new(),
            going_back: 0,
            killing: false,
        }
    }

    /// An error if a client already waits for this job, or would wait for it if the database
    /// answered: asking the table for its row again would spoil the row.
    pub(super) fn refuse_awaited(&self, id: u64) -> Result<(), String> {
        let held = self.held.get(&id);
        if held.is_some_and(|held| held.wait_given_up) {
            return Err(format!("job {id} is still waiting for the database"));
        }
        let waits = held.is_some_and(|held| held.waiter.is_some());
        if waits || self.reserved_ids.contains(&id) {
            return Err(format!("another client is already waiting for job {id}"));
        }
        Ok(())
    }

    /// Reserves ids for a client before they are looked up, until `release_ids`.
    pub(super) fn reserve_ids(&mut self, ids: &[u64]) {
        self.reserved_ids.extend(ids);
    }

    pub(super) fn release_ids(&mut self, ids: &[u64]) {
        for id in ids {
            self.reserved_ids.remove(id);
        }
    }

    /// Clients that wait for jobs.
    pub(super) fn awaited(&self) -> usize {
        self.reserved_ids.len() + self.held.values().filter(|held| held.waiter.is_some()).count()
    }

    /// Adds the rows that a fetch accepted. Returns those that have to go back.
    pub(super) fn fetched(&mut self, targets: &[String], rows: Vec<Row>, more: bool) -> Vec<Row> {
        let rows = self.hold(rows.into_iter().map(|row| (row, None)).collect());
        let back = self.queue.fetched(targets, rows, more);
        self.release(&back);
        self.going_back += back.len();
        back
    }

    /// Adds rows that clients wait for. Returns those that have to go back.
    pub(super) fn accepted(&mut self, rows: Vec<(Row, oneshot::Sender<ManualResult>)>) -> Vec<Row> {
        let rows = self.hold(rows.into_iter().map(|(row, waiter)| (row, Some(waiter))).collect());
        let back = self.queue.push(rows);
        self.release(&back);
        self.going_back += back.len();
        back
    }

    /// Returns the rows that are new here. A known row was lost when its lease expired and has come
    /// back: it keeps its place in the queue, or its run continues.
    fn hold(&mut self, rows: Vec<(Row, Option<oneshot::Sender<ManualResult>>)>) -> Vec<Row> {
        let mut new = Vec::new();
        for (row, waiter) in rows {
            if let Some(held) = self.held.get_mut(&row.id) {
                held.waiter = waiter.or(held.waiter.take());
                if !matches!(held.phase, Phase::Queued) {
                    self.again.push(row);
                }
            } else {
                new.push(row.clone());
                self.held.insert(row.id, HeldJob::new(row, waiter));
            }
        }
        new
    }

    fn release(&mut self, rows: &[Row]) {
        let closed = self.queue.is_closed();
        let reason = if closed { STOPS } else { "its target is not served any more" };
        for row in rows {
            self.gone(row.id, reason);
        }
    }

    /// The jobs to start now, at most this many.
    pub(super) fn starting(&mut self, count_max: usize) -> Vec<Row> {
        let mut rows = std::mem::take(&mut self.again);
        if !self.is_full() {
            let startable = self.queue.take_startable(count_max.saturating_sub(rows.len()));
            for row in &startable {
                if let Some(held) = self.held.get_mut(&row.id) {
                    held.phase = Phase::Starting;
                }
            }
            rows.extend(startable);
        }
        self.start_asked_at = (!rows.is_empty()).then(Instant::now);
        rows
    }

    /// Whether too many ends wait for the database to start more jobs.
    fn is_full(&self) -> bool {
        self.unwritten >= ENDS_MAX || self.unwritten_bytes >= END_BYTES_MAX
    }

    /// Whether a job marked as running still has to be launched.
    pub(super) fn is_starting(&self, id: u64) -> bool {
        self.held.get(&id).is_some_and(|held| matches!(held.phase, Phase::Starting))
    }

    /// A job was launched.
    pub(super) fn running(&mut self, id: u64, running: &Arc<dyn Running>) {
        if let Some(held) = self.held.get_mut(&id) {
            held.phase = Phase::Running(Arc::clone(running));
        }
        if self.killing {
            running.kill_tree();
        }
    }

    /// A job will not start after all. Returns whether a postponed fetch is due.
    pub(super) fn not_started(&mut self, row: &Row, reason: &str) -> bool {
        self.gone(row.id, reason);
        self.queue.ended(&row.target)
    }

    /// A job ended. A waiting client is answered when the end is in the table. Returns
    /// whether a postponed fetch is due.
    pub(super) fn ended(&mut self, end: End) -> bool {
        let mut due = false;
        if let Some(held) = self.held.get_mut(&end.id) {
            held.phase = Phase::Ended;
            due = self.queue.ended(&held.row.target);
        }
        self.unwritten += 1;
        self.unwritten_bytes += bytes(&end);
        self.ends.push_back(end);
        due
    }

    /// Takes some ends to write. Exactly these are passed to `written` later.
    pub(super) fn take_ends(&mut self) -> Vec<End> {
        let (mut taken, mut total) = (Vec::new(), 0);
        while let Some(end) = self.ends.front() {
            total += bytes(end);
            let full = taken.len() == WRITE_ENDS_MAX || total > WRITE_BYTES_MAX;
            if full && !taken.is_empty() {
                break;
            }
            taken.extend(self.ends.pop_front());
        }
        self.write_asked_at = (!taken.is_empty()).then(Instant::now);
        taken
    }

    /// The table has these ends, except the unwritten ones, which it will never take.
    pub(super) fn written(&mut self, ends: &[End], unwritten: &[Unwritten]) {
        self.write_asked_at = None;
        let reasons: HashMap<u64, String> = unwritten.iter().map(why_unwritten).collect();
        for end in ends {
            self.unwritten -= 1;
            self.unwritten_bytes -= bytes(end);
            let Some(waiter) = self.held.remove(&end.id).and_then(|held| held.waiter) else {
                continue;
            };
            let outcome = match reasons.get(&end.id) {
                Some(reason) => Err(reason.clone()),
                None => Ok(manual::result(end)),
            };
            // The client may have disconnected.
            let _ = waiter.send(outcome);
        }
    }

    /// Ends the wait of a client if the database has been silent for too long. Returns the reason.
    /// The job itself is not given up.
    pub(super) fn give_up_wait(&mut self, id: u64, now: Instant) -> Option<String> {
        let is_silent = |asked_at: Option<Instant>| {
            asked_at.is_some_and(|asked_at| now >= asked_at + DATABASE_SILENCE_MAX)
        };
        let cannot_write = is_silent(self.write_asked_at);
        let cannot_start = is_silent(self.start_asked_at) || cannot_write && self.is_full();
        let held = self.held.get_mut(&id)?;
        let so_far = match held.phase {
            Phase::Queued | Phase::Starting if cannot_start => "the job has not started yet",
            Phase::Ended if cannot_write => "the job has ended, its result is not written yet",
            _ => return None,
        };
        held.waiter.take()?;
        held.wait_given_up = true;
        let seconds = DATABASE_SILENCE_MAX.as_secs();
        Some(format!("no answer from the database for {seconds} seconds: {so_far}"))
    }

    /// Answers all waiting clients, because the worker exits without the database.
    pub(super) fn abandon_clients(&mut self) {
        for held in self.held.values_mut() {
            if let Some(waiter) = held.waiter.take() {
                let _ = waiter.send(Err(STOPS.to_owned()));
            }
        }
    }

    /// Ids whose leases must be renewed.
    pub(super) fn held_ids(&self) -> Vec<u64> {
        self.held.keys().copied().collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.going_back == 0
    }

    /// These are being returned, until `returned`.
    pub(super) fn returning(&mut self, rows: &[Row]) {
        self.going_back += rows.len();
    }

    pub(super) fn returned(&mut self, rows: &[Row]) {
        self.going_back = self.going_back.saturating_sub(rows.len());
    }

    /// Whether rows may be accepted now.
    pub(super) fn is_accepting(&self) -> bool {
        self.queue.is_fetching() || !self.reserved_ids.is_empty()
    }

    pub(super) fn runs_any(&self) -> bool {
        let runs = |held: &HeldJob| matches!(held.phase, Phase::Starting | Phase::Running(_));
        self.held.values().any(runs)
    }

    /// These are no longer ours. Waiting jobs are forgotten; running ones continue, and the
    /// table decides about their ends. Returns how many of each.
    pub(super) fn lost(&mut self, ids: &[u64]) -> (usize, usize) {
        let queued =
            |id: &&u64| self.held.get(id).is_some_and(|held| matches!(held.phase, Phase::Queued));
        let forgotten: HashSet<u64> = ids.iter().filter(queued).copied().collect();
        let running = |id: &&u64| {
            self.held.get(id).is_some_and(|held| matches!(held.phase, Phase::Running(_)))
        };
        let runs = ids.iter().filter(running).count();
        self.queue.forget(&forgotten);
        for id in &forgotten {
            self.gone(*id, "the job was given to another worker");
        }
        (forgotten.len(), runs)
    }

    /// From now on nothing is started. Returns the rows to give back.
    pub(super) fn close(&mut self) -> Vec<Row> {
        let back = self.queue.close();
        for row in &back {
            self.gone(row.id, STOPS);
        }
        self.going_back += back.len();
        back
    }

    pub(super) fn signal(&self, id: u64, signal: SignalTo) -> bool {
        match self.held.get(&id).map(|held| &held.phase) {
            Some(Phase::Running(running)) => running.signal(signal),
            _ => false,
        }
    }

    /// Kills all running jobs. Returns their number.
    pub(super) fn kill(&mut self) -> usize {
        self.killing = true;
        let mut killed = 0;
        for held in self.held.values() {
            if let Phase::Running(running) = &held.phase {
                running.kill_tree();
                killed += 1;
            }
        }
        killed
    }

    pub(super) fn is_killing(&self) -> bool {
        self.killing
    }

    fn gone(&mut self, id: u64, reason: &str) {
        if let Some(waiter) = self.held.remove(&id).and_then(|held| held.waiter) {
            let _ = waiter.send(Err(reason.to_owned()));
        }
    }
}

fn why_unwritten(unwritten: &Unwritten) -> (u64, String) {
    match unwritten {
        Unwritten::Lost(id) => (*id, "the job was given to another worker".to_owned()),
        Unwritten::Refused(id, reason) => (*id, format!("the result was refused: {reason}")),
    }
}

fn bytes(end: &End) -> usize {
    end.stdout.bytes.len() + end.stderr.bytes.len()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot::error::TryRecvError;
    use windlass_core::launch::Output;

    use super::*;
    use crate::table::Origin;

    fn state(concurrency: u32) -> State {
        State::new(Queue::new([("a".to_owned(), concurrency)]))
    }

    fn row(id: u64) -> Row {
        Row { id, target: "a".into(), origin: Origin::Manual }
    }

    fn end(id: u64, output_bytes: usize) -> End {
        End {
            id,
            ok: true,
            code: Some(0),
            signal: None,
            stdout: Output { bytes: vec![0; output_bytes], dropped: 0 },
            stderr: Output::default(),
            note: None,
            finished_at: 0,
        }
    }

    fn ids(rows: &[Row]) -> Vec<u64> {
        rows.iter().map(|row| row.id).collect()
    }

    /// Queues a job that a client waits for.
    fn await_job(state: &mut State, id: u64) -> oneshot::Receiver<ManualResult> {
        let (waiter, told) = oneshot::channel();
        state.reserve_ids(&[id]);
        assert!(state.accepted(vec![(row(id), waiter)]).is_empty());
        state.release_ids(&[id]);
        told
    }

    #[test]
    fn only_one_client_waits_for_a_job_until_it_has_ended() {
        let mut state = state(5);
        state.reserve_ids(&[1, 2]);
        let refused = Err("another client is already waiting for job 2".to_owned());
        assert_eq!((state.refuse_awaited(2), state.refuse_awaited(3)), (refused.clone(), Ok(())));
        assert!(state.is_accepting());
        state.release_ids(&[1, 2]);
        let mut told = await_job(&mut state, 2);
        assert_eq!((state.refuse_awaited(2), state.awaited()), (refused, 1));
        assert!(!state.is_accepting());
        state.starting(9);
        state.ended(end(2, 0));
        let ends = state.take_ends();
        assert_eq!(told.try_recv(), Err(TryRecvError::Empty), "the row is not done yet");
        assert_eq!(state.awaited(), 1);
        state.written(&ends, &[]);
        assert_eq!(told.try_recv(), Ok(Ok(manual::result(&end(2, 0)))));
        assert_eq!((state.refuse_awaited(2), state.awaited()), (Ok(()), 0));
    }

    #[test]
    fn a_client_is_told_why_the_result_of_its_job_is_not_in_the_table() {
        let mut state = state(5);
        let mut told = [1, 2, 3].map(|id| await_job(&mut state, id));
        state.starting(9);
        state.ended(end(1, 0));
        state.ended(end(2, 0));
        let ends = state.take_ends();
        let refused = Unwritten::Refused(2, "too long".into());
        state.written(&ends, &[Unwritten::Lost(1), refused]);
        state.ended(end(3, 0));
        state.abandon_clients();
        let reasons = told.each_mut().map(|told| told.try_recv().unwrap().unwrap_err());
        let lost = "the job was given to another worker";
        assert_eq!(reasons, [lost, "the result was refused: too long", "the worker stops"]);
    }

    #[test]
    fn a_wait_ends_when_the_database_is_silent_for_too_long() {
        let mut state = state(1);
        let _waits = [1, 2].map(|id| await_job(&mut state, id));
        let now = Instant::now();
        let late = now + DATABASE_SILENCE_MAX * 2;
        assert_eq!(state.give_up_wait(1, late), None, "the database was not asked yet");
        state.starting(9);
        assert_eq!(state.give_up_wait(1, now), None, "it may still answer");
        let not_started = "no answer from the database for 90 seconds: the job has not started yet";
        assert_eq!(state.give_up_wait(2, late).as_deref(), Some(not_started), "nothing starts");
        assert!(state.starting(9).is_empty(), "the database has answered");
        assert_eq!(state.give_up_wait(1, late), None, "a job may take as long as it wants");
        state.ended(end(1, 0));
        state.take_ends();
        let reason = state.give_up_wait(1, late).unwrap();
        assert!(reason.ends_with("the job has ended, its result is not written yet"), "{reason}");
        assert_eq!(state.give_up_wait(1, late), None, "its client is answered already");
        let refused = Err("job 1 is still waiting for the database".to_owned());
        assert_eq!((state.refuse_awaited(1), state.awaited()), (refused, 0));
        state.written(&[end(1, 0)], &[]);
        assert_eq!(state.refuse_awaited(1), Ok(()));
    }

    #[test]
    fn a_job_is_held_until_its_end_is_written() {
        let mut state = state(5);
        state.fetched(&[], vec![row(1)], false);
        assert_eq!(ids(&state.starting(9)), [1]);
        assert!(state.is_starting(1) && state.runs_any());
        state.ended(end(1, 0));
        assert!(!state.runs_any());
        let ends = state.take_ends();
        assert_eq!(state.held_ids(), [1]);
        state.written(&ends, &[]);
        assert!(state.is_idle() && state.take_ends().is_empty());
    }

    #[test]
    fn nothing_starts_while_too_much_waits_for_the_database() {
        let mut state = state(10);
        state.fetched(&[], (1..=3).map(row).collect(), false);
        assert_eq!(state.starting(2).len(), 2);
        state.ended(end(1, END_BYTES_MAX));
        state.ended(end(2, WRITE_BYTES_MAX));
        assert!(state.starting(9).is_empty());
        let first = state.take_ends();
        assert_eq!(first.len(), 1, "one end is taken however large it is");
        assert!(state.starting(9).is_empty(), "being written is not yet written");
        state.written(&first, &[]);
        assert_eq!(ids(&state.starting(9)), [3]);
    }

    #[test]
    fn a_row_that_comes_back_while_its_job_runs_is_not_run_twice() {
        let mut state = state(1);
        state.fetched(&[], vec![row(1)], false);
        state.fetched(&[], vec![row(1)], false);
        assert_eq!(ids(&state.starting(9)), [1]);
        state.ended(end(1, 0));
        state.fetched(&[], vec![row(1)], false);
        assert_eq!(ids(&state.starting(9)), [1]);
        assert!(!state.is_starting(1));
    }

    #[test]
    fn lost_jobs_are_forgotten_when_they_wait_and_go_on_when_they_run() {
        let mut state = state(1);
        let mut told = await_job(&mut state, 1);
        state.fetched(&[], vec![row(2)], false);
        assert_eq!(state.lost(&[1, 7]), (1, 0));
        assert_eq!(told.try_recv(), Ok(Err("the job was given to another worker".into())));
        assert_eq!(ids(&state.starting(9)), [2]);
        assert_eq!(state.lost(&[2]), (0, 0));
        assert_eq!(state.held_ids(), [2]);
    }

    #[test]
    fn what_is_closed_gives_back_what_waits_and_what_comes() {
        let mut state = state(1);
        state.fetched(&[], vec![row(1)], false);
        state.starting(9);
        let mut told = await_job(&mut state, 2);
        assert_eq!(ids(&state.close()), [2]);
        assert_eq!(told.try_recv(), Ok(Err("the worker stops".into())));
        assert_eq!(ids(&state.fetched(&[], vec![row(3)], false)), [3]);
        assert_eq!(state.held_ids(), [1]);
        state.not_started(&row(1), "the worker stops");
        assert!(!state.is_idle(), "rows are on their way back");
        state.returned(&[row(2)]);
        assert!(!state.is_idle(), "one is left");
        state.returned(&[row(3)]);
        assert!(state.is_idle());
    }
}
