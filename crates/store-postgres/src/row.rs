//! Rows of jobs: how they are found, locked, encoded and decoded.
//!
//! A transaction that changes a job, other than by a claim, first locks its row, and then reads it
//! in another statement: only that sees what the last owner of the lock has committed. Claims do
//! not lock it; see `queue`.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use tokio_postgres::Row;
use windlass_core::job::{Ended, Token};
use windlass_core::limit::PRIORITY_MAX;
use windlass_core::name::{Tenant, TypeKey, TypeName};
use windlass_core::outcome::{Code, Status};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, Lease, Priority, State, Sysid};

use crate::error::{Failure, Result};
use crate::extra;
use crate::tx::Tx;

/// Flags for what a job has outside its row, so that nothing is searched for in vain.
pub(crate) mod part {
    pub(crate) const PIECES: i32 = 2;
    pub(crate) const RESULT: i32 = 4;
    pub(crate) const LOG: i32 = 8;
    pub(crate) const PROGRESS: i32 = 16;
    /// It has or had children.
    pub(crate) const FAMILY: i32 = 32;
    pub(crate) const HIDDEN: i32 = 64;
    /// Meaningless while the job has a lease.
    pub(crate) const LENT: i32 = 128;
    pub(crate) const EXTRA: i32 = 256;
    pub(crate) const ALL: i32 = 511;
}

/// A job, with what only this store knows about it.
pub(crate) struct Stored {
    pub(crate) job: Job,
    pub(crate) type_id: i32,
    /// Of the newest claim; kept when the lease ends.
    pub(crate) token: Option<Token>,
    pub(crate) parts: i32,
}

/// The columns of `job_now` as `stored` decodes them, and the number of each, so that the two
/// cannot disagree.
macro_rules! job_columns {
    ($first:ident $(, $column:ident)+ $(,)?) => {
        #[allow(non_camel_case_types, reason = "they are the names of columns")]
        enum Column {
            $first
            $(, $column)+
        }

        /// The columns that `stored` decodes, of the view with the alias `j`.
        macro_rules! columns {
            () => {
                concat!("j.", stringify!($first) $(, ", j.", stringify!($column))+)
            };
        }
        pub(crate) use columns;
    };
}

/// Selects jobs as `stored` decodes them: `select_jobs!("WHERE j.id = $1")`.
macro_rules! select_jobs {
    ($rest:literal) => {
        concat!("SELECT ", $crate::row::columns!(), " FROM job_now j ", $rest)
    };
}
pub(crate) use select_jobs;

job_columns! {
    id, type_id, tenant, name, state, priority, run_at, due_at, attempt, created_at, started_at,
    finished_at, expires_at, timeout_ms, owner, token, lease_expires_at, lease_on_beat, last_code,
    last_status, unique_key, then_name, parent_id, parts, payload_bytes, order_key, repeat,
    door_text, run_at_text,
}

const FIND: &str = select_jobs!("WHERE j.id = $1");
const FIND_ALL: &str = select_jobs!("WHERE j.id = ANY ($1) ORDER BY j.id");
const LOCK: &str = "SELECT id FROM job WHERE id = ANY ($1) ORDER BY id FOR NO KEY UPDATE";

/// Locks the rows of these jobs, in the order of their ids, so that no two transactions wait for
/// each other.
pub(crate) async fn lock(tx: &Tx<'_>, ids: &[i64]) -> Result<()> {
    tx.execute(LOCK, &[&ids]).await?;
    Ok(())
}

/// The job of any tenant; locked, if the transaction writes.
pub(crate) async fn find(tx: &Tx<'_>, id: i64) -> Result<Option<Stored>> {
    if tx.writes() {
        lock(tx, &[id]).await?;
    }
    tx.query_opt(FIND, &[&id]).await?.as_ref().map(stored).transpose()
}

/// Those of these jobs that exist, of any tenant; locked, if the transaction writes.
pub(crate) async fn find_all(tx: &Tx<'_>, ids: &[i64]) -> Result<HashMap<i64, Stored>> {
    if tx.writes() {
        lock(tx, ids).await?;
    }
    read_all(tx, ids).await
}

/// Those of these jobs that exist; the caller has locked them.
pub(crate) async fn read_all(tx: &Tx<'_>, ids: &[i64]) -> Result<HashMap<i64, Stored>> {
    let rows = tx.query(FIND_ALL, &[&ids]).await?;
    rows.iter().map(|row| stored(row).map(|stored| (stored.job.id.get(), stored))).collect()
}

/// The job, unless its row is damaged: then it is named in the log and skipped, so that it does not
/// block other jobs.
pub(crate) async fn find_undamaged(tx: &Tx<'_>, id: i64) -> Result<Option<Stored>> {
    Ok(unless_damaged(id, find(tx, id).await)?.flatten())
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

/// The job, if it is this tenant's; locked, if the transaction writes.
pub(crate) async fn find_of(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<Stored>> {
    Ok(find(tx, id.get()).await?.filter(|stored| stored.job.key.tenant == *tenant))
}

/// Decodes a row of `select_jobs!`.
pub(crate) fn stored(row: &Row) -> Result<Stored> {
    use Column as C;
    let id = job_id(row.try_get(C::id as usize)?)?;
    let token = row.try_get::<_, Option<i64>>(C::token as usize)?.map(Token);
    let lease = match row.try_get::<_, Option<i32>>(C::owner as usize)? {
        None => None,
        Some(owner) => Some(Lease {
            owner: sysid(owner)?,
            token: token
                .ok_or_else(|| Failure::corrupt(format!("job {id} has a lease without a token")))?,
            expires_at: Timestamp(row.try_get(C::lease_expires_at as usize)?),
            on_beat: row.try_get(C::lease_on_beat as usize)?,
        }),
    };
    let state = state(row.try_get(C::state as usize)?)?;
    let parts: i32 = row.try_get(C::parts as usize)?;
    let mut extra = extra::of_parts(parts, state);
    if parts & part::EXTRA != 0 {
        let texts = [C::repeat as usize, C::door_text as usize, C::run_at_text as usize];
        extra::decode(row, C::order_key as usize, texts, &mut extra)?;
    }
    let job = Job {
        id,
        key: type_key(row.try_get(C::tenant as usize)?, row.try_get(C::name as usize)?)?,
        state,
        priority: priority(row.try_get(C::priority as usize)?)?,
        run_at: Timestamp(row.try_get(C::run_at as usize)?),
        due_at: Timestamp(row.try_get(C::due_at as usize)?),
        attempt: row.try_get::<_, i32>(C::attempt as usize)? as u32,
        created_at: Timestamp(row.try_get(C::created_at as usize)?),
        started_at: time(row, C::started_at as usize)?,
        finished_at: time(row, C::finished_at as usize)?,
        expires_at: time(row, C::expires_at as usize)?,
        timeout: timeout(row.try_get(C::timeout_ms as usize)?),
        lease,
        last: ended(row.try_get(C::last_code as usize)?, row.try_get(C::last_status as usize)?)?,
        unique: row.try_get::<_, Option<&[u8]>>(C::unique_key as usize)?.map(text).transpose()?,
        then: type_name(row.try_get(C::then_name as usize)?)?,
        parent: row.try_get::<_, Option<i64>>(C::parent_id as usize)?.map(job_id).transpose()?,
        children: parts & part::FAMILY != 0,
        extra,
        payload_bytes: row.try_get::<_, i64>(C::payload_bytes as usize)? as u64,
        progress: None,
    };
    Ok(Stored { job, type_id: row.try_get(C::type_id as usize)?, token, parts })
}

/// Small ranks come first. Hidden jobs have a range of their own.
pub(crate) fn rank(priority: Priority, parts: i32) -> i32 {
    let hidden = if parts & part::HIDDEN != 0 { HIDDEN_RANK } else { 0 };
    i32::from(PRIORITY_MAX - priority.get()) + hidden
}

/// Added to the rank of a hidden job; above all other ranks. SQL has the number too.
pub(crate) const HIDDEN_RANK: i32 = 10_000;

/// The number of a state in a row.
pub(crate) fn state_number(state: State) -> i16 {
    State::ALL.iter().position(|s| *s == state).expect("ALL has every state") as i16
}

pub(crate) fn code_number(code: Code) -> i16 {
    Code::ALL.iter().position(|c| *c == code).expect("ALL has every code") as i16
}

pub(crate) fn state(number: i16) -> Result<State> {
    let known = usize::try_from(number).ok().and_then(|number| State::ALL.get(number));
    known.copied().ok_or_else(|| Failure::corrupt(format!("a job has the state {number}")))
}

pub(crate) fn ended(code: Option<i16>, status: Option<i16>) -> Result<Option<Ended>> {
    let (Some(code), Some(status)) = (code, status) else { return Ok(None) };
    let known = usize::try_from(code).ok().and_then(|code| Code::ALL.get(code)).copied();
    match (known, Status::new(status.into())) {
        (Some(code), Some(status)) => Ok(Some(Ended { code, status })),
        _ => Err(Failure::corrupt(format!("a job ended with code {code} and status {status}"))),
    }
}

pub(crate) fn job_id(number: i64) -> Result<JobId> {
    JobId::new(number).ok_or_else(|| Failure::corrupt(format!("a job has the id {number}")))
}

pub(crate) fn sysid(number: i32) -> Result<Sysid> {
    let sysid = u16::try_from(number).ok().and_then(Sysid::new);
    sysid.ok_or_else(|| Failure::corrupt(format!("a daemon has the sysid {number}")))
}

pub(crate) fn priority(number: i16) -> Result<Priority> {
    Priority::new(number.into()).map_err(|invalid| Failure::corrupt(invalid.to_string()))
}

pub(crate) fn type_key(tenant: &str, name: &str) -> Result<TypeKey> {
    TypeKey::new(tenant, name).map_err(|invalid| Failure::corrupt(invalid.to_string()))
}

pub(crate) fn type_name(name: Option<&str>) -> Result<Option<TypeName>> {
    let name = name.map(TypeName::new).transpose();
    name.map_err(|invalid| Failure::corrupt(invalid.to_string()))
}

/// Text that may contain NUL, which PostgreSQL's text may not.
pub(crate) fn text(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes).map_err(|_| Failure::corrupt("a text is not UTF-8"))?;
    Ok(text.to_owned())
}

pub(crate) fn time(row: &Row, column: usize) -> Result<Option<Timestamp>> {
    Ok(row.try_get::<_, Option<i64>>(column)?.map(Timestamp))
}

pub(crate) fn timeout(ms: Option<i64>) -> Option<Duration> {
    ms.map(|ms| Duration::from_millis(ms as u64))
}

pub(crate) fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
