//! Claims and leases. A claim writes a lease and not the job's row: a job with a lease is running.
//! It reads the front of `ready` and the rows of the jobs it takes; its cost does not depend on how
//! many others wait.

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, params};
use windlass_core::job::Token;
use windlass_core::limit::{BATCH_JOBS_MAX, RATE};
use windlass_core::rate::Spent;
use windlass_core::state::{self, Event};
use windlass_core::store::{Claim, ClaimAnswer, Claimed, Hold, LeaseRef, Renew, Rest};
use windlass_core::time::Timestamp;
use windlass_core::{HandlerId, Job, JobId, Lease, Payload, State, Sysid, TypeKey};

use crate::error::{Failure, Result};
use crate::extra;
use crate::queue;
use crate::row::{self, part};
use crate::sysid;
use crate::tx::{Counter, Tx};
use crate::withheld;

/// `?2` is the smallest rank: 0, or that of the floor. The caller stops reading when it has enough:
/// with a bound LIMIT, SQLite would recompile the statement for each new value.
pub(crate) const FRONT: &str = "
    SELECT rank, run_at, tie, id FROM ready
     WHERE type_id = ?1 AND rank >= ?2 ORDER BY rank, run_at, tie, id";
pub(crate) const TAKE_FRONT: &str = "
    DELETE FROM ready
     WHERE type_id = ?1 AND rank >= ?2 AND (rank, run_at, tie, id) <= (?3, ?4, ?5, ?6)";
const ADD_LEASE: &str = "
    INSERT INTO lease (id, type_id, owner, token, expires_at, attempt, started_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
row::select! { pub(crate) JOB "job WHERE id = ?1":
    priority, run_at, due_at, attempt, created_at, expires_at, timeout_ms, token, last_code,
    last_status, unique_key, then_name, payload_bytes, parts, payload, parent_id,
}

/// Expired and damaged jobs that one claim moves out of its way. Bounds how long other operations
/// wait if there are very many.
const SKIPPED_MAX: usize = 1000;

/// `None` if no requested job is ready, but some may be among the due jobs that are not promoted
/// yet, or behind those that were skipped: then `write_when_ready` tries again.
pub(crate) fn job_claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<Option<ClaimAnswer>> {
    let more_due = queue::promote(tx)?;
    let now = tx.now;
    let conn = tx.conn;
    let (owner, token) = (claim.owner, claim.token);
    let lease = match claim.hold {
        Hold::For(hold) => Lease { owner, token, expires_at: now + hold, on_beat: false },
        Hold::Beat(boot) => {
            let expires_at = sysid::beat_until(tx, owner, boot)?;
            Lease { owner, token, expires_at, on_beat: true }
        }
    };
    let mut claiming = Claiming {
        conn,
        lease,
        now,
        job: conn.prepare_cached(JOB)?,
        add_lease: conn.prepare_cached(ADD_LEASE)?,
        claimed: Vec::new(),
        bytes_left: claim.payload_bytes_max,
        skips_left: SKIPPED_MAX,
    };
    let mut rests = Vec::new();
    for pick in &claim.picks {
        if claiming.bytes_left == 0 {
            break;
        }
        let before = claiming.claimed.len();
        let Some(type_id) = tx.types.find(conn, &pick.key)? else { continue };
        let Some(of_type) = unless_suspended(conn, type_id)? else { continue };
        let room = of_type.room(tx.pending(type_id, Counter::Running));
        let starts_left = of_type.starts_left(now);
        if starts_left == 0 {
            // It is open all the same.
            rests.extend(of_type.rest(&pick.key, now));
            continue;
        }
        let limit = pick.limit.min(starts_left) as usize;
        let limit = limit.min(BATCH_JOBS_MAX - before);
        let full = before + limit.min(usize::try_from(room).unwrap_or(usize::MAX));
        let picked = Picked { key: &pick.key, type_id, handler: of_type.handler };
        if let Some(floor) = pick.floor {
            claiming.take(tx, &picked, row::rank(floor, 0), full.min(before + 1))?;
        }
        claiming.take(tx, &picked, 0, full)?;
        let started = claiming.claimed.len() - before;
        if started == 0 {
            tx.answered_closed(type_id);
            continue;
        }
        tx.claimed(type_id, started, now);
        rests.extend(spend(tx, type_id, &pick.key, of_type.rate, started)?);
        let ready = of_type.ready + tx.pending(type_id, Counter::Ready);
        let left = ready.min(room.saturating_sub(started as i64)).max(0) as u64;
        if left == 0 {
            tx.answered_closed(type_id);
        }
        claiming.claimed[before..].iter_mut().for_each(|claimed| claimed.left = left);
    }
    let Claiming { claimed, skips_left, .. } = claiming;
    let more_behind = skips_left == 0 || (more_due && is_any_deferred(tx, claim)?);
    let answers = !claimed.is_empty() || !more_behind;
    Ok(answers.then_some(ClaimAnswer { jobs: claimed, rests }))
}

/// So many jobs of a type have started, which has this rate. Returns its rest, if that uses it up.
pub(crate) fn spend(
    tx: &Tx<'_>,
    type_id: i64,
    key: &TypeKey,
    rated: Option<(f64, Spent)>,
    jobs: usize,
) -> Result<Option<Rest>> {
    let Some((rate, spent)) = rated else { return Ok(None) };
    let spent = spent.after(jobs as u32, rate, tx.now);
    let set = "UPDATE type SET spent = ?2 WHERE id = ?1";
    tx.conn.prepare_cached(set)?.execute([type_id, spent.0])?;
    Ok(Rest::of(key, (rate, spent), jobs as u32, tx.now))
}

/// Whether a requested type has deferred jobs.
fn is_any_deferred(tx: &mut Tx<'_>, claim: &Claim) -> Result<bool> {
    tx.apply_counts()?;
    let find = "SELECT 1 FROM type WHERE id = ?1 AND deferred > 0 AND suspended = 0";
    let mut find = tx.conn.prepare_cached(find)?;
    for pick in claim.picks.iter().filter(|pick| pick.limit > 0) {
        let type_id = tx.types.find(tx.conn, &pick.key)?;
        if type_id.map_or(Ok(false), |id| find.exists([id]))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Extends leases; returns those that are lost.
pub(crate) fn job_renew(tx: &mut Tx<'_>, by: &Renew) -> Result<Vec<LeaseRef>> {
    let now = tx.now;
    let expires_at = by.hold.map_or(Timestamp::NEVER, |hold| now + hold).ms();
    let renew = "UPDATE lease SET expires_at = ?2 WHERE id = ?1";
    let mut renew = tx.conn.prepare_cached(renew)?;
    let mut lost = Vec::new();
    for lease in &by.leases {
        if held(tx, lease)? {
            renew.execute([lease.id.get(), expires_at])?;
        } else {
            lost.push(lease.clone());
        }
    }
    Ok(lost)
}

/// Whether the job runs under this lease.
pub(crate) fn held(tx: &mut Tx<'_>, lease: &LeaseRef) -> Result<bool> {
    let mut find =
        tx.conn.prepare_cached("SELECT type_id FROM lease WHERE id = ?1 AND token = ?2")?;
    let type_id =
        find.query_row([lease.id.get(), lease.token.0], |row| row.get::<_, i64>(0)).optional()?;
    match type_id {
        None => Ok(false),
        Some(type_id) => Ok(tx.types.key(tx.conn, type_id)?.tenant == lease.tenant),
    }
}

/// What a claim needs to know about a type.
pub(crate) struct Claimable {
    handler: Option<HandlerId>,
    /// The counters in the row, without the pending changes of this transaction.
    ready: i64,
    running: i64,
    running_max: Option<i64>,
    /// Its `rate`, and what has been spent of it.
    pub(crate) rate: Option<(f64, Spent)>,
}

impl Claimable {
    /// How many more of its jobs may run, besides those that run and `pending` others.
    pub(crate) fn room(&self, pending: i64) -> i64 {
        self.running_max.map_or(i64::MAX, |most| (most - self.running - pending).max(0))
    }

    /// How many more of its jobs may start now.
    pub(crate) fn starts_left(&self, now: Timestamp) -> u32 {
        self.rate.map_or(u32::MAX, |(rate, spent)| spent.left(rate, now))
    }

    /// Its rest, if it had used up its rate before.
    pub(crate) fn rest(&self, key: &TypeKey, now: Timestamp) -> Option<Rest> {
        Rest::of(key, self.rate?, 0, now)
    }
}

/// `None` for a suspended type. Read every time, because another process may change it.
pub(crate) fn unless_suspended(conn: &Connection, type_id: i64) -> Result<Option<Claimable>> {
    let find = "SELECT suspended, handler_id, ready, running, running_max, rate, spent
                  FROM type WHERE id = ?1";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query([type_id])?;
    let missing = || Failure::corrupt(format!("type {type_id} has no row"));
    let row = rows.next()?.ok_or_else(missing)?;
    if row.get(0)? {
        return Ok(None);
    }
    let handler = row.get::<_, Option<i64>>(1)?.map(row::job_id).transpose()?;
    let (ready, running, running_max) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let rate: Option<f64> = row.get(5)?;
    let spent = Spent(row.get(6)?);
    let rate = rate.map(|rate| (RATE.clamp(rate), spent));
    Ok(Some(Claimable { handler, ready, running, running_max, rate }))
}

/// A type from which jobs are claimed.
struct Picked<'a> {
    key: &'a TypeKey,
    type_id: i64,
    handler: Option<HandlerId>,
}

/// Turns jobs of the queue into claimed ones.
struct Claiming<'a> {
    conn: &'a Connection,
    lease: Lease,
    now: Timestamp,
    job: CachedStatement<'a>,
    add_lease: CachedStatement<'a>,
    claimed: Vec<Claimed>,
    /// Payloads that still fit.
    bytes_left: u64,
    /// Jobs that may still be skipped.
    skips_left: usize,
}

impl Claiming<'_> {
    /// Claims ready jobs of a type in order, beginning at this rank, until `full` are claimed in
    /// all. Those that are met on the way and must not be claimed are withheld.
    fn take(
        &mut self,
        tx: &mut Tx<'_>,
        picked: &Picked<'_>,
        rank_min: i64,
        full: usize,
    ) -> Result<()> {
        let (conn, type_id) = (self.conn, picked.type_id);
        let mut front = conn.prepare_cached(FRONT)?;
        let mut rows = front.query([type_id, rank_min])?;
        let (mut last, mut removed, mut skipped) = (None, 0, Vec::new());
        while self.claimed.len() < full && self.bytes_left > 0 && self.skips_left > 0 {
            let Some(row) = rows.next()? else { break };
            let (rank, run_at, tie, id) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            (last, removed) = (Some([type_id, rank_min, rank, run_at, tie, id]), removed + 1);
            match row::unless_damaged(id, self.start(id, picked))?.flatten() {
                Some(started) => {
                    self.bytes_left = self.bytes_left.saturating_sub(started.payload.inline_len());
                    self.claimed.push(started);
                }
                None => {
                    self.skips_left -= 1;
                    skipped.push(id);
                }
            }
        }
        drop(rows);
        if let Some(last) = last {
            conn.prepare_cached(TAKE_FRONT)?.execute(last)?;
            tx.count(type_id, Counter::Ready, -removed);
        }
        skipped.into_iter().try_for_each(|id| withheld::add(tx, type_id, id))
    }

    /// `None` if the job has expired.
    fn start(&mut self, id: i64, picked: &Picked<'_>) -> Result<Option<Claimed>> {
        use Column as C;
        let mut rows = self.job.query([id])?;
        let missing = || Failure::corrupt(format!("job {id} is ready but has no row"));
        let row = rows.next()?.ok_or_else(missing)?;
        let expires_at = row::time(row, C::expires_at as usize)?;
        if expires_at.is_some_and(|at| at <= self.now) {
            return Ok(None);
        }
        let state = state::next(State::Queued, Event::Claim).expect("a ready job is queued");
        if row.get::<_, Option<i64>>(C::token as usize)? > Some(self.lease.token.0) {
            return Err(Failure::LargerToken(row::job_id(id)?));
        }
        let parts: i64 = row.get(C::parts as usize)?;
        let mut extra = extra::of_parts(parts, state);
        if parts & part::EXTRA != 0 {
            extra::read(self.conn, id, &mut extra)?;
        }
        let job = Job {
            id: row::job_id(id)?,
            key: picked.key.clone(),
            state,
            priority: row::priority(row.get(C::priority as usize)?)?,
            run_at: Timestamp(row.get(C::run_at as usize)?),
            due_at: Timestamp(row.get(C::due_at as usize)?),
            attempt: row.get::<_, u32>(C::attempt as usize)? + 1,
            created_at: Timestamp(row.get(C::created_at as usize)?),
            started_at: Some(self.now),
            finished_at: None,
            expires_at,
            timeout: row::timeout(row, C::timeout_ms as usize)?,
            lease: Some(self.lease),
            last: row::ended(row.get(C::last_code as usize)?, row.get(C::last_status as usize)?)?,
            unique: row.get(C::unique_key as usize)?,
            then: row::type_name(row, C::then_name as usize)?,
            parent: row
                .get::<_, Option<i64>>(C::parent_id as usize)?
                .map(row::job_id)
                .transpose()?,
            children: parts & part::FAMILY != 0,
            extra,
            payload_bytes: row.get::<_, i64>(C::payload_bytes as usize)? as u64,
            progress: None,
        };
        let columns = [C::payload_bytes as usize, C::parts as usize, C::payload as usize];
        let payload = payload(self.conn, id, row, columns)?;
        let place = (id, picked.type_id);
        put_lease(&mut self.add_lease, place, &self.lease, job.attempt, self.now)?;
        Ok(Some(Claimed { job, payload, handler: picked.handler, left: 0 }))
    }
}

/// Stores a lease that a decision made.
pub(crate) fn add_lease(
    conn: &Connection,
    id: i64,
    type_id: i64,
    lease: &Lease,
    attempt: u32,
    started_at: Timestamp,
) -> Result<()> {
    put_lease(&mut conn.prepare_cached(ADD_LEASE)?, (id, type_id), lease, attempt, started_at)
}

fn put_lease(
    add_lease: &mut CachedStatement<'_>,
    (id, type_id): (i64, i64),
    lease: &Lease,
    attempt: u32,
    started_at: Timestamp,
) -> Result<()> {
    let Lease { owner, token, expires_at, on_beat } = lease;
    let expires_at = (!on_beat).then_some(expires_at.ms());
    let values = params![id, type_id, owner.get(), token.0, expires_at, attempt, started_at.ms()];
    add_lease.execute(values)?;
    Ok(())
}

pub(crate) const LEASES_ON_BEAT: &str = "
    SELECT l.id, t.tenant, t.name, l.token FROM lease l JOIN type t ON t.id = l.type_id
     WHERE l.owner = ?1 AND l.expires_at IS NULL AND l.id > ?2 ORDER BY l.id LIMIT ?3";

/// The leases on this daemon's beat, after a job id.
pub(crate) fn mine(
    conn: &Connection,
    owner: Sysid,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<LeaseRef>> {
    let after = after.map_or(0, JobId::get);
    leases(conn, LEASES_ON_BEAT, params![owner.get(), after, limit.min(BATCH_JOBS_MAX) as i64])
}

/// Reads all leases, but only after claims have failed.
const LEASES_CLAIMED: &str = "
    SELECT l.id, t.tenant, t.name, l.token FROM lease l JOIN type t ON t.id = l.type_id
     WHERE l.token IN (SELECT value FROM json_each(?1)) ORDER BY l.id LIMIT ?2";

/// The leases of the claims with these tokens.
pub(crate) fn claimed(conn: &Connection, tokens: &[Token], limit: usize) -> Result<Vec<LeaseRef>> {
    let tokens: Vec<String> = tokens.iter().map(|token| token.0.to_string()).collect();
    let tokens = format!("[{}]", tokens.join(","));
    leases(conn, LEASES_CLAIMED, params![tokens, limit.min(BATCH_JOBS_MAX) as i64])
}

fn leases(conn: &Connection, sql: &str, values: impl Params) -> Result<Vec<LeaseRef>> {
    let mut find = conn.prepare_cached(sql)?;
    let mut rows = find.query(values)?;
    let mut leases = Vec::new();
    while let Some(row) = rows.next()? {
        let key = row::type_key(row.get_ref(1)?.as_str(), row.get_ref(2)?.as_str())?;
        let (tenant, token) = (key.tenant, Token(row.get(3)?));
        leases.push(LeaseRef { tenant, id: row::job_id(row.get(0)?)?, token });
    }
    Ok(leases)
}

/// The payload of a job, from the columns `payload_bytes`, `parts` and `payload` with these
/// numbers.
pub(crate) fn payload(
    conn: &Connection,
    id: i64,
    row: &Row<'_>,
    [bytes, parts, payload]: [usize; 3],
) -> Result<Payload> {
    let parts: i64 = row.get(parts)?;
    if parts & part::PIECES != 0 {
        return Ok(Payload::Pieces { bytes: row.get::<_, i64>(bytes)? as u64 });
    }
    if parts & part::PAYLOAD != 0 {
        let mut find = conn.prepare_cached("SELECT data FROM payload WHERE id = ?1")?;
        let data: Vec<u8> = find.query_row([id], |row| row.get(0))?;
        return Ok(Payload::Inline(Bytes::from(data)));
    }
    let unreadable = |_| Failure::corrupt(format!("job {id}: the payload is not a blob"));
    let bytes = row.get_ref(payload)?.as_blob().map_err(unreadable)?;
    Ok(Payload::Inline(Bytes::copy_from_slice(bytes)))
}
