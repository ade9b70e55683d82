//! What goes into the journal and what comes out of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use windlass_core::store::IdempotencyKey;
use windlass_core::{Extra, JobId, NewJob, Priority, Timestamp, TypeKey, TypeName};

use crate::spool::Spool;

/// A job to be accepted.
#[derive(Debug, Clone)]
pub struct Entry {
    pub key: TypeKey,
    pub payload: AddPayload,
    pub priority: Priority,
    /// Don't run before this time; absent means at once.
    pub run_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    /// Kept in whole milliseconds.
    pub timeout: Option<Duration>,
    /// The type that gets the job's result.
    pub then: Option<TypeName>,
    pub extra: Extra,
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
    /// The oldest of them.
    pub unread_oldest: Option<JobId>,
    pub segments: usize,
    /// Size of all segments, without spooled payloads.
    pub disk_bytes: u64,
    pub id_newest: Option<JobId>,
    /// `None` while the journal accepts; otherwise why the last write failed.
    pub healthy: Option<String>,
}

/// The options of a job in the files; defaults are not written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct JobOptions {
    pub(crate) priority: Priority,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) then: Option<TypeName>,
    pub(crate) extra: Extra,
}

impl Entry {
    pub(crate) fn job_options(&self) -> JobOptions {
        JobOptions {
            priority: self.priority,
            run_at: self.run_at,
            expires_at: self.expires_at,
            timeout_ms: self.timeout.map(|timeout| timeout.as_millis() as u64),
            then: self.then.clone(),
            extra: self.extra.clone(),
        }
    }

    /// Upper estimate of the entry's size in memory and in a frame.
    pub(crate) fn cost_bytes(&self) -> usize {
        const LINE_OVERHEAD_BYTES: usize = 64;
        const ESCAPED_BYTES_MAX: usize = 3;
        let payload = match &self.payload {
            AddPayload::Inline(bytes) => bytes.len(),
            AddPayload::Spooled(_) => LINE_OVERHEAD_BYTES,
        };
        let texts = [&self.extra.repeat, &self.extra.door_text, &self.extra.run_at_text];
        let extra: usize = texts.into_iter().flatten().map(|text| text.len()).sum();
        payload
            + self.key.tenant.as_str().len()
            + self.key.name.as_str().len()
            + ESCAPED_BYTES_MAX * (self.then.as_ref().map_or(0, |then| then.as_str().len()) + extra)
            + LINE_OVERHEAD_BYTES
    }
}
