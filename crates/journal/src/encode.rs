//! Writes frames. All entries that are synced together are one frame, so a torn write affects only
//! one frame, at the end of the file, and nothing valid can follow it.
//!
//! A frame is built in one reusable buffer: the body first, after a gap that is as long as the
//! longest head line, then the head line at the end of the gap.

use std::sync::Arc;

use bytes::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use windlass_core::store::IdempotencyKey;
use windlass_core::{AddOptions, JobId, Priority, Timestamp, TypeName};

use crate::chunk::{CHUNK_BYTES, Chunk, Content, FrameState};
use crate::entry::{AddPayload, Entry, KeyNote};
use crate::error::Error;
use crate::segment::Salt;
use crate::unread::CacheRoom;

/// The start and the end of a frame.
pub(crate) const FRAME_START: &str = "#:Batch date=";
pub(crate) const FRAME_END: &str = "#:EndBatch\n";
/// The gap before the body, at least as long as any head line.
const GAP_BYTES: usize = 160;
/// Capacity that the buffer keeps between frames; a larger one is released.
const BUFFER_BYTES_KEPT_MAX: usize = 32 * 1024 * 1024;

/// Bytes that would break a line or an attribute.
const ESCAPED: &AsciiSet = &CONTROLS.add(b',').add(b'%');

pub(crate) struct Frame {
    buffer: Vec<u8>,
    /// Where the finished frame starts in the buffer.
    start: usize,
    /// What applies at the end of the buffer.
    state: FrameState,
    records: u64,
    spans: Vec<Span>,
}

/// A run of records in the buffer, which becomes a chunk.
struct Span {
    end: usize,
    records: u32,
    spooled_bytes: u64,
    first: JobId,
    last: JobId,
    /// What applies at its first byte.
    state: FrameState,
}

impl Frame {
    pub(crate) fn new() -> Frame {
        Frame {
            buffer: Vec::new(),
            start: 0,
            state: FrameState::default(),
            records: 0,
            spans: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, created_at: Timestamp) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
        self.buffer.resize(GAP_BYTES, 0);
        self.spans.clear();
        self.state = FrameState { created_at, ..FrameState::default() };
        self.records = 0;
    }

    /// Adds the entries of one append; `ids` has theirs, in the same order.
    pub(crate) fn push(&mut self, entries: &[Entry], ids: &[JobId], key: Option<&IdempotencyKey>) {
        for (index, (entry, &id)) in entries.iter().zip(ids).enumerate() {
            self.open_span(id);
            if entry.options != self.state.options {
                self.push_options(&entry.options);
            }
            if let (0, Some(key)) = (index, key) {
                self.push_note(KeyNote { key: key.clone(), ids: ids.to_vec() });
            }
            self.push_entry(entry, id);
            self.close_record(entry, id);
        }
        self.state.note = None;
    }

    /// Adds head and end; returns the bytes of the frame.
    pub(crate) fn finish(&mut self, salt: &Salt) -> Result<&[u8], Error> {
        let date = jiff::Timestamp::from_millisecond(self.state.created_at.ms())
            .map_err(|_| Error::Storage("the clock shows a date that cannot be written".into()))?;
        let body_bytes = self.buffer.len() - GAP_BYTES;
        let head = format!("{FRAME_START}{date:.3},records={},bytes={body_bytes}", self.records);
        let sum = checksum(salt, head.as_bytes(), &self.buffer[GAP_BYTES..]);
        let head = format!("{head},crc32c={sum:08x}\n");
        self.start =
            GAP_BYTES.checked_sub(head.len()).expect("the gap is longer than any head line");
        self.buffer[self.start..GAP_BYTES].copy_from_slice(head.as_bytes());
        self.buffer.extend_from_slice(FRAME_END.as_bytes());
        if let Some(span) = self.spans.last_mut() {
            span.end = self.buffer.len();
        }
        Ok(&self.buffer[self.start..])
    }

    /// Upper bound of the length of the finished frame.
    pub(crate) fn bytes_max(&self) -> u64 {
        (self.buffer.len() + FRAME_END.len()) as u64
    }

    /// The finished frame, located in `segment` from `offset` on, as chunks. The first ones keep
    /// their bytes in memory, as far as `cache` has room.
    pub(crate) fn chunks(
        &self,
        segment: JobId,
        offset: u64,
        mut cache: CacheRoom,
    ) -> Vec<(Chunk, &[u8])> {
        let mut start = self.start;
        let mut chunks = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            let bytes = &self.buffer[start..span.end];
            let chunk = Chunk {
                segment,
                offset: offset + (start - self.start) as u64,
                bytes: bytes.len(),
                records: span.records,
                spooled_bytes: span.spooled_bytes,
                first: span.first,
                last: span.last,
                state: span.state.clone(),
                content: match cache.take(bytes.len()) {
                    true => Content::Memory(Bytes::copy_from_slice(bytes)),
                    false => Content::of_file(bytes),
                },
            };
            chunks.push((chunk, bytes));
            start = span.end;
        }
        chunks
    }

    fn open_span(&mut self, id: JobId) {
        let start = match self.spans.len() {
            0 | 1 => GAP_BYTES,
            spans => self.spans[spans - 2].end,
        };
        if self.spans.last().is_none_or(|span| span.end - start >= CHUNK_BYTES) {
            let (end, state) = (self.buffer.len(), self.state.clone());
            let (records, spooled_bytes) = (0, 0);
            self.spans.push(Span { end, records, spooled_bytes, first: id, last: id, state });
        }
    }

    fn close_record(&mut self, entry: &Entry, id: JobId) {
        self.records += 1;
        let end = self.buffer.len();
        let span = self.spans.last_mut().expect("a span was opened before the record");
        span.end = end;
        span.records += 1;
        if let AddPayload::Spooled(spool) = &entry.payload {
            span.spooled_bytes += spool.bytes();
        }
        span.last = id;
    }

    fn push_entry(&mut self, entry: &Entry, id: JobId) {
        let payload: &[u8] = match &entry.payload {
            AddPayload::Inline(bytes) => {
                if memchr::memchr2(b'\n', 0, bytes).is_some() {
                    self.push_text(&format!("#:Bytes {}\n", bytes.len()));
                }
                bytes
            }
            AddPayload::Spooled(spool) => {
                self.push_text(&format!("#:File name={},bytes={}\n", spool.name(), spool.bytes()));
                &[]
            }
        };
        let (tenant, name) = (entry.key.tenant.as_str(), entry.key.name.as_str());
        self.buffer.reserve(ID_DIGITS_MAX + tenant.len() + name.len() + payload.len() + 4);
        push_id(&mut self.buffer, id);
        self.buffer.push(b'|');
        self.push_text(tenant);
        self.buffer.push(b'/');
        self.push_text(name);
        self.buffer.push(b'|');
        self.buffer.extend_from_slice(payload);
        self.buffer.push(b'\n');
    }

    /// Defaults are not written.
    fn push_options(&mut self, options: &AddOptions) {
        debug_assert!(options.unique.is_none() && options.parent.is_none(), "{options:?}");
        let mut attributes = Vec::new();
        if options.priority != Priority::default() {
            attributes.push(format!("priority={}", options.priority.get()));
        }
        if let Some(run_at) = options.run_at {
            attributes.push(format!("run_at_ms={}", run_at.ms()));
        }
        if let Some(expiry) = options.expires {
            let expires_at = expiry.of(self.state.created_at);
            attributes.push(format!("expires_at_ms={}", expires_at.ms()));
        }
        if let Some(timeout) = options.timeout {
            attributes.push(format!("timeout_ms={}", timeout.as_millis() as u64));
        }
        let texts = [
            ("then", options.then.as_ref().map(TypeName::as_str)),
            ("repeat", options.extra.repeat.as_deref()),
            ("door_text", options.extra.door_text.as_deref()),
            ("run_at_text", options.extra.run_at_text.as_deref()),
        ];
        for (name, text) in texts.iter().filter_map(|(name, text)| Some((name, (*text)?))) {
            attributes.push(format!("{name}={}", utf8_percent_encode(text, ESCAPED)));
        }
        if options.extra.order_key != 0 {
            attributes.push(format!("order_key={}", options.extra.order_key));
        }
        if options.extra.hidden {
            attributes.push("hidden=1".into());
        }
        let space = if attributes.is_empty() { "" } else { " " };
        self.push_text(&format!("#:Options{space}{}\n", attributes.join(",")));
        self.state.options = options.clone();
    }

    fn push_note(&mut self, note: KeyNote) {
        let mut runs = String::new();
        for run in note.ids.chunk_by(|a, b| a.get() + 1 == b.get()) {
            let plus = if runs.is_empty() { "" } else { "+" };
            runs += &format!("{plus}{}-{}", run[0], run[run.len() - 1]);
        }
        let IdempotencyKey { key, fingerprint } = &note.key;
        let escaped = utf8_percent_encode(key, ESCAPED);
        self.push_text(&format!("#:Key fingerprint={fingerprint:016x},ids={runs},key={escaped}\n"));
        self.state.note = Some(Arc::new(note));
    }

    fn push_text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }
}

/// The checksum of a frame: over the segment's salt, the head line up to the checksum, and the
/// body.
pub(crate) fn checksum(salt: &Salt, head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(salt), head), body)
}

const ID_DIGITS_MAX: usize = 19;

/// Appends the id in decimal without an allocation.
fn push_id(buffer: &mut Vec<u8>, id: JobId) {
    let mut digits = [0; ID_DIGITS_MAX];
    let mut at = ID_DIGITS_MAX;
    let mut rest = id.get() as u64;
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    buffer.extend_from_slice(&digits[at..]);
}
