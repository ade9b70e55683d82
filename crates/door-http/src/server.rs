//! Connections: how many there are, how long they may be silent, and how they end.

use std::io;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use windlass_engine::Engine;
use windlass_net::{Stream, http};

use crate::Options;
use crate::presence::Presence;

/// Serves until `shutdown` is cancelled, then answers the requests in progress. Returns when all
/// connections have ended; those that do not are cut off after a grace period.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let router = crate::router_until(engine, &options, shutdown.clone());
    serve_router(listener, router, &options, shutdown).await;
    Ok(())
}

async fn serve_router(
    listener: TcpListener,
    router: Router,
    options: &Options,
    shutdown: CancellationToken,
) {
    let protocol = http::protocol(options.header_timeout);
    windlass_net::serve(listener, options.connections_max, shutdown, |stream, closing| {
        let address = stream.peer_addr().ok().map(|address| address.ip());
        let presence = Presence::of(address);
        let stream = Stream::with_on_end(stream, options.body_timeout, presence.watch());
        let router = TowerToHyperService::new(router.clone());
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
        http::converse(protocol.clone(), stream, service, closing)
    })
    .await;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    pub(crate) async fn serve_plain(listener: TcpListener, router: Router) {
        let never = CancellationToken::new();
        serve_router(listener, router, &Options::default(), never).await;
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
