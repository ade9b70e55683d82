//! Reads of jobs: single ones with what belongs to them, and pages of lists.

use bytes::Bytes;
use tokio_postgres::Row;
use windlass_core::job::Progress;
use windlass_core::limit::PAGE_JOBS_MAX;
use windlass_core::name::{Tenant, TypeName};
use windlass_core::outcome::Json;
use windlass_core::store::{AttemptLog, List, Page, TypedJob};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Log, Payload, State};

use crate::error::{Failure, Result};
use crate::row::{self, Stored, part, select_jobs};
use crate::tx::Tx;
use crate::type_row;

pub(crate) async fn job_get(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<Job>> {
    let Some(stored) = row::find_of(tx, tenant, id).await? else { return Ok(None) };
    let progress = progress(tx, &stored).await?;
    Ok(Some(Job { progress, ..stored.job }))
}

pub(crate) async fn job_typed(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<TypedJob>> {
    let Some(stored) = row::find_of(tx, tenant, id).await? else { return Ok(None) };
    let find = "SELECT settings, handler_id FROM type WHERE id = $1";
    let row = tx.query_one(find, &[&stored.type_id]).await?;
    let settings = type_row::settings(row.try_get(0)?)?;
    let handler = row.try_get::<_, Option<i64>>(1)?.map(row::job_id).transpose()?;
    Ok(Some(TypedJob { job: stored.job, settings, handler }))
}

/// The progress of the newest attempt; that of earlier ones has another token.
async fn progress(tx: &Tx<'_>, stored: &Stored) -> Result<Option<Progress>> {
    let Some(token) = stored.token.filter(|_| stored.parts & part::PROGRESS != 0) else {
        return Ok(None);
    };
    let find = "SELECT percent, message, at FROM progress WHERE id = $1 AND token = $2";
    let Some(row) = tx.query_opt(find, &[&stored.job.id.get(), &token.0]).await? else {
        return Ok(None);
    };
    let (message, at) = (row::text(row.try_get(1)?)?, Timestamp(row.try_get(2)?));
    Ok(Some(Progress { percent: row.try_get(0)?, message, at }))
}

/// What the job has in other tables, if it exists.
async fn parts_of(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<i32>> {
    let find = "SELECT j.parts FROM job j JOIN type t ON t.id = j.type_id
                 WHERE j.id = $1 AND t.tenant = $2";
    let row = tx.query_opt(find, &[&id.get(), &tenant.as_str()]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

pub(crate) async fn job_result(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<Json>> {
    if parts_of(tx, tenant, id).await?.is_none_or(|parts| parts & part::RESULT == 0) {
        return Ok(None);
    }
    let row = tx.query_one("SELECT data FROM result WHERE id = $1", &[&id.get()]).await?;
    let json = Json::parse(row.try_get(0)?)
        .map_err(|error| Failure::corrupt(format!("the result of job {id}: {error}")))?;
    Ok(Some(json))
}

pub(crate) async fn job_log(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: JobId,
) -> Result<Option<Vec<AttemptLog>>> {
    if parts_of(tx, tenant, id).await?.is_none() {
        return Ok(None);
    }
    let find = "SELECT attempt, ended_at, text FROM log WHERE id = $1 ORDER BY seq";
    let log = |row: &Row| {
        let log = Log::from_stored(row::text(row.try_get(2)?)?);
        let (attempt, ended_at) = (row.try_get::<_, i32>(0)? as u32, row.try_get(1)?);
        Ok(AttemptLog { attempt, ended_at: Timestamp(ended_at), log })
    };
    let logs = tx.query(find, &[&id.get()]).await?.iter().map(log).collect::<Result<_>>()?;
    Ok(Some(logs))
}

pub(crate) async fn job_payload(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: JobId,
) -> Result<Option<Payload>> {
    let find = "SELECT j.payload_bytes, j.parts, j.payload
                  FROM job j JOIN type t ON t.id = j.type_id
                 WHERE j.id = $1 AND t.tenant = $2";
    let row = tx.query_opt(find, &[&id.get(), &tenant.as_str()]).await?;
    row.map(|row| payload(id.get(), &row, [0, 1, 2])).transpose()
}

/// The payload of a job, from these columns of a row: bytes, parts, payload.
pub(crate) fn payload(id: i64, row: &Row, [bytes, parts, payload]: [usize; 3]) -> Result<Payload> {
    if row.try_get::<_, i32>(parts)? & part::PIECES != 0 {
        return Ok(Payload::Pieces { bytes: row.try_get::<_, i64>(bytes)? as u64 });
    }
    let payload: Option<&[u8]> = row.try_get(payload)?;
    let missing = || Failure::corrupt(format!("job {id} has no payload"));
    Ok(Payload::Inline(Bytes::copy_from_slice(payload.ok_or_else(missing)?)))
}

pub(crate) async fn payload_piece(tx: &Tx<'_>, id: JobId, index: u32) -> Result<Option<Bytes>> {
    let find = "SELECT data FROM piece WHERE id = $1 AND position = $2";
    let Ok(position) = i32::try_from(index) else { return Ok(None) };
    let row = tx.query_opt(find, &[&id.get(), &position]).await?;
    Ok(row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?.map(Bytes::from))
}

/// A list merges the lists of up to this many types; if the tenant has more, the newest jobs of all
/// tenants are filtered instead.
const MERGE_TYPES_MAX: usize = 256;
/// Jobs that such a filter looks at.
const LOOK_MAX: i64 = 10_000;

/// The states that a job's row can contain.
const ROW_STATES: [State; 5] =
    [State::Queued, State::Paused, State::Finished, State::Failed, State::Cancelled];

const LISTED: &str = select_jobs!("WHERE j.id = ANY ($1) ORDER BY j.id DESC");

pub(crate) async fn job_list(tx: &Tx<'_>, list: &List) -> Result<Page> {
    let limit = list.limit.clamp(1, PAGE_JOBS_MAX);
    let before = list.before.map_or(i64::MAX, JobId::get);
    // One more than the page has room for shows whether another page follows.
    let wanted = limit as i64 + 1;
    let (mut ids, resume) = match list.state {
        Some(State::Running) => (running(tx, list, before, wanted).await?, None),
        _ => {
            let types = types(tx, list).await?;
            if types.len() > MERGE_TYPES_MAX {
                look_through(tx, list, before, wanted).await?
            } else {
                (merged(tx, list, &types, before, wanted).await?, None)
            }
        }
    };
    let next = if ids.len() > limit { Some(ids[limit - 1]) } else { resume };
    ids.truncate(limit);
    let mut jobs = Vec::with_capacity(ids.len());
    for found in &tx.query(LISTED, &[&ids]).await? {
        let id = found.try_get(0)?;
        jobs.extend(row::unless_damaged(id, row::stored(found))?.map(|stored| stored.job));
    }
    Ok(Page { jobs, next: next.map(row::job_id).transpose()? })
}

async fn types(tx: &Tx<'_>, list: &List) -> Result<Vec<i32>> {
    let find = "SELECT id FROM type WHERE tenant = $1 AND ($2::text IS NULL OR name = $2) LIMIT $3";
    let name = list.name.as_ref().map(TypeName::as_str);
    let limit = MERGE_TYPES_MAX as i64 + 1;
    let rows = tx.query(find, &[&list.tenant.as_str(), &name, &limit]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The row of a running job says `queued`: if that state is asked for, jobs with a lease are left
/// out.
const MERGED: &str = include_str!("../sql/list_merged.sql");

async fn merged(
    tx: &Tx<'_>,
    list: &List,
    types: &[i32],
    before: i64,
    limit: i64,
) -> Result<Vec<i64>> {
    let states = ROW_STATES.iter().filter(|state| list.state.is_none_or(|only| only == **state));
    let states: Vec<i16> = states.map(|state| row::state_number(*state)).collect();
    let queued_only = list.state == Some(State::Queued);
    tx.ids(MERGED, &[&types, &states, &before, &limit, &queued_only]).await
}

async fn running(tx: &Tx<'_>, list: &List, before: i64, limit: i64) -> Result<Vec<i64>> {
    let find = "
        SELECT l.id FROM lease l JOIN type t ON t.id = l.type_id
         WHERE l.id < $1 AND t.tenant = $2 AND ($3::text IS NULL OR t.name = $3)
         ORDER BY l.id DESC LIMIT $4";
    let name = list.name.as_ref().map(TypeName::as_str);
    tx.ids(find, &[&before, &list.tenant.as_str(), &name, &limit]).await
}

const LOOK_THROUGH: &str = include_str!("../sql/list_look_through.sql");

/// The tenant's jobs among the newest of all tenants; and the last id that was looked at, if there
/// may be more.
async fn look_through(
    tx: &Tx<'_>,
    list: &List,
    before: i64,
    limit: i64,
) -> Result<(Vec<i64>, Option<i64>)> {
    let state = list.state.map(row::state_number);
    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&before, &list.tenant.as_str(), &state, &limit, &LOOK_MAX];
    let ids = tx.ids(LOOK_THROUGH, &values).await?;
    let last = "SELECT id FROM job WHERE id < $1 ORDER BY id DESC OFFSET $2 LIMIT 1";
    let last = tx.query_opt(last, &[&before, &(LOOK_MAX - 1)]).await?;
    Ok((ids, last.map(|row| row.try_get(0)).transpose()?))
}
