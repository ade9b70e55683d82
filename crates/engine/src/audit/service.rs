//! The service that stores what the audit has in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use windlass_core::store::{Durability, Error};
use windlass_core::sync::lock;

use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

/// How often the store gets new refusals, while there are some.
const INTERVAL: Duration = Duration::from_secs(1);
/// Pauses while the store is not available.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub(crate) struct AuditWriter {
    shared: Arc<Shared>,
    backoff: Backoff,
}

impl AuditWriter {
    pub(crate) fn new(shared: Arc<Shared>) -> AuditWriter {
        AuditWriter { shared, backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX) }
    }
}

#[async_trait]
impl Service for AuditWriter {
    fn name(&self) -> &'static str {
        "audit"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let written = write(&self.shared, false).await;
        written.map_err(|error| Failed::new(error, self.backoff.pause()))?;
        self.backoff.reset();
        let is_empty = lock(&self.shared.audit.waiting).is_empty();
        Ok(if is_empty { Next::OnWake } else { Next::After(INTERVAL) })
    }
}

/// Stores everything that waits, at the end of the daemon.
pub(crate) async fn flush(shared: &Shared) {
    // First those that the store does not have at all: windows end only after that.
    let written = async {
        write(shared, false).await?;
        write(shared, true).await
    };
    if let Err(error) = written.await {
        tracing::warn!(%error, "cannot store the last refusals for the audit");
    }
}

/// Batch after batch, until nothing is due. Ends, because what was stored is not due again, and
/// new kinds of refusals are bounded.
async fn write(shared: &Shared, all: bool) -> Result<(), Error> {
    lock(&shared.audit.waiting).end_windows(shared.clock.steady(), all);
    loop {
        let due = lock(&shared.audit.waiting).due();
        if due.is_empty() {
            return Ok(());
        }
        let entries = due.iter().map(|due| due.entry.clone()).collect();
        shared.store.audit_put(entries, Durability::Synced).await?;
        lock(&shared.audit.waiting).stored(&due);
    }
}
