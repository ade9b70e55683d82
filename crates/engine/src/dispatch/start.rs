//! Starts claimed batches: finds the handler and the policy of the jobs, enters the jobs in the
//! running table, and spawns the run.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use windlass_core::store::{self, Claimed};
use windlass_core::{Handler, HandlerId};

use crate::claim::reserve::Slot;
use crate::dispatch::policy::Policy;
use crate::dispatch::report::RETURN_PAUSE;
use crate::dispatch::run;
use crate::dispatch::running::RunningJob;
use crate::settle::queue::SettleItem;
use crate::shared::Shared;

/// Starts jobs of one type. If they have no handler that this machine can run, they are released.
pub(super) async fn start(
    shared: &Arc<Shared>,
    batches: &TaskTracker,
    slot: Slot,
    jobs: Vec<Claimed>,
) {
    // A handler that cannot be read may be readable later: its jobs wait a moment.
    let (handler, pause) = match handler_for(shared, &slot, jobs[0].handler).await {
        Ok(handler) => (handler, None),
        Err(error) => {
            tracing::warn!(%error, r#type = %slot.key(), "cannot read a handler");
            (None, Some(RETURN_PAUSE))
        }
    };
    let settings = shared.ready.scheduler().settings(slot.key()).unwrap_or_default();
    let policy = Arc::new(Policy::of(handler.as_deref(), &settings, &shared.options));
    let mut running = Vec::with_capacity(jobs.len());
    for Claimed { job, payload, .. } in jobs {
        let Some(lease) = job.lease else { continue };
        let claimed = RunningJob::new(job, lease.token, policy.clone());
        shared.running.insert(claimed.clone());
        running.push((claimed, payload));
    }
    match handler {
        Some(handler) => {
            batches.spawn(run::run(shared.clone(), handler, slot, running));
        }
        None => {
            drop(slot);
            for (running, _) in running {
                shared.settle.send(SettleItem::release(running, pause)).await;
            }
        }
    }
}

/// The handler to run, if there is one that this machine can run.
async fn handler_for(
    shared: &Shared,
    slot: &Slot,
    version: Option<HandlerId>,
) -> Result<Option<Arc<Handler>>, store::Error> {
    let key = slot.key();
    let Some(version) = version else {
        shared.ready.scheduler().handler_gone(key, slot.last_report());
        return Ok(None);
    };
    let found = shared.catalogue.get(shared.store.as_ref(), key, version).await?;
    let missing = || format!("handler {version} of {key} is missing");
    let handler = found.ok_or_else(|| store::Error::Corrupt(missing().into()))?;
    // The check looks for programs on the disk; a handler with a warm context has passed it.
    let is_warm = shared.runner.warm().contains(&version);
    let unfit = (!is_warm).then(|| shared.runner.check(&handler.spec).err()).flatten();
    if let Some(why) = unfit {
        tracing::warn!(r#type = %key, %why, "this machine cannot run a handler");
        shared.ready.scheduler().set_unrunnable(key, version);
        return Ok(None);
    }
    let batches_max = shared.runner.batches_max(&handler);
    let mut scheduler = shared.ready.scheduler();
    scheduler.set_handler(key, version);
    scheduler.set_contexts(key, version, batches_max);
    drop(scheduler);
    Ok(Some(handler))
}
