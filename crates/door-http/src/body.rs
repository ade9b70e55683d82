//! Reading request bodies, within the bounds of `windlass_net`.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;

use windlass_net::{BodyError, BodyReader, Memory, SMALL_BYTES_MAX, Share};

use crate::error::Failure;

/// Bound of bodies that are buffered: lines, or a JSON add.
pub(crate) const BUFFERED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bound of JSON bodies that carry no payloads.
pub(crate) const COMMAND_BYTES_MAX: u64 = 1024 * 1024;
/// Memory for the larger buffered bodies of all requests together.
pub(crate) const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// The declared kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Absent,
    Text,
    Json,
    Binary,
    Other,
}

pub(crate) fn kind(headers: &HeaderMap) -> Kind {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Kind::Absent };
    let value = value.as_bytes();
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let essence = value[..end].trim_ascii();
    let is = |name: &str| essence.eq_ignore_ascii_case(name.as_bytes());
    match () {
        () if is("text/plain") => Kind::Text,
        () if is("application/json") => Kind::Json,
        () if is("application/octet-stream") => Kind::Binary,
        () => Kind::Other,
    }
}

/// The refusal of a content type, with the accepted ones.
pub(crate) fn wrong_kind(headers: &HeaderMap, accepted: &str) -> Failure {
    let sent = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let sent = String::from_utf8_lossy(sent);
    let message = format!("the content type '{sent}' is not accepted here; send {accepted}");
    Failure::unsupported_media("Content-Type", message)
}

/// A body in memory, with its share of the memory bound.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    pub(crate) memory: Share,
}

impl Buffered {
    /// For bytes of which slices may outlive the request: the last one returns the share.
    pub(crate) fn counted(self) -> Bytes {
        // Smaller ones do not count.
        if self.bytes.len() as u64 <= SMALL_BYTES_MAX {
            return self.bytes;
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body piece by piece, within its bounds.
pub(crate) struct Reader {
    inner: BodyReader<Body>,
    refusals: Refusals,
}

impl Reader {
    /// `too_large` completes the refusal of a large body with advice; `patience` is the longest
    /// time between two pieces.
    pub(crate) fn new(
        headers: &HeaderMap,
        body: Body,
        bytes_max: u64,
        too_large: &'static str,
        patience: Duration,
    ) -> Result<Reader, Failure> {
        if let Some(encoding) = headers.get(header::CONTENT_ENCODING)
            && encoding != "identity"
        {
            let message = "bodies with a content encoding are not accepted".to_owned();
            return Err(Failure::unsupported_media("Content-Encoding", message));
        }
        let refusals = Refusals { bytes_max, too_large };
        let inner = BodyReader::new(body, bytes_max, patience);
        Ok(Reader { inner: inner.map_err(|error| refusals.of(error))?, refusals })
    }

    /// The length of the body, if the client announced it.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.inner.announced()
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        self.inner.next().await.map_err(|error| self.refusals.of(error))
    }

    pub(crate) async fn whole(self, memory: &Memory) -> Result<Buffered, Failure> {
        let Reader { inner, refusals } = self;
        let (bytes, share) = inner.whole(memory).await.map_err(|error| refusals.of(error))?;
        Ok(Buffered { bytes, memory: share })
    }
}

/// Turns the errors of reading a body into refusals.
struct Refusals {
    bytes_max: u64,
    too_large: &'static str,
}

impl Refusals {
    fn of(&self, error: BodyError) -> Failure {
        match error {
            BodyError::TooLarge => {
                let Refusals { bytes_max, too_large } = self;
                let message = format!("a body has at most {bytes_max} bytes here{too_large}");
                Failure::too_large("body", message)
            }
            BodyError::TooSlow => Failure::too_slow("the body did not arrive in time".to_owned()),
            BodyError::Broken(why) => {
                let message = format!("the body ended before it was complete: {why}");
                Failure::invalid("body", message)
            }
            BodyError::NoMemory => no_memory(),
        }
    }
}

pub(crate) fn no_memory() -> Failure {
    let message = "too many large requests at the same time; try again in a moment";
    Failure::unavailable(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use futures_util::stream;
    use std::convert::Infallible;

    const PATIENCE: Duration = Duration::from_secs(5);

    #[test]
    fn content_types_are_told_apart_whatever_their_case_and_parameters() {
        let cases = [
            ("text/plain", Kind::Text),
            ("Text/Plain; charset=utf-8", Kind::Text),
            ("application/json ;x=y", Kind::Json),
            ("application/octet-stream", Kind::Binary),
            ("application/x-www-form-urlencoded", Kind::Other),
            ("", Kind::Other),
        ];
        for (text, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text));
            assert_eq!(kind(&headers), expected, "{text}");
        }
        assert_eq!(kind(&HeaderMap::new()), Kind::Absent);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_is_refused_in_words() {
        let check = async |body: Body, memory: &Memory, status: u16, code: &str| {
            let reader = Reader::new(&HeaderMap::new(), body, 100_000, "; split it", PATIENCE);
            let read = async { reader?.whole(memory).await };
            let failure = read.await.err().unwrap();
            assert_eq!((failure.status.as_u16(), failure.code), (status, code));
            failure.message
        };
        let memory = Memory::new(100_000);
        let large = check(Body::from("x".repeat(100_001)), &memory, 413, "too_large").await;
        assert_eq!(large, "a body has at most 100000 bytes here; split it");
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        check(stalled, &memory, 408, "unavailable").await;
        let broken = stream::iter([Err::<Bytes, _>("cut off")]);
        let broken = check(Body::from_stream(broken), &memory, 400, "invalid_value").await;
        assert_eq!(broken, "the body ended before it was complete: cut off");
        let _taken = memory.take(50_000).unwrap();
        check(Body::from("x".repeat(100_000)), &memory, 503, "unavailable").await;
    }

    /// Payloads are slices of the body that carries them.
    #[tokio::test]
    async fn a_body_counts_as_long_as_a_part_of_it_is_held() {
        let (memory, body) = (Memory::new(200_000), Body::from("x".repeat(100_000)));
        let reader = Reader::new(&HeaderMap::new(), body, 100_000, "", PATIENCE).unwrap();
        let part = reader.whole(&memory).await.unwrap().counted().slice(..1);
        assert!(memory.take(150_000).is_none());
        drop(part);
        assert!(memory.take(150_000).is_some());
    }
}
