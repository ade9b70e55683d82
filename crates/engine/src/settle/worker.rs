//! Outside workers renew the leases of their jobs, report progress, and end their jobs. The token
//! proves that the worker still holds the lease.

use std::sync::Arc;
use std::time::Duration;

use windlass_core::job::Progress;
use windlass_core::limit::PROGRESS_BYTES_MAX;
use windlass_core::store::{Durability, LeaseRef, Renew, SettleAnswer, Settled, Settlement};
use windlass_core::{Invalid, Job, Log};

use crate::api::PullFinish;
use crate::dispatch::policy::Policy;
use crate::error::{Error, store_error};
use crate::follow_up::{announce_settled, conclude, note_held};
use crate::shared::Shared;

use super::verdict::{self, Cause, Rules};

pub(crate) async fn renew(shared: &Shared, lease: LeaseRef, by: Duration) -> Result<(), Error> {
    shared.options.maxima.check_lease(by)?;
    let renew = Renew { leases: vec![lease.clone()], hold: Some(by) };
    let lost = shared.store.job_renew(renew).await.map_err(store_error)?;
    if lost.is_empty() { Ok(()) } else { Err(lost_or_unknown(shared, &lease).await) }
}

pub(crate) async fn renew_all(
    shared: &Shared,
    leases: Vec<LeaseRef>,
    by: Duration,
) -> Result<(), Error> {
    let renew = Renew { leases, hold: Some(by) };
    shared.store.job_renew(renew).await.map_err(store_error)?;
    Ok(())
}

/// Ends a job as its worker reports; durable when this returns.
pub(crate) async fn finish(shared: &Shared, finish: PullFinish) -> Result<(), Error> {
    let LeaseRef { tenant, id, token } = &finish.lease;
    let typed = shared.store.job_typed(tenant, *id).await.map_err(store_error)?;
    let typed = typed.ok_or(Error::NotFound("job"))?;
    if typed.job.lease.is_none_or(|lease| lease.token != *token) {
        return Err(lost());
    }
    let policy = Policy::of_typed(shared, &typed).await.map_err(store_error)?;
    let job = typed.job;
    let PullFinish { lease, status, data } = finish;
    let follow = verdict::follow(shared, &job, status, data.as_ref())?;
    let rules = Rules::now(shared, &policy);
    let end = verdict::end(&job, lease, Cause::Ended(status), Log::new(), &rules);
    let settlement = Settlement { data, follow, ..end };
    settle_pulled(shared, &job, settlement).await
}

/// Returns a job to the queue; the attempt does not count.
pub(crate) async fn release(
    shared: &Shared,
    lease: LeaseRef,
    delay: Duration,
) -> Result<(), Error> {
    let job = shared.store.job_get(&lease.tenant, lease.id).await.map_err(store_error)?;
    let job = job.ok_or(Error::NotFound("job"))?;
    settle_pulled(shared, &job, verdict::release(lease, Some(delay))).await
}

pub(crate) async fn progress(
    shared: &Shared,
    lease: LeaseRef,
    percent: f64,
    message: String,
) -> Result<(), Error> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Invalid::new("percent", "a percentage is a number from 0 to 100").into());
    }
    if message.len() > PROGRESS_BYTES_MAX {
        let reason = format!("a message has at most {PROGRESS_BYTES_MAX} bytes");
        return Err(Invalid::new("message", reason).into());
    }
    let progress = Progress { percent, message, at: shared.now() };
    let noted = shared.store.job_progress(vec![(lease.clone(), progress)]).await;
    match noted.map_err(store_error)?.first().copied().unwrap_or(Settled::Stale) {
        Settled::Done | Settled::Paused => Ok(()),
        Settled::Stale | Settled::Unfit { .. } => Err(lost_or_unknown(shared, &lease).await),
    }
}

async fn settle_pulled(shared: &Shared, job: &Job, settlement: Settlement) -> Result<(), Error> {
    let settlements: Arc<[Settlement]> = [settlement].into();
    let settled = shared.store.job_settle(settlements.clone(), Durability::Synced).await;
    let SettleAnswer { settled, moved } = settled.map_err(store_error)?;
    let (settlement, answer) = (&settlements[0], settled.first().copied());
    let answer = answer.filter(|answer| *answer != Settled::Stale);
    let Some(answer) = answer else {
        return Err(lost_or_unknown(shared, &settlement.lease).await);
    };
    conclude(shared, job, settlement, answer, note_held(shared, job));
    announce_settled(shared, &moved);
    Ok(())
}

/// Distinguishes a lost lease from a job that this tenant does not have.
async fn lost_or_unknown(shared: &Shared, lease: &LeaseRef) -> Error {
    match shared.store.job_get(&lease.tenant, lease.id).await {
        Ok(None) => Error::NotFound("job"),
        Ok(Some(_)) => lost(),
        Err(error) => store_error(error),
    }
}

fn lost() -> Error {
    Error::Conflict("the lease is lost: this token is not the job's".into())
}
