//! The service that applies other daemons' changes of settings.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::house::service::{Failed, Next, Service};
use crate::shared::Shared;
use crate::tenant;

/// How often changes are read: they are in force within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Pause after a failure, which is logged each time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct TenantWatch {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Service for TenantWatch {
    fn name(&self) -> &'static str {
        "tenants"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let read = tenant::refresh(&self.shared).await;
        read.map_err(|error| Failed::new(error, RETRY_PAUSE))?;
        Ok(Next::After(POLL_INTERVAL))
    }
}
