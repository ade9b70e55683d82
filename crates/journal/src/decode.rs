//! Reads what `encode` writes: complete, verified frames, and the records in a part of them.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use windlass_core::add::Expiry;
use windlass_core::store::IdempotencyKey;
use windlass_core::time::parse_time;
use windlass_core::{AddOptions, JobId, NewJob, Payload, Priority, Timestamp, TypeKey, TypeName};

use crate::chunk::FrameState;
use crate::encode::{FRAME_END, FRAME_START, checksum};
use crate::entry::{KeyNote, Record};
use crate::segment::{Salt, attribute};

/// Longest head line of a frame to look for.
const FRAME_HEAD_BYTES_MAX: usize = 160;
/// Maximum number of ids in one run of a `#:Key` line: a run ends where the sequence part of an id
/// wraps.
const RUN_IDS_MAX: i64 = 1024;

/// Where the complete and valid frame that starts at `at` ends; `None` if there is no such frame.
pub(crate) fn frame_end(bytes: &[u8], at: usize, salt: &Salt) -> Option<usize> {
    let rest = &bytes[at..];
    let window = &rest[..rest.len().min(FRAME_HEAD_BYTES_MAX)];
    let line = str::from_utf8(&window[..memchr::memchr(b'\n', window)?]).ok()?;
    let (head, sum) = line.strip_prefix(FRAME_START).and(line.rsplit_once(",crc32c="))?;
    let body_bytes: usize = head.rsplit_once(",bytes=")?.1.parse().ok()?;
    let body_start = line.len() + 1;
    let body = rest.get(body_start..body_start.checked_add(body_bytes)?)?;
    let body_end = body_start + body_bytes;
    let ended = rest[body_end..].starts_with(FRAME_END.as_bytes());
    let valid = ended && format!("{:08x}", checksum(salt, head.as_bytes(), body)) == sum;
    valid.then_some(at + body_end + FRAME_END.len())
}

/// Where a complete and valid frame starts, at `from` or anywhere after it.
pub(crate) fn frame_behind(bytes: &[u8], from: usize, salt: &Salt) -> Option<usize> {
    memchr::memmem::find_iter(&bytes[from..], FRAME_START)
        .map(|found| from + found)
        .find(|&at| frame_end(bytes, at, salt).is_some())
}

/// Reads records one by one from a part of a segment that starts and ends between records.
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    state: FrameState,
    /// What the preceding lines say about a record.
    counted: Option<usize>,
    file: Option<FileRef<'a>>,
}

/// One record as it is in the bytes.
pub(crate) struct Line<'a> {
    pub(crate) id: JobId,
    type_text: &'a str,
    payload: Range<usize>,
    pub(crate) file: Option<FileRef<'a>>,
    note: Option<Arc<KeyNote>>,
    /// Where the record ends in the bytes.
    pub(crate) end: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct FileRef<'a> {
    pub(crate) name: &'a str,
    bytes: u64,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8], state: FrameState) -> Decoder<'a> {
        Decoder { bytes, at: 0, state, counted: None, file: None }
    }

    /// What applies at the current position.
    pub(crate) fn state(&self) -> &FrameState {
        &self.state
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next record; `None` at the end. An error describes what is wrong at `at`.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'a>>, String> {
        while let Some(&first) = self.bytes.get(self.at) {
            if first.is_ascii_digit() {
                return self.record().map(Some);
            }
            let rest = &self.bytes[self.at..];
            let length = memchr::memchr(b'\n', rest).ok_or("a line has no end")?;
            let line = str::from_utf8(&rest[..length]).map_err(|_| "a line is not text")?;
            self.directive(line).ok_or_else(|| format!("unknown line: {line:?}"))?;
            self.at += length + 1;
        }
        let pending = self.counted.is_some() || self.file.is_some();
        if pending { Err("a record is missing at the end".into()) } else { Ok(None) }
    }

    fn directive(&mut self, line: &'a str) -> Option<()> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "#:Batch" => {
                let created_at = parse_time(attribute(rest, "date")?).ok()?;
                self.state = FrameState { created_at, ..FrameState::default() };
            }
            "#:EndBatch" => (self.state.options, self.state.note) = Default::default(),
            "#:Options" => self.state.options = job_options(rest)?,
            "#:Bytes" => self.counted = Some(rest.parse().ok()?),
            "#:File" => {
                let bytes = attribute(rest, "bytes")?.parse().ok()?;
                self.file = Some(FileRef { name: attribute(rest, "name")?, bytes });
            }
            "#:Key" => {
                let digits = attribute(rest, "fingerprint")?;
                let fingerprint = u64::from_str_radix(digits, 16).ok()?;
                let key = unescaped(attribute(rest, "key")?)?.into_owned();
                let ids = ids_of_runs(attribute(rest, "ids")?)?;
                let key = IdempotencyKey { key, fingerprint };
                self.state.note = Some(Arc::new(KeyNote { key, ids }));
            }
            _ => return None,
        }
        Some(())
    }

    fn record(&mut self) -> Result<Line<'a>, String> {
        let (id, id_bytes) = leading_id(&self.bytes[self.at..]).ok_or("a line has no valid id")?;
        let type_start = self.at + id_bytes + 1;
        let type_bytes =
            memchr::memchr(b'|', &self.bytes[type_start..]).ok_or("a job line has no type")?;
        let type_end = type_start + type_bytes;
        let type_text = str::from_utf8(&self.bytes[type_start..type_end])
            .map_err(|_| "the type in a job line is not text")?;
        let start = type_end + 1;
        let end = match self.counted.take() {
            Some(bytes) => start.checked_add(bytes).ok_or("a count is too large")?,
            None => {
                start
                    + memchr::memchr(b'\n', &self.bytes[start..]).ok_or("a job line has no end")?
            }
        };
        if self.bytes.get(end) != Some(&b'\n') {
            return Err("a counted payload does not end where it should".into());
        }
        self.at = end + 1;
        let note = self.state.note.clone().filter(|note| note.is_of(id));
        if note.as_ref().is_none_or(|note| note.ids.last() == Some(&id)) {
            self.state.note = None;
        }
        Ok(Line { id, type_text, payload: start..end, file: self.file.take(), note, end: self.at })
    }
}

/// All records in `bytes` that are newer than `floor`. Payloads share the memory of `bytes`.
pub(crate) fn records(
    bytes: &Bytes,
    state: FrameState,
    floor: Option<JobId>,
    spool_dir: &Path,
    into: &mut Vec<Record>,
) -> Result<(), String> {
    let mut decoder = Decoder::new(bytes, state);
    let mut types = TypeMemo::default();
    while let Some(line) = decoder.next()? {
        if Some(line.id) > floor {
            into.push(line.to_record(bytes, decoder.state(), &mut types, spool_dir)?);
        }
    }
    Ok(())
}

/// The last type that was read, since consecutive records often have the same.
#[derive(Default)]
pub(crate) struct TypeMemo<'a>(Option<(&'a str, TypeKey)>);

impl<'a> TypeMemo<'a> {
    fn get(&mut self, text: &'a str) -> Result<TypeKey, String> {
        if let Some((known, key)) = &self.0
            && *known == text
        {
            return Ok(key.clone());
        }
        let (tenant, name) = text.split_once('/').ok_or("a type has no tenant")?;
        let key = TypeKey::new(tenant, name).map_err(|invalid| invalid.to_string())?;
        self.0 = Some((text, key.clone()));
        Ok(key)
    }
}

impl<'a> Line<'a> {
    /// Size of the payload, if it is in a separate file.
    pub(crate) fn spooled_bytes(&self) -> u64 {
        self.file.map_or(0, |file| file.bytes)
    }

    /// `bytes` and `state` are those of the decoder that the line comes from.
    pub(crate) fn to_record(
        &self,
        bytes: &Bytes,
        state: &FrameState,
        types: &mut TypeMemo<'a>,
        spool_dir: &Path,
    ) -> Result<Record, String> {
        let key = types.get(self.type_text)?;
        let payload = match self.file {
            Some(file) => Payload::Pieces { bytes: file.bytes },
            None => Payload::Inline(bytes.slice(self.payload.clone())),
        };
        let job = NewJob::with(state.options.clone(), self.id, key, payload, state.created_at);
        let spool = self.file.map(|file| spool_dir.join(file.name));
        Ok(Record { job, spool, note: self.note.clone() })
    }
}

fn job_options(attributes: &str) -> Option<AddOptions> {
    let mut options = AddOptions::default();
    for part in attributes.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=')?;
        match name {
            "priority" => options.priority = Priority::new(value.parse().ok()?).ok()?,
            "run_at_ms" => options.run_at = Some(Timestamp(value.parse().ok()?)),
            "expires_at_ms" => {
                options.expires = Some(Expiry::At(Timestamp(value.parse().ok()?)));
            }
            "timeout_ms" => options.timeout = Some(Duration::from_millis(value.parse().ok()?)),
            "then" => options.then = Some(TypeName::new(&unescaped(value)?).ok()?),
            "repeat" => options.extra.repeat = Some(unescaped(value)?.into()),
            "door_text" => options.extra.door_text = Some(unescaped(value)?.into()),
            "run_at_text" => options.extra.run_at_text = Some(unescaped(value)?.into()),
            "order_key" => options.extra.order_key = value.parse().ok()?,
            "hidden" => options.extra.hidden = value == "1",
            _ => return None,
        }
    }
    Some(options)
}

fn unescaped(value: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(value).decode_utf8().ok()
}

/// The id before the first '|', and its number of digits.
fn leading_id(bytes: &[u8]) -> Option<(JobId, usize)> {
    let mut number: i64 = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte == b'|' {
            return Some((JobId::new(number)?, at));
        }
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    None
}

fn ids_of_runs(runs: &str) -> Option<Vec<JobId>> {
    let mut ids = Vec::new();
    for run in runs.split('+') {
        let (first, last) = run.split_once('-')?;
        let (first, last): (JobId, JobId) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last.get() - first.get() >= RUN_IDS_MAX {
            return None;
        }
        ids.extend((first.get()..=last.get()).filter_map(JobId::new));
    }
    Some(ids)
}
