//! Reading request bodies: never more bytes than `BODY_BYTES_MAX`, never longer than a client that
//! means it needs, and never more memory for all requests together than `MEMORY_BYTES_MAX`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::error::Failure;

/// A body; the largest are lists of new tasks.
pub(crate) const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bodies up to this size do not count towards `MEMORY_BYTES_MAX`; the number of connections is
/// their bound.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Larger bodies of all requests together, and what is made of them.
const MEMORY_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// What is made of one body.
const READ_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Memory is handed out in units of this size.
const MEMORY_UNIT_BYTES: u64 = 4096;
/// The longest time between two pieces of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// A body that comes slower than this, averaged over all of it, is given up.
const RATE_MIN_BYTES_PER_S: u64 = 1024;

/// Memory for bodies, shared by all requests.
#[derive(Clone)]
pub(crate) struct Memory(Arc<Semaphore>);

impl Default for Memory {
    fn default() -> Memory {
        Memory(Arc::new(Semaphore::new((MEMORY_BYTES_MAX / MEMORY_UNIT_BYTES) as usize)))
    }
}

impl Memory {
    fn take(&self, bytes: u64) -> Result<Permit, Failure> {
        let units = bytes.div_ceil(MEMORY_UNIT_BYTES) as u32;
        self.0.clone().try_acquire_many_owned(units).map_err(|_| {
            let message = "too many large requests at once; send it again in a moment";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })
    }
}

impl Buffered {
    /// Leave to keep what is made of the body, which takes so many bytes, and the body.
    pub(crate) fn permit(self, bytes: u64, memory: &Memory) -> Result<Option<Permit>, Failure> {
        if bytes > READ_BYTES_MAX {
            let message = "the body has too many values; send it in parts";
            return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        if bytes <= SMALL_BYTES_MAX {
            return Ok(self.memory);
        }
        let mut more = memory.take(bytes)?;
        if let Some(permit) = self.memory {
            more.merge(permit);
        }
        Ok(Some(more))
    }
}

/// Leave to keep a large body.
pub(crate) type Permit = OwnedSemaphorePermit;

/// A body in memory, with the permit for it.
pub(crate) struct Buffered {
    pub(crate) bytes: Bytes,
    memory: Option<Permit>,
}

pub(crate) async fn read(mut body: Body, memory: &Memory) -> Result<Buffered, Failure> {
    // What a client announces is refused before it has to be sent.
    let announced = body.size_hint().lower();
    if announced > BODY_BYTES_MAX {
        return Err(too_large());
    }
    let mut permit = (announced > SMALL_BYTES_MAX).then(|| memory.take(announced)).transpose()?;
    let mut buffer = BytesMut::with_capacity(announced as usize);
    let started = Instant::now();
    loop {
        let earned = Duration::from_secs(buffer.len() as u64 / RATE_MIN_BYTES_PER_S);
        let deadline = (started + PATIENCE + earned).min(Instant::now() + PATIENCE);
        let frame = match timeout_at(deadline, body.frame()).await {
            Err(_) => {
                let message = "the body did not arrive in time";
                return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, message));
            }
            Ok(None) => break,
            Ok(Some(Err(error))) => {
                let message = format!("the body ended before it was complete: {error}");
                return Err(Failure::bad(message));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        // Trailers say nothing to us; there is at most one such frame.
        let Ok(piece) = frame.into_data() else { continue };
        if (buffer.len() + piece.len()) as u64 > BODY_BYTES_MAX {
            return Err(too_large());
        }
        buffer.extend_from_slice(&piece);
        if permit.is_none() && buffer.len() as u64 > SMALL_BYTES_MAX {
            permit = Some(memory.take(BODY_BYTES_MAX)?);
        }
    }
    Ok(Buffered { bytes: buffer.freeze(), memory: permit })
}

fn too_large() -> Failure {
    let message = format!("a body has at most {BODY_BYTES_MAX} bytes; send it in parts");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use std::convert::Infallible;

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let pieces = ["a", "", "b"].map(Ok::<_, Infallible>);
        let body = Body::from_stream(stream::iter(pieces));
        assert_eq!(read(body, &Memory::default()).await.unwrap().bytes, "ab");
    }

    #[tokio::test]
    async fn too_much_is_refused_announced_or_not() {
        let memory = Memory::default();
        let large = Bytes::from(vec![b'x'; BODY_BYTES_MAX as usize + 1]);
        let announced = read(Body::from(large.clone()), &memory).await.err().unwrap();
        let halves = [large.slice(..1000), large.slice(1000..)].map(Ok::<_, Infallible>);
        let streamed = read(Body::from_stream(stream::iter(halves)), &memory).await.err().unwrap();
        assert_eq!((announced.status.as_u16(), streamed.status.as_u16()), (413, 413));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_is_given_up() {
        let stalled = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        let failure = read(stalled, &Memory::default()).await.err().unwrap();
        assert_eq!(failure.status.as_u16(), 408);
    }

    #[tokio::test]
    async fn what_is_made_of_a_body_counts_too() {
        let memory = Memory::default();
        let body = async || read(Body::from("x"), &memory).await.unwrap();
        let too_much = body().await.permit(READ_BYTES_MAX + 1, &memory).err().unwrap();
        assert_eq!(too_much.status.as_u16(), 413);
        let first = body().await.permit(READ_BYTES_MAX, &memory).unwrap();
        let second = body().await.permit(READ_BYTES_MAX, &memory).unwrap();
        let busy = body().await.permit(READ_BYTES_MAX, &memory).err().unwrap();
        assert_eq!(busy.status.as_u16(), 503);
        assert!(body().await.permit(10, &memory).unwrap().is_none());
        drop((first, second));
        assert!(body().await.permit(READ_BYTES_MAX, &memory).is_ok());
    }

    #[tokio::test]
    async fn memory_for_large_bodies_has_an_end_and_comes_back() {
        let memory = Memory::default();
        let all = memory.take(MEMORY_BYTES_MAX).unwrap();
        let large = || Body::from("x".repeat(SMALL_BYTES_MAX as usize + 1));
        assert_eq!(read(large(), &memory).await.err().unwrap().status.as_u16(), 503);
        assert!(read(Body::from("x"), &memory).await.is_ok());
        drop(all);
        assert!(read(large(), &memory).await.is_ok());
    }
}
