//! One HTTP/1 connection: limits of time and size for request heads, and how it ends.

use std::error::Error;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// Maximum size of request line and headers; more is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

type Cause = Box<dyn Error + Send + Sync>;

/// `head_time_max` is how long line and headers may take, and how long a connection may be idle
/// between requests.
pub fn protocol(head_time_max: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(head_time_max)
        .max_header_size(HEAD_BYTES_MAX);
    http
}

/// Answers the requests of one client until it disconnects. When `closing` is cancelled, the
/// request in progress is still answered.
pub async fn converse<S>(
    http: http1::Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: S,
    closing: CancellationToken,
) where
    S: HttpService<Incoming, Error: Into<Cause>, ResBody: Body<Error: Into<Cause>> + 'static>,
{
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended_first = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = closing.cancelled() => None,
    };
    let ended = match ended_first {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
