//! Jobs are shown to decisions, and the edits of these are carried out. An edit that cannot be
//! carried out fails the whole operation, whose transaction is then undone.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use windlass_core::edit::{Ask, ChildMove, Decided, Edit, Moved, Only, Put, Seen, Which, Whole};
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::store::{Error, Inserted};
use windlass_core::time::Timestamp;
use windlass_core::{Job, JobId, NewJob, Payload, State, TypeName};

use crate::change;
use crate::claim;
use crate::error::{Failure, Result};
use crate::extra;
use crate::family;
use crate::insert::{self, Lying};
use crate::queue::{self, Place};
use crate::row::{self, Stored, part};
use crate::tx::{Counter, Tx};
use crate::type_row;

pub(crate) fn job_decide(tx: &mut Tx<'_>, ask: &Ask) -> Result<Decided> {
    let mut decided = Decided::default();
    for (index, which) in ask.which.iter().enumerate() {
        let seen = seen(tx, &ask.tenant, which)?;
        let decision = (ask.decide)(index, &seen).map_err(refused)?;
        for edit in &decision.edits {
            carry_out(tx, edit, ask.now, &mut decided.moved)?;
        }
        decided.ids.push(decision.id);
    }
    decided.moved.tidy();
    Ok(decided)
}

fn refused(why: String) -> Failure {
    Failure::Store(Error::Conflict(why))
}

fn held_by(holder: JobId) -> Failure {
    refused(format!("job {holder} holds the unique key"))
}

fn seen(tx: &mut Tx<'_>, tenant: &Tenant, which: &Which) -> Result<Seen> {
    let conn = tx.conn;
    let find = |id: JobId| row::find_of(conn, tenant, id);
    let (job, parent) = match which {
        Which::Job(id) => {
            let job = find(*id)?;
            let parent = job.as_ref().and_then(|stored| stored.job.parent);
            (job, parent)
        }
        Which::New { only: None, parent } => (None, *parent),
        Which::New { only: Some(only), parent } => (in_the_way(tx, tenant, only)?, *parent),
        Which::Keyed { name, unique, parent } => {
            let key = TypeKey { tenant: tenant.clone(), name: name.clone() };
            let type_id = tx.types.find(conn, &key)?;
            let holder = type_id.map(|type_id| insert::holder(conn, type_id, unique));
            (holder.transpose()?.flatten().map(find).transpose()?.flatten(), *parent)
        }
    };
    let parent = parent.map(find).transpose()?.flatten();
    let mut seen = Seen::default();
    if let Some(parent) = &parent {
        let except = job.as_ref().map(|stored| stored.job.id);
        seen.siblings = family::children(conn, parent.job.id, except)?;
    }
    if let Some(Stored { job, .. }) = job.as_ref().filter(|stored| stored.job.children) {
        seen.children = family::children(conn, job.id, None)?;
    }
    seen.job = job.map(|job| whole(conn, &job)).transpose()?;
    seen.parent = parent.map(|parent| whole(conn, &parent)).transpose()?;
    Ok(seen)
}

pub(crate) const FIRST: &str = "
    SELECT id FROM job INDEXED BY job_by_type
     WHERE type_id = ?1 AND state = ?2 AND parts & 64 = 0 ORDER BY id LIMIT 1";
pub(crate) const FIRST_CHILD: &str = "
    SELECT id FROM job INDEXED BY job_child_by_type
     WHERE type_id = ?1 AND state = ?2 AND parent_id IS NOT NULL AND parts & 64 = 0
     ORDER BY id LIMIT 1";
pub(crate) const FIRST_MOCK: &str = "
    SELECT id FROM job INDEXED BY job_mock
     WHERE type_id = ?1 AND state = ?2 AND parts & 64 ORDER BY id LIMIT 1";
pub(crate) const FIRST_MOCK_CHILD: &str = "
    SELECT id FROM job INDEXED BY job_mock
     WHERE type_id = ?1 AND state = ?2 AND parts & 64 AND parent_id IS NOT NULL
     ORDER BY id LIMIT 1";

/// The job with the smallest id that counts where there is to be only one of its type.
fn in_the_way(tx: &mut Tx<'_>, tenant: &Tenant, only: &Only) -> Result<Option<Stored>> {
    let key = TypeKey { tenant: tenant.clone(), name: only.name.clone() };
    let Some(type_id) = tx.types.find(tx.conn, &key)? else { return Ok(None) };
    let (any, child) =
        if only.mock { (FIRST_MOCK, FIRST_MOCK_CHILD) } else { (FIRST, FIRST_CHILD) };
    let ways = [
        // Running jobs have the rows of queued ones.
        (any, State::Queued),
        (any, State::Paused),
        (any, State::Failed),
        (child, State::Finished),
        (child, State::Cancelled),
    ];
    let mut first: Option<i64> = None;
    for (sql, state) in ways {
        let mut find = tx.conn.prepare_cached(sql)?;
        let values = [type_id, row::state_number(state)];
        let found: Option<i64> = find.query_row(values, |row| row.get(0)).optional()?;
        first = first.into_iter().chain(found).min();
    }
    first.map_or(Ok(None), |id| row::find(tx.conn, id))
}

/// The job with its payload.
pub(crate) fn whole(conn: &Connection, stored: &Stored) -> Result<Whole> {
    let Stored { job, type_id, token, .. } = stored;
    let find = "SELECT payload_bytes, parts, payload FROM job WHERE id = ?1";
    let mut find = conn.prepare_cached(find)?;
    let mut rows = find.query([job.id.get()])?;
    let missing = || Failure::corrupt(format!("job {} has no payload", job.id));
    let payload = claim::payload(conn, job.id.get(), rows.next()?.ok_or_else(missing)?, 0)?;
    let retention = type_row::settings_of(conn, *type_id)?.retention;
    Ok(Whole { job: job.clone(), payload, token: *token, retention })
}

/// Carries out one edit at `now`, and notes what others have to hear of it.
pub(crate) fn carry_out(
    tx: &mut Tx<'_>,
    edit: &Edit,
    now: Timestamp,
    moved: &mut Moved,
) -> Result<()> {
    match edit {
        Edit::Insert(new) => enter(tx, new, now, moved),
        Edit::Put(change) => {
            let id = change.job.id;
            let missing = || refused(format!("there is no job {id}"));
            let stored = row::find(tx.conn, id.get())?.ok_or_else(missing)?;
            put(tx, &stored, change, now, moved).map(drop)
        }
        Edit::Delete(id) => {
            if let Some(stored) = row::find(tx.conn, id.get())? {
                moved.note_gone(&stored.job);
                change::erase(tx, &stored)?;
            }
            Ok(())
        }
        Edit::Children { parent, from, to } => move_children(tx, *parent, *from, *to, now, moved),
    }
}

fn enter(tx: &mut Tx<'_>, new: &NewJob, now: Timestamp, moved: &mut Moved) -> Result<()> {
    match insert::insert_split(tx, new)? {
        Inserted::New => {
            moved.note_entered(new, now);
            Ok(())
        }
        Inserted::Duplicate => Err(refused(format!("there is a job {} already", new.id))),
        Inserted::Held(holder) => Err(held_by(holder)),
    }
}

pub(crate) const CHILDREN: &str = "
    SELECT id FROM job WHERE parent_id = ?1 AND state = ?2 ORDER BY id";

fn move_children(
    tx: &mut Tx<'_>,
    parent: JobId,
    from: State,
    to: ChildMove,
    now: Timestamp,
    moved: &mut Moved,
) -> Result<()> {
    let in_row = if from == State::Running { State::Queued } else { from };
    for id in change::ids(tx.conn, CHILDREN, [parent.get(), row::state_number(in_row)])? {
        let Some(stored) = row::find(tx.conn, id)? else { continue };
        if stored.job.state == from {
            put(tx, &stored, &to.put(&stored.job, now), now, moved)?;
        }
    }
    Ok(())
}

/// Makes a job what this says; answers with the job as it is then.
pub(crate) fn put(
    tx: &mut Tx<'_>,
    stored: &Stored,
    change: &Put,
    now: Timestamp,
    moved: &mut Moved,
) -> Result<Job> {
    let conn = tx.conn;
    let id = stored.job.id;
    let job = change.tidied(&stored.job, now)?;
    let type_id = tx.types.ensure(conn, &job.key)?;
    hold(conn, stored, &job, type_id)?;
    change::leave(tx, stored)?;
    if job.parent != stored.job.parent
        && let Some(parent) = job.parent
    {
        insert::mark_parent(tx, &job.key.tenant, parent)?;
    }
    extra::write(conn, id.get(), &job.extra, stored.parts)?;
    let family = if job.children { part::FAMILY } else { 0 };
    let kept = part::PAYLOAD | part::PIECES | part::RESULT | part::LOG | part::PROGRESS;
    let mut parts = (stored.parts & kept) | extra::parts(&job.extra) | family;
    if let Some(payload) = &change.payload {
        parts = put_payload(conn, id, payload.clone(), parts)?;
    }
    let purge_at = change.purge_at.filter(|_| job.state.is_ended());
    let token = job.lease.map(|lease| lease.token).or(stored.token);
    let after = Stored { job, type_id, token, parts };
    write(conn, &after, purge_at)?;
    arrive(tx, &after, now)?;
    moved.note_changed(&stored.job, &after.job, now);
    Ok(after.job)
}

/// Lets go of the unique key that a job held, and takes the one that it is to hold.
fn hold(conn: &Connection, before: &Stored, after: &Job, type_id: i64) -> Result<()> {
    let held = change::held(&before.job).map(|unique| (before.type_id, unique));
    let wanted = change::held(after).map(|unique| (type_id, unique));
    if held == wanted {
        return Ok(());
    }
    if let Some((type_id, unique)) = wanted
        && let Some(holder) = insert::holder(conn, type_id, unique)?
    {
        return Err(held_by(holder));
    }
    if let Some((type_id, unique)) = held {
        change::free(conn, type_id, unique)?;
    }
    if let Some((type_id, unique)) = wanted {
        insert::hold(conn, type_id, unique, after.id.get())?;
    }
    Ok(())
}

/// Replaces the payload; answers with the job's parts as they are then.
fn put_payload(conn: &Connection, id: JobId, payload: Bytes, parts: i64) -> Result<i64> {
    let places = part::PAYLOAD | part::PIECES;
    change::remove_parts(conn, id.get(), parts & places)?;
    let (payload, pieces) = Payload::Inline(payload).split();
    let Lying { part, in_row, beside } = Lying::of(&payload);
    insert::put_pieces(conn, id, &pieces)?;
    insert::put_beside(conn, id.get(), beside)?;
    let set = "UPDATE job SET payload = ?2 WHERE id = ?1";
    conn.prepare_cached(set)?.execute(params![id.get(), in_row.map(Bytes::as_ref)])?;
    Ok((parts & !places) | part)
}

const WRITE: &str = "
    UPDATE job
       SET type_id = ?2, state = ?3, priority = ?4, run_at = ?5, due_at = ?6, attempt = ?7,
           created_at = ?8, started_at = ?9, finished_at = ?10, expires_at = ?11, timeout_ms = ?12,
           token = ?13, last_code = ?14, last_status = ?15, purge_at = ?16, parts = ?17,
           payload_bytes = ?18, unique_key = ?19, then_name = ?20, parent_id = ?21
     WHERE id = ?1";

fn write(conn: &Connection, stored: &Stored, purge_at: Option<Timestamp>) -> Result<()> {
    let Stored { job, type_id, token, parts } = stored;
    let state = if job.state == State::Running { State::Queued } else { job.state };
    conn.prepare_cached(WRITE)?.execute(params![
        job.id.get(),
        type_id,
        row::state_number(state),
        job.priority.get(),
        job.run_at.ms(),
        job.due_at.ms(),
        job.attempt,
        job.created_at.ms(),
        job.started_at.map(Timestamp::ms),
        job.finished_at.map(Timestamp::ms),
        job.expires_at.map(Timestamp::ms),
        job.timeout.map(row::duration_ms),
        token.map(|token| token.0),
        job.last.map(|ended| row::code_number(ended.code)),
        job.last.map(|ended| ended.status.get()),
        purge_at.map(Timestamp::ms),
        parts,
        job.payload_bytes as i64,
        job.unique,
        job.then.as_ref().map(TypeName::as_str),
        job.parent.map(JobId::get),
    ])?;
    Ok(())
}

/// Puts a job that is nowhere into the queue, the lease or the counter that it belongs to.
fn arrive(tx: &mut Tx<'_>, stored: &Stored, now: Timestamp) -> Result<()> {
    let Stored { job, type_id, parts, .. } = stored;
    let (id, type_id) = (job.id.get(), *type_id);
    match (job.state, job.lease) {
        (State::Queued, _) => {
            let rank = row::rank(job.priority, *parts);
            queue::add(tx, Place { type_id, rank, id, run_at: job.run_at }, now)
        }
        (State::Running, Some(lease)) => {
            let started_at = job.started_at.unwrap_or(now);
            claim::add_lease(tx.conn, id, type_id, &lease, job.attempt, started_at)?;
            tx.count(type_id, Counter::Running, 1);
            Ok(())
        }
        (state, _) => {
            tx.count(type_id, Counter::of_state(state), 1);
            Ok(())
        }
    }
}
