//! Decide: doors change jobs by pure decisions, which the store carries out in one change. Then the
//! effects are logged and announced.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use windlass_core::edit::{Ask, Decide, Decided, Decision, FamilyView, FullJob, MovedJobs, Target};
use windlass_core::runner::Stop;
use windlass_core::store::Durability;
use windlass_core::store::sql::{SqlAnswer, SqlAsk};
use windlass_core::sync::lock;
use windlass_core::{Job, JobId, State, Tenant, TypeKey};

use crate::error::Error;
use crate::error::store_error;
use crate::event;
use crate::shared::Shared;

/// Shows jobs to a decision and carries out its edits; durable when this returns. It is done and
/// announced even if the caller stops waiting.
pub(crate) async fn decide(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    targets: Vec<Target>,
    decide: Decide,
) -> Result<Decided, Error> {
    let (shared, tenant) = (shared.clone(), tenant.clone());
    to_its_end(async move {
        let began = Instant::now();
        if let Some(newest) = needed(&shared, &targets) {
            shared.fresh.require(newest).await?;
        }
        let ask = Ask { tenant, targets, decide, durability: Durability::Synced };
        let decided = shared.store.job_decide(ask).await.map_err(store_error)?;
        count(&shared, &decided.moved, began.elapsed());
        announce(&shared, &decided.moved);
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
    shared.fresh.require(id).await?;
    let seen: Arc<Mutex<Option<FullJob>>> = Arc::default();
    let decide: Decide = {
        let seen = seen.clone();
        Arc::new(move |_, shown: &FamilyView| {
            *lock(&seen) = shown.job.clone();
            Ok(Decision::default())
        })
    };
    let (tenant, targets) = (tenant.clone(), vec![Target::Job(id)]);
    let ask = Ask { tenant, targets, decide, durability: Durability::Relaxed };
    shared.store.job_decide(ask).await.map_err(store_error)?;
    let whole = lock(&seen).take();
    Ok(whole)
}

/// Runs SQL on the store; changes are durable when this returns.
pub(crate) async fn query(
    shared: &Arc<Shared>,
    tenant: &Tenant,
    text: String,
    without_where: bool,
    patience: Duration,
) -> Result<SqlAnswer, Error> {
    let (shared, tenant) = (shared.clone(), tenant.clone());
    to_its_end(async move {
        let began = Instant::now();
        if let Some(newest) = shared.fresh.newest() {
            shared.fresh.require(newest).await?;
        }
        let journal = shared.journal.clone();
        let ask = SqlAsk {
            tenant,
            text,
            without_where,
            patience,
            owner: shared.daemon.sysid(),
            token: shared.daemon.tokens.next(shared.store.as_ref()).await.map_err(store_error)?,
            keep: shared.options.retention,
            ids: Arc::new(move || journal.make_id().ok()),
        };
        let Some(sql) = shared.store.sql() else {
            return Err(Error::Conflict("this store does not support SQL queries".into()));
        };
        let answer = sql.query(ask).await.map_err(store_error)?;
        if let SqlAnswer::Wrote { moved, .. } = &answer {
            count(&shared, moved, began.elapsed());
            announce(&shared, moved);
        }
        Ok(answer)
    })
    .await
}

/// Finishes a change and its announcement even if the caller disconnects in between.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
}

/// The id up to which accepted jobs must be in the store for the decision to see them.
fn needed(shared: &Shared, targets: &[Target]) -> Option<JobId> {
    let of_one = |target: &Target| match target {
        Target::Job(id) => Some(*id),
        Target::New { only: Some(_), .. } => shared.fresh.newest(),
        Target::New { only: None, parent } => *parent,
    };
    targets.iter().filter_map(of_one).max()
}

/// Counts jobs that entered; `took` is how long the client waited.
fn count(shared: &Shared, moved: &MovedJobs, took: Duration) {
    let mut numbers: HashMap<&TypeKey, usize> = HashMap::new();
    for (_, key) in &moved.entered {
        *numbers.entry(key).or_default() += 1;
    }
    for (key, jobs) in numbers {
        shared.metrics.accepted(key, jobs, took);
    }
}

/// A worker's attempt is over: the job ended, repeats, or returned to the queue.
fn came_back(shared: &Shared, before: &Job, after: &Job) {
    let over = after.state.is_ended() || after.attempt == 0;
    let held = shared.now().since(before.started_at.unwrap_or_else(|| shared.now()));
    shared.metrics.held(held);
    match after.last.filter(|_| over) {
        Some(ended) => {
            let repeats = after.state == State::Queued && after.extra.repeat.is_some();
            let what = if repeats { "repeats" } else { after.state.as_str() };
            shared.metrics.ended(&before.key, ended.code, false);
            event::ended(before, ended, held, what);
        }
        None => event::returned(before, after.state.as_str()),
    }
}

/// Logs what moved, stops attempts that lost their lease, and announces the rest to waiting
/// requests, the scheduler, the dispatcher and waiting workers.
pub(crate) fn announce(shared: &Shared, moved: &MovedJobs) {
    moved.entered.iter().for_each(|(id, key)| event::entered(*id, key));
    moved.back.iter().for_each(|(before, after)| came_back(shared, before, after));
    for attempt in &moved.stopped {
        shared.running.set_lost(*attempt);
        shared.runner.stop(*attempt, Stop::LeaseLost);
        shared.job_waiters.wake(&attempt.job);
    }
    moved.touched.iter().for_each(|id| shared.job_waiters.wake(id));
    shared.ready.announce(moved.ready.iter().map(|(key, jobs)| (key.clone(), *jobs)));
    moved.due.into_iter().for_each(|at| shared.ready.announce_due(at));
    moved.back.iter().for_each(|(before, _)| shared.ready.announce_room(&before.key));
    if !moved.stopped.is_empty() {
        shared.ready.announce_any_room();
    }
}
