//! Connections: how many there are, how long they may be silent, TLS, and how they end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use windlass_engine::Engine;
use windlass_net::tls::{self, Accepted, Tls};
use windlass_net::{Guest, Stream, http, http2};

use crate::error::Failure;
use crate::presence::Presence;
use crate::record;
use crate::{Access, Options};

/// Serves until `shutdown` is cancelled, then answers the requests in progress. Returns when all
/// connections have ended; those that do not are cut off after a grace period.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    options: Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let router = crate::router_until(engine.clone(), &options, shutdown.clone());
    let on_untrusted = move |address| record::refused_in_handshake(&engine, address);
    serve_router(listener, router, &options, Box::new(on_untrusted), shutdown).await;
    Ok(())
}

async fn serve_router(
    listener: TcpListener,
    router: Router,
    options: &Options,
    on_untrusted: OnUntrusted,
    shutdown: CancellationToken,
) {
    let server = Arc::new(Server::new(router, options, on_untrusted));
    windlass_net::serve(listener, options.connections_max, shutdown, |stream, guest, closing| {
        server.clone().talk(stream, guest, closing)
    })
    .await;
}

/// Called with the address of a client that has no certificate which the server trusts.
type OnUntrusted = Box<dyn Fn(Option<IpAddr>) + Send + Sync>;

/// What all connections share.
struct Server {
    router: Router,
    http1: http1::Builder,
    http2: http2::Protocol,
    tls: Option<Arc<Tls>>,
    on_untrusted: OnUntrusted,
    /// How long a handshake may take.
    shake_time_max: Duration,
    access: Access,
    /// How long a client may read nothing of an answer.
    read_wait_max: Duration,
    /// The answer to plain HTTP where TLS is spoken.
    wants_tls: String,
}

impl Server {
    fn new(router: Router, options: &Options, on_untrusted: OnUntrusted) -> Server {
        let (head_time_max, read_wait_max) = (options.header_timeout, options.body_timeout);
        let requests_max = options.connections_max;
        let limits = http2::Limits { idle_time_max: head_time_max, read_wait_max, requests_max };
        Server {
            router,
            http1: http::protocol(head_time_max),
            http2: http2::Protocol::new(limits),
            tls: options.tls.clone(),
            on_untrusted,
            shake_time_max: head_time_max,
            access: options.access,
            read_wait_max,
            wants_tls: Failure::wants_tls().json(),
        }
    }

    /// Answers the requests of one connection. With keys, a client is admitted by its first valid
    /// one (`access`); without, by its handshake.
    async fn talk(
        self: Arc<Self>,
        stream: TcpStream,
        guest: Arc<Guest>,
        closing: CancellationToken,
    ) {
        let address = stream.peer_addr().ok().map(|address| address.ip());
        let presence = Presence::of(address, guest);
        let admit = || match self.access {
            Access::Everybody => presence.admit(),
            Access::Keys => {}
        };
        let Some(tls) = &self.tls else {
            admit();
            let stream = Stream::with_on_end(stream, self.read_wait_max, presence.watch());
            return http::converse(self.http1.clone(), stream, self.service(presence), closing)
                .await;
        };
        let stream = match tls.accept(stream, self.shake_time_max, &closing).await {
            Accepted::Tls(stream) => stream,
            Accepted::Plain(stream) => return tls::refuse_plain(stream, &self.wants_tls).await,
            Accepted::Untrusted => return (self.on_untrusted)(address),
            Accepted::Ended => return,
        };
        admit();
        let is_http2 = tls::is_http2(&stream);
        let stream = Stream::with_on_end(stream, self.read_wait_max, presence.watch());
        let service = self.service(presence);
        if is_http2 {
            http2::converse(&self.http2, stream, service, closing).await;
        } else {
            http::converse(self.http1.clone(), stream, service, closing).await;
        }
    }

    /// Answers the requests of one client.
    fn service(
        &self,
        presence: Presence,
    ) -> impl Service<
        Request<Incoming>,
        Response = axum::response::Response,
        Error = Infallible,
        Future: Send + 'static,
    > + use<> {
        let router = TowerToHyperService::new(self.router.clone());
        service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(presence.clone());
            let under_way = presence.under_way();
            let answering = router.call(request);
            async move {
                let answer = answering.await;
                drop(under_way);
                answer
            }
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    pub(crate) async fn serve_plain(listener: TcpListener, router: Router) {
        let never = CancellationToken::new();
        serve_router(listener, router, &Options::default(), Box::new(|_| ()), never).await;
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
