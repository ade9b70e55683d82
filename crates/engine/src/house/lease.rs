//! Leases: this daemon's sysid and the jobs that it runs are renewed while they last.

use std::sync::Arc;

use async_trait::async_trait;

use windlass_core::AttemptId;
use windlass_core::limit::BATCH_JOBS_MAX;
use windlass_core::runner::Stop;
use windlass_core::store::{self, SysidRenew};

use crate::house::service::{Next, Service};
use crate::shared::Shared;

/// A lease is renewed so many times before it would run out.
const RENEWALS_PER_LEASE: u32 = 3;

pub(crate) struct Renew {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Service for Renew {
    fn name(&self) -> &'static str {
        "renew"
    }

    async fn pass(&mut self) -> Next {
        self.renew_sysid().await;
        self.renew_jobs().await;
        Next::After(self.shared.options.lease / RENEWALS_PER_LEASE)
    }
}

impl Renew {
    async fn renew_sysid(&self) {
        let shared = &self.shared;
        let renew = SysidRenew {
            grant: shared.grant,
            until: shared.now() + shared.options.lease,
            id_newest: shared.journal.id_newest(),
        };
        match shared.store.sysid_renew(renew).await {
            Ok(()) => {}
            // Another daemon makes ids and takes leases under our number: nothing we did from
            // here on would be safe.
            Err(store::Error::Conflict(why)) => {
                shared.picking.store(false, std::sync::atomic::Ordering::SeqCst);
                shared.fail(why);
            }
            Err(error @ store::Error::Corrupt(_)) => shared.fail(error.to_string()),
            Err(error) => tracing::warn!(%error, "cannot renew the sysid now"),
        }
    }

    async fn renew_jobs(&self) {
        let shared = &self.shared;
        for leases in shared.running.leases().chunks(BATCH_JOBS_MAX) {
            let until = shared.now() + shared.options.lease;
            let lost = match shared.store.job_renew(leases.to_vec(), until).await {
                Ok(lost) => lost,
                Err(error) => {
                    tracing::warn!(%error, "cannot renew leases now");
                    return;
                }
            };
            for lease in lost {
                // A job that was settled in the meantime is not in the table any more, or is about
                // to leave it; stopping it changes nothing.
                shared.running.set_lost(lease.id);
                let attempt = AttemptId { job: lease.id, token: lease.token };
                shared.runner.stop(attempt, Stop::LeaseLost);
            }
        }
    }
}
