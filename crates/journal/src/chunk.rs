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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> JobId {
        JobId::new(number).unwrap()
    }

    /// A record for each number, which is the size of its payload in a separate file; 0 for none.
    fn records(first: i64, spooled: &[u64]) -> Bytes {
        let record = |(n, spooled): (i64, &u64)| match spooled {
            0 => format!("{n}|acme/mail|x\n"),
            bytes => format!("#:File name=f,bytes={bytes}\n{n}|acme/mail|\n"),
        };
        (first..).zip(spooled).map(record).collect::<String>().into()
    }

    /// A chunk with these records, which are not in memory.
    fn chunk(offset: u64, first: i64, spooled: &[u64]) -> (Chunk, Bytes) {
        let bytes = records(first, spooled);
        let chunk = Chunk {
            segment: id(1),
            offset,
            bytes: bytes.len(),
            records: spooled.len() as u32,
            spooled_bytes: spooled.iter().sum(),
            first: id(first),
            last: id(first + spooled.len() as i64 - 1),
            state: FrameState::default(),
            content: Content::of_file(&bytes),
        };
        (chunk, bytes)
    }

    /// Everything but the state; the sum of a chunk that is in memory is that of its bytes.
    fn parts(chunk: &Chunk) -> (u64, usize, u32, u64, i64, i64, u32) {
        let Chunk { offset, bytes, records, spooled_bytes, first, last, .. } = *chunk;
        let sum = match &chunk.content {
            Content::Memory(bytes) => crc32c::crc32c(bytes),
            Content::File { sum } => *sum,
        };
        (offset, bytes, records, spooled_bytes, first.get(), last.get(), sum)
    }

    #[test]
    fn small_chunks_that_follow_each_other_in_a_file_are_joined() {
        let (mut joined, first) = chunk(100, 5, &[0, 7]);
        let (next, second) = chunk(100 + first.len() as u64, 7, &[8, 0, 9]);
        assert!(joined.join(&next, &second));
        let both = [first, second].concat();
        assert_eq!(parts(&joined), (100, both.len(), 5, 24, 5, 9, crc32c::crc32c(&both)));
    }

    #[test]
    fn chunks_are_not_joined_across_gaps_and_segments_or_if_they_get_large() {
        let (first, _) = chunk(100, 5, &[0, 0]);
        let (next, bytes) = chunk(100 + first.bytes as u64, 7, &[0]);
        let joins = |first: &Chunk, next: &Chunk| {
            let mut joined = first.clone();
            let joins = joined.join(next, &bytes);
            assert_eq!(joined.records, if joins { 3 } else { 2 });
            joins
        };
        assert!(joins(&first, &next));
        assert!(!joins(&first, &Chunk { offset: next.offset + 1, ..next.clone() }));
        assert!(!joins(&first, &Chunk { segment: id(2), ..next.clone() }));
        let memory = || Content::Memory(bytes.clone());
        assert!(!joins(&first, &Chunk { content: memory(), ..next.clone() }));
        assert!(!joins(&Chunk { content: memory(), ..first.clone() }, &next));
        let large = |bytes: usize| {
            let next = Chunk { offset: 100 + bytes as u64, ..next.clone() };
            joins(&Chunk { bytes, ..first.clone() }, &next)
        };
        assert!(large(CHUNK_BYTES - next.bytes) && !large(CHUNK_BYTES - next.bytes + 1));
    }

    #[test]
    fn a_chunk_is_split_between_two_records_in_memory_or_not() {
        let (file, bytes) = chunk(100, 5, &[0, 7, 0, 9]);
        let memory = Chunk { content: Content::Memory(bytes.clone()), ..file.clone() };
        let (two, rest) = (records(5, &[0, 7]), records(7, &[0, 9]));
        for (whole, is_in_memory) in [(file, false), (memory, true)] {
            let (head, tail) = whole.split(&bytes, |size, _| size.records <= 2).unwrap();
            assert_eq!(parts(&head), (100, two.len(), 2, 7, 5, 6, crc32c::crc32c(&two)));
            let at = 100 + two.len() as u64;
            assert_eq!(parts(&tail), (at, rest.len(), 2, 9, 7, 8, crc32c::crc32c(&rest)));
            let in_memory = [&head, &tail].map(|part| part.in_memory().map(Bytes::len));
            let expected = [two.len(), rest.len()].map(|len| is_in_memory.then_some(len));
            assert_eq!(in_memory, expected);
            assert!(whole.split(&bytes, |_, _| true).is_none(), "all of them fit");
            assert!(whole.split(&bytes, |_, _| false).is_none(), "none of them fits");
        }
    }

    #[test]
    fn large_payloads_count_when_a_chunk_is_split() {
        let (whole, bytes) = chunk(100, 5, &[0, 7, 0]);
        assert_eq!(whole.size().bytes, bytes.len() as u64 + 7);
        let [one, two] = [1, 2].map(|count| records(5, &[0, 7, 0][..count]).len() as u64);
        let head = |bytes_max: u64| {
            let split = whole.split(&bytes, |size, _| size.bytes <= bytes_max);
            split.map(|(head, _)| head.records)
        };
        assert_eq!((head(one - 1), head(one), head(two + 6)), (None, Some(1), Some(1)));
        assert_eq!(head(two + 7), Some(2));
    }
}
