//! Child: jobs that name a parent enter the store in one change with a look at that parent, because
//! what it does decides how they begin, and whether they may.

use std::sync::{Arc, Mutex, PoisonError};

use windlass_core::edit::{Ask, Decide, Decision, Edit, Seen, Which};
use windlass_core::family::{self, Unfit};
use windlass_core::store::Durability;
use windlass_core::{Invalid, JobId, NewJob, Tenant};

use crate::accept::store_error;
use crate::api::Error;
use crate::change::in_store;
use crate::decide;
use crate::shared::Shared;

/// Adds jobs, all or none; for a job whose unique key is held, the answer has the holder's id.
pub(crate) async fn insert(
    shared: &Shared,
    tenant: &Tenant,
    jobs: Vec<NewJob>,
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
            enter(&jobs[index], seen).map_err(|error| {
                let words = error.to_string();
                *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                words
            })
        })
    };
    let (durability, now) = (Durability::Synced, shared.now());
    let ask = Ask { tenant: tenant.clone(), which, decide, durability, now };
    let decided = shared.store.job_decide(ask).await.map_err(|error| {
        let ours = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
        ours.unwrap_or_else(|| store_error(error))
    })?;
    decide::tell(shared, &decided.moved);
    Ok(decided.ids.into_iter().flatten().collect())
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
