//! Whether replies arrived, as far as the socket knows.

use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// How long to wait for a reset from a client that has stopped sending and may be gone.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// Whether the peer has refused the written bytes. Writing to a client that is gone succeeds at
/// first; the reset arrives afterwards.
pub(crate) async fn was_refused(stream: &TcpStream, client_ended: bool) -> bool {
    if client_ended {
        let refusal = stream.ready(Interest::ERROR);
        let _ = tokio::time::timeout(REFUSAL_WAIT, refusal).await;
    }
    !matches!(stream.take_error(), Ok(None))
}
