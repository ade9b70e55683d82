//! Accepting connections on a system that may run out of file descriptors.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Pause after accept failed (usually for lack of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Errors of one connection do not affect others. If file descriptors run out, `tell` is called and
/// accepting pauses.
pub async fn accept(listener: &TcpListener, tell: impl Fn(io::Error)) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match stream.set_nodelay(true) {
                // Answers are written in one piece, so Nagle's algorithm would only delay them.
                Ok(()) => return (stream, peer),
                Err(error) => {
                    tracing::debug!(%error, "a connection was aborted before it was accepted")
                }
            },
            Err(error) => {
                tell(error);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
