//! The rules for whatever is in a request, for the fuzzer and the tests: what is read is what was
//! sent, within its bounds, and everything else is refused with words.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use bytes::Bytes;
use futures_util::stream;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use windlass_core::limit::{PAYLOAD_INLINE_BYTES_MAX, PRIORITY_MAX};
use windlass_core::record;
use windlass_core::{AddOptions, Timestamp};
use windlass_net::Memory;

use crate::add::{ADD_JOBS_MAX, OPTIONS, options_from_query};
use crate::add_text::Lines;
use crate::body::{Kind, Reader, kind};
use crate::error::Failure;
use crate::path::{job_id, type_key};
use crate::query::Query;
use crate::wire_handler::{WireSettings, WireSpec};
use crate::{add_json, json};

const NOW: Timestamp = Timestamp(1_800_000_000_123);
/// A bound that short inputs reach.
const BODY_BYTES_MAX: u64 = 300;
const PIECE_BYTES: usize = 7;

/// A content type, and behind the first line feed a body: lines, JSON or binary. Accepts it if it
/// would add jobs.
pub fn body(bytes: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    let (head, body) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let mut headers = HeaderMap::new();
    let Ok(value) = HeaderValue::from_bytes(head) else { return false };
    headers.insert(header::CONTENT_TYPE, value);
    let body = Bytes::copy_from_slice(body);
    match kind(&headers) {
        Kind::Text => check_lines(&body),
        Kind::Json => check_json(&body),
        Kind::Binary => check_binary(&headers, &body),
        Kind::Absent | Kind::Other => false,
    }
}

/// Every byte but line ends is in a payload.
fn check_lines(body: &Bytes) -> bool {
    let lines: Vec<Bytes> = Lines(body.clone()).collect();
    assert!(lines.iter().all(|line| !line.is_empty() && !line.contains(&b'\n')));
    let plain = body.split(|byte| *byte == b'\n');
    let plain = plain.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let plain: Vec<&[u8]> = plain.filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, plain);
    !lines.is_empty()
}

/// The payload of each job is its text, or the JSON as it was sent.
fn check_json(body: &Bytes) -> bool {
    check_handler(body);
    let jobs = match add_json::read(body, NOW) {
        Ok(jobs) => jobs,
        Err(failure) => {
            check_refusal(&failure);
            return false;
        }
    };
    assert!((1..=ADD_JOBS_MAX).contains(&jobs.len()));
    let sent: Option<Value> = serde_json::from_slice(body).ok();
    for (index, (payload, options)) in jobs.iter().enumerate() {
        check_options(options);
        // Half of a surrogate pair in an option that is not used is not read by serde.
        let Some(sent) = sent.as_ref().map(|sent| &sent["jobs"][index]["payload"]) else {
            continue;
        };
        match sent {
            Value::String(text) => assert_eq!(payload, text.as_bytes()),
            sent => assert_eq!(&serde_json::from_slice::<Value>(payload).expect("JSON"), sent),
        }
    }
    true
}

/// A handler or the settings of a type: the store keeps exactly what was accepted.
fn check_handler(body: &Bytes) {
    match json::parse::<WireSpec>(body).and_then(WireSpec::into_spec) {
        Ok(spec) if spec.check().is_ok() => {
            let stored = record::options_to_text(&spec.options);
            assert_eq!(record::options_from_text(&stored), Ok(spec.options));
        }
        Ok(_) => {}
        Err(failure) => check_refusal(&failure),
    }
    match json::parse::<WireSettings>(body).map(WireSettings::into_settings) {
        Ok(settings) if settings.check().is_ok() => {
            let stored = record::settings_to_text(&settings);
            assert_eq!(record::settings_from_text(&stored), Ok(settings));
        }
        Ok(_) => {}
        Err(failure) => check_refusal(&failure),
    }
}

/// However it arrives, it is read as it is, or it is too large.
fn check_binary(headers: &HeaderMap, body: &Bytes) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime can be made");
    let pieces: Vec<Result<Bytes, std::convert::Infallible>> =
        body.chunks(PIECE_BYTES).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let fits = body.len() as u64 <= BODY_BYTES_MAX;
    for arriving in [Body::from(body.clone()), Body::from_stream(stream::iter(pieces))] {
        let patience = Duration::from_secs(60);
        let read = async {
            let reader = Reader::new(headers, arriving, BODY_BYTES_MAX, "", patience)?;
            reader.whole(&Memory::new(PAYLOAD_INLINE_BYTES_MAX)).await
        };
        match runtime.block_on(read) {
            Ok(whole) => assert!(fits && whole.bytes == *body),
            Err(failure) => {
                assert!(!fits, "{failure:?}");
                assert_eq!(failure.status.as_u16(), 413);
            }
        }
    }
    fits
}

/// The target of a request to add jobs, or of one about a job. Accepts it if it has a type or an
/// id, and options.
pub fn uri(bytes: &[u8]) -> bool {
    let Ok(uri) = Uri::try_from(bytes) else { return false };
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut accepted = false;
    match type_key(uri.path(), 1, 3) {
        Ok(key) => {
            let name = encoded(key.name.as_str());
            let path = format!("/v1/{}/jobs/{name}/x", encoded(key.tenant.as_str()));
            assert_eq!(type_key(&path, 1, 3), Ok(key), "{path}");
            accepted = true;
        }
        Err(failure) => check_refusal(&failure),
    }
    match job_id(uri.path(), 3) {
        Ok(id) => {
            assert_eq!(job_id(&format!("/v1/acme/jobs/{id}"), 3), Ok(id));
            accepted = true;
        }
        Err(failure) => check_refusal(&failure),
    }
    let query = match Query::read(&uri, OPTIONS) {
        Ok(query) => query,
        Err(failure) => {
            check_refusal(&failure);
            return false;
        }
    };
    let pairs = query.sorted();
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", encoded(value));
    let again = format!("/?{}", pairs.iter().map(pair).collect::<Vec<_>>().join("&"));
    let again = Query::read(&again.parse().expect("it is encoded"), OPTIONS);
    assert_eq!(again.as_ref().map(Query::sorted), Ok(pairs));
    match options_from_query(&query, NOW) {
        Ok(options) => check_options(&options),
        Err(failure) => {
            check_refusal(&failure);
            accepted = false;
        }
    }
    accepted
}

fn check_options(options: &AddOptions) {
    assert!(options.priority.get() <= PRIORITY_MAX);
    assert!(options.timeout.is_none_or(|timeout| !timeout.is_zero()));
    assert!(options.unique.as_ref().is_none_or(|key| !key.is_empty()));
}

fn check_refusal(failure: &Failure) {
    assert!(failure.status.is_client_error(), "{failure:?}");
    assert!(!failure.message.is_empty() && failure.field.is_some(), "{failure:?}");
}

#[cfg(test)]
mod tests {
    use windlass_test_kit::corpus;

    #[test]
    fn bodies() {
        corpus::check("http_body", 5000, super::body);
    }

    #[test]
    fn uris() {
        corpus::check("http_uri", 10_000, super::uri);
    }
}
