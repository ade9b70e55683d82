//! The writer: takes everything that is queued, assigns ids, makes one frame of it, writes
//! and syncs that, and then answers all of it. It is a thread, or a task if its disk never blocks.
//!
//! If the disk refuses, every append of the group gets the error, and the group is not in the
//! journal: the segment is cut to its last synced length. If that fails, or if the sync itself
//! failed, the segment is abandoned at that length, and the head of the next one says so. Each
//! later group tries again, so accepting resumes with the disk.
//!
//! A panic ends the writer for good: appends are refused with `Error::Writer` until the next start.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use windlass_core::store::IdempotencyKey;
use windlass_core::{Clock, JobId};

use crate::disk::DiskFile;
use crate::encode::Frame;
use crate::entry::{AddPayload, Entry};
use crate::error::Error;
use crate::inner::Inner;
use crate::segment::{self, Head, Previous, Salt, Segment};
use crate::spool::Spool;

/// Appends in one group.
const GROUP_APPENDS_MAX: usize = 1024;
/// Size at which a group takes no further append.
const GROUP_BYTES_MAX: u64 = 8 * 1024 * 1024;

pub(crate) enum Command {
    Append(Append),
    /// Answered when everything before it has been answered.
    Sync(oneshot::Sender<Result<(), Error>>),
}

pub(crate) struct Append {
    pub(crate) entries: Vec<Entry>,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) answer: oneshot::Sender<AppendReply>,
    pub(crate) cost_bytes: usize,
    /// Its share of the queue, released when the append has been answered.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// The entries go back with the reply, because freeing them costs about as much as writing them,
/// and callers have more time for it than the single writer.
pub(crate) struct AppendReply {
    pub(crate) ids: Result<Vec<JobId>, Error>,
    _entries: Vec<Entry>,
}

pub(crate) struct Writer {
    inner: Arc<Inner>,
    queue: mpsc::Receiver<Command>,
    clock: Arc<dyn Clock>,
    on_sync: Option<Arc<dyn Fn(Duration) + Send + Sync>>,
    segment_bytes_max: u64,
    seed: u64,
    frame: Frame,
    active: Option<Active>,
    /// How the segment before the active (or next) one ended.
    previous: Option<Previous>,
    /// Payloads of a refused frame that a restart might still find, until a later segment's head
    /// rules that out.
    undecided: Vec<Spool>,
}

/// The current segment.
struct Active {
    file: Arc<dyn DiskFile>,
    first: JobId,
    salt: Salt,
    /// Synced length.
    bytes: u64,
    /// Newest id in it or before it.
    last: Option<JobId>,
    is_empty: bool,
}

/// An append with its ids.
struct NumberedAppend {
    append: Append,
    ids: Vec<JobId>,
}

/// Why a group is not in the journal.
struct Refused {
    error: Error,
    /// The frame was written completely, so a crash in the next moments might bring it back.
    may_survive: bool,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused { error, may_survive: false }
    }
}

impl Writer {
    pub(crate) fn new(
        inner: Arc<Inner>,
        queue: mpsc::Receiver<Command>,
        clock: Arc<dyn Clock>,
        options: &crate::journal::Options,
        previous: Option<Previous>,
    ) -> Writer {
        Writer {
            inner,
            queue,
            clock,
            on_sync: options.on_sync.clone(),
            segment_bytes_max: options.segment_bytes_max,
            seed: options.seed,
            frame: Frame::new(),
            active: None,
            previous,
            undecided: Vec::new(),
        }
    }

    /// Runs it until every sender is gone and the queue is empty. Drops `ending` at its end.
    pub(crate) fn start(mut self, ending: watch::Sender<()>) -> Result<(), Error> {
        if !self.inner.disk.blocks() {
            tokio::spawn(async move {
                while let Some(command) = self.queue.recv().await {
                    if self.serve(command).is_err() {
                        break;
                    }
                }
                drop(ending);
            });
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("journal".into()).spawn(move || {
            while let Some(command) = self.queue.blocking_recv() {
                if self.serve(command).is_err() {
                    break;
                }
            }
            drop(ending);
        });
        match thread {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Storage(format!("cannot start the writer: {error}"))),
        }
    }

    /// Serves a command, and others that are queued. `Err` after a panic: the writer must end.
    fn serve(&mut self, first: Command) -> Result<(), ()> {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve_group(first)));
        served.map_err(|panic| self.inner.note_panic(&*panic))
    }

    fn serve_group(&mut self, first: Command) {
        let (mut group, mut syncs) = (Vec::new(), Vec::new());
        self.gather(first, &mut group, &mut syncs);
        self.write(&mut group);
        for sync in syncs.drain(..) {
            // The caller may have stopped waiting.
            let _ = sync.send(self.try_disk());
        }
    }

    /// Takes what is queued, up to the bounds of a group.
    fn gather(
        &mut self,
        first: Command,
        group: &mut Vec<Append>,
        syncs: &mut Vec<oneshot::Sender<Result<(), Error>>>,
    ) {
        let bytes_max = GROUP_BYTES_MAX.min(self.segment_bytes_max);
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(command) = next {
            match command {
                Command::Append(append) => {
                    bytes += append.cost_bytes as u64;
                    group.push(append);
                }
                Command::Sync(answer) => syncs.push(answer),
            }
            let full = group.len() + syncs.len() >= GROUP_APPENDS_MAX || bytes >= bytes_max;
            next = if full { None } else { self.queue.try_recv().ok() };
        }
    }

    fn write(&mut self, group: &mut Vec<Append>) {
        let now = self.clock.now();
        self.frame.begin(now);
        let mut numbered = Vec::with_capacity(group.len());
        for append in group.drain(..) {
            match self.inner.make_ids(now, append.entries.len()) {
                Ok(ids) => {
                    self.frame.push(&append.entries, &ids, append.key.as_ref());
                    numbered.push(NumberedAppend { append, ids });
                }
                Err(error) => answer(append, Err(error)),
            }
        }
        let Some(first) = numbered.iter().find_map(|numbered| numbered.ids.first().copied()) else {
            return;
        };
        // Before the frame can be on the disk, because nothing runs after a panic.
        spools(&numbered).for_each(|(spool, _)| spool.keep());
        match self.persist(first) {
            Ok(offset) => self.publish(offset, numbered),
            Err(Refused { error, may_survive }) => {
                tracing::error!(%error, "the journal refuses jobs");
                self.inner.state().refusal = Some(error.to_string());
                let named = spools(&numbered).map(|(spool, _)| spool);
                match may_survive {
                    true => self.undecided.extend(named.cloned()),
                    false => named.for_each(Spool::release),
                }
                for NumberedAppend { append, .. } in numbered {
                    answer(append, Err(error.clone()));
                }
            }
        }
    }

    /// Writes and syncs the frame; returns its offset in the active segment.
    fn persist(&mut self, first: JobId) -> Result<u64, Refused> {
        let full = |active: &Active| {
            !active.is_empty && active.bytes + self.frame.bytes_max() > self.segment_bytes_max
        };
        if self.active.as_ref().is_some_and(full) {
            self.seal();
        }
        let mut active = match self.active.take() {
            Some(active) => active,
            None => self.create(first)?,
        };
        let frame = match self.frame.finish(&active.salt) {
            Ok(frame) => frame,
            Err(error) => {
                self.active = Some(active);
                return Err(error.into());
            }
        };
        let path = segment::path(&self.inner.dir, active.first);
        if let Err(error) = active.file.write_at(frame, active.bytes) {
            let cut = active.file.truncate(active.bytes).is_ok();
            self.active = Some(active);
            if !cut {
                self.seal();
            }
            return Err(Error::storage("write", &path, &error).into());
        }
        if let Err(error) = sync_timed(&*active.file, &*self.clock, self.on_sync.as_deref()) {
            // After a failed sync the contents of the disk are unknown, so the segment ends here.
            let _ = active.file.truncate(active.bytes);
            self.active = Some(active);
            self.seal();
            let error = Error::storage("sync", &path, &error);
            return Err(Refused { error, may_survive: true });
        }
        let offset = active.bytes;
        active.bytes += frame.len() as u64;
        active.is_empty = false;
        self.active = Some(active);
        Ok(offset)
    }

    /// Makes what was synced readable, then answers.
    fn publish(&mut self, offset: u64, numbered: Vec<NumberedAppend>) {
        let active = self.active.as_mut().expect("a frame was written to the active segment");
        let room = self.inner.state().unread.cache_room();
        let chunks = self.frame.chunks(active.first, offset, room);
        let mut state = self.inner.state();
        for (chunk, bytes) in chunks {
            active.last = Some(chunk.last);
            state.unread.push(chunk, bytes);
        }
        for (spool, id) in spools(&numbered) {
            state.spools.insert(spool.name().to_owned(), id);
        }
        let segment = state.segments.back_mut().expect("the active segment is the newest");
        segment.last = active.last;
        segment.bytes = active.bytes;
        state.refusal = None;
        drop(state);
        self.inner.readable.notify_waiters();
        for NumberedAppend { append, ids } in numbered {
            answer(append, Ok(ids));
        }
    }

    /// After a refusal, finds out whether the disk works again, by starting a new segment.
    fn try_disk(&mut self) -> Result<(), Error> {
        if self.inner.state().refusal.is_none() {
            return Ok(());
        }
        let first = self.inner.make_ids(self.clock.now(), 1)?[0];
        self.seal();
        self.active = Some(self.create(first)?);
        self.inner.state().refusal = None;
        Ok(())
    }

    /// Starts a segment; it is durable, though empty, on return.
    fn create(&mut self, first: JobId) -> Result<Active, Error> {
        let inner = &self.inner;
        let path = segment::path(&inner.dir, first);
        let failed = |error: std::io::Error| {
            let _ = inner.disk.remove(&path);
            Error::storage("begin", &path, &error)
        };
        let file = inner.disk.create(&path).map_err(failed)?;
        let salt = segment::salt(self.seed, first);
        let head = Head { sysid: inner.sysid, salt, previous: self.previous }.to_text();
        file.write_at(head.as_bytes(), 0).map_err(failed)?;
        file.sync().map_err(failed)?;
        inner.disk.sync_dir(&inner.dir).map_err(failed)?;
        self.undecided.drain(..).for_each(|spool| spool.release());
        let bytes = head.len() as u64;
        let mut state = inner.state();
        state.segments.push_back(Segment { first, last: None, bytes, confirmed_at: None });
        state.active = Some(first);
        let last = self.previous.and_then(|previous| previous.last);
        Ok(Active { file, first, salt, bytes, last, is_empty: true })
    }

    /// Ends the active segment at its last synced length.
    fn seal(&mut self) {
        let Some(active) = self.active.take() else { return };
        self.previous =
            Some(Previous { first: active.first, bytes: active.bytes, last: active.last });
        self.inner.state().active = None;
    }
}

/// The large payloads of a group, with the ids of their jobs.
fn spools(group: &[NumberedAppend]) -> impl Iterator<Item = (&Spool, JobId)> {
    let pairs = group.iter().flat_map(|numbered| numbered.append.entries.iter().zip(&numbered.ids));
    pairs.filter_map(|(entry, &id)| match &entry.payload {
        AddPayload::Spooled(spool) => Some((spool, id)),
        AddPayload::Inline(_) => None,
    })
}

fn sync_timed(
    file: &dyn DiskFile,
    clock: &dyn Clock,
    on_sync: Option<&(dyn Fn(Duration) + Send + Sync)>,
) -> std::io::Result<()> {
    let began = clock.steady();
    file.sync()?;
    if let Some(on_sync) = on_sync {
        on_sync(clock.steady().saturating_sub(began));
    }
    Ok(())
}

fn answer(append: Append, ids: Result<Vec<JobId>, Error>) {
    // The caller may have stopped waiting.
    let _ = append.answer.send(AppendReply { ids, _entries: append.entries });
}
