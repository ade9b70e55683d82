//! Child: jobs that name a parent enter the store in one change with a look at that parent, because
//! what it does decides how they begin, and whether they may.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use windlass_core::edit::{Ask, Decide, Decision, Edit, Seen, Which};
use windlass_core::family::{self, Unfit};
use windlass_core::store::Durability;
use windlass_core::{Invalid, JobId, NewJob, Tenant};
use windlass_journal::Spool;

use crate::accept::pieces::put_pieces;
use crate::ask::change::in_store;
use crate::ask::decide;
use crate::error::{Error, store_error};
use crate::lock::lock;
use crate::shared::Shared;

/// Adds jobs, all or none; for a job whose unique key is held, the answer has the holder's id.
/// Payloads in pieces come with their ids.
pub(crate) async fn insert(
    shared: &Shared,
    tenant: &Tenant,
    jobs: Vec<NewJob>,
    spools: Vec<(JobId, Spool)>,
) -> Result<Vec<JobId>, Error> {
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut held: HashMap<JobId, JobId> = HashMap::new();
    if !spools.is_empty() {
        // Nobody would ever remove the pieces of a job that does not enter.
        let answers = ask(shared, tenant, jobs.clone(), look).await?;
        held.extend(ids.iter().copied().zip(answers).filter(|(id, answer)| id != answer));
    }
    for (id, spool) in spools.iter().filter(|(id, _)| !held.contains_key(id)) {
        put_pieces(shared.store.as_ref(), *id, spool.path()).await?;
    }
    let entering = jobs.into_iter().filter(|job| !held.contains_key(&job.id)).collect();
    let mut entered = ask(shared, tenant, entering, enter).await?.into_iter();
    let answer = |id: JobId| held.get(&id).copied().or_else(|| entered.next()).unwrap_or(id);
    Ok(ids.into_iter().map(answer).collect())
}

type Decides = fn(&NewJob, &Seen) -> Result<Decision, Error>;

/// Decides for each job, with its parent and the holder of its unique key before it.
async fn ask(
    shared: &Shared,
    tenant: &Tenant,
    jobs: Vec<NewJob>,
    decides: Decides,
) -> Result<Vec<JobId>, Error> {
    let which = |job: &NewJob| match job.unique.clone() {
        None => Which::New { only: None, parent: job.parent },
        Some(unique) => Which::Keyed { name: job.key.name.clone(), unique, parent: job.parent },
    };
    let which: Vec<Which> = jobs.iter().map(which).collect();
    if let Some(newest) = decide::needed(shared, &which) {
        in_store(shared, newest).await?;
    }
    let refusal: Arc<Mutex<Option<Error>>> = Arc::default();
    let decide: Decide = {
        let refusal = refusal.clone();
        Arc::new(move |index, seen| {
            decides(&jobs[index], seen).map_err(|error| {
                let words = error.to_string();
                *lock(&refusal) = Some(error);
                words
            })
        })
    };
    let (durability, now) = (Durability::Synced, shared.now());
    let ask = Ask { tenant: tenant.clone(), which, decide, durability, now };
    let decided = shared.store.job_decide(ask).await.map_err(|error| {
        let ours = lock(&refusal).take();
        ours.unwrap_or_else(|| store_error(error))
    })?;
    decide::tell(shared, &decided.moved);
    Ok(decided.ids.into_iter().flatten().collect())
}

/// What would become of a job.
fn look(new: &NewJob, seen: &Seen) -> Result<Decision, Error> {
    Ok(Decision { edits: Vec::new(), ..enter(new, seen)? })
}

/// How a job begins that has this parent.
fn enter(new: &NewJob, seen: &Seen) -> Result<Decision, Error> {
    let mut new = new.clone();
    if let Some(id) = new.parent {
        let unknown = || Invalid::new("parent", format!("there is no job {id}"));
        let parent = &seen.parent.as_ref().ok_or_else(unknown)?.job;
        new.paused = family::child_is_paused(parent).map_err(|unfit| unfit_parent(id, unfit))?;
        new.extra.mock |= parent.extra.mock;
    }
    if let Some(holder) = &seen.job {
        return Ok(Decision { edits: Vec::new(), id: Some(holder.job.id) });
    }
    let id = Some(new.id);
    Ok(Decision { edits: vec![Edit::Insert(Box::new(new))], id })
}

fn unfit_parent(id: JobId, unfit: Unfit) -> Error {
    Error::Conflict(match unfit {
        Unfit::NotOpen => {
            format!("job {id} neither runs nor waits for children, so it gets no new ones")
        }
        Unfit::Grandchild => format!("job {id} is a child itself, so it gets none of its own"),
    })
}
