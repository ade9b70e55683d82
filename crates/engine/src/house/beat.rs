//! The beat: one write renews this daemon's number, and with it the leases of all jobs that it
//! runs, and says how the daemon is (`house::report`). Then the store's list of our leases is
//! compared with what we run: an attempt without a lease is lost and is stopped, and a lease whose
//! claim was never answered is released. So are the leases of abandoned claims of workers, which
//! are not on the beat. No call of the store here is synced: a server whose standby is missing
//! answers none of those, and the leases must not run out for it.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::runner::Stop;
use windlass_core::store::{self, LeaseRef, SysidRenew};
use windlass_core::{AttemptId, Timestamp};

use crate::house::report::report;
use crate::house::service::{Failed, Next, Service};
use crate::settle;
use crate::settle::verdict;
use crate::shared::Shared;

/// Beats per lease time.
pub(crate) const BEATS_PER_LEASE: u32 = 3;

pub(crate) struct Beat {
    shared: Arc<Shared>,
    /// The last beat failed.
    failed: bool,
}

#[async_trait]
impl Service for Beat {
    fn name(&self) -> &'static str {
        "beat"
    }

    /// Lasts as long as the store hangs. `Contact` learns of that, because adds do not wait for it.
    async fn pass(&mut self) -> Result<Next, Failed> {
        let shared = self.shared.clone();
        let contact = &shared.daemon.contact;
        let mut passing = pin!(self.beat_and_compare());
        loop {
            let since = shared.clock.steady();
            match tokio::time::timeout(contact.note_interval(), passing.as_mut()).await {
                Ok(next) => return next,
                Err(_) => contact.not_answered(since, shared.clock.steady()),
            }
        }
    }
}

/// Whether a lease of ours belongs to no attempt. A claim is under way until its jobs are in the
/// running table, so the claim is checked first: if it completes between the two checks, its jobs
/// are in the table. In the other order it would be found in neither, and a running job would be
/// released.
fn is_orphan(is_under_way: impl FnOnce() -> bool, runs: impl FnOnce() -> bool) -> bool {
    !is_under_way() && !runs()
}

impl Beat {
    pub(crate) fn new(shared: Arc<Shared>) -> Beat {
        Beat { shared, failed: false }
    }

    async fn beat_and_compare(&mut self) -> Result<Next, Failed> {
        let pause = self.shared.options.lease / BEATS_PER_LEASE;
        let failed =
            |what: &str, error: store::Error| Failed::new(format!("{what}: {error}"), pause);
        self.beat().await.map_err(|error| failed("cannot renew the sysid", error))?;
        self.compare().await.map_err(|error| failed("cannot compare what runs here", error))?;
        Ok(Next::After(pause))
    }

    async fn beat(&mut self) -> Result<(), store::Error> {
        let shared = &self.shared;
        let renew = SysidRenew {
            grant: shared.daemon.grant,
            lease: shared.options.lease,
            id_newest: shared.journal.id_newest(),
            report: Some(report(shared)),
        };
        let (before, sent) = (shared.clock.wall(), shared.clock.steady());
        let beaten = shared.store.sysid_renew(renew).await;
        let failed_before = std::mem::replace(&mut self.failed, beaten.is_err());
        self.apply(&beaten, failed_before, before, sent);
        // After the answer took effect, so that requests waiting for a beat see it.
        self.shared.daemon.contact.answered(sent, self.shared.clock.steady());
        beaten.map(drop)
    }

    fn apply(
        &self,
        beaten: &Result<Timestamp, store::Error>,
        failed_before: bool,
        before: Timestamp,
        sent: Duration,
    ) {
        let shared = &self.shared;
        match beaten {
            Ok(store_time) => {
                shared.clock.follow(before, *store_time, &shared.metrics);
                if shared.daemon.contact.beat(failed_before, sent) {
                    tracing::warn!("contact with the store was lost for a while and is back");
                    shared.fresh.doubted.notify_one();
                }
            }
            // Another daemon makes ids and takes leases under our number: nothing we do is safe any
            // more.
            Err(store::Error::Conflict(why)) => {
                shared.picking.store(false, Ordering::SeqCst);
                shared.health.fail(why.clone());
            }
            // Only if it repeats: SQLite also reports a single failed read as damage.
            Err(error @ store::Error::Corrupt(_)) if failed_before => {
                shared.health.fail(error.to_string());
            }
            Err(_) => {}
        }
    }

    async fn compare(&self) -> Result<(), store::Error> {
        let shared = &self.shared;
        // A job that starts meanwhile is in neither list, or only in the store's and under way.
        let running = shared.running.attempts();
        let (mut held, mut orphans) = (HashSet::new(), Vec::new());
        let mut after = None;
        loop {
            let me = shared.daemon.sysid();
            let page = shared.store.lease_mine(me, after, BATCH_JOBS_MAX).await?;
            for lease in &page {
                let attempt = AttemptId { job: lease.id, token: lease.token };
                held.insert(attempt);
                let is_under_way = || shared.daemon.tokens.is_under_way(lease.token);
                if is_orphan(is_under_way, || shared.running.contains(attempt)) {
                    orphans.push(lease.clone());
                }
            }
            match page.last().filter(|_| page.len() == BATCH_JOBS_MAX) {
                Some(last) => after = Some(last.id),
                None => break,
            }
        }
        for attempt in running.into_iter().filter(|attempt| !held.contains(attempt)) {
            // An attempt that was settled meanwhile is about to leave the table; this does not
            // affect it.
            shared.running.set_lost(attempt);
            shared.runner.stop(attempt, Stop::LeaseLost);
        }
        orphans.extend(shared.daemon.abandoned.leases(shared.store.as_ref()).await?);
        self.give_back(orphans).await
    }

    /// Releases jobs of claims whose answer was lost. A job that was just settled may be among
    /// them; its lease is gone, and the store refuses the release.
    async fn give_back(&self, orphans: Vec<LeaseRef>) -> Result<(), store::Error> {
        let shared = &self.shared;
        if orphans.is_empty() {
            return Ok(());
        }
        let releases = orphans.into_iter().map(|lease| verdict::release(lease, None)).collect();
        let (answers, all) = settle::settle_each(shared, releases).await;
        let given_back =
            answers.iter().filter(|answer| **answer == Some(store::Settled::Done)).count();
        if given_back > 0 {
            tracing::warn!(jobs = given_back, "released jobs whose claim was never answered");
            shared.ready.look();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_claim_that_ends_between_the_two_questions_leaves_no_orphan() {
        // The attempt enters the table between the two checks.
        let (asked, at) = (Cell::new(0), |asked: &Cell<u32>| asked.replace(asked.get() + 1));
        assert!(!is_orphan(|| at(&asked) == 0, || at(&asked) > 0));
        assert_eq!(asked.get(), 1, "under way, it is not asked for in the table");
        assert!(!is_orphan(|| false, || true) && is_orphan(|| false, || false));
    }
}
