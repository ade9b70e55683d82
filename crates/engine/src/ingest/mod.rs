//! Ingest: moves jobs from the journal into the store, in batches, exactly once. The position in
//! the journal is written in the same transaction as the jobs, and compared before it moves. A
//! store that forgot what it had not synced is behind, and gets everything from its position on
//! again. While the store is away, ingest waits; the journal keeps accepting.

pub(crate) mod adopt;
mod arrival;
pub(crate) mod freshness;
mod payload;
pub(crate) mod place;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use windlass_core::store::{Durability, IdempotencyRecord, Insert, Insertion, JournalMark};
use windlass_core::{JobId, NewJob, Sysid};
use windlass_journal::{Journal, KeyNote, Record};

use crate::error::{Error, journal_error, store_error};
use crate::house::service::{Backoff, Failed, Next, Service};
use crate::shared::Shared;

use arrival::Arrival;
pub(crate) use payload::Unreadable;

/// Jobs and payload bytes of one transaction, unless a single payload has more.
const BATCH_RECORDS_MAX: usize = 2000;
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often one batch is moved to the store's position.
const BEHIND_TRIES_MAX: usize = 3;
/// The pause before another try to remove files.
const DROP_PAUSE: Duration = Duration::from_secs(10);
/// A batch of this many jobs means that there are many adds. Then ingest lets more of them
/// accumulate: few large transactions leave the processors to the adds, and make no difference as
/// long as nothing waits for one of these jobs.
const GATHER_FROM_RECORDS: usize = 8;
const GATHER_PAUSE: Duration = Duration::from_millis(10);
/// Pauses while the store is not available.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Moves one journal into the store.
pub(crate) struct Ingest {
    pub shared: Arc<Shared>,
    pub journal: Journal,
    /// The daemon that wrote the journal: this one, or a dead one.
    pub sysid: Sysid,
    pub stop: CancellationToken,
    /// The store's position in the journal, as far as we know.
    position: Option<JobId>,
    backoff: Backoff,
    pub unreadable: Unreadable,
    /// The store's synced position, if the journal does not know it yet.
    synced: Option<JobId>,
    /// The journal could not remove some files.
    undropped: bool,
    /// Bytes moved since segments were last dropped.
    moved_bytes: u64,
    /// Whether to let more jobs accumulate before the next batch.
    gathers: bool,
    /// When the position was last compared with the store's.
    checked_at: Duration,
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
        let checked_at = shared.clock.steady();
        Ingest {
            shared,
            journal,
            sysid,
            stop,
            position,
            backoff: Backoff::new(PAUSE_MIN, PAUSE_MAX),
            unreadable: Unreadable::default(),
            synced: None,
            undropped: false,
            moved_bytes: 0,
            gathers: false,
            checked_at,
        }
    }

    /// Moves the next batch; returns the number of its jobs.
    pub(crate) async fn move_batch(&mut self) -> Result<usize, Error> {
        for _ in 0..BEHIND_TRIES_MAX {
            let reserved = self.journal.reserve(BATCH_RECORDS_MAX, BATCH_BYTES_MAX, None);
            let Some(ticket) = reserved else { return Ok(0) };
            let (count, last) = (ticket.records() as usize, ticket.last());
            let records = self.journal.read(&ticket).await;
            let moved = match records {
                Ok(records) => self.insert(records).await,
                Err(error) => Err(Error::Internal(error.to_string())),
            };
            match moved {
                Ok(BatchMove::Stored) => {
                    self.unreadable.clear();
                    self.position = self.position.max(Some(last));
                    // Ends the ticket too.
                    self.journal.commit_until(last);
                    self.publish_position();
                    return Ok(count);
                }
                Ok(BatchMove::Refused { store_at }) => {
                    self.journal.give_back(ticket);
                    self.go_to(store_at).await?;
                }
                Err(error) => {
                    self.journal.give_back(ticket);
                    return Err(error);
                }
            }
        }
        Err(Error::Unavailable("another daemon is ingesting the same journal".into()))
    }

    /// Makes sure that everything that was moved is synced in the store. False when the store has
    /// forgotten some of it, which must be moved again.
    pub(crate) async fn confirm(&mut self) -> Result<bool, Error> {
        let position = self.synced_position().await?;
        if position != self.position {
            self.go_to(position).await?;
        }
        Ok(self.journal.stats().unread_records == 0)
    }

    /// Compares the position with the store's: a server that another one has replaced may have lost
    /// what it had confirmed.
    async fn check(&mut self) -> Result<(), Error> {
        let id = self.shared.daemon.journal_id(self.sysid);
        let position = self.shared.store.journal_position(id).await.map_err(store_error)?;
        if position != self.position {
            self.go_to(position).await?;
        }
        self.checked_at = self.shared.clock.steady();
        Ok(())
    }

    /// The time until the next check, if the store may forget.
    fn until_check(&self) -> Option<Duration> {
        let forgets = self.shared.store.capabilities().forgets;
        let passed = self.shared.clock.steady().saturating_sub(self.checked_at);
        forgets.then(|| self.shared.options.journal_check.saturating_sub(passed))
    }

    /// Continues in the journal after the store's position: backward if the store forgot what it
    /// had not synced, forward if an answer was lost.
    async fn go_to(&mut self, position: Option<JobId>) -> Result<(), Error> {
        let journal = self.sysid.get();
        tracing::warn!(journal, believed = ?self.position, ?position, "the store's position moved");
        match self.journal.rewind(position).await {
            Err(error @ windlass_journal::Error::Gap { until, .. }) => {
                // Synced jobs are gone, and the journal no longer has them: the store was restored
                // from a backup.
                tracing::error!(journal, %error, "the store has lost jobs that it had confirmed");
                self.journal.rewind(Some(until)).await.map_err(journal_error)?;
            }
            gone_there => gone_there.map_err(journal_error)?,
        }
        self.position = position;
        self.publish_position();
        Ok(())
    }

    /// Publishes the position of our own journal to requests that wait for it.
    fn publish_position(&self) {
        if self.sysid != self.shared.daemon.sysid() {
            return;
        }
        let all = self.journal.stats().unread_records == 0;
        // No record may have this id, so the position alone may never reach it.
        let known = if all { self.shared.fresh.backlog_newest } else { None };
        self.shared.fresh.note_ingested(self.position.max(known));
    }

    /// Inserts the jobs of these records, except those that the store already has: a job that was
    /// removed there must not come back.
    async fn insert(&mut self, mut records: Vec<Record>) -> Result<BatchMove, Error> {
        records.retain(|record| Some(record.job.id) > self.position);
        let Some(position) = records.last().map(|record| record.job.id) else {
            return Ok(BatchMove::Stored);
        };
        let mut arrivals: Vec<Arrival> = records.iter().map(Arrival::of).collect();
        let mut jobs: Vec<NewJob> = Vec::with_capacity(records.len());
        let mut keys: Vec<IdempotencyRecord> = Vec::new();
        // Large payloads first; the others are in their records.
        let putting = self.unreadable.put_payloads(&self.shared, &mut records, &mut arrivals);
        let spooled = putting.await?;
        for Record { job, note, .. } in records {
            // An add may span several batches; each of them carries its key.
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
        // A spooled file is removed as soon as the store has it, so that must be durable. And if a
        // store can forget while we live, a loss would be noticed only at the next batch.
        let synced = spooled || self.shared.store.capabilities().forgets;
        let durability = if synced { Durability::Synced } else { Durability::Relaxed };
        let (journal, from) = (self.shared.daemon.journal_id(self.sysid), self.position);
        let mark = Some(JournalMark { journal, from, position });
        let insert = Insert { jobs, keys, mark, durability };
        let insertion = self.shared.store.job_insert(insert).await.map_err(store_error)?;
        // Before anything is announced: a repeated add whose key is forgotten asks the store again.
        self.shared.daemon.contact.note_answer();
        match insertion {
            Insertion::Done(inserted) => arrival::announce(&self.shared, &arrivals, &inserted),
            Insertion::Behind(store_at) => {
                if let Some(at) = store_at.filter(|at| Some(*at) > self.position) {
                    arrival::announce_unknown(&self.shared, &arrivals, at);
                }
                return Ok(BatchMove::Refused { store_at });
            }
        }
        for arrival in &arrivals {
            if let Some(lost) = &arrival.lost {
                arrival.give_up(&self.shared, lost).await;
            }
        }
        if spooled {
            self.synced = Some(position);
        }
        Ok(BatchMove::Stored)
    }

    /// Pauses, unless a worker waits for jobs or a request for one that is not in the store yet.
    async fn gather(&self) {
        if !self.shared.ready.waitlist.is_empty() {
            return;
        }
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.shared.fresh.wanted.notified() => {}
            () = tokio::time::sleep(GATHER_PAUSE) => {}
        }
    }

    /// Removes journal files whose records are in the store, after a synced commit.
    pub(crate) async fn drop_moved(&mut self) -> Result<(), Error> {
        let stats = self.journal.stats();
        let enough = self.moved_bytes >= self.shared.options.journal_segment_bytes_max;
        let segments = stats.segments >= 2 && (enough || stats.unread_records == 0);
        let position = match self.synced.take() {
            Some(position) => Some(position),
            None if segments || self.undropped => {
                self.moved_bytes = 0;
                self.synced_position().await?
            }
            None => None,
        };
        let Some(position) = position else { return Ok(()) };
        let dropped = self.journal.drop_until(position).await;
        self.undropped = dropped.is_err();
        dropped.map_err(journal_error)
    }

    /// The store's synced position in the journal.
    async fn synced_position(&self) -> Result<Option<JobId>, Error> {
        let store = &self.shared.store;
        store.flush().await.map_err(store_error)?;
        store.journal_position(self.shared.daemon.journal_id(self.sysid)).await.map_err(store_error)
    }
}

/// What the store did with a batch.
enum BatchMove {
    Stored,
    /// It took nothing, because its position in the journal is not where the batch begins.
    Refused {
        store_at: Option<JobId>,
    },
}

#[async_trait]
impl Service for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    /// Makes reserved records unread again at once: if later ones were moved first, the position
    /// would be past them, and they would be skipped.
    async fn recover(&mut self) -> Result<(), Error> {
        let id = self.shared.daemon.journal_id(self.sysid);
        let position = self.shared.store.journal_position(id).await.map_err(store_error)?;
        self.go_to(position).await
    }

    async fn pass(&mut self) -> Result<Next, Failed> {
        if std::mem::take(&mut self.gathers) {
            self.gather().await;
        }
        let until_check = self.until_check();
        let mut checks = until_check.is_some_and(|time| time.is_zero());
        tokio::select! {
            biased;
            () = self.stop.cancelled() => return Ok(Next::OnWake),
            () = self.shared.fresh.doubted.notified() => checks = true,
            () = self.journal.readable() => {}
            () = tokio::time::sleep(DROP_PAUSE), if self.undropped => {}
            () = tokio::time::sleep(until_check.unwrap_or_default()), if until_check.is_some() => {
                checks = true;
            }
        }
        if checks {
            let checked = self.check().await;
            checked.map_err(|error| Failed::new(error, self.backoff.pause()))?;
        }
        let moved = self.move_batch().await;
        let moved = moved.map_err(|error| Failed::new(error, self.backoff.pause()))?;
        self.backoff.reset();
        let waiting = self.journal.stats().unread_records as usize;
        self.gathers = moved >= GATHER_FROM_RECORDS && waiting < BATCH_RECORDS_MAX;
        // The batch is stored: a failure to remove files does not delay the next one.
        let dropped = self.drop_moved().await;
        dropped.map_err(|error| Failed::new(error, Duration::ZERO))?;
        Ok(Next::Now)
    }
}
