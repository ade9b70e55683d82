//! Changes by clients: cancel, rerun, delete; handlers and types. Durable when answered.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::job::Token;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::runner::Stop;
use windlass_core::store::{Changed, EndRequest, Requeue};
use windlass_core::{
    AttemptId, Handler, HandlerId, HandlerSpec, Invalid, Job, JobId, State, Tenant, TypeKey,
    TypeSettings,
};

use crate::ask::read;
use crate::dispatch::policy::Policy;
use crate::dispatch::running::RunningJob;
use crate::error::{Error, compile_error, storage_error, store_error};
use crate::event;
use crate::follow_up;
use crate::ingest::freshness::in_store;
use crate::secret;
use crate::shared::Shared;

/// How long a cancel waits for the job's processes to end.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How often it asks the runner to stop an attempt.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) async fn cancel(shared: &Shared, tenant: &Tenant, id: JobId) -> Result<(), Error> {
    in_store(shared, tenant, &[id]).await?;
    let typed = shared.store.job_typed(tenant, id).await.map_err(store_error)?;
    let typed = typed.ok_or(Error::NotFound("job"))?;
    let here = |attempt: &AttemptId| shared.running.contains(*attempt);
    if let Some(attempt) = typed.job.attempt_id().filter(here) {
        stop(shared, attempt, Stop::Cancelled).await;
        // The ends of attempts are not synced one by one, but this one is acknowledged. Before the
        // look: a store that has forgotten it shows that.
        shared.store.flush().await.map_err(store_error)?;
        // The job or the attempt may have ended by itself.
        match read::job(shared, tenant, id).await?.job.state {
            State::Cancelled => return Ok(()),
            state if state.is_ended() => return Err(refused("cancelled", state)),
            _ => {}
        }
    }
    let policy = Policy::of_typed(shared, &typed).await.map_err(store_error)?;
    let end = EndRequest { tenant: tenant.clone(), id, keep: policy.retention };
    // Attempts that are claimed later belong to a rerun requested after this, except the one that
    // the cancel returns.
    let attempts = shared.running.of_job(id);
    let unanswered = shared.daemon.tokens.all_under_way();
    let before = changed(shared.store.job_cancel(end).await.map_err(store_error)?, "cancelled")?;
    event::cancelled(&before);
    for attempt in attempts.iter().map(RunningJob::attempt_id) {
        shared.running.set_lost(attempt);
        shared.runner.stop(attempt, Stop::Cancelled);
    }
    if let Some(lease) = before.lease.filter(|lease| lease.on_beat) {
        let attempt = AttemptId { job: id, token: lease.token };
        stop_ended(shared, &[attempt], Stop::Cancelled).await;
    }
    stop_unanswered(shared, tenant, id, &unanswered).await;
    follow_up::cancelled(shared, &before);
    Ok(())
}

/// Stops attempts of a cancelled job whose claims were not answered yet. The cancel does not return
/// them if the job was ended elsewhere and requested again since. One that was claimed after a
/// later rerun is the job's own, and goes on.
async fn stop_unanswered(shared: &Shared, tenant: &Tenant, id: JobId, claims: &[Token]) {
    let entered = async {
        for token in claims {
            shared.daemon.tokens.until_entered(*token).await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, entered).await;
    let running = shared.running.of_job(id);
    let mut late: Vec<AttemptId> = running.iter().map(RunningJob::attempt_id).collect();
    late.retain(|attempt| claims.contains(&attempt.token));
    if late.is_empty() {
        return;
    }
    if let Ok(Some(typed)) = shared.store.job_typed(tenant, id).await {
        late.retain(|attempt| typed.job.attempt_id() != Some(*attempt));
        stop_ended(shared, &late, Stop::Cancelled).await;
    }
}

/// Stops attempts whose jobs the store has just ended or given back. Our own claim of one may not
/// be answered yet; it must not run after the change is acknowledged.
pub(super) async fn stop_ended(shared: &Shared, attempts: &[AttemptId], why: Stop) {
    let stopped = async {
        // All are told before the first is waited for, which may take long.
        for attempt in attempts {
            shared.daemon.tokens.until_entered(attempt.token).await;
            shared.running.set_lost(*attempt);
            shared.runner.stop(*attempt, why);
        }
        for attempt in attempts {
            stop(shared, *attempt, why).await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
}

/// Stops an attempt that runs here and waits until it is settled. A process that cannot be ended
/// does not hold up the answer for ever.
async fn stop(shared: &Shared, attempt: AttemptId, why: Stop) {
    let watch = shared.job_waiters.watch(&attempt.job);
    let stopped = async {
        loop {
            let changed = watch.next();
            if !shared.running.contains(attempt) {
                return;
            }
            // Repeated, because the runner may not have the job yet.
            shared.runner.stop(attempt, why);
            let _ = tokio::time::timeout(STOP_INTERVAL, changed).await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
}

pub(crate) async fn retry(shared: &Shared, tenant: &Tenant, id: JobId) -> Result<(), Error> {
    in_store(shared, tenant, &[id]).await?;
    let answer = shared.store.job_rerun(tenant, id).await.map_err(store_error)?;
    let job = changed(answer, "retried")?;
    follow_up::rerun(shared, &job.key, 1);
    Ok(())
}

pub(crate) async fn delete(shared: &Shared, tenant: &Tenant, id: JobId) -> Result<(), Error> {
    in_store(shared, tenant, &[id]).await?;
    let answer = shared.store.job_delete(tenant, id).await.map_err(store_error)?;
    let job = changed(answer, "removed")?;
    follow_up::removed(shared, &job);
    Ok(())
}

pub(crate) async fn requeue(
    shared: &Shared,
    key: &TypeKey,
    state: State,
    limit: usize,
) -> Result<u64, Error> {
    if !state.is_ended() {
        let reason = "only finished, failed or cancelled jobs are requeued";
        return Err(Invalid::new("state", reason).into());
    }
    if limit == 0 || limit > BATCH_JOBS_MAX {
        let reason = format!("a requeue takes 1 to {BATCH_JOBS_MAX} jobs");
        return Err(Invalid::new("limit", reason).into());
    }
    let requeue = Requeue { key: key.clone(), state, limit };
    let requeued = shared.store.job_requeue(requeue).await.map_err(store_error)?;
    follow_up::rerun(shared, key, requeued);
    Ok(requeued)
}

pub(crate) async fn handler_set(
    shared: &Arc<Shared>,
    key: &TypeKey,
    spec: HandlerSpec,
) -> Result<HandlerId, Error> {
    spec.check()?;
    shared.options.maxima.check_options(&spec.options)?;
    shared.runner.check(&spec)?;
    shared.runner.compile(key, &spec).await.map_err(compile_error)?;
    let id = shared.journal.make_id().map_err(storage_error)?;
    let created_at = shared.now();
    let handler = Arc::new(Handler { id, key: key.clone(), created_at, spec });
    // Before a job can be picked for it, so that the first job finds the handler being prepared.
    if let Ok(secrets) = secret::open(shared, &handler).await {
        shared.runner.prepare(Arc::clone(&handler), secrets);
    }
    let spec = handler.spec.clone();
    shared.store.handler_put(id, key, spec).await.map_err(store_error)?;
    shared.catalogue.add(Arc::clone(&handler));
    let batches_max = shared.runner.batches_max(&handler);
    let mut scheduler = shared.ready.scheduler();
    scheduler.set_handler(key, id);
    scheduler.set_contexts(key, id, batches_max);
    drop(scheduler);
    shared.ready.look();
    Ok(id)
}

pub(crate) async fn handler_delete(shared: &Shared, key: &TypeKey) -> Result<(), Error> {
    let last_report = shared.ready.scheduler().last_report(key);
    if !shared.store.handler_delete(key).await.map_err(store_error)? {
        return Err(Error::NotFound("handler"));
    }
    shared.ready.scheduler().handler_gone(key, last_report);
    shared.runner.forget(key);
    Ok(())
}

pub(crate) async fn suspend(shared: &Shared, key: &TypeKey, suspended: bool) -> Result<(), Error> {
    // Only a look shows the current state, because others may change it at the same time. A type
    // wrongly taken for open costs one empty claim.
    shared.store.type_suspend(key, suspended).await.map_err(store_error)?;
    shared.ready.look();
    Ok(())
}

pub(crate) async fn settings_put(
    shared: &Shared,
    key: &TypeKey,
    settings: TypeSettings,
) -> Result<(), Error> {
    settings.check()?;
    shared.options.maxima.check_settings(&settings)?;
    shared.store.type_settings_put(key, settings.clone()).await.map_err(store_error)?;
    shared.ready.scheduler().set_settings(key, settings);
    shared.ready.look();
    Ok(())
}

fn changed(answer: Changed, what: &str) -> Result<Job, Error> {
    match answer {
        Changed::Done(job) => Ok(*job),
        Changed::Refused(state) => Err(refused(what, state)),
        Changed::Held(holder) => {
            Err(Error::Conflict(format!("its unique key is held by job {holder}")))
        }
        Changed::NotFound => Err(Error::NotFound("job")),
    }
}

fn refused(what: &str, state: State) -> Error {
    Error::Conflict(format!("a job that is {state} cannot be {what}"))
}
