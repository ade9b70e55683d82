//! A client's byte stream with bounds: one that never reads is given up, and at the end the client
//! gets the chance to read what was answered before it had sent everything.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// After the last byte was sent, unread bytes of the client are thrown away for this long: a socket
/// that is closed with such bytes in it is reset, and the client may never see its answer.
pub(crate) const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// And not more bytes than this, mostly.
pub const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const LINGER_BUFFER_BYTES: usize = 16 * 1024;

pub struct Stream<T, E = ()> {
    inner: T,
    on_end: E,
    write_wait_max: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer runs because the client does not take what is written.
    stuck: bool,
    linger_bytes_max: usize,
    /// Bytes thrown away since the end.
    lingering: Option<usize>,
}

/// Decides when the end of what a client sends is heard of.
pub trait OnEnd: Unpin {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// At once.
impl OnEnd for () {
    fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl<T> Stream<T> {
    /// `write_wait_max` is the longest time without the client taking a byte that waits for it.
    pub fn new(inner: T, write_wait_max: Duration) -> Stream<T> {
        Stream::with_on_end(inner, write_wait_max, ())
    }
}

impl<T, E> Stream<T, E> {
    pub fn with_on_end(inner: T, write_wait_max: Duration, on_end: E) -> Stream<T, E> {
        let timer = Box::pin(tokio::time::sleep(write_wait_max));
        let (stuck, linger_bytes_max, lingering) = (false, LINGER_BYTES_MAX, None);
        Stream { inner, on_end, write_wait_max, timer, stuck, linger_bytes_max, lingering }
    }

    /// For clients that may be in the middle of saying much more than most.
    pub fn with_linger_bytes_max(self, linger_bytes_max: usize) -> Stream<T, E> {
        Stream { linger_bytes_max, ..self }
    }

    /// Passes on what a write said, unless it has been saying "not yet" for too long.
    fn watch<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stuck = false;
            return written;
        }
        if !self.stuck {
            self.stuck = true;
            self.timer.as_mut().reset(Instant::now() + self.write_wait_max);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin, E: OnEnd> AsyncRead for Stream<T, E> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() == before && buffer.remaining() > 0 {
            return self.on_end.poll_end(cx).map(Ok);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, E: OnEnd> AsyncWrite for Stream<T, E> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let mut thrown = match this.lingering {
            Some(thrown) => thrown,
            None => {
                ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
                this.timer.as_mut().reset(Instant::now() + LINGER_TIME_MAX);
                0
            }
        };
        let mut scratch = [0; LINGER_BUFFER_BYTES];
        // The time is looked at as well: beside one who sends without a pause no timer gets a turn.
        while thrown < this.linger_bytes_max && Instant::now() < this.timer.deadline() {
            this.lingering = Some(thrown);
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.inner).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    thrown += buffer.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(this.timer.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const WAIT_MAX: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_given_up() {
        let (ours, _theirs) = duplex(8);
        let mut stream = Stream::new(ours, WAIT_MAX);
        let error = stream.write_all(&[0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_not() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours, WAIT_MAX);
        let reading = async {
            let mut bytes = [0; 80];
            for chunk in bytes.chunks_mut(8) {
                tokio::time::sleep(WAIT_MAX / 2).await;
                theirs.read_exact(chunk).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 80]), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_client_but_not_for_ever() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours, WAIT_MAX);
        let client = async {
            // More than fits: it gets rid of all of it only if somebody takes it.
            theirs.write_all(&[0; 1000]).await.unwrap();
            theirs
        };
        let (ended, theirs) = tokio::join!(stream.shutdown(), client);
        ended.unwrap();
        drop(theirs);

        let (ours, _silent) = duplex(8);
        Stream::new(ours, WAIT_MAX).shutdown().await.unwrap();
    }
}
