//! The writing side of a connection: replies go out whole, and whether they arrived is learnt as
//! far as a socket tells.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

/// When a client that has stopped sending may be gone altogether, its machine gets this long to
/// say so.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);
/// After the last reply, what the client still sends is thrown away for this long: a socket that is
/// closed with unread bytes in it is reset, and the client may never see its reply.
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);
/// And not more bytes than this.
const LINGER_BYTES_MAX: usize = 64 * 1024 * 1024;
const LINGER_READ_BYTES: usize = 4 * 1024;

/// Writes all of it. `silence_max` is the longest time in which the client takes nothing.
pub(crate) async fn write(
    stream: &TcpStream,
    mut bytes: &[u8],
    silence_max: Duration,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::timeout(silence_max, stream.writable()).await??;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether what was written has been refused. Writing to a client that is gone succeeds, and the
/// refusal comes back afterwards.
pub(crate) async fn was_refused(stream: &TcpStream, client_ended: bool) -> bool {
    if client_ended {
        let refusal = stream.ready(Interest::ERROR);
        let _ = tokio::time::timeout(REFUSAL_WAIT, refusal).await;
    }
    !matches!(stream.take_error(), Ok(None))
}

/// Says that this was the last reply, and lets the client read it.
pub(crate) async fn close(stream: &mut TcpStream) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let drain = async {
        let mut scratch = vec![0; LINGER_READ_BYTES];
        let mut bytes = 0;
        while bytes < LINGER_BYTES_MAX && stream.readable().await.is_ok() {
            match stream.try_read(&mut scratch) {
                Ok(0) => break,
                Ok(read) => bytes += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
}
