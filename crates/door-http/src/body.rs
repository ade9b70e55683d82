//! Reading request bodies: never more bytes than the route takes, never longer than a client that
//! means it needs, and never more memory for all requests together than `MEMORY_BYTES_MAX`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;

/// A body that is buffered whole: lines, or a JSON add.
pub(crate) const BUFFERED_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A JSON body that only says what to do.
pub(crate) const COMMAND_BYTES_MAX: u64 = 1024 * 1024;
/// Bodies up to this size do not count towards `MEMORY_BYTES_MAX`; the number of connections is
/// their bound.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Memory for the larger buffered bodies of all requests together.
const MEMORY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Memory is handed out in units of this size.
const MEMORY_UNIT_BYTES: u64 = 4096;
/// A body that comes slower than this, averaged over all of it, is given up.
const RATE_MIN_BYTES_PER_S: u64 = 1024;

/// What a request says that its body is.
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

/// The refusal of a content type, with what the route takes instead.
pub(crate) fn wrong_kind(headers: &HeaderMap, accepted: &str) -> Failure {
    let sent = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes()).unwrap_or_default();
    let sent = String::from_utf8_lossy(sent);
    let message = format!("the content type '{sent}' is not taken here; send {accepted}");
    Failure::unsupported_media("Content-Type", message)
}

/// Memory for bodies, shared by all requests of a door.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Memory {
        Memory(Arc::new(Semaphore::new((MEMORY_BYTES_MAX / MEMORY_UNIT_BYTES) as usize)))
    }
}

impl Memory {
    pub(crate) fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Failure> {
        let units = bytes.div_ceil(MEMORY_UNIT_BYTES) as u32;
        self.0.clone().try_acquire_many_owned(units).map_err(|_| {
            let message = "too many large requests at once; send it again in a moment";
            Failure::unavailable(message.to_owned())
        })
    }
}

/// A body in memory, with the permit for it.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

/// Hands out a body piece by piece, under its bounds.
pub(crate) struct Reader {
    body: Body,
    bytes_max: u64,
    too_large: &'static str,
    received: u64,
    started: Instant,
    patience: Duration,
}

impl Reader {
    /// `too_large` says what to do about a body that is; `patience` is the longest time between
    /// two pieces.
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
            let message = "bodies are taken as they are, without a content encoding".to_owned();
            return Err(Failure::unsupported_media("Content-Encoding", message));
        }
        let reader =
            Reader { body, bytes_max, too_large, received: 0, started: Instant::now(), patience };
        // What a client announces is refused before it has to be sent.
        if reader.body.size_hint().lower() > bytes_max {
            return Err(reader.refuse_size());
        }
        Ok(reader)
    }

    /// How long the whole body is, where the client says it.
    pub(crate) fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let earned = Duration::from_secs(self.received / RATE_MIN_BYTES_PER_S);
            let overall = self.started + self.patience + earned;
            let deadline = overall.min(Instant::now() + self.patience);
            let frame = match timeout_at(deadline, self.body.frame()).await {
                Err(_) => {
                    return Err(Failure::too_slow("the body did not arrive in time".to_owned()));
                }
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => {
                    let message = format!("the body ended before it was complete: {error}");
                    return Err(Failure::invalid("body", message));
                }
                Ok(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing to us; there is at most one such frame.
            let Ok(piece) = frame.into_data() else { continue };
            self.received += piece.len() as u64;
            if self.received > self.bytes_max {
                return Err(self.refuse_size());
            }
            return Ok(Some(piece));
        }
    }

    /// Reads all of it. A body that came in one piece is not copied.
    pub(crate) async fn whole(mut self, memory: &Memory) -> Result<Buffered, Failure> {
        let announced = self.announced();
        let mut permit = None;
        if let Some(bytes) = announced.filter(|bytes| *bytes > SMALL_BYTES_MAX) {
            permit = Some(memory.take(bytes)?);
        }
        let Some(first) = self.next().await? else {
            return Ok(Buffered { bytes: Bytes::new(), _memory: permit });
        };
        if self.body.is_end_stream() {
            return Ok(Buffered { bytes: first, _memory: permit });
        }
        let mut buffer = BytesMut::with_capacity(announced.unwrap_or(SMALL_BYTES_MAX) as usize);
        buffer.extend_from_slice(&first);
        drop(first);
        while let Some(piece) = self.next().await? {
            if permit.is_none() && self.received > SMALL_BYTES_MAX {
                permit = Some(memory.take(self.bytes_max)?);
            }
            buffer.extend_from_slice(&piece);
        }
        Ok(Buffered { bytes: buffer.freeze(), _memory: permit })
    }

    fn refuse_size(&self) -> Failure {
        let message = format!("a body has at most {} bytes here{}", self.bytes_max, self.too_large);
        Failure::too_large("body", message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use futures_util::stream;
    use std::convert::Infallible;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn reader(body: Body, bytes_max: u64) -> Result<Reader, Failure> {
        Reader::new(&HeaderMap::new(), body, bytes_max, "", PATIENCE)
    }

    fn pieces(pieces: Vec<&'static str>) -> Body {
        Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)))
    }

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

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let memory = Memory::default();
        let whole = reader(pieces(vec!["a\n", "", "b"]), 4).unwrap().whole(&memory).await.unwrap();
        assert_eq!(whole.bytes, "a\nb");
        let whole = reader(Body::from("one"), 4).unwrap().whole(&memory).await.unwrap();
        assert_eq!(whole.bytes, "one");
        assert!(reader(Body::empty(), 4).unwrap().whole(&memory).await.unwrap().bytes.is_empty());
    }

    #[tokio::test]
    async fn one_byte_too_many_is_too_large_announced_or_not() {
        assert_eq!(reader(Body::from("12345"), 4).err().unwrap().code, "too_large");
        let streamed = reader(pieces(vec!["123", "45"]), 4).unwrap();
        let failure = streamed.whole(&Memory::default()).await.err().unwrap();
        assert_eq!((failure.status.as_u16(), failure.code), (413, "too_large"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_is_given_up() {
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let failure = reader(stalled, 4).unwrap().next().await.unwrap_err();
        assert_eq!(failure.status.as_u16(), 408);

        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(PATIENCE / 2).await;
            Some((Ok::<_, Infallible>("x"), ()))
        });
        let trickle = reader(Body::from_stream(trickle), u64::MAX).unwrap();
        let failure = trickle.whole(&Memory::default()).await.err().unwrap();
        assert_eq!(failure.status.as_u16(), 408);
    }

    #[tokio::test]
    async fn memory_for_large_bodies_has_an_end_and_comes_back() {
        let memory = Memory::default();
        let all = memory.take(MEMORY_BYTES_MAX).unwrap();
        let large = || Body::from("x".repeat(SMALL_BYTES_MAX as usize + 1));
        let refused = reader(large(), BUFFERED_BYTES_MAX).unwrap().whole(&memory).await;
        assert_eq!(refused.err().unwrap().code, "unavailable");
        let small = reader(Body::from("x"), BUFFERED_BYTES_MAX).unwrap().whole(&memory).await;
        assert!(small.is_ok());
        drop(all);
        assert!(reader(large(), BUFFERED_BYTES_MAX).unwrap().whole(&memory).await.is_ok());
    }
}
