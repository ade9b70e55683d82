//! The public handle of a journal.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use windlass_core::store::IdempotencyKey;
use windlass_core::sync::lock;
use windlass_core::{Clock, JobId, Sysid};

use crate::disk::{self, Disk, Lock};
use crate::entry::{Entry, Stats};
use crate::error::Error;
use crate::inner::Inner;
use crate::recover::recover;
use crate::spool::SpoolWriter;
use crate::writer::{Append, Command, Writer};

/// Appends that may wait for the writer.
const QUEUE_APPENDS_MAX: usize = 1024;
/// Bytes that may wait for the writer; a larger append goes alone.
const QUEUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum size of one append.
const APPEND_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// How often to recreate a directory that others remove before it is locked.
const CLAIM_TRIES_MAX: usize = 16;

/// Where a journal is and how it is kept.
#[derive(Clone)]
pub struct Options {
    /// The disk that it is on.
    pub disk: Arc<dyn Disk>,
    /// The directory of this journal alone.
    pub dir: PathBuf,
    /// The directory for large payloads; several journals may share it.
    pub spool_dir: PathBuf,
    pub sysid: Sysid,
    /// A new segment starts when the current one would become longer.
    pub segment_bytes_max: u64,
    /// How long to keep a segment after the store confirmed all of it, so that a store that loses
    /// its newest commits can get them again. Restarts with the daemon. Zero removes it at once.
    pub segment_keep: Duration,
    /// Seed of the salts in checksums. If clients can guess it, a payload can imitate a frame.
    pub seed: u64,
    /// Called with the duration of each sync of a frame.
    pub on_sync: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
}

/// A journal. Cheap to clone; all clones are the same journal.
#[derive(Clone)]
pub struct Journal {
    pub(crate) inner: Arc<Inner>,
    queue: Arc<Mutex<Option<mpsc::Sender<Command>>>>,
    room: Arc<Semaphore>,
    /// Changes, or closes, when the writer has ended.
    ended: watch::Receiver<()>,
}

impl Journal {
    /// Locks the directory, recovers its contents and opens it for appending. `store_newest` is the
    /// newest id that the store knows, `ingested` how far it has this journal. Blocks; on a disk
    /// that does not, it needs a runtime.
    ///
    /// Errors: `Locked`, `Corrupt` (nothing was changed), `Storage`.
    pub fn open(
        options: Options,
        clock: Arc<dyn Clock>,
        store_newest: Option<JobId>,
        ingested: Option<JobId>,
    ) -> Result<Journal, Error> {
        let disk = options.disk.clone();
        create_dir(&*disk, &options.spool_dir)?;
        let lock = lock_dir(&*disk, &options.dir)?;
        let recovered = recover(&*disk, &options.dir, options.sysid, ingested)?;
        let previous = recovered.previous;
        let known = [store_newest, ingested];
        let inner = Inner::new(disk, &options, clock.clone(), lock, recovered, known)?;
        let (queue, commands) = mpsc::channel(QUEUE_APPENDS_MAX);
        let (ending, ended) = watch::channel(());
        Writer::new(inner.clone(), commands, clock, &options, previous).start(ending)?;
        Ok(Journal::of(inner, Some(queue), ended))
    }

    /// Locks and recovers the journal of a daemon that is gone, read-only; also an empty one, so
    /// that it can be removed. `None` if its owner is alive or it does not exist. Blocks.
    pub fn adopt(
        options: Options,
        clock: Arc<dyn Clock>,
        ingested: Option<JobId>,
    ) -> Result<Option<Journal>, Error> {
        let disk = options.disk.clone();
        let lock = match disk.lock(&options.dir) {
            Ok(lock) => lock,
            // It does not exist, or was just removed by another process.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::storage("lock", &options.dir, &error)),
        };
        let Some(lock) = lock else { return Ok(None) };
        let recovered = recover(&*disk, &options.dir, options.sysid, ingested)?;
        let inner = Inner::new(disk, &options, clock, lock, recovered, [None, ingested])?;
        let (_, ended) = watch::channel(());
        Ok(Some(Journal::of(inner, None, ended)))
    }

    fn of(
        inner: Arc<Inner>,
        queue: Option<mpsc::Sender<Command>>,
        ended: watch::Receiver<()>,
    ) -> Journal {
        let room = Arc::new(Semaphore::new(QUEUE_BYTES_MAX));
        Journal { inner, queue: Arc::new(Mutex::new(queue)), room, ended }
    }

    /// Accepts entries, all or none; returns their ids, in order, once they are durable. Waits
    /// while the queue is full. If the caller drops this before it returns, the entries may still
    /// be accepted. Without entries nothing is written, and there are no ids.
    pub async fn append(
        &self,
        entries: Vec<Entry>,
        key: Option<IdempotencyKey>,
    ) -> Result<Vec<JobId>, Error> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let cost_bytes: usize = entries.iter().map(Entry::cost_bytes).sum();
        if cost_bytes > APPEND_BYTES_MAX {
            return Err(Error::TooLarge { bytes: cost_bytes, bytes_max: APPEND_BYTES_MAX });
        }
        let permits = cost_bytes.min(QUEUE_BYTES_MAX) as u32;
        let room = self.room.clone().acquire_many_owned(permits);
        let _room = room.await.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        let append = Append { entries, key, answer, cost_bytes, _room };
        self.send(Command::Append(append), answered).await?.ids
    }

    /// Returns when all appends in progress have been answered. After a refused append it also
    /// tries the disk, so that a journal without traffic can become healthy again; `Storage` if the
    /// disk still refuses.
    pub async fn wsync(&self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.send(Command::Sync(answer), answered).await?
    }

    /// Sends the writer a command and waits for its answer.
    async fn send<T>(&self, command: Command, answered: oneshot::Receiver<T>) -> Result<T, Error> {
        if self.sender()?.send(command).await.is_ok()
            && let Ok(answer) = answered.await
        {
            return Ok(answer);
        }
        // The writer answers everything unless it ends; it stores the reason before it does.
        self.writer_ended().await;
        Err(self.inner.lost().cloned().unwrap_or(Error::Closed))
    }

    /// An id from the same generator, for jobs that do not go through the journal.
    pub fn make_id(&self) -> Result<JobId, Error> {
        self.sender()?;
        let ids = self.inner.make_ids(self.inner.clock.now(), 1)?;
        Ok(ids[0])
    }

    /// The newest id that was generated, or found when the journal was opened.
    pub fn id_newest(&self) -> Option<JobId> {
        self.inner.id_newest()
    }

    /// Starts a payload that is too large for a frame.
    pub async fn spool(&self) -> Result<SpoolWriter, Error> {
        let id = self.make_id()?;
        let inner = &self.inner;
        SpoolWriter::create(inner.disk.clone(), inner.spool_dir.clone(), inner.sysid, id).await
    }

    /// The journal in numbers.
    pub fn stats(&self) -> Stats {
        let state = self.inner.state();
        Stats {
            unread_records: state.unread.records(),
            unread_bytes: state.unread.bytes(),
            unread_oldest: state.unread.oldest(),
            unread_newest: state.unread.newest_id(),
            segments: state.segments.len(),
            disk_bytes: state.segments.iter().map(|segment| segment.bytes).sum(),
            id_newest: self.id_newest(),
            refusal: self.inner.lost().map(Error::to_string).or(state.refusal.clone()),
        }
    }

    /// Writes what is queued, then releases the directory. Later appends are `Closed`.
    pub async fn close(&self) {
        self.stop_writer().await;
        self.inner.unlock();
    }

    pub(crate) async fn stop_writer(&self) {
        drop(lock(&self.queue).take());
        self.writer_ended().await;
    }

    async fn writer_ended(&self) {
        let mut ended = self.ended.clone();
        // The writer sends nothing; its end of the channel closes when it has ended.
        while ended.changed().await.is_ok() {}
    }

    fn sender(&self) -> Result<mpsc::Sender<Command>, Error> {
        let queue = lock(&self.queue);
        queue.clone().ok_or(Error::Closed)
    }
}

/// Creates the directory and locks it. Other daemons remove directories without an owner, and this
/// one has none until it is locked; if that happens, it is created again.
fn lock_dir(disk: &dyn Disk, dir: &Path) -> Result<Lock, Error> {
    for _ in 0..CLAIM_TRIES_MAX {
        create_dir(disk, dir)?;
        match disk.lock(dir) {
            Ok(Some(lock)) => return Ok(lock),
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::storage("lock", dir, &error)),
        }
    }
    Err(Error::Locked(dir.to_owned()))
}

fn create_dir(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    disk::create_dir(disk, dir).map_err(|error| Error::storage("create", dir, &error))
}
