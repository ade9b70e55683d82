//! Start and stop: reserve a sysid, open the journal, start all services; and the reverse.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use windlass_core::runner::Stop;
use windlass_core::store::{JournalId, SysidGrant, SysidReserve};
use windlass_core::{JobId, Sysid};
use windlass_journal::{Disk, Journal};

use crate::audit::{self, AuditWriter};
use crate::backup::{JOURNAL_DIR, PAYLOAD_DIR};
use crate::dispatch::Dispatch;
use crate::error::Error;
use crate::error::store_error;
use crate::house::beat::Beat;
use crate::house::boot::BootNumber;
use crate::house::clock::ClockWatch;
use crate::house::keep::{self, Keep};
use crate::house::listen::Listen;
use crate::house::purge::Purge;
use crate::house::reap::Reap;
use crate::house::service::Services;
use crate::house::unhandled::Unhandled;
use crate::ingest::Ingest;
use crate::ingest::adopt::Adopt;
use crate::ingest::place;
use crate::key::{self, KeyWatch};
use crate::metrics::Metrics;
use crate::options::{Options, Parts};
use crate::settle::service::Settle;
use crate::shared::Shared;
use crate::tenant::{self, TenantWatch};

/// Another daemon may be taking over the journal of our number, which takes a moment.
const LOCK_TRIES_MAX: usize = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// How long the start waits for the takeover of dead daemons' journals; a long one continues in the
/// background.
const ADOPT_PATIENCE: Duration = Duration::from_secs(2);
/// How long shutdown waits for stopped jobs.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// How long shutdown waits for the store; the next start does the rest.
const STORE_PATIENCE: Duration = Duration::from_secs(10);

/// A running engine: the shared state, and the means to stop its parts.
pub(crate) struct Running {
    pub shared: Arc<Shared>,
    /// Services that begin work; they stop first.
    starters: Services,
    stop_starters: CancellationToken,
    batches: TaskTracker,
    /// Services that bring work to its end.
    finishers: Services,
    stop_finishers: CancellationToken,
    /// True after the first search for dead daemons' journals.
    adopted: watch::Sender<bool>,
}

pub(crate) async fn start(
    parts: Parts,
    options: Options,
    metrics: Arc<Metrics>,
) -> Result<Running, Error> {
    let reserve = SysidReserve { wanted: options.sysid, lease: options.lease };
    let grant = parts.store.sysid_reserve(reserve).await.map_err(store_error)?;
    match open_journal(&parts, &options, &metrics, grant.sysid).await {
        Ok(opened) => {
            let running = spawn_services(parts, options, metrics, grant, opened);
            // No request is refused because its key has not been read yet.
            let read = async {
                key::refresh(&running.shared).await?;
                tenant::refresh(&running.shared).await
            };
            if let Err(error) = read.await {
                let _ = running.stop().await;
                return Err(error);
            }
            // Jobs accepted by a killed predecessor are visible from the first request on.
            let mut adopted = running.adopted.subscribe();
            let _ = tokio::time::timeout(ADOPT_PATIENCE, adopted.wait_for(|done| *done)).await;
            Ok(running)
        }
        Err(error) => {
            let _ = parts.store.sysid_release(grant.sysid, grant.boot).await;
            Err(error)
        }
    }
}

/// Our own journal, and the store's position in it.
struct Opened {
    journal: Journal,
    place: u64,
    position: Option<JobId>,
}

async fn open_journal(
    parts: &Parts,
    options: &Options,
    metrics: &Arc<Metrics>,
    sysid: Sysid,
) -> Result<Opened, Error> {
    let fresh = fastrand::Rng::with_seed(options.seed).u64(..);
    let place = place::of(&*parts.disk, &options.data_dir, fresh).map_err(|error| {
        Error::Unavailable(format!("cannot use {}: {error}", options.data_dir.display()))
    })?;
    for _ in 0..LOCK_TRIES_MAX {
        let id = JournalId::new(place, sysid);
        let position = parts.store.journal_position(id).await.map_err(store_error)?;
        let newest = parts.store.id_newest().await.map_err(store_error)?;
        let journal_options = journal_options(&parts.disk, options, metrics, sysid);
        match Journal::open(journal_options, parts.clock.clone(), newest, position) {
            Ok(journal) => return Ok(Opened { journal, place, position }),
            Err(windlass_journal::Error::Locked(_)) => tokio::time::sleep(LOCK_PAUSE).await,
            Err(error) => return Err(Error::Unavailable(error.to_string())),
        }
    }
    Err(Error::Conflict(format!("another process uses the journal of sysid {sysid}")))
}

pub(crate) fn journal_options(
    disk: &Arc<dyn Disk>,
    options: &Options,
    metrics: &Arc<Metrics>,
    sysid: Sysid,
) -> windlass_journal::Options {
    let metrics = metrics.clone();
    windlass_journal::Options {
        disk: disk.clone(),
        dir: options.data_dir.join(JOURNAL_DIR).join(sysid.to_string()),
        spool_dir: options.data_dir.join(PAYLOAD_DIR),
        sysid,
        segment_bytes_max: options.journal_segment_bytes_max,
        segment_keep: options.journal_keep,
        seed: options.seed,
        on_sync: Some(Arc::new(move |took| metrics.journal_synced(took))),
    }
}

fn spawn_services(
    parts: Parts,
    options: Options,
    metrics: Arc<Metrics>,
    grant: SysidGrant,
    opened: Opened,
) -> Running {
    let Opened { journal, place, position } = opened;
    let sysid = grant.sysid;
    let (shared, settlements) =
        Shared::new(parts, journal.clone(), grant, place, position, options, metrics);
    let services = || Services::new(shared.health.clone());
    let (starters, finishers) = (services(), services());
    let (stop_starters, stop_finishers) = (CancellationToken::new(), CancellationToken::new());
    let batches = TaskTracker::new();

    let quiet = || Arc::new(Notify::new());
    let ingest = Ingest::new(shared.clone(), journal, sysid, position, stop_finishers.clone());
    finishers.spawn(ingest, quiet(), stop_finishers.clone());
    let settle = Settle::new(shared.clone(), settlements, stop_finishers.clone());
    finishers.spawn(settle, quiet(), stop_finishers.clone());
    let beat_wanted = shared.daemon.contact.beat_wanted.clone();
    finishers.spawn(Beat::new(shared.clone()), beat_wanted, stop_finishers.clone());
    let keep_wake = shared.keep_queue.wake.clone();
    finishers.spawn(Keep::new(shared.clone()), keep_wake, stop_finishers.clone());
    let audit_wake = shared.audit.wake.clone();
    finishers.spawn(AuditWriter::new(shared.clone()), audit_wake, stop_finishers.clone());
    let dispatch = Dispatch::new(shared.clone(), batches.clone());
    starters.spawn(dispatch, shared.ready.dispatch_wake.clone(), stop_starters.clone());
    starters.spawn(Reap { shared: shared.clone() }, quiet(), stop_starters.clone());
    starters.spawn(Unhandled::new(shared.clone()), quiet(), stop_starters.clone());
    starters.spawn(Purge { shared: shared.clone() }, quiet(), stop_starters.clone());
    starters.spawn(KeyWatch { shared: shared.clone() }, quiet(), stop_starters.clone());
    starters.spawn(TenantWatch { shared: shared.clone() }, quiet(), stop_starters.clone());
    let clock = ClockWatch::new(shared.clock.machine(), shared.metrics.clone());
    starters.spawn(clock, quiet(), stop_starters.clone());
    let adopted = watch::Sender::new(false);
    let looked = adopted.clone();
    let adopt = Adopt::new(shared.clone(), stop_starters.clone(), looked);
    starters.spawn(adopt, quiet(), stop_starters.clone());
    let boot = BootNumber { shared: shared.clone(), stop: stop_starters.clone() };
    starters.spawn(boot, quiet(), stop_starters.clone());
    if shared.store.capabilities().wakes {
        let listen = Listen { shared: shared.clone(), stop: stop_starters.clone() };
        starters.spawn(listen, quiet(), stop_starters.clone());
    }
    Running { shared, starters, stop_starters, batches, finishers, stop_finishers, adopted }
}

impl Running {
    /// Stops picking, lets running jobs end or hands them back, flushes, frees the sysid.
    pub(crate) async fn stop(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.picking.store(false, Ordering::SeqCst);
        self.stop_starters.cancel();
        self.starters.stopped().await;
        self.batches.close();
        let ended = tokio::time::timeout(shared.options.stop_grace, self.batches.wait()).await;
        if ended.is_err() {
            for attempt in shared.running.attempts() {
                shared.runner.stop(attempt, Stop::Shutdown);
            }
            let _ = tokio::time::timeout(KILL_PATIENCE, self.batches.wait()).await;
        }
        self.settled().await;
        self.stop_finishers.cancel();
        self.finishers.stopped().await;
        shared.runner.close().await;
        let flushed = self.leave_store().await;
        shared.journal.close().await;
        shared.store.close().await;
        flushed
    }

    /// Waits until the store has every verdict, for a limited time.
    async fn settled(&self) {
        if tokio::time::timeout(STORE_PATIENCE, self.shared.running.empty()).await.is_err() {
            let left = self.shared.running.len();
            tracing::warn!(left, "jobs are left to their leases: the store did not answer");
        }
    }

    async fn leave_store(&self) -> Result<(), Error> {
        let SysidGrant { sysid, boot } = self.shared.daemon.grant;
        let leave = async {
            keep::flush(&self.shared).await;
            audit::flush(&self.shared).await;
            self.shared.store.flush().await?;
            self.shared.store.sysid_release(sysid, boot).await
        };
        match tokio::time::timeout(STORE_PATIENCE, leave).await {
            Ok(left) => left.map_err(store_error),
            Err(_) => Err(Error::Unavailable("the store did not answer at shutdown".into())),
        }
    }
}
