//! Decisions: shows jobs to them and applies the edits that they return. An edit that cannot be
//! applied fails the whole operation, and its transaction is rolled back.

use windlass_core::edit::{
    Ask, ChildMove, Decided, Edit, FamilyView, FullJob, MovedJobs, Only, Target,
};
use windlass_core::limit::WHOLE_BYTES_MAX;
use windlass_core::name::Tenant;
use windlass_core::store::Inserted;
use windlass_core::{JobId, NewJob, Payload, State};

use crate::change;
use crate::enter;
use crate::error::{Failure, Result};
use crate::family;
use crate::put::put;
use crate::read;
use crate::row::{self, Stored};
use crate::tx::Tx;
use crate::type_row;

pub(crate) async fn job_decide(tx: &mut Tx<'_>, ask: &Ask) -> Result<Decided> {
    let mut decided = Decided::default();
    for (index, target) in ask.targets.iter().enumerate() {
        let (seen, mut stored) = seen(tx, &ask.tenant, target).await?;
        let decision = ask.decision(index, &seen, tx.now)?;
        for edit in &decision.edits {
            // Only the first edit finds the job as it was shown.
            match (edit, stored.take()) {
                (Edit::Put(change), Some(stored)) if change.job.id == stored.job.id => {
                    put(tx, &stored, change, &mut decided.moved).await?;
                }
                _ => carry_out(tx, edit, &mut decided.moved).await?,
            }
        }
        decided.ids.push(decision.id);
    }
    decided.moved.tidy();
    Ok(decided)
}

pub(crate) fn held_by(holder: JobId) -> Failure {
    Failure::conflict(format!("job {holder} holds the unique key"))
}

/// What a decision is shown, and the row of the job in it.
async fn seen(
    tx: &mut Tx<'_>,
    tenant: &Tenant,
    target: &Target,
) -> Result<(FamilyView, Option<Stored>)> {
    let (job, parent) = match target {
        Target::Job(id) => {
            let job = row::find_of(tx, tenant, *id).await?;
            let parent = job.as_ref().and_then(|stored| stored.job.parent);
            (job, parent)
        }
        Target::New { only: None, parent } => (None, *parent),
        Target::New { only: Some(only), parent } => (in_the_way(tx, tenant, only).await?, *parent),
    };
    let parent = match parent {
        Some(parent) => row::find_of(tx, tenant, parent).await?,
        None => None,
    };
    let mut seen = FamilyView::default();
    if let Some(parent) = &parent {
        let except = job.as_ref().map(|stored| stored.job.id);
        seen.siblings = family::children(tx, parent.job.id, except).await?;
        seen.parent = Some(full_job(tx, parent).await?);
    }
    if let Some(stored) = &job {
        if stored.job.children {
            seen.children = family::children(tx, stored.job.id, None).await?;
        }
        seen.job = Some(full_job(tx, stored).await?);
    }
    Ok((seen, job))
}

/// Decisions on jobs that are to be the only ones of their type run one after the other.
const LOCK_NAME: &str = "SELECT pg_advisory_xact_lock(hashtext(current_schema() || ' only'),
                                                      hashtext($1 || '|' || $2))";
const IN_THE_WAY: &str = include_str!("../sql/in_the_way.sql");

/// The job with the smallest id that prevents another one of its type.
async fn in_the_way(tx: &mut Tx<'_>, tenant: &Tenant, only: &Only) -> Result<Option<Stored>> {
    let (tenant, name) = (tenant.as_str(), only.name.as_str());
    tx.execute(LOCK_NAME, &[&tenant, &name]).await?;
    let first = tx.query_one(IN_THE_WAY, &[&tenant, &name, &only.hidden]).await?;
    match first.try_get(0)? {
        Some(id) => row::find(tx, id).await,
        None => Ok(None),
    }
}

pub(crate) async fn find_full(tx: &Tx<'_>, tenant: &Tenant, id: JobId) -> Result<Option<FullJob>> {
    match row::find_of(tx, tenant, id).await? {
        Some(stored) => full_job(tx, &stored).await.map(Some),
        None => Ok(None),
    }
}

const FULL: &str = "
    SELECT j.payload_bytes, j.parts, j.payload, t.settings
      FROM job j JOIN type t ON t.id = j.type_id WHERE j.id = $1";

/// The job with its payload.
pub(crate) async fn full_job(tx: &Tx<'_>, stored: &Stored) -> Result<FullJob> {
    let job = &stored.job;
    let row = tx.query_one(FULL, &[&job.id.get()]).await?;
    let payload = in_one(tx, job.id, read::payload(job.id.get(), &row, [0, 1, 2])?).await?;
    let retention = type_row::settings(row.try_get(3)?)?.retention;
    Ok(FullJob { job: job.clone(), payload, retention })
}

/// Joins a payload that is stored in pieces, unless it is too large for that.
pub(crate) async fn in_one(tx: &Tx<'_>, id: JobId, payload: Payload) -> Result<Payload> {
    let bytes = match payload {
        Payload::Pieces { bytes } if bytes <= WHOLE_BYTES_MAX => bytes,
        as_it_is => return Ok(as_it_is),
    };
    let mut whole = Vec::with_capacity(bytes as usize);
    for index in 0.. {
        let Some(piece) = read::payload_piece(tx, id, index).await? else { break };
        whole.extend_from_slice(&piece);
    }
    // A decision may write back what it is shown, so it must never be shown a part.
    if whole.len() as u64 != bytes {
        return Err(Failure::corrupt(format!("a piece of the payload of job {id} is missing")));
    }
    Ok(Payload::Inline(whole.into()))
}

/// Applies one edit, and notes what has to be announced.
pub(crate) async fn carry_out(tx: &mut Tx<'_>, edit: &Edit, moved: &mut MovedJobs) -> Result<()> {
    match edit {
        Edit::Insert(new) => insert_new(tx, new, moved).await,
        Edit::Put(change) => {
            let id = change.job.id;
            let missing = || Failure::conflict(format!("there is no job {id}"));
            let stored = row::find(tx, id.get()).await?.ok_or_else(missing)?;
            put(tx, &stored, change, moved).await.map(drop)
        }
        Edit::Delete(id) => {
            if let Some(stored) = row::find(tx, id.get()).await? {
                moved.note_gone(&stored.job);
                change::erase(tx, &stored).await?;
            }
            Ok(())
        }
        Edit::Children { parent, from, to } => move_children(tx, *parent, *from, *to, moved).await,
    }
}

/// An existing job or a held unique key is an error.
async fn insert_new(tx: &mut Tx<'_>, new: &NewJob, moved: &mut MovedJobs) -> Result<()> {
    match enter::enter_split(tx, vec![new.clone()]).await?[..] {
        [Inserted::New] => {
            moved.note_entered(new, tx.now);
            Ok(())
        }
        [Inserted::Held(holder)] => Err(held_by(holder)),
        _ => Err(Failure::conflict(format!("job {} already exists", new.id))),
    }
}

const CHILDREN: &str = "SELECT id FROM job WHERE parent_id = $1 AND state = $2 ORDER BY id";

async fn move_children(
    tx: &mut Tx<'_>,
    parent: JobId,
    from: State,
    to: ChildMove,
    moved: &mut MovedJobs,
) -> Result<()> {
    // The row of a running job says `queued`.
    let in_row = if from == State::Running { State::Queued } else { from };
    for id in tx.ids(CHILDREN, &[&parent.get(), &row::state_number(in_row)]).await? {
        let Some(stored) = row::find(tx, id).await? else { continue };
        if stored.job.state == from && stored.job.parent == Some(parent) {
            let change = to.put(&stored.job, tx.now);
            put(tx, &stored, &change, moved).await?;
        }
    }
    Ok(())
}
