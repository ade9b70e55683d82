//! Whether replies arrived, as far as a socket tells.

use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

/// When a client that has stopped sending may be gone altogether, its machine gets this long to
/// say so.
const REFUSAL_WAIT: Duration = Duration::from_millis(200);

/// Whether what was written has been refused. Writing to a client that is gone succeeds, and the
/// refusal comes back afterwards.
pub(crate) async fn was_refused(stream: &TcpStream, client_ended: bool) -> bool {
    if client_ended {
        let refusal = stream.ready(Interest::ERROR);
        let _ = tokio::time::timeout(REFUSAL_WAIT, refusal).await;
    }
    !matches!(stream.take_error(), Ok(None))
}
