//! The reading half of the handle: reserve, read, commit, and looking for single records.

use std::time::Duration;

use bytes::Bytes;
use windlass_core::{JobId, NewJob};

use crate::chunk::{Chunk, Context, Size};
use crate::decode::{self, Decoder, TypeMemo};
use crate::entry::Record;
use crate::error::Error;
use crate::journal::Journal;
use crate::segment;
use crate::shared::{Shared, State};
use crate::spool::blocking;
use crate::unread::Ticket;

/// A read of more bytes than this does not happen on the caller's thread.
const READ_INLINE_BYTES_MAX: usize = 256 * 1024;
/// How many chunks a look at the newest records reads.
const NEWEST_CHUNKS_MAX: usize = 32;
/// How long `readable` trusts that the clock and the timer agree.
const RECHECK_MAX: Duration = Duration::from_secs(1);

impl Journal {
    /// The next unread records, at most as many as the bounds allow but at least one; `None` when
    /// nothing waits. Spooled payloads count in `bytes_max`. No other ticket gets them until the
    /// ticket is committed or given back, or until `timeout` has passed, if there is one. May read
    /// up to one chunk from the disk.
    pub fn reserve(
        &self,
        records_max: usize,
        bytes_max: usize,
        timeout: Option<Duration>,
    ) -> Option<Ticket> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state();
        state.unread.expire(now);
        let bounds = Size { records: records_max as u64, bytes: bytes_max as u64 };
        let expires_at = timeout.map(|timeout| now + timeout);
        state.unread.reserve(bounds, expires_at, |chunk| self.shared.load(chunk).ok())
    }

    /// The records of a ticket, oldest first. Payloads share the memory of their neighbours, so a
    /// caller that keeps one for long copies it. `Expired` when the ticket is outdated.
    pub async fn read(&self, ticket: &Ticket) -> Result<Vec<Record>, Error> {
        let (chunks, floor) = {
            let mut state = self.shared.state();
            state.unread.expire(self.shared.clock.now());
            (state.unread.chunks(ticket).ok_or(Error::Expired)?, state.unread.floor)
        };
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes).sum();
        let cached = chunks.iter().all(|chunk| chunk.in_memory().is_some());
        if cached && bytes <= READ_INLINE_BYTES_MAX {
            return self.shared.records(&chunks, floor);
        }
        let shared = self.shared.clone();
        blocking(move || shared.records(&chunks, floor)).await
    }

    /// The store has the records of this ticket. `Expired` when its time was over: others may
    /// have read them again, which the store notices by their ids.
    pub fn commit(&self, ticket: Ticket) -> Result<(), Error> {
        let mut state = self.shared.state();
        state.unread.expire(self.shared.clock.now());
        if state.unread.commit(&ticket) { Ok(()) } else { Err(Error::Expired) }
    }

    /// The store has everything up to `position`: it is not read any more, and tickets that have
    /// nothing else are void. Until `drop_until`, a store that forgets can have it again. During a
    /// rewind nothing happens. May read up to one chunk from the disk.
    pub fn commit_until(&self, position: JobId) {
        self.shared.state().commit_until(&self.shared, position);
    }

    /// Lets others read the records of this ticket at once.
    pub fn give_back(&self, ticket: Ticket) {
        if self.shared.state().unread.give_back(&ticket) {
            self.shared.readable.notify_waiters();
        }
    }

    /// Returns when there is something to reserve.
    pub async fn readable(&self) {
        loop {
            let mut notified = std::pin::pin!(self.shared.readable.notified());
            notified.as_mut().enable();
            let now = self.shared.clock.now();
            let expires_at = {
                let mut state = self.shared.state();
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

    /// A record that is in the journal and, as far as the journal knows, not yet in the store.
    pub async fn find(&self, id: JobId) -> Result<Option<Record>, Error> {
        let place = {
            let state = self.shared.state();
            if state.unread.floor >= Some(id) {
                return Ok(None);
            }
            state.place_of(id)
        };
        let Some(place) = place else { return Ok(None) };
        let shared = self.shared.clone();
        let found = match &place {
            Place::Chunk(chunk) if chunk.in_memory().is_some() => shared.record_in(&place, id),
            _ => blocking(move || shared.record_in(&place, id)).await,
        };
        match found {
            Err(_) if self.shared.state().unread.floor >= Some(id) => Ok(None),
            found => found,
        }
    }

    /// The newest unread records below `before` that `wanted` says yes to. Looks at a bounded
    /// part of the journal and says where it stopped.
    pub async fn newest(
        &self,
        before: Option<JobId>,
        wanted: impl Fn(&NewJob) -> bool + Send + 'static,
    ) -> Result<Newest, Error> {
        let (mut chunks, floor) = {
            let state = self.shared.state();
            (state.unread.newest(before, NEWEST_CHUNKS_MAX + 1), state.unread.floor)
        };
        let more = chunks.len() > NEWEST_CHUNKS_MAX;
        chunks.truncate(NEWEST_CHUNKS_MAX);
        let rest_below = chunks.last().filter(|_| more).map(|chunk| chunk.first);
        chunks.reverse();
        let shared = self.shared.clone();
        blocking(move || {
            let mut records = shared.records(&chunks, floor)?;
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
    /// There are older unread records than these: below this id, they were not looked at.
    pub rest_below: Option<JobId>,
}

/// Where a record can be found.
enum Place {
    Chunk(Box<Chunk>),
    /// A segment's first id and length.
    Segment(JobId, u64),
}

impl State {
    /// False during a rewind, when nothing happens.
    pub(crate) fn commit_until(&mut self, shared: &Shared, position: JobId) -> bool {
        if self.unread.is_paused() {
            return false;
        }
        self.unread.commit_until(position, |chunk| shared.load(chunk).ok());
        true
    }

    fn place_of(&self, id: JobId) -> Option<Place> {
        if let Some(chunk) = self.unread.find(id) {
            return Some(Place::Chunk(Box::new(chunk.clone())));
        }
        let behind = self.segments.partition_point(|segment| segment.first <= id);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        (segment.last >= Some(id)).then_some(Place::Segment(segment.first, segment.bytes))
    }
}

impl Shared {
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
            decode::records(&bytes, chunk.context.clone(), floor, &self.spool_dir, &mut read)
                .map_err(|what| self.corrupt(chunk.segment, chunk.offset, what))?;
        }
        Ok(read)
    }

    fn record_in(&self, place: &Place, id: JobId) -> Result<Option<Record>, Error> {
        let (segment, offset, bytes, context) = match place {
            Place::Chunk(chunk) => {
                (chunk.segment, chunk.offset, self.load(chunk)?, chunk.context.clone())
            }
            Place::Segment(first, length) => {
                let path = segment::path(&self.dir, *first);
                let bytes = self.disk.read(&path, 0, *length as usize);
                let bytes = bytes.map_err(|error| Error::storage("read", &path, &error))?;
                let head = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1);
                (*first, head as u64, Bytes::from(bytes).slice(head..), Context::default())
            }
        };
        let mut decoder = Decoder::new(&bytes, context);
        let corrupt = |what| self.corrupt(segment, offset, what);
        while let Some(line) = decoder.next().map_err(corrupt)? {
            if line.id == id {
                let mut types = TypeMemo::default();
                let record = line.to_record(&bytes, decoder.context(), &mut types, &self.spool_dir);
                return record.map(Some).map_err(corrupt);
            }
        }
        Ok(None)
    }

    pub(crate) fn corrupt(&self, segment: JobId, offset: u64, what: String) -> Error {
        Error::corrupt(&segment::path(&self.dir, segment), offset, what)
    }
}
