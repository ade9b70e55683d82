//! One HTTP/2 connection. What bounds a connection of HTTP/1 bounds this one, too: how long it may
//! be idle, how long the client may read nothing of an answer, and how much it may have in
//! progress. Doors see the same requests in both versions.
//!
//! | module | owns |
//! |---|---|
//! | `activity` | the requests in progress, and what the client has not read yet |
//! | `answer` | answers in pieces, so that it can be seen whether they are read |

mod activity;
mod answer;

use std::convert::Infallible;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::header::{HOST, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::{Service, service_fn};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::activity::Activity;
use self::answer::Answer;

/// Maximum number of simultaneous requests of one connection.
const STREAMS_MAX: u32 = 100;
/// Maximum size of the headers of one request; more is answered with 431.
const HEADERS_BYTES_MAX: u32 = 64 * 1024;
/// What a client may send before a request's body is read, for each request and for all.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// What is taken of an answer before the client reads, for each request.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// Requests that a client withdraws faster than they are accepted. One that does so without end
/// makes the server work for nothing, so it is disconnected.
const PENDING_RESETS_MAX: usize = 20;
/// Requests that end the connection because the client does not keep to the protocol.
const ERROR_RESETS_MAX: usize = 100;
/// How long a client may take to confirm that the connection ends.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

type Cause = Box<dyn Error + Send + Sync>;

/// How connections are served; cheap to clone.
#[derive(Clone)]
pub struct Protocol {
    http: http2::Builder<TokioExecutor>,
    limits: Limits,
    /// Requests in progress on all connections.
    requests: Arc<Semaphore>,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a connection may be idle.
    pub idle_time_max: Duration,
    /// How long a client may read nothing of an answer.
    pub read_wait_max: Duration,
    /// Requests in progress on all connections; further ones are refused, so that clients know
    /// that they can send them again.
    pub requests_max: usize,
}

impl Protocol {
    pub fn new(limits: Limits) -> Protocol {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(SEND_BYTES_MAX)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(ERROR_RESETS_MAX);
        let requests = Semaphore::new(limits.requests_max.min(Semaphore::MAX_PERMITS));
        Protocol { http, limits, requests: Arc::new(requests) }
    }
}

/// Answers the requests of one client until it disconnects or is idle for too long. When `closing`
/// is cancelled, the requests in progress are still answered.
pub async fn converse<S, B>(
    protocol: &Protocol,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: S,
    closing: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes, Error: Into<Cause>> + Send + Unpin + 'static,
{
    let Limits { idle_time_max, read_wait_max, .. } = protocol.limits;
    let activity = Arc::new(Activity::default());
    let watched = service_fn(|request| {
        let place = protocol.requests.clone().try_acquire_owned().ok();
        let begun = place.map(|place| (activity.begin(place), service.call(with_host(request))));
        async move {
            // Tells the client that the request was not looked at.
            let refused = || h2::Error::from(h2::Reason::REFUSED_STREAM);
            let (in_progress, answering) = begun.ok_or_else(refused)?;
            let Ok(answer) = answering.await;
            Ok::<_, h2::Error>(answer.map(|body| Answer::new(body, in_progress)))
        }
    });
    let connection = protocol.http.serve_connection(TokioIo::new(stream), watched);
    let mut connection = std::pin::pin!(connection);
    let mut leaving_since = None;
    loop {
        let now = Instant::now();
        let look_at = match (activity.idle_since(), activity.unread_since(), leaving_since) {
            (Some(idle), _, Some(leaving)) => idle.max(leaving) + LEAVE_TIME_MAX,
            (Some(idle), _, None) => idle + idle_time_max,
            (None, Some(unread), _) => unread + read_wait_max,
            (None, None, _) => now + read_wait_max,
        };
        if look_at <= now {
            if activity.idle_since().is_some() && leaving_since.is_none() {
                connection.as_mut().graceful_shutdown();
                leaving_since = Some(now);
                continue;
            }
            tracing::debug!("disconnecting a client that neither reads nor leaves");
            return;
        }
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = closing.cancelled(), if leaving_since.is_none() => {
                connection.as_mut().graceful_shutdown();
                leaving_since = Some(Instant::now());
            }
            () = activity.changed() => {}
            () = tokio::time::sleep_until(look_at) => {}
        }
    }
}

/// Names the host as HTTP/1 does. The name in the URL is what the client means.
fn with_host<B>(mut request: Request<B>) -> Request<B> {
    let authority = request.uri().authority();
    let host = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    request
}

#[cfg(test)]
mod tests;
