//! Reads of jobs: single ones, pages of lists, and those whose lease has expired.

use std::collections::BinaryHeap;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::job::Progress;
use windlass_core::limit::{BATCH_JOBS_MAX, PAGE_JOBS_MAX};
use windlass_core::name::Tenant;
use windlass_core::outcome::Json;
use windlass_core::store::{AttemptLog, List, Page, TypedJob};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Log, Payload, State};

use crate::change;
use crate::claim;
use crate::error::{Failure, Result};
use crate::row::{self, Stored, part};
use crate::type_row;

pub(crate) fn job_get(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<Job>> {
    let Some(stored) = row::find_of(conn, tenant, id)? else { return Ok(None) };
    let progress = progress(conn, &stored)?;
    Ok(Some(Job { progress, ..stored.job }))
}

pub(crate) fn job_typed(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>> {
    let Some(stored) = row::find_of(conn, tenant, id)? else { return Ok(None) };
    let find = "SELECT settings, handler_id FROM type WHERE id = ?1";
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?));
    let (text, handler) = conn.prepare_cached(find)?.query_row([stored.type_id], columns)?;
    let settings = type_row::settings(text)?;
    let handler = handler.map(row::job_id).transpose()?;
    Ok(Some(TypedJob { job: stored.job, settings, handler }))
}

/// The progress of the newest attempt; that of earlier ones has another token.
fn progress(conn: &Connection, stored: &Stored) -> Result<Option<Progress>> {
    let Some(token) = stored.token.filter(|_| stored.parts & part::PROGRESS != 0) else {
        return Ok(None);
    };
    let find = "SELECT percent, message, at FROM progress WHERE id = ?1 AND token = ?2";
    let mut find = conn.prepare_cached(find)?;
    let progress = find.query_row([stored.job.id.get(), token.0], |row| {
        let at = Timestamp(row.get(2)?);
        Ok(Progress { percent: row.get(0)?, message: row.get(1)?, at })
    });
    Ok(progress.optional()?)
}

pub(crate) fn job_result(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<Json>> {
    if row::parts_of(conn, tenant, id)?.is_none_or(|parts| parts & part::RESULT == 0) {
        return Ok(None);
    }
    let mut find = conn.prepare_cached("SELECT data FROM result WHERE id = ?1")?;
    let text: String = find.query_row([id.get()], |row| row.get(0))?;
    let json = Json::parse(text)
        .map_err(|error| Failure::corrupt(format!("the result of job {id}: {error}")))?;
    Ok(Some(json))
}

pub(crate) fn job_log(
    conn: &Connection,
    tenant: &Tenant,
    id: JobId,
) -> Result<Option<Vec<AttemptLog>>> {
    if row::parts_of(conn, tenant, id)?.is_none() {
        return Ok(None);
    }
    let find = "SELECT attempt, ended_at, text FROM log WHERE id = ?1 ORDER BY seq";
    let mut find = conn.prepare_cached(find)?;
    let logs = find.query_map([id.get()], |row| {
        let ended_at = Timestamp(row.get(1)?);
        let log = Log::from_stored(row.get(2)?);
        Ok(AttemptLog { attempt: row.get(0)?, ended_at, log })
    })?;
    Ok(Some(logs.collect::<rusqlite::Result<_>>()?))
}

pub(crate) fn job_payload(
    conn: &Connection,
    tenant: &Tenant,
    id: JobId,
) -> Result<Option<Payload>> {
    let find = "SELECT j.payload_bytes, j.parts, j.payload
                  FROM job j JOIN type t ON t.id = j.type_id
                 WHERE j.id = ?1 AND t.tenant = ?2";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query(params![id.get(), tenant.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(claim::payload(conn, id.get(), row, [0, 1, 2])?))
}

pub(crate) fn payload_piece(conn: &Connection, id: JobId, index: u32) -> Result<Option<Bytes>> {
    let mut find = conn.prepare_cached("SELECT data FROM piece WHERE id = ?1 AND position = ?2")?;
    let piece = find.query_row(params![id.get(), index], |row| row.get::<_, Vec<u8>>(0));
    Ok(piece.optional()?.map(Bytes::from))
}

pub(crate) const LEASES_EXPIRED: &str =
    "SELECT expires_at, id FROM lease WHERE expires_at <= ?1 ORDER BY expires_at, id LIMIT ?2";
/// The next daemon that holds leases on its beat, and when its sysid expires.
pub(crate) const NEXT_HOLDER: &str = "
    SELECT l.owner, s.expires_at FROM lease l JOIN sysid s ON s.sysid = l.owner
     WHERE l.expires_at IS NULL AND l.owner > ?1 ORDER BY l.owner LIMIT 1";
pub(crate) const HELD: &str =
    "SELECT id FROM lease WHERE owner = ?1 AND expires_at IS NULL ORDER BY id LIMIT ?2";

pub(crate) fn lease_expired(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<Job>> {
    let mut jobs = Vec::new();
    for id in expired_leases(conn, now, limit.min(BATCH_JOBS_MAX))? {
        jobs.extend(row::find_undamaged(conn, id)?.map(|stored| stored.job));
    }
    Ok(jobs)
}

/// Jobs whose leases have expired, the longest expired first.
pub(crate) fn expired_leases(conn: &Connection, now: Timestamp, limit: usize) -> Result<Vec<i64>> {
    let mut own = conn.prepare_cached(LEASES_EXPIRED)?;
    let own = own.query_map([now.ms(), limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut expired = own.collect::<rusqlite::Result<Vec<(i64, i64)>>>()?;
    let (mut next, mut last) = (conn.prepare_cached(NEXT_HOLDER)?, 0);
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    while let Some((owner, until)) = next.query_row([last], columns).optional()? {
        last = owner;
        if until <= now.ms() {
            let held = change::ids(conn, HELD, [owner, limit as i64])?;
            expired.extend(held.into_iter().map(|id| (until, id)));
        }
    }
    expired.sort_unstable();
    Ok(expired.into_iter().take(limit).map(|(_, id)| id).collect())
}

/// A list merges the lists of up to this many types; if the tenant has more, the newest jobs of all
/// tenants are filtered instead.
const MERGE_TYPES_MAX: usize = 256;
/// Jobs that one page looks at.
const LOOK_MAX: usize = 10_000;

/// The states that a job's row can contain.
const ROW_STATES: [State; 5] =
    [State::Queued, State::Paused, State::Finished, State::Failed, State::Cancelled];

pub(crate) fn job_list(conn: &Connection, list: &List) -> Result<Page> {
    let limit = list.limit.clamp(1, PAGE_JOBS_MAX);
    let mut candidates = Candidates::of(conn, list, limit)?;
    let mut jobs: Vec<Job> = Vec::new();
    let mut looked_to = None;
    for _ in 0..LOOK_MAX {
        let Some(id) = candidates.next(conn)? else {
            let next = candidates.resume.map(row::job_id).transpose()?;
            return Ok(Page { jobs, next });
        };
        if jobs.len() == limit {
            break;
        }
        looked_to = Some(id);
        let found = row::find_undamaged(conn, id)?.map(|stored| stored.job);
        // The row of a running job says `queued`.
        jobs.extend(found.filter(|job| list.state.is_none_or(|state| state == job.state)));
    }
    Ok(Page { jobs, next: looked_to.map(row::job_id).transpose()? })
}

/// Candidates for a list, newest first.
struct Candidates {
    /// The newest id of each source that is not exhausted, and the index of the source.
    heads: BinaryHeap<(i64, usize)>,
    sources: Vec<Source>,
    /// Where the next page begins if all sources are exhausted.
    resume: Option<i64>,
}

enum Source {
    /// The jobs of one type in one state, by the index.
    OfType { type_id: i64, state: i64 },
    /// Ids that were found beforehand, newest last.
    Found(Vec<i64>),
}

impl Candidates {
    fn of(conn: &Connection, list: &List, limit: usize) -> Result<Candidates> {
        let before = list.before.map_or(i64::MAX, JobId::get);
        let mut resume = None;
        let mut sources = Vec::new();
        if list.state == Some(State::Running) {
            sources.push(Source::Found(running(conn, list, before, limit)?));
        } else {
            let types = types(conn, list)?;
            if types.len() > MERGE_TYPES_MAX {
                let (found, looked_to) = look_through(conn, list, before)?;
                sources.push(Source::Found(found));
                resume = looked_to;
            } else {
                let states = || ROW_STATES.iter().filter(|s| list.state.is_none_or(|l| l == **s));
                let of_type = |type_id| {
                    states().map(move |s| Source::OfType { type_id, state: row::state_number(*s) })
                };
                sources.extend(types.into_iter().flat_map(of_type));
            }
        }
        let heads = BinaryHeap::with_capacity(sources.len());
        let mut candidates = Candidates { heads, sources, resume };
        for source in 0..candidates.sources.len() {
            candidates.advance(conn, source, before)?;
        }
        Ok(candidates)
    }

    fn next(&mut self, conn: &Connection) -> Result<Option<i64>> {
        let Some((id, source)) = self.heads.pop() else { return Ok(None) };
        self.advance(conn, source, id)?;
        Ok(Some(id))
    }

    /// Reads the next id of a source, below `before`.
    fn advance(&mut self, conn: &Connection, source: usize, before: i64) -> Result<()> {
        let head = match &mut self.sources[source] {
            Source::Found(ids) => ids.pop(),
            Source::OfType { type_id, state } => conn
                .prepare_cached(NEWEST_BEFORE)?
                .query_row([*type_id, *state, before], |row| row.get(0))
                .optional()?,
        };
        self.heads.extend(head.map(|id| (id, source)));
        Ok(())
    }
}

pub(crate) const NEWEST_BEFORE: &str = "
    SELECT id FROM job WHERE type_id = ?1 AND state = ?2 AND id < ?3 ORDER BY id DESC LIMIT 1";

fn types(conn: &Connection, list: &List) -> Result<Vec<i64>> {
    let find = "SELECT id FROM type WHERE tenant = ?1 AND (?2 IS NULL OR name = ?2) LIMIT ?3";
    let mut find = conn.prepare_cached(find)?;
    let name = list.name.as_ref().map(|name| name.as_str());
    let types = find
        .query_map(params![list.tenant.as_str(), name, MERGE_TYPES_MAX as i64 + 1], |row| {
            row.get(0)
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(types)
}

/// Running jobs, newest last, one more than the page has room for.
fn running(conn: &Connection, list: &List, before: i64, limit: usize) -> Result<Vec<i64>> {
    let find = "
        SELECT l.id FROM lease l JOIN type t ON t.id = l.type_id
         WHERE l.id < ?1 AND t.tenant = ?2 AND (?3 IS NULL OR t.name = ?3)
         ORDER BY l.id DESC LIMIT ?4";
    let mut find = conn.prepare_cached(find)?;
    let name = list.name.as_ref().map(|name| name.as_str());
    let mut ids = find
        .query_map(params![before, list.tenant.as_str(), name, limit as i64 + 1], |row| row.get(0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    ids.reverse();
    Ok(ids)
}

/// The tenant's jobs among the newest of all tenants, newest last; and the last id that was read,
/// if there may be more.
fn look_through(conn: &Connection, list: &List, before: i64) -> Result<(Vec<i64>, Option<i64>)> {
    let find = "
        SELECT j.id, t.tenant = ?2
          FROM (SELECT id, type_id FROM job WHERE id < ?1 ORDER BY id DESC LIMIT ?3) j
          JOIN type t ON t.id = j.type_id
         ORDER BY j.id DESC";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query(params![before, list.tenant.as_str(), LOOK_MAX as i64])?;
    let (mut ids, mut looked, mut last) = (Vec::new(), 0, None);
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        (looked, last) = (looked + 1, Some(id));
        if row.get(1)? {
            ids.push(id);
        }
    }
    ids.reverse();
    Ok((ids, last.filter(|_| looked == LOOK_MAX)))
}
