//! Decide: doors change jobs by pure decisions, which the store carries out in one change. Then the
//! effects are logged and announced.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::edit::{Ask, Decide, Decided, FullJob, Target};
use windlass_core::runner::Stop;
use windlass_core::store::Durability;
use windlass_core::store::sql::{SqlAnswer, SqlAsk};
use windlass_core::{JobId, Tenant};

use crate::ask::change::stop_ended;
use crate::detach::to_its_end;
use crate::error::{Error, store_error};
use crate::follow_up::announce_added;
use crate::ingest::freshness::in_store;
use crate::shared::Shared;

/// Shows jobs to a decision and carries out its edits; durable when this returns. It is done and
/// announced even if the caller stops waiting.
pub(crate) async fn decide(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    targets: Vec<Target>,
    decide: Decide,
) -> Result<Decided, Error> {
    let room = shared.rooms.change.take(0).await;
    let (shared, tenant) = (shared.clone(), tenant.clone());
    to_its_end(async move {
        let _room = room;
        let began = shared.clock.steady();
        targets_in_store(&shared, &tenant, &targets).await?;
        let ask = Ask { tenant, targets, decide, durability: Durability::Synced };
        let decided = shared.store.job_decide(ask).await.map_err(store_error)?;
        announce_added(&shared, &decided.moved, shared.clock.since(began));
        stop_ended(&shared, &decided.moved.stopped, Stop::LeaseLost).await;
        Ok(decided)
    })
    .await
}

/// A job as it is now; waits until it is in the store.
pub(crate) async fn full_job(
    shared: &Shared,
    tenant: &Tenant,
    id: JobId,
) -> Result<Option<FullJob>, Error> {
    in_store(shared, tenant, &[id]).await?;
    shared.store.job_full(tenant, id).await.map_err(store_error)
}

/// Runs SQL on the store; changes are durable when this returns.
pub(crate) async fn query(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    text: String,
    without_where: bool,
    patience: Duration,
) -> Result<SqlAnswer, Error> {
    let room = shared.rooms.change.take(text.len()).await;
    let (shared, tenant) = (shared.clone(), tenant.clone());
    to_its_end(async move {
        let _room = room;
        let began = shared.clock.steady();
        everything_in_store(&shared).await?;
        let Some(sql) = shared.store.sql() else {
            return Err(Error::Conflict("this store does not support SQL queries".into()));
        };
        let under = |token| {
            let journal = shared.journal.clone();
            let ask = SqlAsk {
                tenant: tenant.clone(),
                text: text.clone(),
                without_where,
                patience,
                owner: shared.daemon.sysid(),
                token,
                keep: shared.options.retention,
                ids: Arc::new(move || journal.make_id().ok()),
            };
            sql.query(ask)
        };
        let asked = shared.daemon.tokens.with_token(shared.store.as_ref(), under).await;
        let answer = asked.map_err(store_error)?;
        if let SqlAnswer::Wrote { moved, .. } = &answer {
            announce_added(&shared, moved, shared.clock.since(began));
            stop_ended(&shared, &moved.stopped, Stop::LeaseLost).await;
        }
        Ok(answer)
    })
    .await
}

/// Waits until the store has everything that the decision must see.
async fn targets_in_store(
    shared: &Shared,
    tenant: &Tenant,
    targets: &[Target],
) -> Result<(), Error> {
    let mut ids = Vec::new();
    for target in targets {
        match target {
            Target::Job(id) => ids.push(*id),
            Target::New { only: None, parent } => ids.extend(*parent),
            // Any job may be the one that keeps it from being added.
            Target::New { only: Some(_), .. } => return everything_in_store(shared).await,
        }
    }
    in_store(shared, tenant, &ids).await
}

async fn everything_in_store(shared: &Shared) -> Result<(), Error> {
    match shared.fresh.newest() {
        Some(newest) => shared.fresh.require(newest).await,
        None => Ok(()),
    }
}
