//! Connections: how many there are, how long they may be silent, and how they end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use windlass_engine::Engine;

use crate::Options;
use crate::presence::Presence;
use crate::stream::Stream;

/// A request's line and headers together; more is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Pause after the machine refused to accept (mostly: no free file descriptor).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// When the door closes, requests under way get this long to be answered.
const CLOSE_GRACE: Duration = Duration::from_secs(10);

/// Serves until `shutdown` is cancelled. Requests that are under way then are answered; `serve`
/// returns when all connections have ended, or are cut off after a grace.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let router = crate::router_until(engine, &options, shutdown.clone());
    serve_router(listener, router, &options, shutdown).await
}

async fn serve_router(
    listener: TcpListener,
    router: Router,
    options: &Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(options.connections_max));
    let connections = TaskTracker::new();
    let ending = Ending { closing: shutdown.clone(), cut: CancellationToken::new() };
    let http = protocol(options);
    let accept = async {
        loop {
            let slot = slots.clone().acquire_owned().await.expect("the slots are never closed");
            let stream = accept_one(&listener).await;
            let presence = Presence::default();
            let stream = Stream::new(stream, options.body_timeout, presence.clone());
            let talk = converse(http.clone(), stream, router.clone(), presence, ending.of_one());
            connections.spawn(async move {
                talk.await;
                drop(slot);
            });
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accept => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(CLOSE_GRACE, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "cutting off connections that do not end");
        ending.cut.cancel();
        connections.wait().await;
    }
    Ok(())
}

/// How the connections of a door end.
struct Ending {
    /// Answer what is under way, take nothing more.
    closing: CancellationToken,
    /// Now.
    cut: CancellationToken,
}

impl Ending {
    /// Every connection looks at its tokens with each request, so it gets some of its own: then
    /// connections do not wait for each other.
    fn of_one(&self) -> Ending {
        Ending { closing: self.closing.child_token(), cut: self.cut.child_token() }
    }
}

fn protocol(options: &Options) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_header_size(HEAD_BYTES_MAX);
    http
}

/// Errors of one connection do not concern the others; a machine without file descriptors gets
/// time to find some.
async fn accept_one(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written whole; waiting for more to send would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection ended before it began");
                    continue;
                }
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn converse(
    http: http1::Builder,
    stream: Stream<TcpStream>,
    router: Router,
    presence: Presence,
    ending: Ending,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(presence.clone());
        let under_way = presence.under_way();
        let answering = router.call(request);
        async move {
            let answer = answering.await;
            drop(under_way);
            answer
        }
    });
    let connection = http.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let closed_first = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = ending.closing.cancelled() => None,
    };
    let ended = match closed_first {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = ending.cut.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    pub(crate) async fn serve_plain(listener: TcpListener, router: Router) {
        let never = CancellationToken::new();
        serve_router(listener, router, &Options::default(), never).await.unwrap();
    }

    /// Sends, closes the connection's other half by asking for it, and reads to the end.
    pub(crate) async fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = request.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}
