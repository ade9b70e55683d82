//! What an operation works with inside a write transaction. Operations note how their jobs moved
//! between the counters of a type; the sums are written once per type, just before the commit, and
//! with them the front of its queue.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::State;
use windlass_core::time::Timestamp;

use crate::error::Result;
use crate::type_row::TypeCache;

/// An open write transaction.
pub(crate) struct Tx<'w> {
    pub(crate) conn: &'w Connection,
    pub(crate) types: &'w mut TypeCache,
    /// Deferred jobs that this transaction has made ready.
    pub(crate) promoted: usize,
    /// More jobs are due at this time than it could make ready.
    pub(crate) due_left: Option<Timestamp>,
    counts: HashMap<i64, Delta>,
}

/// The counter that a job is in: its state, with `queued` told apart.
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
    /// What is ready was touched.
    front: bool,
    claimed_at: Option<Timestamp>,
}

impl Counter {
    /// Of a job that is not queued.
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

const APPLY: &str = "
    UPDATE type
       SET ready = ready + ?2, deferred = deferred + ?3, running = running + ?4,
           paused = paused + ?5, finished = finished + ?6, failed = failed + ?7,
           cancelled = cancelled + ?8,
           claimed_at = CASE WHEN ?9 > coalesce(claimed_at, ?9 - 1) THEN ?9 ELSE claimed_at END
     WHERE id = ?1";
pub(crate) const FRONT: &str = "
    SELECT rank, run_at, tie FROM ready
     WHERE type_id = ?1 ORDER BY rank, run_at, tie LIMIT 1";
/// Most changes leave the front alone, and then the index over it.
const APPLY_FRONT: &str = "
    UPDATE type SET head_rank = ?2, head_run_at = ?3, head_tie = ?4
     WHERE id = ?1 AND (head_rank, head_run_at, head_tie) IS NOT (?2, ?3, ?4)";

impl<'w> Tx<'w> {
    pub(crate) fn new(conn: &'w Connection, types: &'w mut TypeCache) -> Tx<'w> {
        Tx { conn, types, promoted: 0, due_left: None, counts: HashMap::new() }
    }

    pub(crate) fn count(&mut self, type_id: i64, counter: Counter, jobs: i64) {
        let delta = self.counts.entry(type_id).or_default();
        delta.counts[counter as usize] += jobs;
        delta.front |= counter == Counter::Ready;
    }

    pub(crate) fn claimed(&mut self, type_id: i64, jobs: usize, now: Timestamp) {
        self.count(type_id, Counter::Ready, -(jobs as i64));
        self.count(type_id, Counter::Running, jobs as i64);
        self.asked(type_id, now);
    }

    /// Somebody looks after the jobs of this type.
    pub(crate) fn asked(&mut self, type_id: i64, now: Timestamp) {
        let delta = self.counts.entry(type_id).or_default();
        delta.claimed_at = delta.claimed_at.max(Some(now));
    }

    /// Writes the sums so far: before the commit, and before an operation that reads them.
    pub(crate) fn apply_counts(&mut self) -> Result<()> {
        if self.counts.is_empty() {
            return Ok(());
        }
        let mut apply = self.conn.prepare_cached(APPLY)?;
        for (type_id, Delta { counts: c, front, claimed_at }) in self.counts.drain() {
            let claimed_at = claimed_at.map(Timestamp::ms);
            apply
                .execute(params![type_id, c[0], c[1], c[2], c[3], c[4], c[5], c[6], claimed_at])?;
            if front {
                apply_front(self.conn, type_id)?;
            }
        }
        Ok(())
    }
}

fn apply_front(conn: &Connection, type_id: i64) -> Result<()> {
    let mut front = conn.prepare_cached(FRONT)?;
    let place = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?].map(Some));
    let front: Option<[Option<i64>; 3]> = front.query_row([type_id], place).optional()?;
    let [rank, run_at, tie] = front.unwrap_or_default();
    conn.prepare_cached(APPLY_FRONT)?.execute(params![type_id, rank, run_at, tie])?;
    Ok(())
}
