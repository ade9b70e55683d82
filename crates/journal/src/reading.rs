//! The reading half of the handle: reserve, read, commit, and find single records.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::{JobId, NewJob};

use crate::chunk::{Chunk, FrameState, Size};
use crate::decode::{self, Decoder, TypeMemo};
use crate::entry::Record;
use crate::error::Error;
use crate::inner::{Inner, State};
use crate::journal::Journal;
use crate::segment;
use crate::spool::blocking;
use crate::unread::Ticket;

/// Larger reads do not happen on the caller's thread.
const READ_INLINE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of chunks that a search for the newest records reads.
pub(crate) const NEWEST_CHUNKS_MAX: usize = 32;
/// How long `readable` relies on the clock and the timer to agree.
const RECHECK_MAX: Duration = Duration::from_secs(1);

impl Journal {
    /// The next unread records, as many as the bounds allow but at least one; `None` if there are
    /// none. Spooled payloads count towards `bytes_max`. No other ticket gets them until this one
    /// is committed or given back, or until `timeout` has passed, if there is one. May read up to
    /// one chunk from the disk.
    pub fn reserve(
        &self,
        records_max: usize,
        bytes_max: usize,
        timeout: Option<Duration>,
    ) -> Option<Ticket> {
        let now = self.inner.clock.now();
        let mut state = self.inner.state();
        state.unread.expire(now);
        let bounds = Size { records: records_max as u64, bytes: bytes_max as u64 };
        let expires_at = timeout.map(|timeout| now + timeout);
        state.unread.reserve(bounds, expires_at, |chunk| self.inner.load(chunk).ok())
    }

    /// The records of a ticket, oldest first. Payloads share memory with their neighbours, so copy
    /// one to keep it for long. `Expired` if the ticket is outdated.
    pub async fn read(&self, ticket: &Ticket) -> Result<Vec<Record>, Error> {
        let (chunks, floor) = {
            let mut state = self.inner.state();
            state.unread.expire(self.inner.clock.now());
            (state.unread.chunks(ticket).ok_or(Error::Expired)?, state.unread.floor)
        };
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes).sum();
        let cached = chunks.iter().all(|chunk| chunk.in_memory().is_some());
        if cached && bytes <= READ_INLINE_BYTES_MAX {
            return self.inner.records(&chunks, floor);
        }
        let inner = self.inner.clone();
        blocking(&*self.inner.disk, move || inner.records(&chunks, floor)).await
    }

    /// The store has the records of this ticket. `Expired` if its time was over: other readers may
    /// have read them again, which the store detects by their ids.
    pub fn commit(&self, ticket: Ticket) -> Result<(), Error> {
        let mut state = self.inner.state();
        state.unread.expire(self.inner.clock.now());
        if state.unread.commit(&ticket) { Ok(()) } else { Err(Error::Expired) }
    }

    /// The store has everything up to `position`: it is not read any more, and tickets that contain
    /// nothing else are void. Until `drop_until`, a store that has lost it can get it again. Does
    /// nothing during a rewind. May read up to one chunk from the disk.
    pub fn commit_until(&self, position: JobId) {
        self.inner.state().commit_until(&self.inner, position);
    }

    /// Makes the records of this ticket readable again at once.
    pub fn give_back(&self, ticket: Ticket) {
        if self.inner.state().unread.give_back(&ticket) {
            self.inner.readable.notify_waiters();
        }
    }

    /// Returns when there is something to reserve.
    pub async fn readable(&self) {
        loop {
            let mut notified = std::pin::pin!(self.inner.readable.notified());
            notified.as_mut().enable();
            let now = self.inner.clock.now();
            let expires_at = {
                let mut state = self.inner.state();
                state.unread.expire(now);
                if state.unread.is_waiting() {
                    return;
                }
                state.unread.expires_next_at()
            };
            match expires_at {
                None => notified.await,
                Some(at) => {
                    let wait = at.since(now).min(RECHECK_MAX);
                    // Either of the two is a reason to look again.
                    let _ = tokio::time::timeout(wait, notified).await;
                }
            }
        }
    }

    /// A record that is in the journal and, as far as the journal knows, not in the store yet.
    pub async fn find(&self, id: JobId) -> Result<Option<Record>, Error> {
        let source = {
            let state = self.inner.state();
            if state.unread.floor >= Some(id) {
                return Ok(None);
            }
            state.source_of(id)
        };
        let Some(source) = source else { return Ok(None) };
        let inner = self.inner.clone();
        let found = match &source {
            RecordSource::Chunk(chunk) if chunk.in_memory().is_some() => {
                inner.record_in(&source, id)
            }
            _ => blocking(&*self.inner.disk, move || inner.record_in(&source, id)).await,
        };
        match found {
            Err(_) if self.inner.state().unread.floor >= Some(id) => Ok(None),
            found => found,
        }
    }

    /// The newest unread records below `before` that `wanted` accepts. Searches a bounded part of
    /// the journal and reports where it stopped.
    pub async fn newest(
        &self,
        before: Option<JobId>,
        wanted: impl Fn(&NewJob) -> bool + Send + 'static,
    ) -> Result<Newest, Error> {
        let (mut chunks, floor) = {
            let state = self.inner.state();
            (state.unread.newest(before, NEWEST_CHUNKS_MAX + 1), state.unread.floor)
        };
        let more = chunks.len() > NEWEST_CHUNKS_MAX;
        chunks.truncate(NEWEST_CHUNKS_MAX);
        let rest_below = chunks.last().filter(|_| more).map(|chunk| chunk.first);
        chunks.reverse();
        let inner = self.inner.clone();
        blocking(&*self.inner.disk, move || {
            let mut records = inner.records(&chunks, floor)?;
            let below = |id: JobId| before.is_none_or(|before| id < before);
            records.retain(|record| below(record.job.id) && wanted(&record.job));
            records.reverse();
            Ok(Newest { records, rest_below })
        })
        .await
    }
}

/// Unread records, newest first.
#[derive(Debug)]
pub struct Newest {
    pub records: Vec<Record>,
    /// If there are older unread records, the id below which they were not searched.
    pub rest_below: Option<JobId>,
}

/// Where a record is.
enum RecordSource {
    Chunk(Box<Chunk>),
    /// A segment's first id and length.
    Segment(JobId, u64),
}

impl State {
    /// False during a rewind; then nothing happens.
    pub(crate) fn commit_until(&mut self, inner: &Inner, position: JobId) -> bool {
        if self.unread.is_paused() {
            return false;
        }
        self.unread.commit_until(position, |chunk| inner.load(chunk).ok());
        true
    }

    fn source_of(&self, id: JobId) -> Option<RecordSource> {
        if let Some(chunk) = self.unread.find(id) {
            return Some(RecordSource::Chunk(Box::new(chunk.clone())));
        }
        let behind = self.segments.partition_point(|segment| segment.first <= id);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        (segment.last >= Some(id)).then_some(RecordSource::Segment(segment.first, segment.bytes))
    }
}

impl Inner {
    pub(crate) fn load(&self, chunk: &Chunk) -> Result<Bytes, Error> {
        let path = segment::path(&self.dir, chunk.segment);
        chunk.load(&*self.disk, &self.dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::Expired,
            std::io::ErrorKind::InvalidData => {
                Error::corrupt(&path, chunk.offset, error.to_string())
            }
            _ => Error::storage("read", &path, &error),
        })
    }

    fn records(&self, chunks: &[Chunk], floor: Option<JobId>) -> Result<Vec<Record>, Error> {
        let records: usize = chunks.iter().map(|chunk| chunk.records as usize).sum();
        let mut read = Vec::with_capacity(records);
        for chunk in chunks {
            let bytes = self.load(chunk)?;
            decode::records(&bytes, chunk.state.clone(), floor, &self.spool_dir, &mut read)
                .map_err(|what| self.corrupt(chunk.segment, chunk.offset, what))?;
        }
        Ok(read)
    }

    fn record_in(&self, source: &RecordSource, id: JobId) -> Result<Option<Record>, Error> {
        let (segment, offset, bytes, state) = match source {
            RecordSource::Chunk(chunk) => {
                (chunk.segment, chunk.offset, self.load(chunk)?, chunk.state.clone())
            }
            RecordSource::Segment(first, length) => {
                let path = segment::path(&self.dir, *first);
                let bytes = self.disk.read(&path, 0, *length as usize);
                let bytes = bytes.map_err(|error| Error::storage("read", &path, &error))?;
                let head = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
                (*first, head as u64, Bytes::from(bytes).slice(head..), FrameState::default())
            }
        };
        let mut decoder = Decoder::new(&bytes, state);
        let corrupt = |what| self.corrupt(segment, offset, what);
        while let Some(line) = decoder.next().map_err(corrupt)? {
            if line.id == id {
                let mut types = TypeMemo::default();
                let record = line.to_record(&bytes, decoder.state(), &mut types, &self.spool_dir);
                return record.map(Some).map_err(corrupt);
            }
        }
        Ok(None)
    }

    pub(crate) fn corrupt(&self, segment: JobId, offset: u64, what: String) -> Error {
        Error::corrupt(&segment::path(&self.dir, segment), offset, what)
    }
}
