//! Reading HTTP request bodies within bounds: size per route, time per client, and memory for all
//! of them together.

use std::fmt::Display;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::{Instant, timeout};

use crate::memory::{Memory, Share};
use crate::pace::Pace;

/// Bodies up to this size do not count towards the shared memory: the number of connections bounds
/// them.
pub const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// Why a body could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    /// It stalled or is too slow.
    TooSlow,
    /// It ended before it was complete, for this reason.
    Broken(String),
    /// Too many large bodies are being read.
    NoMemory,
}

/// Reads a body piece by piece.
pub struct BodyReader<B> {
    body: B,
    bytes_max: u64,
    received: u64,
    pace: Pace,
}

impl<B: Body<Data = Bytes, Error: Display> + Unpin> BodyReader<B> {
    /// `silence_max` is the longest time between two pieces.
    pub fn new(body: B, bytes_max: u64, silence_max: Duration) -> Result<Self, BodyError> {
        // An announced length that is too large is refused before the client has to send it.
        if body.size_hint().lower() > bytes_max {
            return Err(BodyError::TooLarge);
        }
        Ok(BodyReader { body, bytes_max, received: 0, pace: Pace::new(silence_max) })
    }

    /// The length of the body, if the client announced it.
    pub fn announced(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            let since = Instant::now();
            let frame = match timeout(self.pace.patience(), self.body.frame()).await {
                Err(_) => return Err(BodyError::TooSlow),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(BodyError::Broken(error.to_string())),
                Ok(Some(Ok(frame))) => frame,
            };
            self.pace.waited(since.elapsed());
            // Trailers are ignored; there is at most one such frame.
            let Ok(piece) = frame.into_data() else { continue };
            self.pace.moved(piece.len());
            self.received += piece.len() as u64;
            if self.received > self.bytes_max {
                return Err(BodyError::TooLarge);
            }
            return Ok(Some(piece));
        }
    }

    /// The complete body with its share of the memory. A body in one piece is not copied.
    pub async fn whole(mut self, memory: &Memory) -> Result<(Bytes, Share), BodyError> {
        let mut share = memory.share();
        let Some(first) = self.next().await? else { return Ok((Bytes::new(), share)) };
        if self.body.is_end_stream() {
            reserve(&mut share, self.received)?;
            return Ok((first, share));
        }
        // The share follows what has arrived and not what was announced, which costs nothing.
        let length_max = self.announced().unwrap_or(self.bytes_max);
        let mut room = SMALL_BYTES_MAX.min(length_max);
        let mut buffer = BytesMut::with_capacity(room as usize);
        let mut next = Some(first);
        while let Some(piece) = next {
            if self.received > room {
                room = (2 * self.received).min(length_max).max(self.received);
                reserve(&mut share, room)?;
                buffer.reserve(room as usize - buffer.len());
            }
            buffer.extend_from_slice(&piece);
            // Before waiting for the next piece, which may take long.
            drop(piece);
            next = self.next().await?;
        }
        Ok((buffer.freeze(), share))
    }
}

fn reserve(share: &mut Share, bytes: u64) -> Result<(), BodyError> {
    let small = bytes <= SMALL_BYTES_MAX;
    if small || share.grow(bytes as usize) { Ok(()) } else { Err(BodyError::NoMemory) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{self, Stream, StreamExt};
    use http_body_util::{Empty, Full, StreamBody};
    use hyper::body::{Frame, SizeHint};
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    const SILENCE_MAX: Duration = Duration::from_secs(5);
    const LARGE: usize = SMALL_BYTES_MAX as usize + 1;

    fn streamed(
        pieces: impl Stream<Item = Bytes> + Unpin,
    ) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        StreamBody::new(pieces.map(|piece| Ok(Frame::data(piece))))
    }

    fn pieces(pieces: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        streamed(stream::iter(pieces.iter().copied().map(Bytes::from).collect::<Vec<_>>()))
    }

    async fn whole(
        body: impl Body<Data = Bytes, Error = Infallible> + Unpin,
        bytes_max: u64,
        memory: &Memory,
    ) -> Result<(Bytes, Share), BodyError> {
        BodyReader::new(body, bytes_max, SILENCE_MAX)?.whole(memory).await
    }

    #[tokio::test]
    async fn a_body_in_pieces_is_put_together() {
        let memory = Memory::new(0);
        assert_eq!(whole(pieces(&["a\n", "", "b"]), 4, &memory).await.unwrap().0, "a\nb");
        assert_eq!(whole(Full::from("one"), 4, &memory).await.unwrap().0, "one");
        assert!(whole(Empty::new(), 4, &memory).await.unwrap().0.is_empty());
    }

    #[tokio::test]
    async fn one_byte_too_many_is_too_large_announced_or_not() {
        let memory = Memory::new(0);
        let announced = BodyReader::new(Full::from("12345"), 4, SILENCE_MAX).err();
        assert_eq!(announced, Some(BodyError::TooLarge));
        let streamed = whole(pieces(&["123", "45"]), 4, &memory).await.err();
        assert_eq!(streamed, Some(BodyError::TooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_is_given_up() {
        let memory = Memory::new(1024 * 1024);
        let stopped = whole(streamed(stream::pending()), 4, &memory).await.err();
        assert_eq!(stopped, Some(BodyError::TooSlow));

        let slow = async |bytes: usize, count: usize| {
            let pieces = stream::unfold(count, |left| async move {
                tokio::time::sleep(SILENCE_MAX / 2).await;
                Some((Bytes::from(vec![0; bytes]), left.checked_sub(1)?))
            });
            whole(streamed(Box::pin(pieces)), 1024 * 1024, &memory).await.map(|(all, _)| all.len())
        };
        assert_eq!(slow(1, 1000).await, Err(BodyError::TooSlow));
        assert_eq!(slow(4096, 100).await, Ok(100 * 4096));
    }

    /// A body that says how long it is, and has this much of it so far.
    struct Announced(u64, Option<Bytes>);

    impl Body for Announced {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            self.1.take().map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(Frame::data(piece)))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0)
        }
    }

    #[tokio::test]
    async fn bodies_take_the_memory_of_what_has_arrived_and_not_of_what_they_announce() {
        let memory = Memory::new(4 * LARGE);
        for (arrived, taken) in [(1, 0), (LARGE, 2 * LARGE)] {
            let body = Announced(u64::MAX / 2, Some(Bytes::from(vec![0; arrived])));
            let mut slow = Box::pin(whole(body, u64::MAX, &memory));
            assert!(futures_util::poll!(&mut slow).is_pending());
            let rest = 4 * LARGE - taken - 2 * 4096;
            assert!(memory.take(rest).is_some(), "{arrived} bytes have arrived");
            assert_eq!(memory.take(4 * LARGE - 4096).is_some(), taken == 0);
        }
    }

    #[tokio::test]
    async fn memory_for_large_bodies_has_an_end_and_comes_back() {
        let memory = Memory::new(2 * LARGE);
        let all = memory.take(LARGE).unwrap();
        let large = || Full::from(vec![0; 2 * LARGE - 8192]);
        let halves = || streamed(stream::iter([vec![0; LARGE], vec![0; 1]].map(Bytes::from)));
        assert_eq!(whole(large(), u64::MAX, &memory).await.err(), Some(BodyError::NoMemory));
        assert_eq!(
            whole(halves(), 2 * LARGE as u64, &memory).await.err(),
            Some(BodyError::NoMemory)
        );
        assert!(whole(Full::from("x"), 2, &memory).await.is_ok());
        drop(all);
        let first = whole(large(), u64::MAX, &memory).await.unwrap();
        assert!(memory.take(LARGE).is_none());
        drop(first);
        assert!(whole(halves(), LARGE as u64 + 1, &memory).await.is_ok());
    }
}
