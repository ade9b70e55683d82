//! Encoding of jobs in rows, and decoding.

use std::fmt::Debug;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::job::{Ended, Token};
use windlass_core::limit::PRIORITY_MAX;
use windlass_core::name::{Invalid, Tenant, TypeKey, TypeName};
use windlass_core::outcome::{Code, Status};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Lease, Priority, State, Sysid};

use crate::error::{Failure, Result};
use crate::extra;

/// Flags for what a job has outside its row, so that nothing is searched for in vain.
pub(crate) mod part {
    pub(crate) const PAYLOAD: i64 = 1;
    pub(crate) const PIECES: i64 = 2;
    pub(crate) const RESULT: i64 = 4;
    pub(crate) const LOG: i64 = 8;
    pub(crate) const PROGRESS: i64 = 16;
    /// It has or had children.
    pub(crate) const FAMILY: i64 = 32;
    pub(crate) const HIDDEN: i64 = 64;
    /// Meaningless while the job has a lease.
    pub(crate) const LENT: i64 = 128;
    pub(crate) const EXTRA: i64 = 256;
    /// It has a parent.
    pub(crate) const CHILD: i64 = 512;
    pub(crate) const ALL: i64 = 1023;
}

/// A job, with what only this store knows about it.
pub(crate) struct Stored {
    pub(crate) job: Job,
    pub(crate) type_id: i64,
    /// Of the newest claim; kept when the lease ends.
    pub(crate) token: Option<Token>,
    pub(crate) parts: i64,
}

/// Defines a SELECT and an enum with the number of each of its columns, so that the two cannot
/// disagree.
macro_rules! select {
    ($vis:vis $sql:ident $from:literal: $first:ident $(, $column:ident)+ $(,)?) => {
        #[allow(non_camel_case_types, reason = "they are the names of columns")]
        enum Column {
            $first
            $(, $column)+
        }

        $vis const $sql: &str = concat!(
            "SELECT ",
            stringify!($first)
            $(, ", ", stringify!($column))+,
            " FROM ",
            $from,
        );
    };
}
pub(crate) use select;

select! { FIND "job_now WHERE id = ?1":
    id, type_id, tenant, name, state, priority, run_at, due_at, attempt, created_at, started_at,
    finished_at, expires_at, timeout_ms, owner, token, lease_expires_at, lease_on_beat, last_code,
    last_status, unique_key, then_name, parent_id, parts, payload_bytes,
}

/// The job of any tenant.
pub(crate) fn find(conn: &Connection, id: i64) -> Result<Option<Stored>> {
    let mut statement = conn.prepare_cached(FIND)?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let mut stored = stored(row)?;
    if stored.parts & part::EXTRA != 0 {
        extra::read(conn, id, &mut stored.job.extra)?;
    }
    Ok(Some(stored))
}

/// The job, unless its row is damaged: then it is named in the log and skipped, so that it does not
/// block other jobs.
pub(crate) fn find_undamaged(conn: &Connection, id: i64) -> Result<Option<Stored>> {
    Ok(unless_damaged(id, find(conn, id))?.flatten())
}

/// The result of reading this job; `None` if its row is damaged, which is logged.
pub(crate) fn unless_damaged<T>(id: i64, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(failure) if failure.is_of_one_row() => {
            tracing::error!(job = id, ?failure, "skipping a job whose row is damaged");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// The same for a row of another table, which is named by what it has.
pub(crate) fn unless_row_damaged<T>(name: &dyn Debug, read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(failure) if failure.is_of_one_row() => {
            tracing::error!(?name, ?failure, "skipping a row that is damaged");
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// The job, if it is this tenant's.
pub(crate) fn find_of(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<Stored>> {
    Ok(find(conn, id.get())?.filter(|stored| stored.job.key.tenant == *tenant))
}

/// The parts of a job, if it is this tenant's.
pub(crate) fn parts_of(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<i64>> {
    let sql = "SELECT j.parts FROM job j JOIN type t ON t.id = j.type_id
               WHERE j.id = ?1 AND t.tenant = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    Ok(statement.query_row(params![id.get(), tenant.as_str()], |row| row.get(0)).optional()?)
}

/// Decodes a row of `FIND`.
fn stored(row: &Row<'_>) -> Result<Stored> {
    use Column as C;
    let id = job_id(row.get(C::id as usize)?)?;
    let (tenant, name) = (row.get_ref(C::tenant as usize)?, row.get_ref(C::name as usize)?);
    let key = type_key(tenant.as_str(), name.as_str())?;
    let token = row.get::<_, Option<i64>>(C::token as usize)?.map(Token);
    let lease = match row.get::<_, Option<i64>>(C::owner as usize)? {
        None => None,
        Some(owner) => Some(Lease {
            owner: sysid(owner)?,
            token: token
                .ok_or_else(|| Failure::corrupt(format!("job {id} has a lease without a token")))?,
            expires_at: Timestamp(row.get(C::lease_expires_at as usize)?),
            on_beat: row.get(C::lease_on_beat as usize)?,
        }),
    };
    let (state, parts) = (state(row.get(C::state as usize)?)?, row.get(C::parts as usize)?);
    let job = Job {
        id,
        key,
        state,
        priority: priority(row.get(C::priority as usize)?)?,
        run_at: Timestamp(row.get(C::run_at as usize)?),
        due_at: Timestamp(row.get(C::due_at as usize)?),
        attempt: row.get(C::attempt as usize)?,
        created_at: Timestamp(row.get(C::created_at as usize)?),
        started_at: time(row, C::started_at as usize)?,
        finished_at: time(row, C::finished_at as usize)?,
        expires_at: time(row, C::expires_at as usize)?,
        timeout: timeout(row, C::timeout_ms as usize)?,
        lease,
        last: ended(row.get(C::last_code as usize)?, row.get(C::last_status as usize)?)?,
        unique: row.get(C::unique_key as usize)?,
        then: type_name(row, C::then_name as usize)?,
        parent: row.get::<_, Option<i64>>(C::parent_id as usize)?.map(job_id).transpose()?,
        children: parts & part::FAMILY != 0,
        extra: extra::of_parts(parts, state),
        payload_bytes: row.get::<_, i64>(C::payload_bytes as usize)? as u64,
        progress: None,
    };
    Ok(Stored { job, type_id: row.get(C::type_id as usize)?, token, parts })
}

/// Small ranks come first. Hidden jobs have a range of their own.
pub(crate) fn rank(priority: Priority, parts: i64) -> i64 {
    let hidden = if parts & part::HIDDEN != 0 { HIDDEN_RANK } else { 0 };
    i64::from(PRIORITY_MAX - priority.get()) + hidden
}

/// Added to the rank of a hidden job; above all other ranks.
pub(crate) const HIDDEN_RANK: i64 = 10_000;

/// The number of a state in a row.
pub(crate) fn state_number(state: State) -> i64 {
    State::ALL.iter().position(|s| *s == state).expect("ALL has every state") as i64
}

pub(crate) fn code_number(code: Code) -> i64 {
    Code::ALL.iter().position(|c| *c == code).expect("ALL has every code") as i64
}

pub(crate) fn state(number: i64) -> Result<State> {
    let known = usize::try_from(number).ok().and_then(|number| State::ALL.get(number));
    known.copied().ok_or_else(|| Failure::corrupt(format!("a job has the state {number}")))
}

/// The state of a job that has a time to be purged: an ended one.
pub(crate) fn ended_state(number: i64) -> Result<State> {
    let state = state(number)?;
    match state.is_ended() {
        true => Ok(state),
        false => Err(Failure::corrupt(format!("a job that is {state} has a time to be purged"))),
    }
}

pub(crate) fn ended(code: Option<i64>, status: Option<i64>) -> Result<Option<Ended>> {
    let (Some(code), Some(status)) = (code, status) else { return Ok(None) };
    let known = usize::try_from(code).ok().and_then(|code| Code::ALL.get(code)).copied();
    match (known, Status::new(status)) {
        (Some(code), Some(status)) => Ok(Some(Ended { code, status })),
        _ => Err(Failure::corrupt(format!("a job ended with code {code} and status {status}"))),
    }
}

pub(crate) fn job_id(number: i64) -> Result<JobId> {
    JobId::new(number).ok_or_else(|| Failure::corrupt(format!("a job has the id {number}")))
}

pub(crate) fn sysid(number: i64) -> Result<Sysid> {
    let sysid = u16::try_from(number).ok().and_then(Sysid::new);
    sysid.ok_or_else(|| Failure::corrupt(format!("a daemon has the sysid {number}")))
}

pub(crate) fn priority(number: i64) -> Result<Priority> {
    Priority::new(number).map_err(|invalid| Failure::corrupt(invalid.to_string()))
}

pub(crate) fn type_key<E>(
    tenant: std::result::Result<&str, E>,
    name: std::result::Result<&str, E>,
) -> Result<TypeKey> {
    match (tenant, name) {
        (Ok(tenant), Ok(name)) => {
            TypeKey::new(tenant, name).map_err(|invalid| Failure::corrupt(invalid.to_string()))
        }
        _ => Err(Failure::corrupt("a type has a name that is not text")),
    }
}

pub(crate) fn type_name(row: &Row<'_>, column: usize) -> Result<Option<TypeName>> {
    let unreadable = |_| Failure::corrupt("a type has a name that is not text");
    let name = row.get_ref(column)?.as_str_or_null().map_err(unreadable)?;
    let invalid = |invalid: Invalid| Failure::corrupt(invalid.to_string());
    name.map(TypeName::new).transpose().map_err(invalid)
}

pub(crate) fn time(row: &Row<'_>, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp))
}

pub(crate) fn timeout(row: &Row<'_>, column: usize) -> Result<Option<Duration>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|ms| Duration::from_millis(ms as u64)))
}

pub(crate) fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
