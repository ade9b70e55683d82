//! The write side of a connection, for doors that read and write at the same time.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::pace::Pace;
use crate::stream::{LINGER_TIME_MAX, Stream};

/// Writes all bytes. `silence_max` is the longest time without progress.
pub async fn write(stream: &TcpStream, mut bytes: &[u8], silence_max: Duration) -> io::Result<()> {
    let mut pace = Pace::new(silence_max);
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => {
                pace.moved(written);
                bytes = &bytes[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let since = Instant::now();
                timeout(pace.patience(), stream.writable()).await??;
                pace.waited(since.elapsed());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Closes the write side and lets the peer read everything: what it still sends is discarded, up to
/// this many bytes.
pub async fn close(stream: &mut TcpStream, linger_bytes_max: usize) {
    let stream = Stream::new(stream, LINGER_TIME_MAX);
    // An error means that the peer is already gone.
    let _ = stream.with_linger_bytes_max(linger_bytes_max).shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    /// More than the buffers of both sides of a socket hold.
    const LARGE_BYTES: usize = 64 * 1024 * 1024;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener.accept().await.unwrap().0, theirs)
    }

    #[tokio::test]
    async fn one_that_takes_nothing_is_given_up() {
        let (ours, _theirs) = pair().await;
        let large = vec![0; LARGE_BYTES];
        let error = write(&ours, &large, Duration::from_millis(10)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn one_that_still_sends_sees_the_answer() {
        let (mut ours, mut theirs) = pair().await;
        let server = async {
            write(&ours, b"enough", Duration::from_secs(60)).await.unwrap();
            close(&mut ours, usize::MAX).await;
            drop(ours);
        };
        let client = async {
            theirs.write_all(&vec![0; 1024 * 1024]).await.unwrap();
            theirs.shutdown().await.unwrap();
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "enough");
        };
        tokio::join!(server, client);
    }
}
