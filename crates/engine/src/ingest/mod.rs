//! Ingest: from the journal into the store, in batches, each exactly once: the position in the
//! journal is kept in the same transaction as the jobs, and compared before it moves. A store that
//! forgot what it had not synced is behind, and gets everything from there on again. While the
//! store is away, ingest waits and goes on by itself; the journal keeps accepting.

pub(crate) mod adopt;
mod arrival;
pub(crate) mod place;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use windlass_core::store::{Durability, IdempotencyRecord, Insert, Insertion, JournalMark};
use windlass_core::{JobId, NewJob, Sysid};
use windlass_journal::{Journal, KeyNote, Record};

use crate::accept::pieces;
use crate::error::{Error, storage_error, store_error};
use crate::house::service::{Backoff, Next, Service};
use crate::shared::Shared;

use arrival::Arrival;

/// Jobs and payload bytes of one transaction.
const BATCH_RECORDS_MAX: usize = 2000;
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often one batch goes to where the store says that it is.
const BEHIND_TRIES_MAX: usize = 3;
/// A batch of so many jobs means that adds come thick and fast. Then ingest lets some more gather:
/// few large transactions leave the processors to the adds, and nobody sees the difference, as
/// long as nobody waits for one of these jobs.
const GATHER_FROM_RECORDS: usize = 8;
const GATHER_PAUSE: Duration = Duration::from_millis(10);
/// Pauses while the store does not take anything.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Moves one journal into the store.
pub(crate) struct Ingest {
    pub shared: Arc<Shared>,
    pub journal: Journal,
    /// The daemon that wrote the journal: us, or one that is gone.
    pub sysid: Sysid,
    pub stop: CancellationToken,
    /// How far the store has the journal, as far as we know.
    position: Option<JobId>,
    backoff: Backoff,
    /// Bytes moved since segments were last dropped.
    moved_bytes: u64,
    /// Lets more gather before the next batch.
    gathers: bool,
}

impl Ingest {
    /// The store has the journal up to `position`.
    pub(crate) fn new(
        shared: Arc<Shared>,
        journal: Journal,
        sysid: Sysid,
        position: Option<JobId>,
        stop: CancellationToken,
    ) -> Ingest {
        let backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        Ingest { shared, journal, sysid, stop, position, backoff, moved_bytes: 0, gathers: false }
    }

    /// Moves the next batch; how many jobs it had.
    pub(crate) async fn move_batch(&mut self) -> Result<usize, Error> {
        for _ in 0..BEHIND_TRIES_MAX {
            let reserved = self.journal.reserve(BATCH_RECORDS_MAX, BATCH_BYTES_MAX, None);
            let Some(ticket) = reserved else { return Ok(0) };
            let count = ticket.records() as usize;
            let records = self.journal.read(&ticket).await;
            let moved = match records {
                Ok(records) => self.insert(records).await,
                Err(error) => Err(Error::Internal(error.to_string())),
            };
            match moved {
                Ok(Moved::Up(position)) => {
                    self.position = Some(position);
                    self.journal.commit_until(position);
                    self.tell_readers();
                    self.drop_segments().await?;
                    return Ok(count);
                }
                Ok(Moved::Behind(position)) => {
                    self.journal.give_back(ticket);
                    self.go_to(position).await?;
                }
                Err(error) => {
                    self.journal.give_back(ticket);
                    return Err(error);
                }
            }
        }
        Err(Error::Unavailable("another daemon moves the same journal into the store".into()))
    }

    /// Everything that was moved is in the store, synced. False when the store has forgotten some
    /// of it, which is to be moved again.
    pub(crate) async fn confirm(&mut self) -> Result<bool, Error> {
        let position = self.synced_position().await?;
        if position != self.position {
            self.go_to(position).await?;
        }
        Ok(self.journal.stats().unread_records == 0)
    }

    /// Goes on in the journal behind `position`, which the store has: back when it forgot what it
    /// had not synced, forward when it did more than it could answer.
    async fn go_to(&mut self, position: Option<JobId>) -> Result<(), Error> {
        let journal = self.sysid.get();
        tracing::warn!(journal, believed = ?self.position, ?position, "the store is elsewhere");
        match self.journal.rewind(position).await {
            Err(error @ windlass_journal::Error::Gap { until, .. }) => {
                // What was synced once and is gone now cannot be had here: a store from a backup.
                tracing::error!(journal, %error, "the store has lost jobs that it had confirmed");
                self.journal.rewind(Some(until)).await.map_err(storage_error)?;
            }
            gone_there => gone_there.map_err(storage_error)?,
        }
        self.position = position;
        self.tell_readers();
        Ok(())
    }

    /// Whoever waits for a job of our own journal to be in the store hears how far it is.
    fn tell_readers(&self) {
        if self.sysid != self.shared.grant.sysid {
            return;
        }
        let all = self.journal.stats().unread_records == 0;
        let known = if all { self.shared.backlog_newest } else { None };
        self.shared.ingested.send_replace(self.position.max(known));
    }

    async fn insert(&mut self, records: Vec<Record>) -> Result<Moved, Error> {
        let position = records.last().map(|record| record.job.id);
        let position = position.ok_or_else(|| Error::Internal("an empty batch".into()))?;
        let arrivals: Vec<Arrival> = records.iter().map(Arrival::of).collect();
        let mut jobs: Vec<NewJob> = Vec::with_capacity(records.len());
        let mut keys: Vec<IdempotencyRecord> = Vec::new();
        let mut spooled = false;
        for Record { job, spool, note } in records {
            if let Some(spool) = spool {
                pieces::put_pieces(self.shared.store.as_ref(), job.id, &spool).await?;
                spooled = true;
            }
            // Each batch that an add lies in brings its key along.
            let is_new = |note: &Arc<KeyNote>| {
                keys.last().is_none_or(|key| key.ids.first() != note.ids.first())
            };
            if let Some(note) = note.filter(is_new) {
                let (tenant, ids) = (&job.key.tenant, note.ids.clone());
                keys.push(IdempotencyRecord::new(tenant, &note.key, ids, job.created_at));
            }
            self.moved_bytes += job.payload.len();
            jobs.push(job);
        }
        // A spooled file goes as soon as the store has it, so the store must really have it. And
        // what a store may forget while we live would be missed only at the next batch.
        let synced = spooled || self.shared.store.capabilities().forgets;
        let durability = if synced { Durability::Synced } else { Durability::Relaxed };
        let (journal, from) = (self.shared.journal_id(self.sysid), self.position);
        let mark = Some(JournalMark { journal, from, position });
        let insert = Insert { jobs, keys, mark, durability };
        let inserted = match self.shared.store.job_insert(insert).await.map_err(store_error)? {
            Insertion::Done(inserted) => inserted,
            Insertion::Behind(position) => return Ok(Moved::Behind(position)),
        };
        arrival::announce(&self.shared, arrivals, &inserted);
        if spooled {
            self.journal.drop_until(position).await.map_err(storage_error)?;
        }
        Ok(Moved::Up(position))
    }

    /// A pause, unless somebody waits for a job that is not in the store yet.
    async fn gather(&self) {
        if !self.shared.waitlist.is_empty() {
            return;
        }
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.shared.ingest_wanted.notified() => {}
            () = tokio::time::sleep(GATHER_PAUSE) => {}
        }
    }

    /// Lets go of segments that are wholly in the store: only after a synced commit says so.
    async fn drop_segments(&mut self) -> Result<(), Error> {
        let stats = self.journal.stats();
        let enough = self.moved_bytes >= self.shared.options.journal_segment_bytes_max;
        if stats.segments < 2 || !(enough || stats.unread_records == 0) {
            return Ok(());
        }
        self.moved_bytes = 0;
        let Some(position) = self.synced_position().await? else { return Ok(()) };
        self.journal.drop_until(position).await.map_err(storage_error)
    }

    /// How far the store has the journal and will not forget it.
    async fn synced_position(&self) -> Result<Option<JobId>, Error> {
        let store = &self.shared.store;
        store.flush().await.map_err(store_error)?;
        store.journal_position(self.shared.journal_id(self.sysid)).await.map_err(store_error)
    }
}

/// Where the store is after a batch.
enum Moved {
    /// It took the batch, and is behind it now.
    Up(JobId),
    /// It took nothing, because it is here.
    Behind(Option<JobId>),
}

#[async_trait]
impl Service for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    /// Records that were reserved are unread again at once: were others moved first, the mark
    /// would stand behind them, and a restart would not read them.
    async fn recover(&mut self) -> Result<(), Error> {
        let id = self.shared.journal_id(self.sysid);
        let position = self.shared.store.journal_position(id).await.map_err(store_error)?;
        self.go_to(position).await
    }

    async fn pass(&mut self) -> Next {
        if std::mem::take(&mut self.gathers) {
            self.gather().await;
        }
        tokio::select! {
            () = self.stop.cancelled() => return Next::OnWake,
            () = self.journal.readable() => {}
        }
        match self.move_batch().await {
            Ok(moved) => {
                self.backoff.reset();
                let waiting = self.journal.stats().unread_records as usize;
                self.gathers = moved >= GATHER_FROM_RECORDS && waiting < BATCH_RECORDS_MAX;
                Next::Now
            }
            Err(error) => {
                let pause = self.backoff.pause();
                tracing::warn!(%error, retry_in_ms = pause.as_millis() as u64, "ingest waits");
                Next::After(pause)
            }
        }
    }
}
