//! The next connection, from a machine that may refuse some.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Pause after the machine refused to accept (mostly: no free file descriptor).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Errors of one connection do not concern the others; a machine without file descriptors is told
/// of, and gets time to find some.
pub async fn accept(listener: &TcpListener, tell: impl Fn(io::Error)) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match stream.set_nodelay(true) {
                // Answers are written whole; waiting for more to send would only delay them.
                Ok(()) => return (stream, peer),
                Err(error) => tracing::debug!(%error, "a connection ended before it began"),
            },
            Err(error) => {
                tell(error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
