//! Adopt: a journal outlives its daemon. Whoever runs on the same data directory ingests the
//! journals whose owners are gone, and then removes them. A living owner holds its journal's lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use windlass_core::Sysid;
use windlass_journal::Journal;

use crate::error::{Error, storage_error, store_error};
use crate::house::service::{Next, Service};
use crate::ingest::Ingest;
use crate::shared::Shared;
use crate::start::journal_options;

/// The directory is looked through at start, then whenever a lease may have run out, and at least
/// this often.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Adopt {
    pub shared: Arc<Shared>,
    pub stop: CancellationToken,
    /// Becomes true after the first look.
    pub looked: watch::Sender<bool>,
}

#[async_trait]
impl Service for Adopt {
    fn name(&self) -> &'static str {
        "adopt"
    }

    async fn pass(&mut self) -> Next {
        if let Err(error) = self.adopt_all().await {
            tracing::warn!(%error, "cannot take over another daemon's journal now");
        }
        self.looked.send_replace(true);
        Next::After(self.shared.options.lease.min(LOOK_INTERVAL_MAX))
    }
}

impl Adopt {
    async fn adopt_all(&self) -> Result<(), Error> {
        let journals = journals_in(self.shared.options.data_dir.join("journal"));
        let left = journals.into_iter().filter(|sysid| *sysid != self.shared.grant.sysid);
        for sysid in left {
            self.adopt(sysid).await?;
        }
        Ok(())
    }

    async fn adopt(&self, sysid: Sysid) -> Result<(), Error> {
        let shared = &self.shared;
        let position =
            shared.store.journal_position(shared.journal_id(sysid)).await.map_err(store_error)?;
        let options = journal_options(&shared.options, &shared.metrics, sysid);
        let clock = shared.clock.clone();
        let adopting =
            tokio::task::spawn_blocking(move || Journal::adopt(options, clock, position));
        let adopted = adopting.await.map_err(|error| Error::Internal(error.to_string()))?;
        let Some(journal) = adopted.map_err(storage_error)? else { return Ok(()) };
        let waiting = journal.stats().unread_records;
        tracing::info!(from = sysid.get(), waiting, "taking over a journal");
        let mut ingest = Ingest::new(shared.clone(), journal.clone(), sysid, self.stop.clone());
        while !self.stop.is_cancelled() {
            if ingest.move_batch().await? == 0 {
                shared.store.flush().await.map_err(store_error)?;
                return journal.remove().await.map_err(storage_error);
            }
        }
        journal.close().await;
        Ok(())
    }
}

fn journals_in(directory: PathBuf) -> Vec<Sysid> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let sysid_of = |name: String| name.parse().ok().and_then(Sysid::new);
    entries.flatten().filter_map(|e| sysid_of(e.file_name().into_string().ok()?)).collect()
}
