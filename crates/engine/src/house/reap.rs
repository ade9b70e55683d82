//! Reap: breaks leases that have run out, of dead daemons and of workers that did not renew, and
//! gives up expired jobs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::store::{self, GiveUp, LeaseRef, Overdue, Settled, Settlement};
use windlass_core::{AttemptId, Job, Log, Status, TypeSettings};

use crate::dispatch::policy::Policy;
use crate::follow_up::{conclude, given_up};
use crate::house::service::{Failed, Next, Service};
use crate::settle;
use crate::settle::verdict::{self, Cause, Rules};
use crate::shared::Shared;

/// Jobs in one transaction; a full one is followed by the next pass at once.
pub(super) const REAP_BATCH_MAX: usize = 500;

pub(crate) struct Reap {
    pub shared: Arc<Shared>,
}

impl Reap {
    /// Breaks expired leases. True when there may be more.
    async fn break_leases(&self) -> Result<bool, store::Error> {
        let shared = &self.shared;
        let expired = shared.store.lease_expired(REAP_BATCH_MAX).await?;
        if expired.is_empty() {
            return Ok(false);
        }
        let full = expired.len() == REAP_BATCH_MAX;
        let mut settlements = Vec::with_capacity(expired.len());
        let mut jobs = Vec::with_capacity(expired.len());
        for job in expired {
            if let Some(settlement) = self.lost_lease(&job).await? {
                settlements.push(settlement);
                jobs.push(job);
            }
        }
        if settlements.is_empty() {
            return Ok(false);
        }
        let now = shared.now();
        let settlements: Arc<[Settlement]> = settlements.into();
        let (answers, all) = settle::settle_each(shared, settlements.clone()).await;
        for ((job, settlement), answer) in jobs.iter().zip(&*settlements).zip(answers) {
            // Stale: renewed, ended, or broken by another daemon in the meantime.
            let Some(answer) = answer.filter(|answer| *answer != Settled::Stale) else { continue };
            shared.metrics.lease_expired();
            let held = now.since(job.started_at.unwrap_or(now));
            conclude(shared, job, settlement, answer, held);
        }
        all.map(|()| full)
    }

    async fn lost_lease(&self, job: &Job) -> Result<Option<Settlement>, store::Error> {
        let shared = &self.shared;
        let Some(lease) = job.lease else { return Ok(None) };
        // It runs here, and only its renewal is late: its owner is not dead.
        let ours = shared.running.get(AttemptId { job: job.id, token: lease.token });
        if ours.is_some_and(|running| !running.lost) {
            return Ok(None);
        }
        if !shared.daemon.contact.may_break(lease.owner, shared.clock.steady()) {
            return Ok(None);
        }
        let policy = match self.policy(job).await {
            Ok(Some(policy)) => policy,
            Ok(None) => return Ok(None),
            // Its lease is broken all the same, and so are those of the other jobs.
            Err(store::Error::Corrupt(why)) => {
                tracing::error!(job = %job.id, %why, "the default policy replaces a damaged one");
                Policy::of(None, &TypeSettings::default(), &shared.options)
            }
            Err(error) => return Err(error),
        };
        let log = Log::of_note(&match lease.on_beat {
            true => format!("lease of daemon {} ran out", lease.owner),
            false => "the worker's lease ran out: it was not renewed in time".to_owned(),
        });
        let (cause, rules) = (Cause::LeaseExpired, Rules::now(shared, &policy));
        Ok(LeaseRef::of(job).map(|lease| verdict::end(job, lease, cause, log, &rules)))
    }

    /// `None` if the job is gone.
    async fn policy(&self, job: &Job) -> Result<Option<Policy>, store::Error> {
        let shared = &self.shared;
        match shared.store.job_typed(&job.key.tenant, job.id).await? {
            Some(typed) => Policy::of_typed(shared, &typed).await.map(Some),
            None => Ok(None),
        }
    }

    /// Ends expired jobs that have not started. True when there may be more.
    async fn give_up_expired(&self) -> Result<bool, store::Error> {
        let retention = self.shared.options.retention;
        let given_up = give_up(&self.shared, Overdue::Expired, "expired", retention).await?;
        Ok(given_up == REAP_BATCH_MAX)
    }
}

/// Ends waiting jobs as failed; returns how many.
pub(crate) async fn give_up(
    shared: &Shared,
    which: Overdue,
    why: &str,
    retention: Duration,
) -> Result<usize, store::Error> {
    let ended = Status::ERROR.into();
    let (log, keep, limit) = (Log::of_note(why), retention, REAP_BATCH_MAX);
    let give_up = GiveUp { which, ended, log, keep, limit };
    let jobs = shared.store.job_give_up(give_up).await?;
    given_up(shared, &jobs, ended);
    Ok(jobs.len())
}

#[async_trait]
impl Service for Reap {
    fn name(&self) -> &'static str {
        "reap"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        for (attempt, why) in self.shared.running.expired(self.shared.now()) {
            self.shared.runner.stop(attempt, why);
        }
        let broken = self.break_leases().await;
        let expired = self.give_up_expired().await;
        let more = matches!(broken, Ok(true)) || matches!(expired, Ok(true));
        let next = if more { Next::Now } else { Next::After(self.shared.options.reap_interval) };
        let failed = broken.err().or(expired.err());
        failed.map_or(Ok(next), |error| Err(Failed::new(error, next.pause())))
    }
}
