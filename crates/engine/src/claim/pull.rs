//! Pull: outside workers claim jobs, renew them, and say how they ended. The worker holds the
//! lease; the token says that it still does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use windlass_core::glob;
use windlass_core::job::Progress;
use windlass_core::limit::{PROGRESS_BYTES_MAX, PULL_JOBS_MAX};
use windlass_core::retry;
use windlass_core::store::{
    Claim, Claimed, Durability, Hold, LeaseRef, Pick, Renew, Settled, Settlement,
};
use windlass_core::{Invalid, Job, Log};

use crate::api::{PullClaim, PullFinish, Pulled};
use crate::claim::answer;
use crate::claim::hunger::{Pattern, Wants};
use crate::error::{Error, store_error};
use crate::event;
use crate::house::reap;
use crate::schedule;
use crate::settle;
use crate::settle::follow;
use crate::shared::Shared;

/// How long a claim waits for jobs that were just added to reach the store, and for a fresh look.
const FRESH_PATIENCE: Duration = Duration::from_millis(500);

/// Takes jobs for a worker; waits for some when there are none. A worker that hangs up at any
/// moment leaves no job behind that nobody knows of: what was taken for it goes back.
pub(crate) async fn claim(shared: Arc<Shared>, wish: PullClaim) -> Result<Vec<Pulled>, Error> {
    let claiming = shared.clone();
    let work = |gone| async move { claim_or_wait(&claiming, wish, gone).await };
    let returning = shared.clone();
    let back = move |claimed: Vec<Claimed>| {
        let shared = returning.clone();
        async move { hand_back(&shared, claimed).await }
    };
    let claimed = answer::or_back(work, back).await?;
    let pulled = |Claimed { job, payload, .. }| {
        shared.metrics.pulled(&job.key);
        event::started(&job);
        Pulled { job, payload }
    };
    Ok(claimed.into_iter().map(pulled).collect())
}

async fn claim_or_wait(
    shared: &Shared,
    wish: PullClaim,
    gone: CancellationToken,
) -> Result<Vec<Claimed>, Error> {
    if wish.limit == 0 || wish.limit > PULL_JOBS_MAX {
        return Err(Invalid::new("limit", "a claim takes 1 to 1000 jobs").into());
    }
    let deadline = Instant::now() + wish.wait;
    if let Some(newest) = shared.appended() {
        shared.ingested_up_to(newest, FRESH_PATIENCE).await;
    }
    let mut place = shared.hunger.enter(Wants {
        tenant: wish.tenant.clone(),
        names: wish.types.iter().map(|text| Pattern::of(text)).collect(),
        priority: None,
        mocks: false,
    });
    let mut looked = false;
    loop {
        let picks = picks(shared, &wish).await?;
        if !picks.is_empty() {
            let claimed = claim_now(shared, &wish, picks).await?;
            if !claimed.is_empty() {
                place.served();
                return Ok(claimed);
            }
            continue;
        }
        if !looked {
            looked = true;
            look_afresh(shared).await;
            continue;
        }
        place.served();
        let left = deadline.saturating_duration_since(Instant::now());
        tokio::select! {
            () = place.called() => {}
            () = tokio::time::sleep(left) => return Ok(Vec::new()),
            () = gone.cancelled() => return Ok(Vec::new()),
        }
    }
}

async fn hand_back(shared: &Shared, claimed: Vec<Claimed>) {
    let now = shared.now();
    let releases = claimed.iter().filter_map(|claimed| {
        let job = &claimed.job;
        let (tenant, token) = (job.key.tenant.clone(), job.lease?.token);
        Some(settle::release(LeaseRef { tenant, id: job.id, token }, now, now))
    });
    match shared.store.job_settle(releases.collect(), Durability::Relaxed).await {
        Ok(_) => shared.announce(claimed.into_iter().map(|claimed| (claimed.job.key, 1))),
        Err(error) => tracing::warn!(%error, "jobs of a worker that hung up wait for their lease"),
    }
}

/// What another daemon added a moment ago may not be known here yet.
pub(crate) async fn look_afresh(shared: &Shared) {
    let mut looks = shared.looks.subscribe();
    looks.mark_unchanged();
    shared.look();
    let _ = tokio::time::timeout(FRESH_PATIENCE, looks.changed()).await;
}

/// Waiting types that match, in random order, until the limit is filled.
async fn picks(shared: &Shared, wish: &PullClaim) -> Result<Vec<Pick>, Error> {
    let now = shared.now();
    let mut waiting = shared.scheduler().waiting_of(&wish.tenant, now);
    waiting.retain(|(key, ..)| wish.types.iter().any(|t| glob::matches(t, key.name.as_str())));
    shared.rng().shuffle(&mut waiting);
    let limited = waiting.iter().any(|(_, _, settings)| settings.concurrency.is_some());
    let stats = match limited {
        true => shared.store.type_stats(Some(&wish.tenant)).await.map_err(store_error)?,
        false => Vec::new(),
    };
    let mut left = wish.limit;
    let mut picks = Vec::new();
    for (key, ready, settings) in waiting {
        let mut limit = left.min(u32::try_from(ready).unwrap_or(u32::MAX));
        if let Some(most) = settings.concurrency {
            let running = stats.iter().find(|s| s.key == key).map_or(0, |s| s.running);
            limit = limit.min(most.saturating_sub(u32::try_from(running).unwrap_or(u32::MAX)));
            if limit == 0 {
                shared.room_wanted.store(true, Ordering::SeqCst);
            }
        }
        limit = limit.min(schedule::burst(&settings));
        if limit > 0 {
            left -= limit;
            picks.push(Pick { key, limit, floor: None });
        }
    }
    Ok(picks)
}

async fn claim_now(
    shared: &Shared,
    wish: &PullClaim,
    picks: Vec<Pick>,
) -> Result<Vec<Claimed>, Error> {
    let now = shared.now();
    let noted: Vec<u64> = {
        let mut scheduler = shared.scheduler();
        picks.iter().map(|pick| scheduler.claiming(&pick.key, pick.limit)).collect()
    };
    let claim = Claim {
        picks: picks.clone(),
        owner: shared.grant.sysid,
        token: shared.token().await.map_err(store_error)?,
        hold: Hold::For(wish.lease),
        now,
    };
    let claimed = shared.store.job_claim(claim).await.map_err(|error| {
        shared.look();
        store_error(error)
    })?;
    let mut scheduler = shared.scheduler();
    for (pick, noted) in picks.iter().zip(noted) {
        let got = claimed.iter().filter(|claimed| claimed.job.key == pick.key).count();
        scheduler.claimed(&pick.key, pick.limit, got as u32, noted);
        scheduler.spend_rate(&pick.key, got as u64, now);
    }
    Ok(claimed)
}

pub(crate) async fn renew(shared: &Shared, lease: LeaseRef, by: Duration) -> Result<(), Error> {
    let renew = Renew { leases: vec![lease.clone()], now: shared.now(), hold: by };
    let lost = shared.store.job_renew(renew).await.map_err(store_error)?;
    if lost.is_empty() { Ok(()) } else { Err(lost_or_unknown(shared, &lease).await) }
}

/// The worker's word on how the job ended; durable when this returns.
pub(crate) async fn finish(shared: &Shared, finish: PullFinish) -> Result<(), Error> {
    let now = shared.now();
    let job = job_of(shared, &finish.lease).await?;
    if job.lease.is_none_or(|lease| lease.token != finish.lease.token) {
        return Err(lost());
    }
    let policy = reap::policy_of(shared, &job).await.map_err(store_error)?;
    let luck = shared.luck();
    let (verdict, exhausted) = retry::after_attempt(&job, finish.status, &policy.retry, now, luck);
    let mut log = exhausted.map_or(Log::new(), |why| Log::of_note(why.as_str()));
    settle::note_repeat(&mut log, verdict);
    let follow = follow::job(shared, &job, finish.status, finish.data.as_ref())?;
    let settlement = Settlement {
        lease: finish.lease,
        verdict,
        ended: Some(finish.status.into()),
        now,
        data: finish.data,
        progress: None,
        log,
        follow,
        purge_at: policy.purge_at(now),
        only_if_expired_at: None,
    };
    settle_pulled(shared, &job, settlement).await
}

/// Back to the queue; the attempt does not count.
pub(crate) async fn release(
    shared: &Shared,
    lease: LeaseRef,
    delay: Duration,
) -> Result<(), Error> {
    let now = shared.now();
    let job = job_of(shared, &lease).await?;
    settle_pulled(shared, &job, settle::release(lease, now + delay, now)).await
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
        Settled::Stale => Err(lost_or_unknown(shared, &lease).await),
    }
}

async fn settle_pulled(shared: &Shared, job: &Job, settlement: Settlement) -> Result<(), Error> {
    let lease = settlement.lease.clone();
    let settled = shared.store.job_settle(vec![settlement.clone()], Durability::Synced).await;
    let answer = settled.map_err(store_error)?.into_iter().next().unwrap_or(Settled::Stale);
    if answer == Settled::Stale {
        return Err(lost_or_unknown(shared, &lease).await);
    }
    let held = settlement.now.since(job.started_at.unwrap_or(settlement.now));
    shared.metrics.held(held);
    settle::conclude(shared, job, &settlement, answer, held);
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
