//! The context of operations inside a write transaction. Operations note how their jobs moved
//! between the counters of a type. The sums are written once per type, just before the commit,
//! together with the front of its queue.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
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
    counts: HashMap<i64, Delta>,
    /// The newest revision, and whether it is written; read when it is first needed.
    revision: Option<i64>,
    revision_written: bool,
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

/// Adds the sums of a type, and returns what may have to be updated after them.
const APPLY: &str = "
    UPDATE type
       SET ready = ready + ?2, deferred = deferred + ?3, running = running + ?4,
           paused = paused + ?5, finished = finished + ?6, failed = failed + ?7,
           cancelled = cancelled + ?8,
           claimed_at = CASE WHEN ?9 > coalesce(claimed_at, ?9 - 1) THEN ?9 ELSE claimed_at END
     WHERE id = ?1
    RETURNING open,
              ready > 0 AND suspended = 0 AND (running_max IS NULL OR running < running_max),
              shown <> (handler_id IS NOT NULL OR settings IS NOT NULL OR suspended OR ready
                        OR deferred OR running OR paused OR finished OR failed OR cancelled),
              head_rank, head_run_at, head_tie";
pub(crate) const FRONT: &str = "
    SELECT rank, run_at, tie FROM ready
     WHERE type_id = ?1 ORDER BY rank, run_at, tie LIMIT 1";

// Most changes do not affect these columns. They are written separately from the counters, so that
// the indexes over them are rarely updated.
const SET_FRONT: &str =
    "UPDATE type SET head_rank = ?2, head_run_at = ?3, head_tie = ?4 WHERE id = ?1";
const SHOW_OR_HIDE: &str = "UPDATE type SET shown = NOT shown WHERE id = ?1";
const OPEN: &str = "UPDATE type SET open = 1, rev = ?2 WHERE id = ?1";
const REOPEN: &str = "UPDATE type SET rev = ?2 WHERE id = ?1";
const CLOSE: &str = "UPDATE type SET open = 0 WHERE id = ?1";
const RENEW: &str = "
    UPDATE type
       SET open = ready > 0 AND suspended = 0 AND (running_max IS NULL OR running < running_max),
           rev = ?2,
           shown = handler_id IS NOT NULL OR settings IS NOT NULL OR suspended OR ready
                   OR deferred OR running OR paused OR finished OR failed OR cancelled
     WHERE id = ?1";
pub(crate) const REVISION: &str = "SELECT value FROM meta WHERE name = 'revision'";

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
            counts: HashMap::new(),
            revision: None,
            revision_written: true,
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
        let next = self.revision()? + 1;
        if self.conn.prepare_cached(RENEW)?.execute([type_id, next])? > 0 {
            (self.revision, self.revision_written) = (Some(next), false);
        }
        Ok(())
    }

    fn revision(&mut self) -> Result<i64> {
        if let Some(revision) = self.revision {
            return Ok(revision);
        }
        let mut find = self.conn.prepare_cached(REVISION)?;
        let revision = find.query_row([], |row| row.get(0))?;
        self.revision = Some(revision);
        Ok(revision)
    }

    /// Writes the sums so far. Called before the commit, and before an operation reads them.
    pub(crate) fn apply_counts(&mut self) -> Result<()> {
        self.apply_sums()?;
        if !self.revision_written {
            let set = "UPDATE meta SET value = ?1 WHERE name = 'revision'";
            self.conn.prepare_cached(set)?.execute([self.revision])?;
            self.revision_written = true;
        }
        Ok(())
    }

    fn apply_sums(&mut self) -> Result<()> {
        let counts = std::mem::take(&mut self.counts);
        if counts.is_empty() {
            return Ok(());
        }
        let conn = self.conn;
        let mut apply = conn.prepare_cached(APPLY)?;
        for (type_id, Delta { counts: c, front, claimed_at, answered_closed }) in counts {
            let claimed_at = claimed_at.map(Timestamp::ms);
            let sums = params![type_id, c[0], c[1], c[2], c[3], c[4], c[5], c[6], claimed_at];
            let applied = apply.query_row(sums, Applied::read).optional()?;
            let Some(Applied { was_open, is_open, shown_changed, head }) = applied else {
                continue;
            };
            if front {
                set_front(conn, type_id, head)?;
            }
            if shown_changed {
                conn.prepare_cached(SHOW_OR_HIDE)?.execute([type_id])?;
            }
            if is_open && (!was_open || answered_closed) {
                let next = self.revision()? + 1;
                let open = if was_open { REOPEN } else { OPEN };
                conn.prepare_cached(open)?.execute([type_id, next])?;
                (self.revision, self.revision_written) = (Some(next), false);
            } else if was_open && !is_open {
                conn.prepare_cached(CLOSE)?.execute([type_id])?;
            }
        }
        Ok(())
    }
}

/// The front of a type's queue: rank, time and tie of its first job, or all `None`.
type Head = [Option<i64>; 3];

/// A type after its sums were added.
struct Applied {
    /// Open: a claim would get a job of it.
    was_open: bool,
    is_open: bool,
    /// `shown` must be inverted.
    shown_changed: bool,
    /// The front before the change.
    head: Head,
}

impl Applied {
    fn read(row: &Row<'_>) -> rusqlite::Result<Applied> {
        Ok(Applied {
            was_open: row.get(0)?,
            is_open: row.get(1)?,
            shown_changed: row.get(2)?,
            head: [row.get(3)?, row.get(4)?, row.get(5)?],
        })
    }
}

fn set_front(conn: &Connection, type_id: i64, head: Head) -> Result<()> {
    let mut find = conn.prepare_cached(FRONT)?;
    let first = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
    let front: Head = find.query_row([type_id], first).optional()?.unwrap_or_default();
    if front != head {
        let [rank, run_at, tie] = front;
        conn.prepare_cached(SET_FRONT)?.execute(params![type_id, rank, run_at, tie])?;
    }
    Ok(())
}
