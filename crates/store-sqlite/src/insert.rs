//! Inserts jobs, with their idempotency keys, the journal's mark and the pieces of payloads.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use windlass_core::edit::MovedJobs;
use windlass_core::family::{self, Unfit};
use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, REPEATED_RETENTION};
use windlass_core::name::Tenant;
use windlass_core::store::{
    Add, Added, EndRequest, Error, IdempotencyRecord, Insert, Inserted, Insertion, JournalId,
    JournalMark,
};
use windlass_core::time::Timestamp;
use windlass_core::{JobId, NewJob, Payload, State, TypeName};

use crate::aside::Aside;
use crate::change;
use crate::error::{Failure, Result};
use crate::extra;
use crate::queue::{self, QueueKey};
use crate::row::{self, part};
use crate::tx::{Counter, Tx};

/// Larger payloads are in a separate table, so that settling a job does not rewrite them.
pub(crate) const PAYLOAD_ROW_BYTES_MAX: usize = 2048;

const ADD: &str = "
    INSERT INTO job (id, type_id, state, priority, run_at, due_at, attempt, created_at, expires_at,
                     timeout_ms, parts, payload_bytes, unique_key, payload, then_name, parent_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
    ON CONFLICT (id) DO NOTHING";

pub(crate) fn job_insert(tx: &mut Tx<'_>, insert: &Insert) -> Result<Insertion> {
    if let Some(mark) = insert.mark
        && let Err(position) = move_mark(tx.conn, mark)?
    {
        return Ok(Insertion::Behind(position));
    }
    // Jobs of adds whose keys other adds used first.
    let mut repeats: HashSet<JobId> = HashSet::new();
    for record in &insert.keys {
        match idempotency_of(tx.conn, &record.tenant, &record.key) {
            Ok(Some(known)) if record.is_repeat_of(&known) => repeats.extend(&record.ids),
            Ok(_) => remember(tx.conn, record)?,
            // These jobs were accepted, and others wait behind them.
            Err(failure) if failure.is_of_one_row() => replace_damaged(tx.conn, record)?,
            Err(failure) => return Err(failure),
        }
    }
    let mut answers = Vec::with_capacity(insert.jobs.len());
    for job in &insert.jobs {
        let inserted = match repeats.contains(&job.id) {
            false => insert_one(tx, job)?,
            true => insert_cancelled(tx, job)?,
        };
        if matches!(inserted, Inserted::New | Inserted::Repeated) {
            check_pieces(tx.conn, job)?;
        }
        answers.push(inserted);
    }
    Ok(Insertion::Done(answers))
}

pub(crate) fn job_add(tx: &mut Tx<'_>, add: &Add) -> Result<Added> {
    let Add { tenant, jobs, key } = add;
    let now = tx.now;
    if let Some(key) = key
        && let Some(record) = idempotency_get(tx.conn, tenant, &key.key, now)?
    {
        remove_unused_pieces(tx.conn, jobs)?;
        return Ok(Added::Known(record));
    }
    let begun = match begin_all(tx.conn, jobs)? {
        Ok(begun) => begun,
        Err((parent, unfit)) => {
            remove_unused_pieces(tx.conn, jobs)?;
            return Ok(Added::Unfit { parent, unfit });
        }
    };
    let (mut ids, mut moved) = (Vec::with_capacity(jobs.len()), Box::<MovedJobs>::default());
    for job in begun {
        ids.push(match insert_one(tx, &job)? {
            Inserted::Held(holder) => holder,
            Inserted::New => {
                check_pieces(tx.conn, &job)?;
                moved.note_entered(&job, now);
                job.id
            }
            Inserted::Duplicate | Inserted::Repeated => job.id,
        });
    }
    if let Some(key) = key {
        remember(tx.conn, &IdempotencyRecord::new(tenant, key, ids.clone(), now))?;
    }
    Ok(Added::New { ids, moved })
}

/// Jobs in their first state, or the parent that cannot have them.
type Begun<'a> = std::result::Result<Vec<Cow<'a, NewJob>>, (JobId, Unfit)>;

/// Gives jobs their first state. No job of an add is the parent of another one, so all can be
/// checked before any is inserted.
pub(crate) fn begin_all<'a>(conn: &Connection, jobs: &'a [NewJob]) -> Result<Begun<'a>> {
    let mut begun = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut job = Cow::Borrowed(job);
        if let Some(parent) = job.parent {
            let found = row::find_of(conn, &job.key.tenant, parent)?;
            if let Err(unfit) = family::begin(job.to_mut(), found.as_ref().map(|row| &row.job)) {
                return Ok(Err((parent, unfit)));
            }
        }
        begun.push(job);
    }
    Ok(Ok(begun))
}

/// Inserts a job whose inline payload may be too large for a row, and then becomes pieces.
pub(crate) fn insert_split(tx: &mut Tx<'_>, new: &NewJob) -> Result<Inserted> {
    let mut new = Cow::Borrowed(new);
    let too_large = new.payload.len() > PAYLOAD_INLINE_BYTES_MAX as u64;
    let pieces = if too_large { new.to_mut().split_payload() } else { Vec::new() };
    let inserted = insert_one(tx, &new)?;
    if inserted == Inserted::New {
        put_pieces(tx.conn, new.id, &pieces)?;
    }
    Ok(inserted)
}

pub(crate) fn put_pieces(conn: &Connection, id: JobId, pieces: &[Bytes]) -> Result<()> {
    (0..).zip(pieces).try_for_each(|(index, piece)| payload_put(conn, id, index, piece))
}

fn insert_one(tx: &mut Tx<'_>, new: &NewJob) -> Result<Inserted> {
    let conn = tx.conn;
    let id = new.id.get();
    let known = tx.types.find(conn, &new.key)?;
    // A duplicate must not create a type, and may itself be the holder of its unique key.
    if (known.is_none() || new.unique.is_some()) && exists(conn, id)? {
        return Ok(Inserted::Duplicate);
    }
    if let (Some(type_id), Some(unique)) = (known, &new.unique)
        && let Some(holder) = holder(conn, type_id, unique)?
    {
        remove_pieces(conn, id)?;
        return Ok(Inserted::Held(holder));
    }
    let type_id = match known {
        Some(type_id) => type_id,
        None => tx.types.ensure(conn, &new.key)?,
    };
    if !add(conn, type_id, new)? {
        return Ok(Inserted::Duplicate);
    }
    if let Some(unique) = &new.unique {
        hold(conn, type_id, unique, id)?;
    }
    if let Some(parent) = new.parent {
        mark_parent(tx, &new.key.tenant, parent)?;
    }
    if new.paused {
        tx.count(type_id, Counter::Paused, 1);
        return Ok(Inserted::New);
    }
    let rank = row::rank(new.priority, extra::parts(&new.extra));
    let (run_at, tie) = (new.run_at, new.extra.tie());
    let due = new.is_due(tx.now);
    queue::add(tx, QueueKey { type_id, rank, run_at, tie, id }, due)?;
    Ok(Inserted::New)
}

fn insert_cancelled(tx: &mut Tx<'_>, new: &NewJob) -> Result<Inserted> {
    let inserted = insert_one(tx, new)?;
    if inserted != Inserted::New {
        return Ok(inserted);
    }
    let (tenant, keep) = (new.key.tenant.clone(), REPEATED_RETENTION);
    change::job_cancel(tx, &EndRequest { tenant, id: new.id, keep })?;
    Ok(Inserted::Repeated)
}

/// Records that a job has children.
pub(crate) fn mark_parent(tx: &mut Tx<'_>, tenant: &Tenant, parent: JobId) -> Result<()> {
    let mut find = tx.conn.prepare_cached("SELECT type_id, parts FROM job WHERE id = ?1")?;
    let columns = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let found = find.query_row([parent.get()], columns).optional()?;
    let Some((type_id, parts)) = found else { return Ok(()) };
    if parts & part::FAMILY == 0 && tx.types.key(tx.conn, type_id)?.tenant == *tenant {
        let mark = "UPDATE job SET parts = parts | ?2 WHERE id = ?1";
        tx.conn.prepare_cached(mark)?.execute([parent.get(), part::FAMILY])?;
    }
    Ok(())
}

/// False if the id already exists.
fn add(conn: &Connection, type_id: i64, new: &NewJob) -> Result<bool> {
    let id = new.id.get();
    let PayloadPlace { part, in_row, beside } = PayloadPlace::of(&new.payload);
    let child = if new.parent.is_some() { part::CHILD } else { 0 };
    let parts = part | extra::parts(&new.extra) | child;
    let state = if new.paused { State::Paused } else { State::Queued };
    let added = conn.prepare_cached(ADD)?.execute(params![
        id,
        type_id,
        row::state_number(state),
        new.priority.get(),
        new.run_at.ms(),
        new.due_at().ms(),
        new.created_at.ms(),
        new.expires_at.map(Timestamp::ms),
        new.timeout.map(row::duration_ms),
        parts,
        new.payload.len() as i64,
        new.unique,
        in_row.map(Bytes::as_ref),
        new.then.as_ref().map(TypeName::as_str),
        new.parent.map(JobId::get),
    ])?;
    if added == 1 {
        if part == part::PIECES {
            forget_waiting_pieces(conn, id)?;
        }
        put_beside(conn, id, beside)?;
        extra::write(conn, id, &new.extra, 0)?;
        Aside { id, type_id, state, parent: new.parent, parts }.write(conn, 0)?;
    }
    Ok(added == 1)
}

/// The file may have lost pieces that were put before a power cut.
fn check_pieces(conn: &Connection, new: &NewJob) -> Result<()> {
    let sum = "SELECT coalesce(sum(length(data)), 0) FROM piece WHERE id = ?1";
    let Some(needed) = new.pieces_needed() else { return Ok(()) };
    let found: i64 = conn.prepare_cached(sum)?.query_row([new.id.get()], |row| row.get(0))?;
    match found as u64 == needed {
        true => Ok(()),
        false => Err(Error::pieces_missing(new.id).into()),
    }
}

/// Where a payload is stored: in the job's row, in the table `payload`, or in pieces.
pub(crate) struct PayloadPlace<'a> {
    /// The flag for the job's parts.
    pub(crate) part: i64,
    pub(crate) in_row: Option<&'a Bytes>,
    pub(crate) beside: Option<&'a Bytes>,
}

impl<'a> PayloadPlace<'a> {
    pub(crate) fn of(payload: &'a Payload) -> PayloadPlace<'a> {
        let (part, in_row, beside) = match payload {
            Payload::Inline(bytes) if bytes.len() <= PAYLOAD_ROW_BYTES_MAX => {
                (0, Some(bytes), None)
            }
            Payload::Inline(bytes) => (part::PAYLOAD, None, Some(bytes)),
            Payload::Pieces { .. } => (part::PIECES, None, None),
        };
        PayloadPlace { part, in_row, beside }
    }
}

pub(crate) fn put_beside(conn: &Connection, id: i64, payload: Option<&Bytes>) -> Result<()> {
    if let Some(bytes) = payload {
        let add = "INSERT INTO payload (id, data) VALUES (?1, ?2)";
        conn.prepare_cached(add)?.execute(params![id, bytes.as_ref()])?;
    }
    Ok(())
}

pub(crate) fn exists(conn: &Connection, id: i64) -> Result<bool> {
    Ok(conn.prepare_cached("SELECT 1 FROM job WHERE id = ?1")?.exists([id])?)
}

/// The job that holds a unique key of a type.
pub(crate) fn holder(conn: &Connection, type_id: i64, unique: &str) -> Result<Option<JobId>> {
    let find = "SELECT id FROM unique_key WHERE type_id = ?1 AND key = ?2";
    let mut find = conn.prepare_cached(find)?;
    let id = find.query_row(params![type_id, unique], |row| row.get(0)).optional()?;
    id.map(row::job_id).transpose()
}

/// The key must be free.
pub(crate) fn hold(conn: &Connection, type_id: i64, unique: &str, id: i64) -> Result<()> {
    let hold = "INSERT INTO unique_key (type_id, key, id) VALUES (?1, ?2, ?3)";
    conn.prepare_cached(hold)?.execute(params![type_id, unique, id])?;
    Ok(())
}

/// Frees a unique key that this job holds.
pub(crate) fn free(conn: &Connection, type_id: i64, unique: &str, id: i64) -> Result<()> {
    let free = "DELETE FROM unique_key WHERE type_id = ?1 AND key = ?2 AND id = ?3";
    conn.prepare_cached(free)?.execute(params![type_id, unique, id])?;
    Ok(())
}

/// A replayed journal repeats old records: the one that expires last is from the newest add.
fn remember(conn: &Connection, record: &IdempotencyRecord) -> Result<()> {
    let ids: Vec<u8> = record.ids.iter().flat_map(|id| id.get().to_be_bytes()).collect();
    let put = "
        INSERT INTO idempotency (tenant, key, fingerprint, ids, expires_at)
        VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (tenant, key) DO UPDATE
           SET fingerprint = excluded.fingerprint, ids = excluded.ids,
               expires_at = excluded.expires_at
         WHERE excluded.expires_at > expires_at";
    conn.prepare_cached(put)?.execute(params![
        record.tenant.as_str(),
        record.key,
        record.fingerprint.cast_signed(),
        ids,
        record.expires_at.ms(),
    ])?;
    Ok(())
}

/// Whether the damaged record was of the same key and add cannot be known: as if it was not.
fn replace_damaged(conn: &Connection, record: &IdempotencyRecord) -> Result<()> {
    tracing::error!(tenant = %record.tenant, "replacing the damaged record of an idempotency key");
    let remove = "DELETE FROM idempotency WHERE tenant = ?1 AND key = ?2";
    conn.prepare_cached(remove)?.execute(params![record.tenant.as_str(), record.key])?;
    remember(conn, record)
}

pub(crate) fn idempotency_get(
    conn: &Connection,
    tenant: &Tenant,
    key: &str,
    now: Timestamp,
) -> Result<Option<IdempotencyRecord>> {
    Ok(idempotency_of(conn, tenant, key)?.filter(|record| record.expires_at > now))
}

/// The record of a key, even if it is outdated.
fn idempotency_of(
    conn: &Connection,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<IdempotencyRecord>> {
    let find = "SELECT fingerprint, ids, expires_at FROM idempotency
                WHERE tenant = ?1 AND key = ?2";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query(params![tenant.as_str(), key])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let unreadable = || Failure::corrupt(format!("the ids of the idempotency key {key}"));
    let blob = row.get_ref(1)?.as_blob().map_err(|_| unreadable())?;
    let (numbers, rest) = blob.as_chunks();
    if !rest.is_empty() {
        return Err(unreadable());
    }
    let ids = numbers.iter().map(|bytes| row::job_id(i64::from_be_bytes(*bytes)));
    Ok(Some(IdempotencyRecord {
        tenant: tenant.clone(),
        key: key.to_owned(),
        fingerprint: row.get::<_, i64>(0)?.cast_unsigned(),
        ids: ids.collect::<Result<_>>()?,
        expires_at: Timestamp(row.get(2)?),
    }))
}

/// Moves the mark, or returns where it is, if it is not where the caller has seen it.
fn move_mark(
    conn: &Connection,
    mark: JournalMark,
) -> Result<std::result::Result<(), Option<JobId>>> {
    let JournalMark { journal, from, position } = mark;
    // Nearly always it is there, so that one statement is enough.
    if let Some(from) = from {
        let mut step = conn.prepare_cached(
            "UPDATE meta SET value = ?3 WHERE name = 'journal' AND id = ?1 AND value = ?2",
        )?;
        if step.execute(params![journal.0, from.get(), position.get()])? > 0 {
            return Ok(Ok(()));
        }
    }
    let at = journal_position(conn, journal)?;
    if at != from {
        return Ok(Err(at));
    }
    let put = "
        INSERT INTO meta (name, id, value) VALUES ('journal', ?1, ?2)
        ON CONFLICT (name, id) DO UPDATE SET value = excluded.value";
    conn.prepare_cached(put)?.execute(params![journal.0, position.get()])?;
    Ok(Ok(()))
}

pub(crate) fn journal_position(conn: &Connection, journal: JournalId) -> Result<Option<JobId>> {
    let find = "SELECT value FROM meta WHERE name = 'journal' AND id = ?1";
    let mut find = conn.prepare_cached(find)?;
    let position = find.query_row([journal.0], |row| row.get(0)).optional()?;
    position.map(row::job_id).transpose()
}

pub(crate) fn payload_put(conn: &Connection, id: JobId, index: u32, piece: &[u8]) -> Result<()> {
    let put = "INSERT INTO piece (id, position, data) VALUES (?1, ?2, ?3)
               ON CONFLICT (id, position) DO UPDATE SET data = excluded.data";
    conn.prepare_cached(put)?.execute(params![id.get(), index, piece])?;
    Ok(())
}

/// Deletes the pieces of jobs that are not inserted.
fn remove_unused_pieces(conn: &Connection, jobs: &[NewJob]) -> Result<()> {
    for job in jobs.iter().filter(|job| job.payload.is_in_pieces()) {
        if !exists(conn, job.id.get())? {
            remove_pieces(conn, job.id.get())?;
        }
    }
    Ok(())
}

pub(crate) fn remove_pieces(conn: &Connection, id: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM piece WHERE id = ?1")?.execute([id])?;
    forget_waiting_pieces(conn, id)
}

/// Records that pieces of this payload arrived before their job.
pub(crate) fn note_waiting_pieces(conn: &Connection, id: JobId, now: Timestamp) -> Result<()> {
    let put = "INSERT OR REPLACE INTO piece_waiting (id, put_at) VALUES (?1, ?2)";
    conn.prepare_cached(put)?.execute([id.get(), now.ms()])?;
    Ok(())
}

/// The job has arrived, or the pieces are deleted.
pub(crate) fn forget_waiting_pieces(conn: &Connection, id: i64) -> Result<()> {
    conn.prepare_cached("DELETE FROM piece_waiting WHERE id = ?1")?.execute([id])?;
    Ok(())
}
