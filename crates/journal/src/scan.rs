//! Reads the frames of a segment: which records are unread, and which files they refer to.

use std::collections::BTreeMap;
use std::path::Path;

use windlass_core::JobId;

use crate::chunk::{CHUNK_BYTES, Chunk, Content, FrameState};
use crate::decode::{Decoder, Line, frame_end};
use crate::error::Error;
use crate::segment::Salt;
use crate::unread::Unread;

/// The contents of segments, collected from the oldest to the newest.
pub(crate) struct Scan {
    /// Records up to this one are in the store.
    after: Option<JobId>,
    pub(crate) newest: Option<JobId>,
    pub(crate) unread: Unread,
    /// Files of spooled payloads, each with the newest id that refers to it.
    pub(crate) spools: BTreeMap<String, JobId>,
}

/// The bytes of a segment, up to the length that counts.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) path: &'a Path,
    /// The segment's first id.
    pub(crate) segment: JobId,
    pub(crate) bytes: &'a [u8],
}

/// The complete frames of a segment.
pub(crate) struct Frames {
    /// Newest id in them.
    pub(crate) last: Option<JobId>,
    /// Where the last one ends.
    pub(crate) end: usize,
}

impl Scan {
    /// Looks for records that are newer than `after`.
    pub(crate) fn new(after: Option<JobId>) -> Scan {
        Scan { after, newest: None, unread: Unread::default(), spools: BTreeMap::new() }
    }

    /// Reads all complete frames from `start` on.
    pub(crate) fn frames(
        &mut self,
        text: Text<'_>,
        start: usize,
        salt: &Salt,
    ) -> Result<Frames, Error> {
        let mut frames = Frames { last: None, end: start };
        while let Some(end) = frame_end(text.bytes, frames.end, salt) {
            let last = self.frame(text, frames.end..end)?;
            frames = Frames { last: last.or(frames.last), end };
        }
        Ok(frames)
    }

    /// Records ids, spooled payloads and unread records of a valid frame; returns its newest id.
    fn frame(
        &mut self,
        text: Text<'_>,
        range: std::ops::Range<usize>,
    ) -> Result<Option<JobId>, Error> {
        let corrupt = |at: usize, what: &str| {
            Error::corrupt(text.path, (range.start + at) as u64, what.to_owned())
        };
        let frame = &text.bytes[range.clone()];
        let mut decoder = Decoder::new(frame, FrameState::default());
        let mut open = Open::at(0, FrameState::default());
        let mut last = None;
        while let Some(line) = decoder.next().map_err(|what| corrupt(decoder.at(), &what))? {
            if self.newest >= Some(line.id) {
                return Err(corrupt(line.end, "an id is not larger than the one before it"));
            }
            self.newest = Some(line.id);
            last = Some(line.id);
            if let Some(file) = line.file {
                self.spools.insert(file.name.to_owned(), line.id);
            }
            if self.after >= Some(line.id) {
                open = Open::at(line.end, decoder.state().clone());
                continue;
            }
            open.add(&line);
            if line.end - open.start >= CHUNK_BYTES {
                self.close(text.segment, range.start, frame, &open, line.end);
                open = Open::at(line.end, decoder.state().clone());
            }
        }
        self.close(text.segment, range.start, frame, &open, frame.len());
        Ok(last)
    }

    /// Turns a run of unread records into a chunk.
    fn close(&mut self, segment: JobId, base: usize, frame: &[u8], open: &Open, end: usize) {
        let Some((first, last)) = open.ids else { return };
        let bytes = &frame[open.start..end];
        let chunk = Chunk {
            segment,
            offset: (base + open.start) as u64,
            bytes: bytes.len(),
            records: open.records,
            spooled_bytes: open.spooled_bytes,
            first,
            last,
            state: open.state.clone(),
            content: Content::of_file(bytes),
        };
        self.unread.push(chunk, bytes);
    }
}

/// A run of unread records that is being collected.
struct Open {
    start: usize,
    state: FrameState,
    ids: Option<(JobId, JobId)>,
    records: u32,
    spooled_bytes: u64,
}

impl Open {
    fn at(start: usize, state: FrameState) -> Open {
        Open { start, state, ids: None, records: 0, spooled_bytes: 0 }
    }

    fn add(&mut self, line: &Line<'_>) {
        self.ids = Some((self.ids.map_or(line.id, |(first, _)| first), line.id));
        self.records += 1;
        self.spooled_bytes += line.spooled_bytes();
    }
}
