//! Pull: outside workers claim jobs, renew them, and say how they ended. The worker holds the
//! lease; the token says that it still does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use windlass_core::job::Progress;
use windlass_core::limit::{PROGRESS_BYTES_MAX, PULL_JOBS_MAX};
use windlass_core::store::{
    Claimed, Durability, Hold, LeaseRef, NamedLook, NamedTypes, Renew, SettleAnswer, Settled,
    Settlement, WaitingType,
};
use windlass_core::{Invalid, Job, Log, TypeKey};

use crate::api::{PullClaim, PullFinish, Pulled};
use crate::claim::reserve::Reservation;
use crate::claim::wait::{self, Serving};
use crate::claim::waitlist::{Interest, Pattern};
use crate::dispatch::policy::Policy;
use crate::error::{Error, store_error};
use crate::event;
use crate::settle;
use crate::settle::verdict::{self, Cause, Rules};
use crate::shared::Shared;

/// Types that one claim chooses from, unless it wants more jobs than that.
const TYPES_MAX: u32 = 64;
/// Pages that one claim reads until it finds a type that matches; the next one goes on there.
const PAGES_MAX: usize = 100;
/// Claims that find the jobs gone, because others were faster, before the worker waits its turn.
const TRIES_MAX: usize = 16;

/// Takes jobs for a worker; waits for some when there are none.
pub(crate) async fn claim(shared: Arc<Shared>, wish: PullClaim) -> Result<Vec<Pulled>, Error> {
    if wish.limit == 0 || wish.limit > PULL_JOBS_MAX {
        return Err(Invalid::new("limit", "a claim takes 1 to 1000 jobs").into());
    }
    let interest = Interest {
        tenant: wish.tenant.clone(),
        names: wish.types.iter().map(|text| Pattern::of(text)).collect(),
        priority: None,
        hidden: false,
    };
    let (wait, wish) = (wish.wait, Arc::new(wish));
    let attempt = move |shared| claim_now(shared, wish.clone());
    let has = |claimed: &Vec<Claimed>, key: &TypeKey| {
        claimed.iter().any(|claimed| claimed.job.key == *key)
    };
    let serving = Serving { attempt, has, back: hand_back };
    let claimed = wait::serve(&shared, interest, wait, serving).await?;
    let pulled = |Claimed { job, payload, .. }| {
        shared.metrics.pulled(&job.key);
        event::started(&job);
        Pulled { job, payload }
    };
    Ok(claimed.unwrap_or_default().into_iter().map(pulled).collect())
}

async fn claim_now(
    shared: Arc<Shared>,
    wish: Arc<PullClaim>,
) -> Result<Option<Vec<Claimed>>, Error> {
    for _ in 0..TRIES_MAX {
        let reservations = reserve(&shared, &wish, types(&shared, &wish).await?);
        if reservations.is_empty() {
            return Ok(None);
        }
        let hold = Hold::For(wish.lease);
        let claimed = super::claim(&shared, reservations, hold).await;
        let (filled, _) = claimed.map_err(store_error)?;
        let claimed: Vec<Claimed> = filled.into_iter().flat_map(|(jobs, _)| jobs).collect();
        if !claimed.is_empty() {
            return Ok(Some(claimed));
        }
    }
    Ok(None)
}

/// Reserves jobs of these types, in random order, until the limit is filled.
fn reserve(
    shared: &Arc<Shared>,
    wish: &PullClaim,
    mut types: Vec<WaitingType>,
) -> Vec<Reservation> {
    shared.rng().shuffle(&mut types);
    let mut left = wish.limit;
    let mut reservations = Vec::new();
    for of_type in types {
        if left == 0 {
            break;
        }
        if let Some(reservation) = Reservation::of_type(shared, &of_type, left) {
            left -= reservation.jobs();
            reservations.push(reservation);
        }
    }
    reservations
}

/// Some of the open types that match. Where there are very many, each claim gets the next ones.
async fn types(shared: &Shared, wish: &PullClaim) -> Result<Vec<WaitingType>, Error> {
    let mut after = shared.cursors.get(&wish.tenant, &wish.types);
    let mut from_start = after.is_none();
    for _ in 0..PAGES_MAX {
        let look = NamedLook {
            tenant: wish.tenant.clone(),
            names: wish.types.clone(),
            after: after.take(),
            limit: wish.limit.max(TYPES_MAX) as usize,
        };
        let found = shared.store.type_named(look).await.map_err(store_error)?;
        let NamedTypes { types, next, full } = found;
        if full {
            shared.ready.limit_hit.store(true, Ordering::SeqCst);
        }
        let at_end = next.is_none();
        after = next;
        let now = shared.clock.steady();
        let startable =
            types.iter().any(|of_type| shared.ready.scheduler().may_start(of_type, now));
        if startable || (at_end && from_start) {
            shared.cursors.set(&wish.tenant, &wish.types, after);
            return Ok(types);
        }
        from_start |= at_end;
    }
    shared.cursors.set(&wish.tenant, &wish.types, after);
    Ok(Vec::new())
}

/// Releases jobs of a worker that disconnected.
async fn hand_back(shared: Arc<Shared>, claimed: Vec<Claimed>) {
    let leases = claimed.iter().filter_map(|claimed| LeaseRef::of(&claimed.job));
    let releases = leases.map(|lease| verdict::release(lease, None));
    match shared.store.job_settle(releases.collect(), Durability::Relaxed).await {
        Ok(_) => shared.ready.announce(claimed.into_iter().map(|claimed| (claimed.job.key, 1))),
        Err(error) => tracing::warn!(%error, "jobs of a worker that hung up wait for their lease"),
    }
}

pub(crate) async fn renew(shared: &Shared, lease: LeaseRef, by: Duration) -> Result<(), Error> {
    let renew = Renew { leases: vec![lease.clone()], hold: Some(by) };
    let lost = shared.store.job_renew(renew).await.map_err(store_error)?;
    if lost.is_empty() { Ok(()) } else { Err(lost_or_unknown(shared, &lease).await) }
}

/// The worker's word on how the job ended; durable when this returns.
pub(crate) async fn finish(shared: &Shared, finish: PullFinish) -> Result<(), Error> {
    let job = job_of(shared, &finish.lease).await?;
    if job.lease.is_none_or(|lease| lease.token != finish.lease.token) {
        return Err(lost());
    }
    let policy = Policy::of_job(shared, &job).await.map_err(store_error)?;
    let PullFinish { lease, status, data } = finish;
    let follow = verdict::follow(shared, &job, status, data.as_ref())?;
    let rules = Rules::now(shared, &policy);
    let end = verdict::end(&job, lease, Cause::Ended(status), Log::new(), &rules);
    let settlement = Settlement { data, follow, ..end };
    settle_pulled(shared, &job, settlement).await
}

/// Back to the queue; the attempt does not count.
pub(crate) async fn release(
    shared: &Shared,
    lease: LeaseRef,
    delay: Duration,
) -> Result<(), Error> {
    let job = job_of(shared, &lease).await?;
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
    let now = shared.now();
    let held = now.since(job.started_at.unwrap_or(now));
    shared.metrics.held(held);
    settle::conclude(shared, job, settlement, answer, held);
    settle::tell_entered(shared, &moved);
    Ok(())
}

async fn job_of(shared: &Shared, lease: &LeaseRef) -> Result<Job, Error> {
    let job = shared.store.job_get(&lease.tenant, lease.id).await.map_err(store_error)?;
    job.ok_or(Error::NotFound("job"))
}

/// Tells a lost lease from a job that does not exist for this tenant.
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
