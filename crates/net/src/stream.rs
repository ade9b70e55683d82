//! A client's byte stream with bounds: a client that reads too slowly is disconnected, and on close
//! the client can still read an answer that was sent before it had sent everything.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::pace::Pace;

/// After the last byte was sent, the client's unread bytes are discarded for this long: closing a
/// socket with unread bytes resets it, and the client might never see its answer.
pub(crate) const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// And at most about this many bytes.
pub const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const LINGER_BUFFER_BYTES: usize = 16 * 1024;

pub struct Stream<T, E = ()> {
    inner: T,
    on_end: E,
    /// How fast the client reads.
    pace: Pace,
    timer: Pin<Box<Sleep>>,
    /// When the timer started because the client read nothing.
    stuck: Option<Instant>,
    linger_bytes_max: usize,
    /// Bytes discarded since the end.
    lingering: Option<usize>,
}

/// Decides when the end of the client's data is reported.
pub trait OnEnd: Unpin {
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Reports it at once.
impl OnEnd for () {
    fn poll_end(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl<T> Stream<T> {
    /// `write_wait_max` is the longest time that the client may read nothing while bytes wait for
    /// it.
    pub fn new(inner: T, write_wait_max: Duration) -> Stream<T> {
        Stream::with_on_end(inner, write_wait_max, ())
    }
}

impl<T, E> Stream<T, E> {
    pub fn with_on_end(inner: T, write_wait_max: Duration, on_end: E) -> Stream<T, E> {
        let timer = Box::pin(tokio::time::sleep(write_wait_max));
        let (pace, linger_bytes_max) = (Pace::new(write_wait_max), LINGER_BYTES_MAX);
        Stream { inner, on_end, pace, timer, stuck: None, linger_bytes_max, lingering: None }
    }

    /// For clients that may still be sending much more than usual.
    pub fn with_linger_bytes_max(self, linger_bytes_max: usize) -> Stream<T, E> {
        Stream { linger_bytes_max, ..self }
    }

    /// Passes on the result of a write, or times out if it has been pending for too long.
    fn watch<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            if let Some(since) = self.stuck.take() {
                self.pace.waited(since.elapsed());
            }
            return written;
        }
        if self.stuck.is_none() {
            let now = Instant::now();
            self.stuck = Some(now);
            self.timer.as_mut().reset(now + self.pace.patience());
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }

    fn count(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.pace.moved(*bytes);
        }
        written
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
        // A new request: earlier answers do not count.
        self.pace.begin();
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
        let written = self.watch(cx, written);
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        let written = self.watch(cx, written);
        self.count(written)
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
        // Check the time, too: while a client sends without pause, no timer gets polled.
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
    async fn a_client_that_reads_slowly_is_not_unless_it_trickles() {
        let written = async |bytes_at_once: usize| {
            let (ours, mut theirs) = duplex(bytes_at_once);
            let mut stream = Stream::new(ours, WAIT_MAX);
            let mut bytes = vec![0; 100 * bytes_at_once];
            let reading = async {
                for chunk in bytes.chunks_mut(bytes_at_once) {
                    tokio::time::sleep(WAIT_MAX / 2).await;
                    theirs.read_exact(chunk).await.unwrap();
                }
            };
            let answer = vec![0; 100 * bytes_at_once];
            tokio::select! {
                written = stream.write_all(&answer) => written.map_err(|error| error.kind()),
                () = reading => Ok(()),
            }
        };
        assert_eq!(written(2048).await, Ok(()));
        assert_eq!(written(8).await, Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_one_answer_took_is_not_missing_for_the_next() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours, WAIT_MAX);
        for _ in 0..5 {
            theirs.write_all(&[0; 8]).await.unwrap();
            stream.read_exact(&mut [0; 8]).await.unwrap();
            let reading = async {
                tokio::time::sleep(WAIT_MAX / 2).await;
                theirs.read_exact(&mut [0; 16]).await.unwrap();
            };
            let (written, ()) = tokio::join!(stream.write_all(&[0; 16]), reading);
            written.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_client_but_not_for_ever() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours, WAIT_MAX);
        let client = async {
            // More than the buffer holds: this completes only if the other side reads.
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
