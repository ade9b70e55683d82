//! What goes into the journal and what comes out of it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use windlass_core::store::IdempotencyKey;
use windlass_core::{AddOptions, JobId, NewJob, TypeKey};

use crate::spool::Spool;

/// A job to be accepted.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: TypeKey,
    pub payload: AddPayload,
    /// Without `unique` and `parent`, which the files do not keep.
    pub options: AddOptions,
}

/// The payload of a job to be accepted.
#[derive(Debug, Clone)]
pub enum AddPayload {
    /// At most `PAYLOAD_INLINE_BYTES_MAX`.
    Inline(Bytes),
    /// In a separate file, already synced.
    Spooled(Spool),
}

/// An accepted job on its way into the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// A spooled payload is `Payload::Pieces`; `unique` is `None`.
    pub job: NewJob,
    /// The file with the payload, if it was spooled.
    pub spool: Option<PathBuf>,
    /// On every record of an append that had a key.
    pub note: Option<Arc<KeyNote>>,
}

/// The idempotency key of an append, and the answer for a repetition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyNote {
    pub key: IdempotencyKey,
    /// Every id of the append, in order.
    pub ids: Vec<JobId>,
}

impl KeyNote {
    pub(crate) fn is_of(&self, id: JobId) -> bool {
        self.ids.binary_search(&id).is_ok()
    }
}

/// The journal in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Records that are not committed yet, reserved ones included.
    pub unread_records: u64,
    /// Size of these in the files, without spooled payloads.
    pub unread_bytes: u64,
    /// The oldest and the newest of them.
    pub unread_oldest: Option<JobId>,
    pub unread_newest: Option<JobId>,
    pub segments: usize,
    /// Size of all segments, without spooled payloads.
    pub disk_bytes: u64,
    pub id_newest: Option<JobId>,
    /// `None` while the journal accepts; otherwise why the last write failed.
    pub refusal: Option<String>,
}

impl Entry {
    /// Upper estimate of the entry's size in memory and in a frame.
    pub(crate) fn cost_bytes(&self) -> usize {
        const LINE_OVERHEAD_BYTES: usize = 64;
        const ESCAPED_BYTES_MAX: usize = 3;
        let payload = match &self.payload {
            AddPayload::Inline(bytes) => bytes.len(),
            AddPayload::Spooled(_) => LINE_OVERHEAD_BYTES,
        };
        let AddOptions { then, extra, .. } = &self.options;
        let texts = [&extra.repeat, &extra.door_text, &extra.run_at_text];
        let extra: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        payload
            + self.key.tenant.as_str().len()
            + self.key.name.as_str().len()
            + ESCAPED_BYTES_MAX * (then.as_ref().map_or(0, |then| then.as_str().len()) + extra)
            + LINE_OVERHEAD_BYTES
    }
}
