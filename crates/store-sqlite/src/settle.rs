//! Settlements of running jobs: the lease is deleted, the job's row is rewritten once, and results
//! and logs are stored in their own tables.

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use windlass_core::edit::MovedJobs;
use windlass_core::job::{Ended, Progress, Token};
use windlass_core::limit::LOG_ATTEMPTS_MAX;
use windlass_core::log::Log;
use windlass_core::outcome::Json;
use windlass_core::retry::Verdict;
use windlass_core::state::{self, Event};
use windlass_core::store::{Inserted, LeaseRef, SettleAnswer, Settled, Settlement};
use windlass_core::time::Timestamp;
use windlass_core::{NewJob, State};

use crate::aside;
use crate::claim;
use crate::error::Result;
use crate::extra;
use crate::family;
use crate::insert;
use crate::queue::{self, QueueKey};
use crate::row::{self, part};
use crate::sysid;
use crate::tx::{Counter, Tx};

const LEASED: &str = "
    SELECT l.type_id, l.token, l.expires_at, l.attempt, l.started_at,
           j.priority, j.parts, j.unique_key, j.run_at
      FROM lease l JOIN job j ON j.id = l.id WHERE l.id = ?1";
const DROP_LEASE: &str = "DELETE FROM lease WHERE id = ?1";
const END: &str = "
    UPDATE job
       SET state = ?2, attempt = ?3, token = ?4, started_at = ?5, finished_at = ?6, purge_at = ?7,
           last_code = coalesce(?8, last_code), last_status = coalesce(?9, last_status),
           parts = ?10
     WHERE id = ?1";
/// Does not touch `state`, and so not the index over it. Without a start (`?4`), the row keeps the
/// one from before the lease.
const QUEUE_AGAIN: &str = "
    UPDATE job
       SET attempt = ?2, token = ?3, started_at = coalesce(?4, started_at), run_at = ?5,
           last_code = coalesce(?6, last_code), last_status = coalesce(?7, last_status),
           parts = ?8
     WHERE id = ?1";

/// What a settlement needs of a running job.
struct Leased {
    type_id: i64,
    token: Token,
    /// `None` if the lease is on its owner's beat.
    expires_at: Option<Timestamp>,
    attempt: u32,
    started_at: Timestamp,
    rank: i64,
    parts: i64,
    unique: Option<String>,
    run_at: Timestamp,
}

/// The attempts of a job that is queued again.
struct Attempts {
    number: u32,
    /// The start of the newest one; `None` if it does not count.
    started_at: Option<Timestamp>,
}

/// The end of a job, whatever caused it.
pub(crate) struct End<'a> {
    pub(crate) id: i64,
    pub(crate) type_id: i64,
    pub(crate) state: State,
    pub(crate) attempt: u32,
    pub(crate) token: Option<Token>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Timestamp,
    pub(crate) purge_at: Timestamp,
    pub(crate) ended: Option<Ended>,
    pub(crate) parts: i64,
    pub(crate) unique: Option<&'a str>,
}

pub(crate) fn job_settle(tx: &mut Tx<'_>, settlements: &[Settlement]) -> Result<SettleAnswer> {
    let mut statements = Statements::prepare(tx.conn)?;
    let mut answer = SettleAnswer::default();
    answer.settled.reserve_exact(settlements.len());
    for settlement in settlements {
        answer.settled.push(settle_one(tx, &mut statements, settlement, &mut answer.moved)?);
    }
    Ok(answer)
}

/// The statements that nearly every settlement needs, prepared once for all of them.
struct Statements<'c> {
    find: CachedStatement<'c>,
    drop_lease: CachedStatement<'c>,
    end: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(conn: &'c Connection) -> Result<Statements<'c>> {
        Ok(Statements {
            find: conn.prepare_cached(LEASED)?,
            drop_lease: conn.prepare_cached(DROP_LEASE)?,
            end: conn.prepare_cached(END)?,
        })
    }
}

fn settle_one(
    tx: &mut Tx<'_>,
    statements: &mut Statements<'_>,
    settlement: &Settlement,
    moved: &mut MovedJobs,
) -> Result<Settled> {
    let id = settlement.lease.id.get();
    let find = &mut statements.find;
    let Some(mut leased) = find_leased(find, id)? else { return Ok(Settled::Stale) };
    let now = tx.now;
    let broken_too_early = settlement.only_if_expired
        && leased.expires_at.map_or_else(|| sysid::lease_until(tx.conn, id), Ok)? > now;
    if leased.token != settlement.lease.token
        || broken_too_early
        || tx.types.key(tx.conn, leased.type_id)?.tenant != settlement.lease.tenant
    {
        return Ok(Settled::Stale);
    }
    match insert::begin_all(tx.conn, &settlement.adds)? {
        Ok(begun) => begun.iter().try_for_each(|new| add_if_new(tx, new, moved))?,
        Err((parent, unfit)) => return Ok(Settled::Unfit { parent, unfit }),
    }
    if settlement.adds.iter().any(|new| new.parent == Some(settlement.lease.id)) {
        // Those that entered have marked it.
        leased.parts = find_leased(find, id)?.map_or(leased.parts, |now| now.parts);
    }
    let waits = waits_for_children(tx.conn, &leased, settlement)?;
    if !waits {
        drop_lease_by(tx, &mut statements.drop_lease, id, leased.type_id)?;
    }
    if let Some(data) = &settlement.data {
        put_result(tx.conn, id, data)?;
        leased.parts |= part::RESULT;
    }
    if let Some(progress) = &settlement.progress {
        put_progress(tx.conn, &settlement.lease, progress)?;
        leased.parts |= part::PROGRESS;
    }
    let log = LogEntry { attempt: leased.attempt, ended_at: now, log: &settlement.log };
    leased.parts = log.put(tx.conn, id, leased.parts)?;
    if waits {
        // It has not ended yet, so the job that follows it is not added yet either.
        family::pause(tx, settlement, leased.parts)?;
        return Ok(Settled::Paused);
    }
    let counted = Attempts { number: leased.attempt, started_at: Some(leased.started_at) };
    match settlement.verdict {
        Verdict::End(ending) => {
            let state = after(Event::End(ending));
            let unique = leased.unique.as_deref();
            let ending = leased.ending(settlement, state, unique, now);
            end_by(tx, &mut statements.end, &ending)?;
        }
        Verdict::Again { after: pause } => {
            after(Event::Again);
            queue_again(tx, &leased, settlement, counted, Some(now + pause))?;
        }
        Verdict::Repeat { run_at } => {
            after(Event::Again);
            queue_again(tx, &leased, settlement, Attempts { number: 0, ..counted }, Some(run_at))?;
            let set = "UPDATE job SET due_at = ?2 WHERE id = ?1";
            tx.conn.prepare_cached(set)?.execute([id, run_at.ms()])?;
        }
        Verdict::Release { after: pause } => {
            after(Event::Release);
            let run_at = pause.map(|pause| now + pause);
            let given_back =
                Attempts { number: leased.attempt.saturating_sub(1), started_at: None };
            queue_again(tx, &leased, settlement, given_back, run_at)?;
        }
    }
    if let Some(follow) = &settlement.follow {
        add_if_new(tx, follow, moved)?;
    }
    Ok(Settled::Done)
}

/// Adds a job with the end of another, unless it exists or its unique key is held.
fn add_if_new(tx: &mut Tx<'_>, new: &NewJob, moved: &mut MovedJobs) -> Result<()> {
    if insert::insert_split(tx, new)? == Inserted::New {
        moved.note_entered(new, tx.now);
    }
    Ok(())
}

/// Whether the attempt ended well and the job has children that have not ended.
fn waits_for_children(conn: &Connection, leased: &Leased, by: &Settlement) -> Result<bool> {
    if !by.ended_well() || leased.parts & part::FAMILY == 0 {
        return Ok(false);
    }
    Ok(family::children(conn, by.lease.id, None)?.pending())
}

fn find_leased(leased: &mut CachedStatement<'_>, id: i64) -> Result<Option<Leased>> {
    let mut rows = leased.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let parts = row.get(6)?;
    Ok(Some(Leased {
        type_id: row.get(0)?,
        token: Token(row.get(1)?),
        expires_at: row::time(row, 2)?,
        attempt: row.get(3)?,
        started_at: Timestamp(row.get(4)?),
        rank: row::rank(row::priority(row.get(5)?)?, parts),
        parts,
        unique: row.get(7)?,
        run_at: Timestamp(row.get(8)?),
    }))
}

/// The state after this event; panics if it is not allowed. Jobs that are queued again need only
/// the check: the row of a running job says `queued`.
fn after(event: Event) -> State {
    state::next(State::Running, event).expect("a running job may end or be queued again")
}

impl Leased {
    fn ending<'a>(
        &self,
        by: &Settlement,
        state: State,
        unique: Option<&'a str>,
        now: Timestamp,
    ) -> End<'a> {
        End {
            id: by.lease.id.get(),
            type_id: self.type_id,
            state,
            attempt: self.attempt,
            token: Some(self.token),
            started_at: Some(self.started_at),
            finished_at: now,
            purge_at: now + by.keep,
            ended: by.ended,
            parts: self.parts,
            unique,
        }
    }
}

/// Ends a job that has already left its queue or lease.
pub(crate) fn end(tx: &mut Tx<'_>, end: &End<'_>) -> Result<()> {
    let mut update = tx.conn.prepare_cached(END)?;
    end_by(tx, &mut update, end)
}

fn end_by(tx: &mut Tx<'_>, update: &mut CachedStatement<'_>, end: &End<'_>) -> Result<()> {
    update.execute(params![
        end.id,
        row::state_number(end.state),
        end.attempt,
        end.token.map(|token| token.0),
        end.started_at.map(Timestamp::ms),
        end.finished_at.ms(),
        end.purge_at.ms(),
        end.ended.map(|ended| row::code_number(ended.code)),
        end.ended.map(|ended| ended.status.get()),
        end.parts & !part::LENT,
    ])?;
    tx.count(end.type_id, Counter::of_state(end.state), 1);
    if let Some(unique) = end.unique {
        insert::free(tx.conn, end.type_id, unique, end.id)?;
    }
    aside::set_state(tx.conn, end.id, end.parts, end.state)?;
    if end.parts & (part::FAMILY | part::CHILD) != 0 {
        family::after_end(tx, end.id, end.purge_at)?;
    }
    Ok(())
}

/// Without a new time, the job keeps its old one and its place.
fn queue_again(
    tx: &mut Tx<'_>,
    leased: &Leased,
    settlement: &Settlement,
    attempts: Attempts,
    run_at: Option<Timestamp>,
) -> Result<()> {
    let due = run_at.is_none_or(|at| at <= tx.now);
    let id = settlement.lease.id.get();
    let (run_at, tie, parts) = match run_at {
        Some(run_at) => (run_at, 0, extra::retimed(tx.conn, id, leased.parts)?),
        None => {
            let parts = leased.parts & !part::LENT;
            (leased.run_at, extra::tie(tx.conn, id, parts)?, parts)
        }
    };
    let mut update = tx.conn.prepare_cached(QUEUE_AGAIN)?;
    update.execute(params![
        id,
        attempts.number,
        leased.token.0,
        attempts.started_at.map(Timestamp::ms),
        run_at.ms(),
        settlement.ended.map(|ended| row::code_number(ended.code)),
        settlement.ended.map(|ended| ended.status.get()),
        parts,
    ])?;
    let key = QueueKey { type_id: leased.type_id, rank: leased.rank, run_at, tie, id };
    queue::add(tx, key, due)
}

/// Deletes the lease; the caller writes what becomes of the job.
pub(crate) fn drop_lease(tx: &mut Tx<'_>, id: i64, type_id: i64) -> Result<()> {
    let mut delete = tx.conn.prepare_cached(DROP_LEASE)?;
    drop_lease_by(tx, &mut delete, id, type_id)
}

fn drop_lease_by(
    tx: &mut Tx<'_>,
    delete: &mut CachedStatement<'_>,
    id: i64,
    type_id: i64,
) -> Result<()> {
    delete.execute([id])?;
    tx.count(type_id, Counter::Running, -1);
    Ok(())
}

fn put_result(conn: &Connection, id: i64, data: &Json) -> Result<()> {
    let put = "INSERT INTO result (id, data) VALUES (?1, ?2)
               ON CONFLICT (id) DO UPDATE SET data = excluded.data";
    conn.prepare_cached(put)?.execute(params![id, data.as_str()])?;
    Ok(())
}

/// The log of an attempt.
pub(crate) struct LogEntry<'a> {
    pub(crate) attempt: u32,
    pub(crate) ended_at: Timestamp,
    pub(crate) log: &'a Log,
}

impl LogEntry<'_> {
    /// Stores it, and deletes old logs beyond a bounded number. Returns the job's new parts.
    pub(crate) fn put(&self, conn: &Connection, id: i64, parts: i64) -> Result<i64> {
        if self.log.is_empty() {
            return Ok(parts);
        }
        let put = "INSERT INTO log (id, attempt, ended_at, text) VALUES (?1, ?2, ?3, ?4)";
        let values = params![id, self.attempt, self.ended_at.ms(), self.log.as_stored()];
        conn.prepare_cached(put)?.execute(values)?;
        if parts & part::LOG != 0 {
            let newest_surplus = "
                SELECT seq FROM log WHERE id = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2";
            let mut newest_surplus = conn.prepare_cached(newest_surplus)?;
            let surplus: Option<i64> = newest_surplus
                .query_row(params![id, LOG_ATTEMPTS_MAX], |row| row.get(0))
                .optional()?;
            if let Some(seq) = surplus {
                let drop_old = "DELETE FROM log WHERE id = ?1 AND seq <= ?2";
                conn.prepare_cached(drop_old)?.execute([id, seq])?;
            }
        }
        Ok(parts | part::LOG)
    }
}

/// Stores the progress of a running job.
pub(crate) fn job_progress(
    tx: &mut Tx<'_>,
    lease: &LeaseRef,
    progress: &Progress,
) -> Result<Settled> {
    if !claim::held(tx, lease)? {
        return Ok(Settled::Stale);
    }
    put_progress(tx.conn, lease, progress)?;
    let mark = "UPDATE job SET parts = parts | ?2 WHERE id = ?1 AND parts & ?2 = 0";
    tx.conn.prepare_cached(mark)?.execute([lease.id.get(), part::PROGRESS])?;
    Ok(Settled::Done)
}

fn put_progress(conn: &Connection, lease: &LeaseRef, progress: &Progress) -> Result<()> {
    let put = "INSERT INTO progress (id, token, percent, message, at) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (id) DO UPDATE
                  SET token = excluded.token, percent = excluded.percent,
                      message = excluded.message, at = excluded.at";
    let Progress { percent, message, at } = progress;
    let values = params![lease.id.get(), lease.token.0, percent, message, at.ms()];
    conn.prepare_cached(put)?.execute(values)?;
    Ok(())
}
