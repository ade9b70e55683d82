//! Listen: a store's notification of other daemons' changes makes the dispatcher look.

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::house::service::{Failed, Next, Service};
use crate::shared::Shared;

pub(crate) struct Listen {
    pub shared: Arc<Shared>,
    pub stop: CancellationToken,
}

#[async_trait]
impl Service for Listen {
    fn name(&self) -> &'static str {
        "listen"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Ok(Next::OnWake),
            () = self.shared.store.changed() => {
                self.shared.ready.look();
                Ok(Next::Now)
            }
        }
    }
}
