//! Turns the writes of a statement into edits of the store. Values are checked; one impossible
//! write refuses the whole query.

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;
use windlass_bedrock_rules::column::{self, COLUMNS};
use windlass_bedrock_rules::data::is_mocked;
use windlass_bedrock_rules::date_text::{due_at, millis_text, set_next_run};
use windlass_bedrock_rules::state;
use windlass_core::calendar::Civil;
use windlass_core::edit::{Edit, MovedJobs, Put};
use windlass_core::job::Ended;
use windlass_core::limit::PAYLOAD_INLINE_BYTES_MAX;
use windlass_core::store::Error;
use windlass_core::store::sql::SqlAsk;
use windlass_core::{
    Extra, Job, JobId, Lease, Modifiers, NewJob, Payload, Priority, Repeat, State, Status,
    Timestamp, TypeKey, TypeName,
};

use crate::edit;
use crate::error::{Failure, Result};
use crate::family;
use crate::row::{self, Stored};
use crate::tx::Tx;

use super::view::{RowWrite, Values};

/// Longest `nextRun`.
const NEXT_RUN_BYTES_MAX: usize = 255;

const NO_GRANDCHILDREN: &str = "a job with a parent cannot have children";

/// What a query has changed.
#[derive(Default)]
pub(super) struct Written {
    pub(super) changed: u64,
    pub(super) last_id: Option<JobId>,
    pub(super) moved: MovedJobs,
}

pub(super) fn carry_out(
    tx: &mut Tx<'_>,
    ask: &SqlAsk,
    writes: &[RowWrite],
    written: &mut Written,
) -> Result<()> {
    for write in writes {
        match write {
            RowWrite::Delete(id) => {
                let stored = find(tx.conn, ask, *id)?;
                let edit = Edit::Delete(stored.job.id);
                edit::carry_out(tx, &edit, &mut written.moved)?;
            }
            RowWrite::Put(id, values) => {
                let stored = find(tx.conn, ask, *id)?;
                put(tx, ask, stored, values, &mut written.moved)?;
            }
            RowWrite::Insert(values) => {
                written.last_id = Some(insert(tx, ask, values, &mut written.moved)?);
            }
        }
        written.changed += 1;
    }
    Ok(())
}

/// The view has shown the job in this transaction, so it exists unless an earlier write of the same
/// statement deleted it.
fn find(conn: &Connection, ask: &SqlAsk, id: Option<JobId>) -> Result<Stored> {
    let found = id.map(|id| row::find_of(conn, &ask.tenant, id)).transpose()?.flatten();
    found.ok_or_else(|| refuse("a job to change no longer exists"))
}

fn put(
    tx: &mut Tx<'_>,
    ask: &SqlAsk,
    stored: Stored,
    values: &Values,
    moved: &mut MovedJobs,
) -> Result<()> {
    if values[column::JOB_ID].is_some() {
        return Err(refuse("the jobID of a job cannot be changed"));
    }
    let mut job = stored.job.clone();
    if let Some(value) = &values[column::CREATED] {
        let created = time(column::CREATED, value)?;
        job.created_at = created.ok_or_else(|| null(column::CREATED))?;
    }
    if let Some(value) = &values[column::NAME] {
        job.key.name = type_name(value)?;
    }
    if let Some(value) = &values[column::PRIORITY] {
        job.priority = priority(value)?;
    }
    set_extra(&mut job.extra, values)?;
    if let Some(value) = &values[column::NEXT_RUN] {
        job.run_at = next_run(&mut job.extra, value)?;
    }
    let data = values[column::DATA].as_ref().map(data).transpose()?;
    if let Some(data) = &data {
        job.extra.hidden = is_mocked(data);
    }
    if let Some(value) = &values[column::PARENT] {
        job.parent = parent(tx.conn, ask, value, &stored.job)?;
    }
    if let Some(value) = &values[column::LAST_RUN] {
        job.started_at = time(column::LAST_RUN, value)?;
    }
    if let Some(value) = &values[column::STATE] {
        set_state(&mut job, &text(column::STATE, value)?, ask, tx.now)?;
    }
    if job.state == State::Running && job.started_at.is_none() {
        return Err(refuse("a RUNNING job needs a lastRun"));
    }
    let moves = values[column::STATE].is_some() || values[column::PARENT].is_some();
    let purge_at =
        if moves { purge_at(&job, tx.now + ask.keep) } else { purge_at_now(tx.conn, job.id)? };
    let put = Put { job, payload: data.map(Bytes::from), purge_at };
    edit::carry_out(tx, &Edit::Put(Box::new(put)), moved)
}

/// Failed jobs are kept for an operator, and ended children for their parents.
fn purge_at(job: &Job, purge_at: Timestamp) -> Option<Timestamp> {
    let gone = matches!(job.state, State::Finished | State::Cancelled) && job.parent.is_none();
    gone.then_some(purge_at)
}

fn purge_at_now(conn: &Connection, id: JobId) -> Result<Option<Timestamp>> {
    let mut find = conn.prepare_cached("SELECT purge_at FROM job WHERE id = ?1")?;
    Ok(find.query_row([id.get()], |row| row.get::<_, Option<i64>>(0))?.map(Timestamp))
}

fn set_state(job: &mut Job, word: &str, ask: &SqlAsk, now: Timestamp) -> Result<()> {
    let Some((state, lent)) = state::read(word) else {
        let words = "is not one of QUEUED, RUNNING, RUNQUEUED, PAUSED, FINISHED, FAILED, CANCELLED";
        return Err(refuse(format!("the state '{word}' {words}")));
    };
    match state {
        State::Queued => {
            (job.extra.lent, job.attempt) = (lent, 0);
            if job.state.is_ended() {
                // As if it were new, so that an old expiry does not end it at once.
                (job.due_at, job.expires_at) = (job.run_at.max(now), None);
            }
        }
        State::Running => {
            let (owner, token, expires_at) = (ask.owner, ask.token, Timestamp::NEVER);
            job.lease = Some(Lease { owner, token, expires_at, on_beat: false });
            job.started_at = job.started_at.or(Some(now));
            job.attempt += 1;
        }
        State::Finished => job.last = Some(Ended::from(Status::OK)),
        State::Failed => job.last = Some(Ended::from(Status::FAILED)),
        State::Paused | State::Cancelled => {}
    }
    job.state = state;
    job.finished_at = state.is_ended().then_some(now);
    Ok(())
}

/// The new parent of a job.
fn parent(conn: &Connection, ask: &SqlAsk, value: &Value, job: &Job) -> Result<Option<JobId>> {
    let parent = find_parent(conn, ask, value)?;
    if parent.is_some_and(|id| id == job.id)
        || (parent.is_some() && family::has_children(conn, job.id)?)
    {
        return Err(refuse(NO_GRANDCHILDREN));
    }
    Ok(parent)
}

fn find_parent(conn: &Connection, ask: &SqlAsk, value: &Value) -> Result<Option<JobId>> {
    let number = match value {
        Value::Null => 0,
        value => integer(column::PARENT, value)?,
    };
    if number == 0 {
        return Ok(None);
    }
    let id = JobId::new(number);
    let found = id.map(|id| row::find_of(conn, &ask.tenant, id)).transpose()?.flatten();
    let found = found.ok_or_else(|| refuse(format!("parentJobID: there is no job {number}")))?;
    if found.job.parent.is_some() {
        return Err(refuse(NO_GRANDCHILDREN));
    }
    Ok(id)
}

/// A new job is inserted as a plain one, and then changed to what else the statement says.
fn insert(tx: &mut Tx<'_>, ask: &SqlAsk, values: &Values, moved: &mut MovedJobs) -> Result<JobId> {
    if values[column::JOB_ID].is_some() {
        return Err(refuse("the jobID of a new job cannot be chosen"));
    }
    let name = values[column::NAME].as_ref().ok_or_else(|| null(column::NAME))?;
    let key = TypeKey { tenant: ask.tenant.clone(), name: type_name(name)? };
    let mut extra = Extra::default();
    set_extra(&mut extra, values)?;
    let now = tx.now;
    let mut run_at = now;
    if let Some(value) = &values[column::NEXT_RUN] {
        run_at = next_run(&mut extra, value)?;
    }
    let data = values[column::DATA].as_ref().map(data).transpose()?;
    let data = data.unwrap_or_else(|| "{}".to_owned());
    extra.hidden = is_mocked(&data);
    let parent = match &values[column::PARENT] {
        None => None,
        Some(value) => find_parent(tx.conn, ask, value)?,
    };
    let priority = values[column::PRIORITY].as_ref().map(priority).transpose()?;
    let mut rest = Values::default();
    for index in [column::CREATED, column::LAST_RUN, column::STATE] {
        rest[index].clone_from(&values[index]);
    }
    // A job that is not plain stays out of the queue until it has been changed.
    let is_plain = rest.iter().all(Option::is_none);
    let id = (ask.ids)()
        .ok_or_else(|| Error::Unavailable("the clock is too far back for new ids".into()))?;
    let new = NewJob {
        priority: priority.unwrap_or_default(),
        run_at,
        parent,
        paused: !is_plain,
        extra,
        ..NewJob::new(id, key, Payload::Inline(data.into()), now)
    };
    edit::carry_out(tx, &Edit::Insert(Box::new(new)), moved)?;
    if !is_plain {
        rest[column::STATE].get_or_insert_with(|| Value::Text(state::QUEUED.into()));
        let stored = find(tx.conn, ask, Some(id))?;
        put(tx, ask, stored, &rest, moved)?;
    }
    Ok(id)
}

fn set_extra(extra: &mut Extra, values: &Values) -> Result<()> {
    if let Some(value) = &values[column::REPEAT] {
        let repeat = text(column::REPEAT, value)?;
        extra.repeat = match repeat.as_str() {
            "" => None,
            repeat => Some(Repeat::parse_bedrock(repeat).map_err(refuse)?.as_str().into()),
        };
    }
    if let Some(value) = &values[column::RETRY_AFTER] {
        let modifiers = text(column::RETRY_AFTER, value)?;
        extra.door_text = match modifiers.as_str() {
            "" => None,
            modifiers => {
                let modifiers = Modifiers::parse("retryAfter", modifiers).map_err(refuse)?;
                Some(modifiers.as_str().into())
            }
        };
    }
    Ok(())
}

/// When a job with this `nextRun` is due. The text is kept if the time alone would not restore it.
fn next_run(extra: &mut Extra, value: &Value) -> Result<Timestamp> {
    let text = text(column::NEXT_RUN, value)?;
    if text.len() > NEXT_RUN_BYTES_MAX {
        return Err(refuse(format!("a nextRun has at most {NEXT_RUN_BYTES_MAX} bytes")));
    }
    let run_at = due_at(&text);
    (extra.run_at_text, extra.order_key) = (None, 0);
    if millis_text(run_at) != text {
        set_next_run(extra, &text, run_at);
    }
    Ok(run_at)
}

fn data(value: &Value) -> Result<String> {
    let data = text(column::DATA, value)?;
    if data.len() > PAYLOAD_INLINE_BYTES_MAX {
        return Err(refuse(format!("data has at most {PAYLOAD_INLINE_BYTES_MAX} bytes")));
    }
    Ok(data)
}

fn type_name(value: &Value) -> Result<TypeName> {
    TypeName::new(&text(column::NAME, value)?).map_err(|invalid| refuse(invalid.reason))
}

fn priority(value: &Value) -> Result<Priority> {
    Priority::new(integer(column::PRIORITY, value)?).map_err(refuse)
}

fn time(column: usize, value: &Value) -> Result<Option<Timestamp>> {
    if *value == Value::Null {
        return Ok(None);
    }
    let text = text(column, value)?;
    if text.is_empty() {
        return Ok(None);
    }
    let civil = Civil::parse(&text);
    let name = COLUMNS[column];
    let civil = civil.ok_or_else(|| refuse(format!("{name}: '{text}' is not a date")))?;
    Ok(Some(civil.timestamp()))
}

/// A value as a text column stores it.
fn text(column: usize, value: &Value) -> Result<String> {
    match value {
        Value::Null => Err(null(column)),
        Value::Text(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Real(number) => Ok(number.to_string()),
        Value::Blob(_) => Err(refuse(format!("{} must be text", COLUMNS[column]))),
    }
}

/// A value as an integer column stores it.
fn integer(column: usize, value: &Value) -> Result<i64> {
    let number = match value {
        Value::Null => return Err(null(column)),
        Value::Integer(number) => Some(*number),
        Value::Text(text) => text.trim().parse().ok(),
        Value::Real(number) if number.fract() == 0.0 => Some(*number as i64),
        Value::Real(_) | Value::Blob(_) => None,
    };
    number.ok_or_else(|| refuse(format!("{} must be an integer", COLUMNS[column])))
}

fn null(column: usize) -> Failure {
    refuse(format!("NOT NULL constraint failed: jobs.{}", COLUMNS[column]))
}

fn refuse(words: impl ToString) -> Failure {
    Failure::Store(Error::Conflict(words.to_string()))
}
