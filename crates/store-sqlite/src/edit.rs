//! Decisions: shows jobs to them and applies the edits that they return. An edit that cannot be
//! applied fails the whole operation, and its transaction is rolled back.

use rusqlite::{Connection, OptionalExtension};
use windlass_core::edit::{
    Ask, ChildMove, Decided, Edit, FamilyView, FullJob, MovedJobs, Only, Target,
};
use windlass_core::limit::WHOLE_BYTES_MAX;
use windlass_core::name::{Tenant, TypeKey};
use windlass_core::store::{Error, Inserted};
use windlass_core::{JobId, NewJob, Payload, State};

use crate::change;
use crate::claim;
use crate::error::{Failure, Result};
use crate::family;
use crate::insert;
use crate::put::put;
use crate::read;
use crate::row::{self, Stored};
use crate::tx::Tx;
use crate::type_row;

pub(crate) fn job_decide(tx: &mut Tx<'_>, ask: &Ask) -> Result<Decided> {
    let mut decided = Decided::default();
    for (index, target) in ask.targets.iter().enumerate() {
        let (seen, mut stored) = seen(tx, &ask.tenant, target)?;
        let decision = ask.decision(index, &seen, tx.now)?;
        for edit in &decision.edits {
            // Only the first edit finds the job as it was shown.
            match (edit, stored.take()) {
                (Edit::Put(change), Some(stored)) if change.job.id == stored.job.id => {
                    put(tx, &stored, change, &mut decided.moved)?;
                }
                _ => carry_out(tx, edit, &mut decided.moved)?,
            }
        }
        decided.ids.push(decision.id);
    }
    decided.moved.tidy();
    Ok(decided)
}

fn conflict(why: String) -> Failure {
    Failure::Store(Error::Conflict(why))
}

pub(crate) fn held_by(holder: JobId) -> Failure {
    conflict(format!("job {holder} holds the unique key"))
}

/// What a decision is shown, and the row of the job in it.
fn seen(tx: &mut Tx<'_>, tenant: &Tenant, target: &Target) -> Result<(FamilyView, Option<Stored>)> {
    let conn = tx.conn;
    let find = |id: JobId| row::find_of(conn, tenant, id);
    let (job, parent) = match target {
        Target::Job(id) => {
            let job = find(*id)?;
            let parent = job.as_ref().and_then(|stored| stored.job.parent);
            (job, parent)
        }
        Target::New { only: None, parent } => (None, *parent),
        Target::New { only: Some(only), parent } => (in_the_way(tx, tenant, only)?, *parent),
    };
    let parent = parent.map(find).transpose()?.flatten();
    let mut seen = FamilyView::default();
    if let Some(parent) = &parent {
        let except = job.as_ref().map(|stored| stored.job.id);
        seen.siblings = family::children(conn, parent.job.id, except)?;
    }
    if let Some(Stored { job, .. }) = job.as_ref().filter(|stored| stored.job.children) {
        seen.children = family::children(conn, job.id, None)?;
    }
    seen.job = job.as_ref().map(|job| full_job(conn, job)).transpose()?;
    seen.parent = parent.map(|parent| full_job(conn, &parent)).transpose()?;
    Ok((seen, job))
}

pub(crate) const FIRST: &str = "
    SELECT id FROM job INDEXED BY job_by_type
     WHERE type_id = ?1 AND state = ?2 AND parts & 64 = 0 ORDER BY id LIMIT 1";
pub(crate) const FIRST_CHILD: &str = "
    SELECT id FROM aside WHERE type_id = ?1 AND hidden = 0 AND state = ?2 ORDER BY id LIMIT 1";
pub(crate) const FIRST_HIDDEN: &str = "
    SELECT id FROM aside WHERE type_id = ?1 AND hidden = 1 AND state = ?2 ORDER BY id LIMIT 1";
pub(crate) const FIRST_HIDDEN_CHILD: &str = "
    SELECT id FROM aside INDEXED BY aside_by_type
     WHERE type_id = ?1 AND hidden = 1 AND state = ?2 AND parent_id IS NOT NULL
     ORDER BY id LIMIT 1";

/// The job with the smallest id that prevents another one of its type.
fn in_the_way(tx: &mut Tx<'_>, tenant: &Tenant, only: &Only) -> Result<Option<Stored>> {
    let key = TypeKey { tenant: tenant.clone(), name: only.name.clone() };
    let Some(type_id) = tx.types.find(tx.conn, &key)? else { return Ok(None) };
    let (any, child) =
        if only.hidden { (FIRST_HIDDEN, FIRST_HIDDEN_CHILD) } else { (FIRST, FIRST_CHILD) };
    let ways = [
        // Rows of running jobs say `queued`.
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

pub(crate) fn find_full(conn: &Connection, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>> {
    let stored = row::find_of(conn, tenant, id)?;
    stored.map(|stored| full_job(conn, &stored)).transpose()
}

pub(crate) const FULL: &str = "
    SELECT j.payload_bytes, j.parts, j.payload, t.settings
      FROM job j CROSS JOIN type t ON t.id = j.type_id WHERE j.id = ?1";

/// The job with its payload.
pub(crate) fn full_job(conn: &Connection, stored: &Stored) -> Result<FullJob> {
    let job = &stored.job;
    let mut find = conn.prepare_cached(FULL)?;
    let mut rows = find.query([job.id.get()])?;
    let missing = || Failure::corrupt(format!("job {} has no row", job.id));
    let row = rows.next()?.ok_or_else(missing)?;
    let payload = in_one(conn, job.id, claim::payload(conn, job.id.get(), row, [0, 1, 2])?)?;
    let retention = type_row::settings(row.get(3)?)?.retention;
    Ok(FullJob { job: job.clone(), payload, retention })
}

/// Joins a payload that is stored in pieces, unless it is too large for that.
pub(crate) fn in_one(conn: &Connection, id: JobId, payload: Payload) -> Result<Payload> {
    let bytes = match payload {
        Payload::Pieces { bytes } if bytes <= WHOLE_BYTES_MAX => bytes,
        as_it_is => return Ok(as_it_is),
    };
    let mut whole = Vec::with_capacity(bytes as usize);
    for index in 0.. {
        let Some(piece) = read::payload_piece(conn, id, index)? else { break };
        whole.extend_from_slice(&piece);
    }
    // A decision may write back what it is shown, so it must never be shown a part.
    if whole.len() as u64 != bytes {
        return Err(Failure::corrupt(format!("a piece of the payload of job {id} is missing")));
    }
    Ok(Payload::Inline(whole.into()))
}

/// Applies one edit, and notes what has to be announced.
pub(crate) fn carry_out(tx: &mut Tx<'_>, edit: &Edit, moved: &mut MovedJobs) -> Result<()> {
    match edit {
        Edit::Insert(new) => insert_new(tx, new, moved),
        Edit::Put(change) => {
            let id = change.job.id;
            let missing = || conflict(format!("there is no job {id}"));
            let stored = row::find(tx.conn, id.get())?.ok_or_else(missing)?;
            put(tx, &stored, change, moved).map(drop)
        }
        Edit::Delete(id) => {
            if let Some(stored) = row::find(tx.conn, id.get())? {
                moved.note_gone(&stored.job);
                change::erase(tx, &stored)?;
            }
            Ok(())
        }
        Edit::Children { parent, from, to } => move_children(tx, *parent, *from, *to, moved),
    }
}

/// An existing job or a held unique key is an error.
fn insert_new(tx: &mut Tx<'_>, new: &NewJob, moved: &mut MovedJobs) -> Result<()> {
    match insert::insert_split(tx, new)? {
        Inserted::New => {
            moved.note_entered(new, tx.now);
            Ok(())
        }
        Inserted::Duplicate | Inserted::Repeated => {
            Err(conflict(format!("job {} already exists", new.id)))
        }
        Inserted::Held(holder) => Err(held_by(holder)),
    }
}

pub(crate) const CHILDREN: &str = "
    SELECT id FROM aside WHERE parent_id = ?1 AND state = ?2 ORDER BY id";

fn move_children(
    tx: &mut Tx<'_>,
    parent: JobId,
    from: State,
    to: ChildMove,
    moved: &mut MovedJobs,
) -> Result<()> {
    let in_row = if from == State::Running { State::Queued } else { from };
    for id in change::ids(tx.conn, CHILDREN, [parent.get(), row::state_number(in_row)])? {
        let Some(stored) = row::find(tx.conn, id)? else { continue };
        if stored.job.state == from {
            let change = to.put(&stored.job, tx.now);
            put(tx, &stored, &change, moved)?;
        }
    }
    Ok(())
}
