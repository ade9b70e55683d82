//! Read: jobs are visible as soon as their add is answered, whether the store has them yet or not.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use windlass_core::limit::PAYLOAD_PIECE_BYTES;
use windlass_core::store::{AttemptLog, JournalId, TypeStats};
use windlass_core::{Job, JobId, Payload, Tenant};
use windlass_journal::{Record, Stats, on_disk};

use crate::accept::pieces;
use crate::api::{
    DaemonCounts, DaemonStatus, DaemonsPage, JobView, JournalStatus, Readiness, TenantCounts,
};
use crate::error::{Error, journal_error, store_error};
use crate::house::service::Backoff;
use crate::ingest::freshness::FRESH_READ;
use crate::shared::Shared;

/// How long lists and counts wait for the ingest of recent adds.
pub(crate) const LIST_PATIENCE: Duration = Duration::from_millis(500);
/// How long status, readiness and metrics wait for the store.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// Daemons in one read for the status, and the most reads.
const DAEMONS_AT_ONCE: usize = 1000;
const DAEMON_PAGES_MAX: usize = 10;

pub(crate) async fn job(shared: &Shared, tenant: &Tenant, id: JobId) -> Result<JobView, Error> {
    if !shared.fresh.up_to(id, FRESH_READ).await
        && let Some(record) = find_unread(shared, tenant, id).await?
    {
        return Ok(JobView { job: Job::queued(record.job), result: None });
    }
    let job = shared.store.job_get(tenant, id).await.map_err(store_error)?;
    let job = job.ok_or(Error::NotFound("job"))?;
    let result = match job.last {
        Some(_) => shared.store.job_result(tenant, id).await.map_err(store_error)?,
        None => None,
    };
    Ok(JobView { job, result })
}

/// Returns when the job has ended, or after `wait` with the job as it is.
pub(crate) async fn job_wait(
    shared: &Shared,
    tenant: &Tenant,
    id: JobId,
    wait: Duration,
) -> Result<JobView, Error> {
    let deadline = Instant::now() + wait;
    // Other daemons' changes are found by polling at growing intervals.
    let mut poll = Backoff::new(shared.options.poll_min, shared.options.poll_max);
    let watch = shared.job_waiters.watch(&id);
    loop {
        let changed = watch.next();
        let view = job(shared, tenant, id).await;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !view.as_ref().is_ok_and(|view| !view.job.state.is_ended()) {
            return view;
        }
        let _ = tokio::time::timeout(left.min(poll.pause()), changed).await;
    }
}

pub(crate) async fn job_log(
    shared: &Shared,
    tenant: &Tenant,
    id: JobId,
) -> Result<Vec<AttemptLog>, Error> {
    if !shared.fresh.up_to(id, FRESH_READ).await && find_unread(shared, tenant, id).await?.is_some()
    {
        return Ok(Vec::new());
    }
    let log = shared.store.job_log(tenant, id).await.map_err(store_error)?;
    log.ok_or(Error::NotFound("job"))
}

/// The counts of a tenant's types, with recent adds.
pub(crate) async fn types(shared: &Shared, tenant: &Tenant) -> Result<Vec<TypeStats>, Error> {
    shared.fresh.all(LIST_PATIENCE).await;
    shared.store.type_stats(Some(tenant)).await.map_err(store_error)
}

/// Reads one payload, piece by piece.
pub struct PayloadReader {
    shared: Arc<Shared>,
    id: JobId,
    bytes: u64,
    source: Source,
}

enum Source {
    Inline(Option<Bytes>),
    /// The next piece in the store.
    Pieces(u32),
    /// The file that the add wrote, from here on.
    Spool {
        file: PathBuf,
        offset: u64,
    },
}

pub(crate) async fn job_payload(
    shared: Arc<Shared>,
    tenant: &Tenant,
    id: JobId,
) -> Result<PayloadReader, Error> {
    let mut unread = None;
    if !shared.fresh.up_to(id, FRESH_READ).await {
        unread = find_unread(&shared, tenant, id).await?;
    }
    // If the spooled file is gone, the payload is in the store.
    let mut spool = None;
    if let Some(path) = unread.as_ref().and_then(|record| record.spool.as_ref()) {
        let (disk, path) = (shared.disk.clone(), path.clone());
        let look = move || disk.bytes(&path).is_ok().then_some(path);
        spool = on_disk(&*shared.disk, look).await.ok().flatten();
    }
    let payload = match unread {
        Some(record) if record.spool.is_none() || spool.is_some() => Some(record.job.payload),
        _ => shared.store.job_payload(tenant, id).await.map_err(store_error)?,
    };
    let payload = payload.ok_or(Error::NotFound("job"))?;
    let bytes = payload.len();
    let source = match (payload, spool) {
        (_, Some(file)) => Source::Spool { file, offset: 0 },
        (Payload::Inline(bytes), None) => Source::Inline(Some(bytes)),
        (Payload::Pieces { .. }, None) => Source::Pieces(0),
    };
    Ok(PayloadReader { shared, id, bytes, source })
}

impl PayloadReader {
    /// The size of the whole payload.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next piece; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match &mut self.source {
            Source::Inline(bytes) => Ok(bytes.take().filter(|bytes| !bytes.is_empty())),
            Source::Pieces(index) => {
                let piece = self.shared.store.payload_piece(self.id, *index).await;
                *index += 1;
                piece.map_err(store_error)
            }
            Source::Spool { offset, .. } if *offset >= self.bytes => Ok(None),
            Source::Spool { file, offset } => {
                match pieces::read_piece(&self.shared.disk, file, *offset, self.bytes).await {
                    Ok(piece) => {
                        *offset += piece.len() as u64;
                        Ok(Some(piece))
                    }
                    // It was removed meanwhile, because the store has the payload.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        let index = (*offset / PAYLOAD_PIECE_BYTES as u64) as u32;
                        self.source = Source::Pieces(index);
                        Box::pin(self.next()).await
                    }
                    Err(error) => Err(Error::Unavailable(format!("cannot read: {error}"))),
                }
            }
        }
    }
}

pub(crate) async fn status(shared: &Shared) -> DaemonStatus {
    let asked = shared.store.type_stats(None);
    let stats = match tokio::time::timeout(STATUS_PATIENCE, asked).await {
        Ok(Ok(stats)) => stats,
        _ => Vec::new(),
    };
    let mut tenants: BTreeMap<Tenant, TenantCounts> = BTreeMap::new();
    for stats in stats {
        let counts = tenants.entry(stats.key.tenant).or_default();
        counts.types += 1;
        counts.ready += stats.ready;
        counts.deferred += stats.deferred;
        counts.running += stats.running;
        counts.paused += stats.paused;
        counts.finished += stats.finished;
        counts.failed += stats.failed;
        counts.cancelled += stats.cancelled;
    }
    let journal = shared.journal.stats();
    DaemonStatus {
        sysid: shared.daemon.sysid(),
        started_at: shared.daemon.started_at,
        now: shared.now(),
        store: shared.store.capabilities().name,
        picking: shared.picking.load(std::sync::atomic::Ordering::SeqCst),
        running: shared.running.len() as u64,
        journal: JournalStatus {
            waiting: journal.unread_records,
            oldest: journal_oldest(shared, &journal),
            bytes: journal.disk_bytes,
        },
        services: shared.health.failed_services(),
        services_failing: shared.health.failing_services(),
        results_parked: shared.health.parked(),
        journals_left: shared.health.journals_left(),
        layers_missing: shared.runner.layers_missing(),
        daemons: daemon_counts(shared).await,
        tenants,
    }
}

pub(crate) async fn daemons(
    shared: &Shared,
    after: Option<JournalId>,
    limit: usize,
) -> Result<DaemonsPage, Error> {
    let daemons = shared.store.daemon_list(after, limit).await.map_err(store_error)?;
    let next = daemons.last().filter(|_| daemons.len() == limit).map(|last| last.report.journal);
    Ok(DaemonsPage { daemons, next, now: shared.now() })
}

/// Counts all daemons of the queue; `None` if the store does not answer.
async fn daemon_counts(shared: &Shared) -> Option<DaemonCounts> {
    let (mut counts, mut after) = (DaemonCounts::default(), None);
    for _ in 0..DAEMON_PAGES_MAX {
        let page = daemons(shared, after, DAEMONS_AT_ONCE);
        let page = tokio::time::timeout(STATUS_PATIENCE, page).await.ok()?.ok()?;
        for daemon in &page.daemons {
            match daemon.alive {
                true => counts.alive += 1,
                false => counts.gone += 1,
            }
            counts.jobs_left += if daemon.alive { 0 } else { daemon.left() };
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Some(counts)
}

pub(crate) async fn readiness(shared: &Shared) -> Readiness {
    let store = store_answers(shared).await;
    let failed = shared.health.failure.borrow().clone();
    let journal = match failed {
        Some(why) => Err(why),
        None => journal_works(shared).await,
    };
    let (services, takeover) = (shared.health.services(), shared.health.takeover());
    Readiness { journal, store, services, takeover }
}

/// A store whose writes hang may answer reads, so the beat is asked too.
async fn store_answers(shared: &Shared) -> Result<(), String> {
    let asked = tokio::time::timeout(STATUS_PATIENCE, shared.store.ping()).await;
    match asked {
        Ok(Ok(())) if !shared.daemon.contact.store_hangs() => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        _ => Err("the store does not answer".into()),
    }
}

/// Retries after a failed append, because there may be no other traffic.
async fn journal_works(shared: &Shared) -> Result<(), String> {
    let Some(refusal) = shared.journal.stats().refusal else { return Ok(()) };
    match tokio::time::timeout(STATUS_PATIENCE, shared.journal.wsync()).await {
        Ok(tried) => tried.map_err(|error| error.to_string()),
        Err(_) => Err(refusal),
    }
}

/// The metrics of the daemon, with the current depth of the queue.
pub(crate) async fn metrics_text(shared: &Shared) -> String {
    let asked = shared.store.type_stats(None);
    if let Ok(Ok(stats)) = tokio::time::timeout(STATUS_PATIENCE, asked).await {
        let now = shared.now();
        let waiting = stats.into_iter().map(|stats| {
            let oldest = stats.oldest_ready_at.map_or(Duration::ZERO, |at| now.since(at));
            (stats.key, stats.ready, oldest)
        });
        shared.metrics.queue(waiting);
    }
    let journal = shared.journal.stats();
    shared.metrics.journal(journal.unread_records, journal_oldest(shared, &journal));
    shared.metrics.encode()
}

/// How long the oldest job in the journal has waited for ingest.
fn journal_oldest(shared: &Shared, stats: &Stats) -> Duration {
    stats.unread_oldest.map_or(Duration::ZERO, |id| shared.now().since(id.made_at()))
}

/// The tenant's job, if it is in our journal and not ingested yet.
async fn find_unread(shared: &Shared, tenant: &Tenant, id: JobId) -> Result<Option<Record>, Error> {
    let found = shared.journal.find(id).await.map_err(journal_error)?;
    Ok(found.filter(|record| record.job.key.tenant == *tenant))
}
