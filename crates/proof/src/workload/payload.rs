//! Payloads that say where a job comes from and what its attempts do, as one line of JSON with
//! padding. An empty payload says nothing: its job is plain and its origin unknown.
//!
//! The payload of an add has a checksum over everything that it says, so that every reader can
//! tell whether it is whole. It does not depend on how the JSON is written, because Bedrock's door
//! reads and writes it again.

use serde::{Deserialize, Serialize};

use crate::history::{Add, Body, JobId, Origin, Plan};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    origin: Option<Origin>,
    plan: Plan,
    /// Attempts so far, as far as workers without tokens count them.
    #[serde(skip_serializing_if = "is_zero")]
    tries: u32,
    /// Whose result it is.
    by: String,
    /// The checksum of what an add says.
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<String>,
    /// Fills it up to its length.
    pad: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Of the padding, which differs between jobs.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
/// Of CRC-32, reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The payload of job number `index` of an add: as long as the form says, or as what it has to say,
/// if that is longer; empty if the form says so.
pub fn of_add(add: &Add, index: u32) -> Vec<u8> {
    if add.form.payload_bytes == 0 {
        return Vec::new();
    }
    let origin = Origin::Add { mark: add.mark, index };
    let (plan, sum) = (add.form.plan.clone(), Some(written(0)));
    let mut content = Content { origin: Some(origin), plan, sum, ..Content::default() };
    let length = usize::try_from(add.form.payload_bytes).unwrap_or(usize::MAX);
    let missing = length.saturating_sub(text(&content).len());
    content.pad = padding(add.mark, index, missing);
    content.sum = sum_of(&content);
    text(&content).into_bytes()
}

/// A checksum, always as long.
fn written(sum: u32) -> String {
    format!("{sum:08x}")
}

fn padding(mark: u64, index: u32, length: usize) -> String {
    let mut rng = super::generator(mark, "padding", u64::from(index));
    (0..length).map(|_| char::from(LETTERS[rng.usize(..LETTERS.len())])).collect()
}

/// What a payload is, as its reader sees it.
pub fn body(payload: &[u8]) -> Body {
    if payload.is_empty() {
        return Body::Empty;
    }
    let content = content(payload);
    match content.origin {
        Some(origin) if content.sum.is_some() && content.sum == sum_of(&content) => {
            Body::Intact(origin)
        }
        _ => Body::Other,
    }
}

/// The checksum of what an add says. Handlers compute it too, so it is that of a text.
fn sum_of(content: &Content) -> Option<String> {
    let Some(Origin::Add { mark, index }) = content.origin else { return None };
    let Plan { statuses, emits, children, progress, run_ms } = &content.plan;
    let progress = u8::from(*progress);
    let pad = &content.pad;
    let said = format!("{mark} {index} {statuses:?} {emits} {children} {progress} {run_ms} {pad}");
    Some(written(crc32(said.as_bytes())))
}

/// CRC-32 as zlib computes it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        let table = TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize];
        table ^ (sum >> 8)
    })
}

static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { (sum >> 1) ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
};

/// The payload of what an attempt of this job emits.
pub fn of_emit(job: JobId, index: u32) -> String {
    text(&Content { origin: Some(Origin::Emit { of: job, index }), ..Content::default() })
}

/// Result data of this job, which becomes the payload of a job that follows it. `by` makes it
/// different from all other results.
pub fn of_result(job: JobId, by: &str) -> String {
    let origin = Some(Origin::Then { of: job });
    text(&Content { origin, by: by.to_owned(), ..Content::default() })
}

/// New data of a job that keeps its origin and plan, after so many attempts. `by` makes it
/// different from the data of all other reports.
pub fn of_report(origin: Option<Origin>, plan: &Plan, tries: u32, by: &str) -> String {
    let (plan, by) = (plan.clone(), by.to_owned());
    text(&Content { origin, plan, tries, by, ..Content::default() })
}

/// Attempts that the data of a job counts.
pub fn tries(payload: &[u8]) -> u32 {
    serde_json::from_slice::<Content>(payload).unwrap_or_default().tries
}

/// The origin and plan in a payload. A payload that is a JSON string is read as its text, because
/// result data may be stored in either form.
pub fn read(payload: &[u8]) -> (Option<Origin>, Plan) {
    let content = content(payload);
    (content.origin, content.plan)
}

fn content(payload: &[u8]) -> Content {
    let inner = serde_json::from_slice::<String>(payload);
    let payload = inner.as_ref().map_or(payload, |text| text.as_bytes());
    serde_json::from_slice(payload).unwrap_or_default()
}

fn text(content: &Content) -> String {
    serde_json::to_string(content).expect("it has neither maps nor values that JSON lacks")
}
