//! The service that keeps the copy of the keys fresh, and notes their use in the store.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::house::service::{Failed, Next, Service};
use crate::key;
use crate::shared::Shared;

/// How often other daemons' changes of keys are read: they are in force within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Pause after a failure, which is logged each time.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct KeyWatch {
    pub shared: Arc<Shared>,
}

#[async_trait]
impl Service for KeyWatch {
    fn name(&self) -> &'static str {
        "keys"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let shared = &self.shared;
        key::refresh(shared).await.map_err(|error| Failed::new(error, RETRY_PAUSE))?;
        let used = shared.keys.take_used();
        if !used.is_empty()
            && let Err(error) = shared.store.key_touch(used.clone()).await
        {
            shared.keys.put_back_used(used);
            return Err(Failed::new(error, RETRY_PAUSE));
        }
        Ok(Next::After(POLL_INTERVAL))
    }
}
