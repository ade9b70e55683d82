//! A client's byte stream with bounds: one that never reads is given up, and at the end the client
//! gets the chance to read what was answered before it had sent everything.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The longest time without the client taking a byte that waits for it.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// After the last byte was sent, unread bytes of the client are thrown away for this long: a socket
/// that is closed with such bytes in it is reset, and the client may never see its answer.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// And not more bytes than this.
const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const LINGER_BUFFER_BYTES: usize = 16 * 1024;

pub(crate) struct Stream<T> {
    inner: T,
    timer: Pin<Box<Sleep>>,
    /// The timer runs because the client does not take what is written.
    stuck: bool,
    /// Bytes thrown away since the end.
    lingering: Option<usize>,
}

impl<T> Stream<T> {
    pub(crate) fn new(inner: T) -> Stream<T> {
        let timer = Box::pin(tokio::time::sleep(WRITE_WAIT_MAX));
        Stream { inner, timer, stuck: false, lingering: None }
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
            self.timer.as_mut().reset(Instant::now() + WRITE_WAIT_MAX);
        }
        ready!(self.timer.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<T> {
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
        while thrown < LINGER_BYTES_MAX {
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

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_reads_is_given_up() {
        let (ours, _theirs) = duplex(8);
        let error = Stream::new(ours).write_all(&[0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_not() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours);
        let reading = async {
            let mut bytes = [0; 80];
            for chunk in bytes.chunks_mut(8) {
                tokio::time::sleep(WRITE_WAIT_MAX / 2).await;
                theirs.read_exact(chunk).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 80]), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_the_client_but_not_for_ever() {
        let (ours, mut theirs) = duplex(8);
        let mut stream = Stream::new(ours);
        let client = async {
            // More than fits: it gets rid of all of it only if somebody takes it.
            theirs.write_all(&[0; 1000]).await.unwrap();
            theirs
        };
        let (ended, theirs) = tokio::join!(stream.shutdown(), client);
        ended.unwrap();
        drop(theirs);

        let (ours, _silent) = duplex(8);
        Stream::new(ours).shutdown().await.unwrap();
    }
}
