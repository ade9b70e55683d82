//! Chunks: parts of a segment that contain unread records. A chunk is a range of a file and a
//! checksum, so a backlog of any size needs little memory; the newest chunks also keep their bytes.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use windlass_core::{AddOptions, JobId, Timestamp};

use crate::decode::Decoder;
use crate::disk::Disk;
use crate::entry::KeyNote;
use crate::segment;

/// A chunk ends with the record that makes it this long.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// What applies to the records from some point of a segment on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FrameState {
    pub(crate) created_at: Timestamp,
    pub(crate) options: AddOptions,
    /// The key of the append that this point is inside of, if it had one.
    pub(crate) note: Option<Arc<KeyNote>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Chunk {
    /// The segment's first id.
    pub(crate) segment: JobId,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    pub(crate) records: u32,
    /// Size of the payloads that its records have in separate files.
    pub(crate) spooled_bytes: u64,
    pub(crate) first: JobId,
    pub(crate) last: JobId,
    /// What applies at the first byte.
    pub(crate) state: FrameState,
    pub(crate) content: Content,
}

/// Where the bytes of a chunk are. They are in the file in any case.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Memory(Bytes),
    File { sum: u32 },
}

impl Content {
    pub(crate) fn of_file(bytes: &[u8]) -> Content {
        Content::File { sum: crc32c::crc32c(bytes) }
    }
}

impl Chunk {
    pub(crate) fn in_memory(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Memory(bytes) => Some(bytes),
            Content::File { .. } => None,
        }
    }

    /// The bytes, from memory or from the file; verified if from the file.
    pub(crate) fn load(&self, disk: &dyn Disk, dir: &Path) -> io::Result<Bytes> {
        let sum = match &self.content {
            Content::Memory(bytes) => return Ok(bytes.clone()),
            Content::File { sum } => *sum,
        };
        let bytes = disk.read(&segment::path(dir, self.segment), self.offset, self.bytes)?;
        if crc32c::crc32c(&bytes) != sum {
            let message = format!("the bytes from {} on have changed since", self.offset);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Bytes::from(bytes))
    }

    /// Merges the chunk that follows directly in the same segment, if both are small and neither is
    /// in memory.
    pub(crate) fn join(&mut self, next: &Chunk, next_bytes: &[u8]) -> bool {
        let adjacent =
            self.segment == next.segment && self.offset + self.bytes as u64 == next.offset;
        let small = self.bytes + next.bytes <= CHUNK_BYTES;
        let (Content::File { sum }, Content::File { .. }) = (&mut self.content, &next.content)
        else {
            return false;
        };
        if !adjacent || !small {
            return false;
        }
        *sum = crc32c::crc32c_append(*sum, next_bytes);
        self.bytes += next.bytes;
        self.records += next.records;
        self.spooled_bytes += next.spooled_bytes;
        self.last = next.last;
        true
    }

    /// What reading the whole chunk costs.
    pub(crate) fn size(&self) -> Size {
        Size { records: u64::from(self.records), bytes: self.bytes as u64 + self.spooled_bytes }
    }

    /// Splits the chunk after its longest prefix of records that `fits` accepts, given its size and
    /// its last id. `None` if all or none of them fit.
    pub(crate) fn split(
        &self,
        bytes: &Bytes,
        fits: impl Fn(Size, JobId) -> bool,
    ) -> Option<(Chunk, Chunk)> {
        let mut decoder = Decoder::new(bytes, self.state.clone());
        let mut cut = None;
        let (mut records, mut spooled_bytes) = (0, 0);
        while let Ok(Some(line)) = decoder.next() {
            records += 1;
            spooled_bytes += line.spooled_bytes();
            let size = Size { records: records.into(), bytes: line.end as u64 + spooled_bytes };
            if !fits(size, line.id) {
                return cut.map(|cut| self.split_at(bytes, cut, line.id));
            }
            let (at, last, state) = (line.end, line.id, decoder.state().clone());
            cut = Some(Boundary { at, records, spooled_bytes, last, state });
        }
        None
    }

    fn split_at(&self, bytes: &Bytes, cut: Boundary, next: JobId) -> (Chunk, Chunk) {
        let part = |range: Range<usize>| Chunk {
            offset: self.offset + range.start as u64,
            bytes: range.len(),
            content: match &self.content {
                Content::Memory(_) => Content::Memory(bytes.slice(range)),
                Content::File { .. } => Content::of_file(&bytes[range]),
            },
            ..self.clone()
        };
        let head = Chunk {
            records: cut.records,
            spooled_bytes: cut.spooled_bytes,
            last: cut.last,
            ..part(0..cut.at)
        };
        let tail = Chunk {
            records: self.records - cut.records,
            spooled_bytes: self.spooled_bytes - cut.spooled_bytes,
            first: next,
            state: cut.state,
            ..part(cut.at..self.bytes)
        };
        (head, tail)
    }
}

/// A boundary between two records.
struct Boundary {
    at: usize,
    records: u32,
    spooled_bytes: u64,
    last: JobId,
    state: FrameState,
}

/// The size of some records, spooled payloads included.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Size {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Size {
    pub(crate) fn with(self, other: Size) -> Size {
        Size { records: self.records + other.records, bytes: self.bytes + other.bytes }
    }

    pub(crate) fn is_within(self, bounds: Size) -> bool {
        self.records <= bounds.records && self.bytes <= bounds.bytes
    }
}
