//! Purge: ended jobs are kept for a time, then removed.

use std::sync::Arc;

use async_trait::async_trait;

use crate::house::service::{Next, Service};
use crate::shared::Shared;

/// Jobs in one transaction; a full one is followed by the next at once.
const PURGE_BATCH_MAX: usize = 500;

pub(crate) struct Purge {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Service for Purge {
    fn name(&self) -> &'static str {
        "purge"
    }

    async fn pass(&mut self) -> Next {
        match self.shared.store.job_purge(PURGE_BATCH_MAX).await {
            Ok(purged) if purged as usize == PURGE_BATCH_MAX => Next::Now,
            Ok(_) => Next::After(self.shared.options.purge_interval),
            Err(error) => {
                tracing::warn!(%error, "cannot remove old jobs now");
                Next::After(self.shared.options.purge_interval)
            }
        }
    }
}
