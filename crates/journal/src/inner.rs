//! The state that handles and the writer share: the data behind its lock, the ids, the directory's
//! lock.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use windlass_core::sync::{lock, panic_text};
use windlass_core::{Clock, IdGenerator, JobId, Sysid, Timestamp};

use crate::disk::{Disk, Lock};
use crate::error::Error;
use crate::journal::Options;
use crate::recover::Recovered;
use crate::segment::Segment;
use crate::spool;
use crate::unread::Unread;

/// Shared by all handles and the writer.
pub(crate) struct Inner {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) spool_dir: PathBuf,
    pub(crate) sysid: Sysid,
    pub(crate) segment_keep: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    ids: Mutex<IdGenerator>,
    /// Newest id that was generated or found; 0 for none.
    id_newest: AtomicI64,
    state: Mutex<State>,
    pub(crate) readable: Notify,
    /// Held by the rewind in progress.
    rewinding: Mutex<()>,
    /// Why the writer is gone, if it has panicked.
    lost: OnceLock<Error>,
    lock: Mutex<Option<Lock>>,
}

pub(crate) struct State {
    pub(crate) unread: Unread,
    /// Oldest first.
    pub(crate) segments: VecDeque<Segment>,
    /// The first id of the current segment.
    pub(crate) active: Option<JobId>,
    /// Files of spooled payloads, each with the newest id that refers to it.
    pub(crate) spools: BTreeMap<String, JobId>,
    /// The newest record that is gone from the files, or whose payload is.
    pub(crate) dropped: Option<JobId>,
    pub(crate) refusal: Option<String>,
}

impl Inner {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: &Options,
        clock: Arc<dyn Clock>,
        lock: Lock,
        recovered: Recovered,
        [store_newest, ingested]: [Option<JobId>; 2],
    ) -> Result<Arc<Inner>, Error> {
        let newest = recovered.newest.max(store_newest).max(ingested);
        let Recovered { segments, mut unread, mut spools, dropped, .. } = recovered;
        unread.floor = ingested;
        let files = remove_orphans(&*disk, options, &spools)?;
        let gone = |name: &String, id: &mut JobId| !files.contains(name) && Some(*id) <= ingested;
        let gone = spools.extract_if(.., gone).map(|(_, id)| id).max();
        let state = State {
            unread,
            segments,
            active: None,
            spools,
            dropped: dropped.max(gone),
            refusal: None,
        };
        Ok(Arc::new(Inner {
            disk,
            dir: options.dir.clone(),
            spool_dir: options.spool_dir.clone(),
            sysid: options.sysid,
            segment_keep: options.segment_keep,
            clock,
            ids: Mutex::new(IdGenerator::new(options.sysid, newest)),
            id_newest: AtomicI64::new(newest.map_or(0, JobId::get)),
            state: Mutex::new(state),
            readable: Notify::new(),
            rewinding: Mutex::new(()),
            lost: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
        }))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Allows one rewind at a time.
    pub(crate) fn rewinding(&self) -> MutexGuard<'_, ()> {
        lock(&self.rewinding)
    }

    /// The newest id that was generated, or found when the journal was opened.
    pub(crate) fn id_newest(&self) -> Option<JobId> {
        JobId::new(self.id_newest.load(Ordering::Acquire))
    }

    /// Releases the directory.
    pub(crate) fn unlock(&self) {
        drop(lock(&self.lock).take());
    }

    /// Why the writer is gone, if it has panicked.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    pub(crate) fn note_panic(&self, panic: &(dyn Any + Send)) {
        let error = self.lost.get_or_init(|| Error::Writer(panic_text(panic).to_owned()));
        tracing::error!(%error, "the journal accepts nothing until the next start");
    }

    /// The next ids, each larger than all before it, including those of a refused append.
    pub(crate) fn make_ids(&self, now: Timestamp, count: usize) -> Result<Vec<JobId>, Error> {
        let mut generator = lock(&self.ids);
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(generator.next(now)?);
        }
        if let Some(behind) = generator.clock_step(now) {
            let behind_s = behind.as_secs();
            tracing::warn!(behind_s, "the clock was set back; ids continue from the newest one");
        }
        if let Some(newest) = ids.last() {
            self.id_newest.store(newest.get(), Ordering::Release);
        }
        Ok(ids)
    }
}

/// Removes payloads of this daemon that no record refers to, because their adds were never
/// acknowledged; returns the names of the others.
fn remove_orphans(
    disk: &dyn Disk,
    options: &Options,
    spools: &BTreeMap<String, JobId>,
) -> Result<BTreeSet<String>, Error> {
    let dir = &options.spool_dir;
    let files = disk.list(dir).map_err(|error| Error::storage("list", dir, &error))?;
    let ours = files.into_iter().map(|(name, _)| name);
    let (named, orphans): (BTreeSet<_>, BTreeSet<_>) = ours
        .filter(|name| spool::is_of(name, options.sysid))
        .partition(|name| spools.contains_key(name));
    for name in orphans {
        let path = dir.join(name);
        disk.remove(&path).map_err(|error| Error::storage("remove", &path, &error))?;
    }
    Ok(named)
}
