//! The data of a job: a JSON text that is kept as written, with a few keys that the queue itself
//! reads and writes.

use std::borrow::Cow;

use bytes::Bytes;

use windlass_bedrock_rules::data::MOCK;
pub(super) use windlass_bedrock_rules::data::is_mocked;
use windlass_bedrock_rules::merge::{
    is_object, json_get_top, json_remove_top, json_set_top, merge_patch,
};
use windlass_core::Payload;

use crate::number::leading_integer;

/// The data of a job that has none.
pub(super) const EMPTY: &str = "{}";
const RETRY_COUNT: &str = "retryAfterCount";
const ORIGINAL_NEXT_RUN: &str = "originalNextRun";

/// The payload as text, which another door may have written: it need not be JSON. `None` if it is
/// not UTF-8 or too large to be parsed; then it must not be changed.
pub(super) fn text(payload: &Payload) -> Option<&str> {
    match payload {
        Payload::Inline(bytes) => std::str::from_utf8(bytes).ok(),
        Payload::Pieces { .. } => None,
    }
}

/// The payload as well as a reply can show it.
pub(super) fn shown(payload: &Payload) -> Cow<'_, str> {
    match payload {
        Payload::Inline(bytes) => String::from_utf8_lossy(bytes),
        Payload::Pieces { .. } => Cow::Borrowed(""),
    }
}

/// Whether this is valid data for a new job: `{}`, or a non-empty object.
pub(super) fn is_acceptable(text: &str) -> bool {
    text == EMPTY || (is_object(text) && merge_patch("0", text).is_some_and(|text| text != EMPTY))
}

pub(super) fn with_mock(text: &str) -> String {
    json_set_top(text, MOCK, "true")
}

/// The data that an update stores: minified, with the job's own mock key. Invalid JSON becomes an
/// empty object.
pub(super) fn updated(text: &str, mocked: bool) -> String {
    if !is_object(text) {
        return merge_patch("0", text).unwrap_or_else(|| EMPTY.to_owned());
    }
    if mocked { with_mock(text) } else { json_remove_top(text, MOCK) }
}

/// How often the job was handed out without a report.
pub(super) fn retry_count(text: &str) -> i64 {
    json_get_top(text, RETRY_COUNT).map_or(0, leading_integer)
}

pub(super) fn with_retry_count(text: &str, count: i64) -> String {
    json_set_top(text, RETRY_COUNT, &count.to_string())
}

/// Decrements the count; a missing count is 1.
pub(super) fn with_retry_count_decremented(text: &str) -> String {
    let count = json_get_top(text, RETRY_COUNT).map_or(1, leading_integer);
    with_retry_count(text, count - 1)
}

/// Decrements the count, if there is one.
pub(super) fn without_one_retry(text: &str) -> Option<String> {
    (retry_count(text) > 0).then(|| with_retry_count_decremented(text))
}

/// The data that a worker's report stores: minified and without the count. JSON that is not an
/// object, such as the `[]` that PHP writes for an empty array, is accepted; invalid JSON is not.
pub(super) fn reported(text: &str) -> Option<String> {
    let small = merge_patch("0", text)?;
    Some(if is_object(text) { without_retry_count(text) } else { small })
}

pub(super) fn without_retry_count(text: &str) -> String {
    json_remove_top(text, RETRY_COUNT)
}

pub(super) fn with_original_next_run(text: &str, next_run: &str) -> String {
    json_set_top(text, ORIGINAL_NEXT_RUN, &serde_json::Value::from(next_run).to_string())
}

pub(super) fn original_next_run(text: &str) -> Option<String> {
    serde_json::from_str(json_get_top(text, ORIGINAL_NEXT_RUN)?).ok()
}

/// Whether the data asks for its job to end for good.
pub(super) fn asks_for_deletion(text: &str) -> bool {
    json_get_top(text, "delete").is_some_and(|value| value == "true" || value == "\"true\"")
}

pub(super) fn bytes(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_data_is_a_whole_object() {
        for good in ["{}", r#"{"a":1}"#, r#" {"a":{}} "#] {
            assert!(is_acceptable(good), "{good}");
        }
        for bad in ["", "{ }", "[]", "1", "null", r#"{"a":1"#, r#"{"a":}"#, r#"{"a":1} x"#] {
            assert!(!is_acceptable(bad), "{bad}");
        }
    }

    #[test]
    fn an_update_stores_what_is_json_and_keeps_what_is_mocked() {
        assert_eq!(updated(r#"{"a": 1, "mockRequest":true}"#, false), r#"{"a":1}"#);
        assert_eq!(updated(r#"{"a": 1}"#, true), r#"{"a":1,"mockRequest":true}"#);
        assert_eq!(updated("[1, 2]", false), "[1,2]");
        assert_eq!(updated("nonsense", true), "{}");
    }

    #[test]
    fn a_report_stores_any_json_without_the_count() {
        let object = r#"{"a": null, "retryAfterCount": 3}"#;
        assert_eq!(reported(object).as_deref(), Some(r#"{"a":null}"#));
        for (given, stored) in [("[]", "[]"), (" [1, 2]", "[1,2]"), ("null", "null"), ("5", "5")] {
            assert_eq!(reported(given).as_deref(), Some(stored));
        }
        assert_eq!(reported(r#""s""#).as_deref(), Some(r#""s""#));
        for bad in [r#"{"a":"#, "x", "[1"] {
            assert_eq!(reported(bad), None, "{bad}");
        }
    }

    #[test]
    fn retries_are_counted_in_the_data() {
        let once = with_retry_count(r#"{"a":1}"#, retry_count(r#"{"a":1}"#) + 1);
        assert_eq!(once, r#"{"a":1,"retryAfterCount":1}"#);
        assert_eq!(retry_count(&once), 1);
        assert_eq!(with_retry_count_decremented(&once), r#"{"a":1,"retryAfterCount":0}"#);
        assert_eq!(with_retry_count_decremented("{}"), r#"{"retryAfterCount":0}"#);
        assert_eq!(without_one_retry(&once).as_deref(), Some(r#"{"a":1,"retryAfterCount":0}"#));
        assert_eq!(without_one_retry(r#"{"a":1}"#), None);
        assert_eq!(without_retry_count(&once), r#"{"a":1}"#);
    }
}
