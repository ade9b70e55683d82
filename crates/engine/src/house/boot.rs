//! Boot: takes a new boot number for the tokens of the next claims, three times in a lease. The
//! number is synced, and a store may take any time for that: one whose standby is missing never
//! answers. So it is apart from the beat, without which the leases of running jobs run out.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::house::beat::BEATS_PER_LEASE;
use crate::house::service::{Failed, Next, Service};
use crate::shared::Shared;

pub(crate) struct BootNumber {
    pub shared: Arc<Shared>,
    pub stop: CancellationToken,
}

#[async_trait]
impl Service for BootNumber {
    fn name(&self) -> &'static str {
        "boot"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let shared = &self.shared;
        let pause = shared.options.lease / BEATS_PER_LEASE;
        let refreshed = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(Next::OnWake),
            refreshed = shared.daemon.tokens.refresh(shared.store.as_ref()) => refreshed,
        };
        let failed = |error| Failed::new(format!("cannot take a new boot number: {error}"), pause);
        refreshed.map_err(failed)?;
        Ok(Next::After(pause))
    }
}
