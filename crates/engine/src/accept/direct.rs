//! Direct: adds that only the store can decide go there in one synced change. The decision depends
//! on who holds a unique key, on a parent's state, and on known idempotency keys.

use std::time::Duration;

use windlass_core::family::Unfit;
use windlass_core::store::{self, Add, IdempotencyKey, IdempotencyRecord};
use windlass_core::{Invalid, JobId, NewJob, Payload, Tenant, TypeKey};
use windlass_journal::{AddPayload, Spool};

use crate::accept::pieces::{NotPut, put_pieces};
use crate::accept::{KEY_PATIENCE, step};
use crate::api::AddJob;
use crate::error::{Error, storage_error, store_error};
use crate::follow_up;
use crate::ingest::freshness::in_store;
use crate::shared::Shared;

/// The store's answer to an add.
pub(crate) enum Direct {
    /// One id per job; for a job whose unique key is held, the holder's.
    New(Vec<JobId>),
    /// Nothing was added: the answer of an earlier add with the same key.
    Known(IdempotencyRecord),
    /// The store is not available; it may have added the jobs, or may do so yet. Or it was only
    /// asked, and does not know the key.
    Undecided(Error),
}

impl Direct {
    /// For an add without a key.
    pub(crate) fn added(self) -> Result<Vec<JobId>, Error> {
        match self {
            Direct::New(ids) => Ok(ids),
            Direct::Known(_) => Err(Error::Internal("an add without a key was known".into())),
            Direct::Undecided(error) => Err(error),
        }
    }
}

/// Adds jobs of one type, all or none. With `patience`, it is `Undecided` if the store takes longer
/// than this for one call.
pub(crate) async fn add(
    shared: &Shared,
    key: &TypeKey,
    jobs: Vec<AddJob>,
    idempotency: Option<&IdempotencyKey>,
    patience: Option<Duration>,
) -> Result<Direct, Error> {
    let now = shared.now();
    let (mut new, mut spools) = (Vec::with_capacity(jobs.len()), Vec::new());
    for AddJob { payload, options } in jobs {
        let id = shared.journal.make_id().map_err(storage_error)?;
        let payload = match payload {
            AddPayload::Inline(bytes) => Payload::Inline(bytes),
            AddPayload::Spooled(spool) => {
                let bytes = spool.bytes();
                spools.push((id, spool));
                Payload::Pieces { bytes }
            }
        };
        new.push(NewJob::with(options, id, key.clone(), payload, now));
    }
    let parents: Vec<JobId> = new.iter().filter_map(|job| job.parent).collect();
    in_store(shared, &key.tenant, &parents).await?;
    if !spools.is_empty() {
        // A known key saves writing the payloads.
        if let Some(idempotency) = idempotency
            && let known @ Direct::Known(_) = look_up(shared, &key.tenant, idempotency).await
        {
            return Ok(known);
        }
        if let Some(away) = put_spools(shared, &spools, patience).await? {
            return Ok(Direct::Undecided(away));
        }
    }
    let add = Add { tenant: key.tenant.clone(), jobs: new, key: idempotency.cloned() };
    enter(shared, add, patience).await
}

/// Adds jobs whose parents and payload pieces are already in the store.
async fn enter(shared: &Shared, add: Add, patience: Option<Duration>) -> Result<Direct, Error> {
    let added = match step(shared, patience, shared.store.job_add(add)).await {
        Err(away @ store::Error::Unavailable(_)) => {
            return Ok(Direct::Undecided(store_error(away)));
        }
        added => added.map_err(store_error)?,
    };
    match added {
        store::Added::Known(record) => Ok(Direct::Known(record)),
        store::Added::Unfit { parent, unfit } => Err(unfit_parent(parent, unfit)),
        store::Added::New { ids, moved } => {
            follow_up::announce(shared, &moved);
            Ok(Direct::New(ids))
        }
    }
}

/// Looks a key up in the store; never returns `New`.
pub(crate) async fn look_up(
    shared: &Shared,
    tenant: &Tenant,
    idempotency: &IdempotencyKey,
) -> Direct {
    let asked = shared.store.idempotency_get(tenant, &idempotency.key);
    // A slow answer here does not mean that the store hangs.
    match tokio::time::timeout(KEY_PATIENCE, asked).await {
        Ok(Ok(Some(record))) => Direct::Known(record),
        Ok(Ok(None)) => Direct::Undecided(Error::Unavailable("nothing was added yet".into())),
        Ok(Err(error)) => Direct::Undecided(store_error(error)),
        Err(_) => Direct::Undecided(Error::Unavailable("the store does not answer".into())),
    }
}

/// Copies large payloads into the store; returns the error when the store is away.
async fn put_spools(
    shared: &Shared,
    spools: &[(JobId, Spool)],
    patience: Option<Duration>,
) -> Result<Option<Error>, Error> {
    for (id, spool) in spools {
        match put_pieces(shared, *id, spool.path(), spool.bytes(), patience).await {
            Ok(()) => {}
            Err(NotPut::Store(away @ store::Error::Unavailable(_))) => {
                return Ok(Some(store_error(away)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The error for an add whose parent cannot have children.
pub(crate) fn unfit_parent(id: JobId, unfit: Unfit) -> Error {
    Error::Conflict(match unfit {
        Unfit::Missing => return Invalid::new("parent", format!("there is no job {id}")).into(),
        Unfit::NotOpen => {
            format!("job {id} neither runs nor waits for children, so it cannot get new ones")
        }
        Unfit::Grandchild => format!("job {id} is a child itself, so it cannot have any"),
    })
}
