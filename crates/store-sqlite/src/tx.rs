//! The context of operations inside a write transaction. Operations note how their jobs moved
//! between the counters of a type. The sums are written once per type, just before the commit,
//! together with the front of its queue.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use windlass_core::State;
use windlass_core::time::{Clock, Timestamp};

use crate::clock;
use crate::error::Result;
use crate::type_row::TypeCache;

/// An open write transaction.
pub(crate) struct Tx<'w> {
    pub(crate) conn: &'w Connection,
    pub(crate) types: &'w mut TypeCache,
    /// The store's time, the same for the whole transaction.
    pub(crate) now: Timestamp,
    /// Number of deferred jobs that this transaction has made ready.
    pub(crate) promoted: usize,
    /// More jobs are due than it could make ready.
    pub(crate) due_left: bool,
    /// All deferred jobs that were due at `now` are ready: none is deferred behind its time.
    pub(crate) none_due: bool,
    counts: HashMap<i64, Delta>,
    /// Revisions given to types that are not added to the newest one yet.
    revisions: i64,
}

/// The counter that a job is in: its state, with `queued` split into two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    Ready,
    Deferred,
    Running,
    Paused,
    Finished,
    Failed,
    Cancelled,
}

const COUNTERS: usize = 7;

#[derive(Default)]
struct Delta {
    counts: [i64; COUNTERS],
    /// The queue of ready jobs was changed.
    front: bool,
    /// The queue of hidden jobs was changed.
    hidden_front: bool,
    claimed_at: Option<Timestamp>,
    /// A claim's answer says that it would get no more jobs.
    answered_closed: bool,
}

impl Counter {
    /// For a job that is not queued.
    pub(crate) fn of_state(state: State) -> Counter {
        match state {
            State::Queued => unreachable!("the queue says whether a queued job is ready"),
            State::Running => Counter::Running,
            State::Paused => Counter::Paused,
            State::Finished => Counter::Finished,
            State::Failed => Counter::Failed,
            State::Cancelled => Counter::Cancelled,
        }
    }
}

/// What a type's sums are added to, and what may have to be updated after them.
const READ: &str = "
    SELECT ready, deferred, running, paused, finished, failed, cancelled, claimed_at, running_max,
           suspended, open, shown, handler_id IS NOT NULL OR settings IS NOT NULL,
           head_rank, head_run_at, head_tie
      FROM type WHERE id = ?1";
macro_rules! set_counts {
    ($more:literal) => {
        concat!(
            "UPDATE type
                SET ready = ?2, deferred = ?3, running = ?4, paused = ?5, finished = ?6,
                    failed = ?7, cancelled = ?8, claimed_at = ?9",
            $more,
            " WHERE id = ?1"
        )
    };
}
const SET_COUNTS: &str = set_counts!("");
// Most changes affect neither the front nor whether the type is open. These columns are left out
// then, so that the indexes over them are rarely updated.
const SET_FRONT: &str = set_counts!(", head_rank = ?10, head_run_at = ?11, head_tie = ?12");
const OPEN: &str = set_counts!(
    ", head_rank = ?10, head_run_at = ?11, head_tie = ?12, open = 1,
       rev = (SELECT value + ?13 FROM meta WHERE name = 'revision' AND id = 0)"
);
const CLOSE: &str = set_counts!(", head_rank = ?10, head_run_at = ?11, head_tie = ?12, open = 0");
pub(crate) const FRONT: &str = "
    SELECT rank, run_at, tie FROM ready
     WHERE type_id = ?1 ORDER BY rank, run_at, tie LIMIT 1";

/// Few types have hidden jobs, so these columns are written separately.
pub(crate) const SET_HIDDEN_FRONT: &str = "
    UPDATE type SET (hidden_rank, hidden_run_at, hidden_tie) = (
           SELECT rank, run_at, tie FROM ready_hidden
            WHERE type_id = ?1 ORDER BY rank, run_at, tie LIMIT 1)
     WHERE id = ?1";

const SHOW_OR_HIDE: &str = "UPDATE type SET shown = NOT shown WHERE id = ?1";
const RENEW: &str = "
    UPDATE type
       SET open = ready > 0 AND suspended = 0 AND (running_max IS NULL OR running < running_max),
           rev = (SELECT value + ?2 FROM meta WHERE name = 'revision' AND id = 0),
           shown = handler_id IS NOT NULL OR settings IS NOT NULL OR suspended OR ready
                   OR deferred OR running OR paused OR finished OR failed OR cancelled
     WHERE id = ?1";
pub(crate) const REVISION: &str = "SELECT value FROM meta WHERE name = 'revision' AND id = 0";
const ADD_REVISIONS: &str = "UPDATE meta SET value = value + ?1 WHERE name = 'revision' AND id = 0";

impl<'w> Tx<'w> {
    /// The connection is in a transaction that holds the file's lock.
    pub(crate) fn begin(
        conn: &'w Connection,
        types: &'w mut TypeCache,
        clock: &dyn Clock,
    ) -> Result<Tx<'w>> {
        let (now, step) = clock::look(conn, clock)?;
        let mut tx = Tx {
            conn,
            types,
            now: now.wall,
            promoted: 0,
            due_left: false,
            none_due: false,
            counts: HashMap::new(),
            revisions: 0,
        };
        if let Some(step) = step {
            clock::follow(&mut tx, now, step)?;
        }
        Ok(tx)
    }

    pub(crate) fn count(&mut self, type_id: i64, counter: Counter, jobs: i64) {
        let delta = self.counts.entry(type_id).or_default();
        delta.counts[counter as usize] += jobs;
        delta.front |= counter == Counter::Ready;
    }

    /// Ready hidden jobs count as deferred.
    pub(crate) fn count_hidden(&mut self, type_id: i64, jobs: i64) {
        self.count(type_id, Counter::Deferred, jobs);
        self.counts.entry(type_id).or_default().hidden_front = true;
    }

    pub(crate) fn claimed(&mut self, type_id: i64, jobs: usize, now: Timestamp) {
        self.count(type_id, Counter::Running, jobs as i64);
        self.asked(type_id, now);
    }

    /// A claim's answer says that it would get no more jobs of this type. If that no longer holds
    /// when the transaction ends, the type gets a new revision, so that the claimer sees it.
    pub(crate) fn answered_closed(&mut self, type_id: i64) {
        self.counts.entry(type_id).or_default().answered_closed = true;
    }

    /// A daemon or worker asked for jobs of this type, so it is not unhandled.
    pub(crate) fn asked(&mut self, type_id: i64, now: Timestamp) {
        let delta = self.counts.entry(type_id).or_default();
        delta.claimed_at = delta.claimed_at.max(Some(now));
    }

    /// The change of a counter that is not written yet.
    pub(crate) fn pending(&self, type_id: i64, counter: Counter) -> i64 {
        self.counts.get(&type_id).map_or(0, |delta| delta.counts[counter as usize])
    }

    /// The handler, settings or suspension of a type changed: it gets a new revision, so that all
    /// daemons see it.
    pub(crate) fn changed(&mut self, type_id: i64) -> Result<()> {
        let next = self.revisions + 1;
        if self.conn.prepare_cached(RENEW)?.execute([type_id, next])? > 0 {
            self.revisions = next;
        }
        Ok(())
    }

    /// Writes the sums so far. Called before the commit, and before an operation reads them.
    pub(crate) fn apply_counts(&mut self) -> Result<()> {
        self.apply_sums()?;
        if self.revisions > 0 {
            self.conn.prepare_cached(ADD_REVISIONS)?.execute([self.revisions])?;
            self.revisions = 0;
        }
        Ok(())
    }

    fn apply_sums(&mut self) -> Result<()> {
        let counts = std::mem::take(&mut self.counts);
        if counts.is_empty() {
            return Ok(());
        }
        let conn = self.conn;
        let mut read = conn.prepare_cached(READ)?;
        for (type_id, delta) in counts {
            let before = read.query_row([type_id], TypeCounts::read).optional()?;
            let Some(before) = before else { continue };
            let after = before.with(&delta);
            let front = if delta.front { front(conn, type_id)? } else { before.head };
            let (was_open, is_open) = (before.open, after.is_open());
            if is_open && (!was_open || delta.answered_closed) {
                self.revisions += 1;
                after.write(conn, OPEN, type_id, Some(front), Some(self.revisions))?;
            } else if was_open && !is_open {
                after.write(conn, CLOSE, type_id, Some(front), None)?;
            } else if front != before.head {
                after.write(conn, SET_FRONT, type_id, Some(front), None)?;
            } else {
                after.write(conn, SET_COUNTS, type_id, None, None)?;
            }
            if delta.hidden_front {
                conn.prepare_cached(SET_HIDDEN_FRONT)?.execute([type_id])?;
            }
            if before.shown != after.is_shown() {
                conn.prepare_cached(SHOW_OR_HIDE)?.execute([type_id])?;
            }
        }
        Ok(())
    }
}

/// The front of a type's queue: rank, time and tie of its first job, or all `None`.
type Head = [Option<i64>; 3];

/// The counters of a type, and what depends on them.
#[derive(Clone, Copy)]
struct TypeCounts {
    counts: [i64; COUNTERS],
    claimed_at: Option<i64>,
    running_max: Option<i64>,
    suspended: bool,
    /// A claim would get a job of it.
    open: bool,
    shown: bool,
    /// It has a handler or settings.
    set_up: bool,
    head: Head,
}

impl TypeCounts {
    /// A damaged number counts as 0, because an error would prevent all writes.
    fn read(row: &Row<'_>) -> rusqlite::Result<TypeCounts> {
        let number = |column| row.get_ref(column).ok().and_then(|value| value.as_i64().ok());
        let is_set = |column| number(column).is_some_and(|number| number != 0);
        Ok(TypeCounts {
            counts: std::array::from_fn(|column| number(column).unwrap_or(0)),
            claimed_at: number(7),
            running_max: number(8),
            suspended: is_set(9),
            open: is_set(10),
            shown: is_set(11),
            set_up: is_set(12),
            head: [number(13), number(14), number(15)],
        })
    }

    fn with(mut self, delta: &Delta) -> TypeCounts {
        self.counts.iter_mut().zip(delta.counts).for_each(|(count, jobs)| *count += jobs);
        self.claimed_at = self.claimed_at.max(delta.claimed_at.map(Timestamp::ms));
        self
    }

    fn is_open(&self) -> bool {
        let running = self.counts[Counter::Running as usize];
        let has_room = self.running_max.is_none_or(|most| running < most);
        self.counts[Counter::Ready as usize] > 0 && !self.suspended && has_room
    }

    fn is_shown(&self) -> bool {
        self.set_up || self.suspended || self.counts.iter().any(|jobs| *jobs != 0)
    }

    /// Writes the counters with one of the statements above, and what it writes besides.
    fn write(
        &self,
        conn: &Connection,
        statement: &str,
        type_id: i64,
        front: Option<Head>,
        revision: Option<i64>,
    ) -> Result<()> {
        let counts = self.counts.map(Some);
        let more = front.into_iter().flatten().chain(revision.map(Some));
        let values = [Some(type_id)].into_iter().chain(counts).chain([self.claimed_at]).chain(more);
        conn.prepare_cached(statement)?.execute(params_from_iter(values))?;
        Ok(())
    }
}

fn front(conn: &Connection, type_id: i64) -> Result<Head> {
    let mut find = conn.prepare_cached(FRONT)?;
    let first = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
    Ok(find.query_row([type_id], first).optional()?.unwrap_or_default())
}
