//! Purge: removes ended jobs after their retention.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::house::service::{Failed, Next, Service};
use crate::shared::Shared;

/// Jobs in one transaction; a full one is followed by the next at once.
const PURGE_BATCH_MAX: usize = 500;
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
        let interval = self.shared.options.purge_interval;
        let purged = self.shared.store.job_purge(PURGE_BATCH_MAX).await;
        let purged = purged.map_err(|error| Failed::new(error, interval.min(RETRY_PAUSE_MAX)))?;
        Ok(if purged as usize == PURGE_BATCH_MAX { Next::Now } else { Next::After(interval) })
    }
}
