//! Adopt: a journal outlives its daemon. Another daemon on the same data directory ingests the
//! journals whose owners are gone, and then removes them; if the store may forget what it has
//! confirmed, only after a while, and if it still has everything then. A living owner holds the
//! lock of its journal.
//!
//! Journals are independent: one that cannot be taken over (damage, disk errors, permissions) is
//! left as it is and shown (`house::health`), and the others are taken over. Each pass tries it
//! again.

use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use windlass_core::Sysid;
use windlass_core::sync::panic_text;
use windlass_journal::{Disk, Journal, on_disk};

use crate::backup::JOURNAL_DIR;
use crate::error::{Error, journal_error, store_error};
use crate::house::health::Left;
use crate::house::service::{Failed, Next, Service};
use crate::ingest::{Ingest, Unreadable};
use crate::shared::Shared;
use crate::start::journal_options;

/// The directory is scanned at start, then whenever a lease may have expired, and at least this
/// often.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Adopt {
    shared: Arc<Shared>,
    stop: CancellationToken,
    /// Becomes true after the first scan.
    looked: watch::Sender<bool>,
    /// Of journals that were left, for the next try.
    unreadable: BTreeMap<Sysid, Unreadable>,
    /// Since when the store has had all jobs of these journals, which are kept for some time.
    kept: BTreeMap<Sysid, Duration>,
}

#[async_trait]
impl Service for Adopt {
    fn name(&self) -> &'static str {
        "adopt"
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        let left = self.adopt_all().await;
        if !self.stop.is_cancelled() {
            self.shared.health.set_journals_left(left);
        }
        self.looked.send_replace(true);
        Ok(Next::After(self.shared.options.lease.min(LOOK_INTERVAL_MAX)))
    }
}

impl Adopt {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stop: CancellationToken,
        looked: watch::Sender<bool>,
    ) -> Adopt {
        Adopt { shared, stop, looked, unreadable: BTreeMap::new(), kept: BTreeMap::new() }
    }

    /// The journals that could not be taken over, with the reason.
    async fn adopt_all(&mut self) -> BTreeMap<Left, String> {
        let mut left = BTreeMap::new();
        let journals =
            journals_in(&*self.shared.disk, &self.shared.options.data_dir.join(JOURNAL_DIR));
        let journals = journals.unwrap_or_else(|error| {
            left.insert(None, format!("cannot list the journals: {error}"));
            Vec::new()
        });
        let own = self.shared.daemon.sysid();
        self.kept.retain(|sysid, _| journals.contains(sysid));
        for sysid in journals.into_iter().filter(|sysid| *sysid != own) {
            if self.kept.contains_key(&sysid) && !self.may_remove(sysid) {
                continue;
            }
            if self.stop.is_cancelled() {
                break;
            }
            // A panic is a problem of that journal only.
            let adopted = AssertUnwindSafe(self.adopt(sysid)).catch_unwind().await;
            let why = match adopted {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => format!("a panic: {}", panic_text(&*panic)),
            };
            left.insert(Some(sysid), why);
        }
        left
    }

    /// Whether the store has had all jobs of this journal for as long as it is kept.
    fn may_remove(&self, sysid: Sysid) -> bool {
        let keep = self.shared.options.journal_keep;
        let now = self.shared.clock.steady();
        keep.is_zero() || self.kept.get(&sysid).is_some_and(|since| now >= *since + keep)
    }

    async fn adopt(&mut self, sysid: Sysid) -> Result<(), Error> {
        let shared = &self.shared;
        let position = shared
            .store
            .journal_position(shared.daemon.journal_id(sysid))
            .await
            .map_err(store_error)?;
        let options = journal_options(&shared.disk, &shared.options, &shared.metrics, sysid);
        let clock = shared.clock.machine();
        let adopting = move || Journal::adopt(options, clock, position);
        let adopted = on_disk(&*shared.disk, adopting)
            .await
            .map_err(|error| Error::Internal(error.to_string()))?;
        let Some(journal) = adopted.map_err(journal_error)? else { return Ok(()) };
        let waiting = journal.stats().unread_records;
        tracing::info!(from = sysid.get(), waiting, "taking over a journal");
        let (shared, stop) = (shared.clone(), self.stop.clone());
        let mut ingest = Ingest::new(shared, journal, sysid, position, stop);
        ingest.unreadable = self.unreadable.remove(&sysid).unwrap_or_default();
        let moved = self.move_all(&mut ingest).await;
        if moved.is_err() {
            self.unreadable.insert(sysid, ingest.unreadable);
        }
        moved
    }

    async fn move_all(&mut self, ingest: &mut Ingest) -> Result<(), Error> {
        let mut moved_any = false;
        while !self.stop.is_cancelled() {
            let moved = ingest.move_batch().await?;
            moved_any |= moved > 0;
            if moved == 0 && ingest.confirm().await? {
                let keeps = !self.shared.options.journal_keep.is_zero();
                if !keeps || (!moved_any && self.may_remove(ingest.sysid)) {
                    return ingest.journal.clone().remove().await.map_err(journal_error);
                }
                self.kept.insert(ingest.sysid, self.shared.clock.steady());
                break;
            }
            ingest.drop_moved().await?;
        }
        ingest.journal.close().await;
        Ok(())
    }
}

/// Sorted by number.
pub(crate) fn journals_in(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<Sysid>> {
    let sysid_of = |name: String| name.parse().ok().and_then(Sysid::new);
    let mut journals: Vec<Sysid> = disk.dirs(dir)?.into_iter().filter_map(sysid_of).collect();
    journals.sort();
    Ok(journals)
}
