//! Payloads that say where a job comes from and what its attempts do, as one line of JSON with
//! padding. An empty payload says nothing: its job is plain and its origin unknown.

use serde::{Deserialize, Serialize};

use crate::history::{Add, JobId, Origin, Plan};

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
    /// Last, so that padding can be inserted before the end.
    pad: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What stands behind the padding.
const TAIL: &[u8] = b"\"}";

/// The payload of job number `index` of an add: as long as the form says, or as what it has to say,
/// if that is longer; empty if the form says so.
pub fn of_add(add: &Add, index: u32) -> Vec<u8> {
    if add.form.payload_bytes == 0 {
        return Vec::new();
    }
    let origin = Some(Origin::Add { mark: add.mark, index });
    let content = Content { origin, plan: add.form.plan.clone(), ..Content::default() };
    let mut payload = text(&content).into_bytes();
    let length = usize::try_from(add.form.payload_bytes).unwrap_or(usize::MAX);
    if let Some(missing) = length.checked_sub(payload.len()) {
        payload.truncate(payload.len() - TAIL.len());
        payload.resize(payload.len() + missing, b'x');
        payload.extend(TAIL);
    }
    payload
}

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
    let inner = serde_json::from_slice::<String>(payload);
    let payload = inner.as_ref().map_or(payload, |text| text.as_bytes());
    let content: Content = serde_json::from_slice(payload).unwrap_or_default();
    (content.origin, content.plan)
}

fn text(content: &Content) -> String {
    serde_json::to_string(content).expect("it has neither maps nor values that JSON lacks")
}
