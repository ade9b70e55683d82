//! Purge: removes ended jobs and entries of the audit after their retention.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::house::service::{Failed, Next, Service};
use crate::options::Options;
use crate::shared::Shared;

/// Jobs in one transaction; a full one is followed by the next at once.
const PURGE_BATCH_MAX: usize = 500;
/// Entries of the audit in one transaction.
const PURGE_AUDIT_MAX: usize = 1000;
/// Longest pause after a failure.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) struct Purge {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Service for Purge {
    fn name(&self) -> &'static str {
        "purge"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let Options { purge_interval, audit_retention, .. } = self.shared.options;
        let failed = |error| Failed::new(error, purge_interval.min(RETRY_PAUSE_MAX));
        let store = &self.shared.store;
        let jobs = store.job_purge(PURGE_BATCH_MAX).await.map_err(failed)?;
        let entries = store.audit_purge(audit_retention, PURGE_AUDIT_MAX).await.map_err(failed)?;
        let all = (jobs as usize) < PURGE_BATCH_MAX && (entries as usize) < PURGE_AUDIT_MAX;
        Ok(if all { Next::After(purge_interval) } else { Next::Now })
    }
}
