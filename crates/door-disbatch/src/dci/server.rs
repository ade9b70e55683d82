//! Connections: their number, idle times, TLS, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use windlass_core::time::{Clock, SystemClock};
use windlass_net::tls::{self, Accepted, Tls};
use windlass_net::{Guest, Stream, http};

/// Maximum number of connections; others wait, unless a handshake can make room.
const CONNECTIONS_MAX: usize = 512;
/// Time limit for the request line and headers, and for idle connections.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest time without progress while the client does not read.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time limit for the TLS handshake.
const TLS_TIME_MAX: Duration = Duration::from_secs(10);

/// The answer to plain HTTP where TLS is spoken.
const WANTS_TLS: &str = r#"{"error":"this port speaks TLS; use https"}"#;

/// Serves until `stop` is cancelled. Requests in progress are then answered; returns when all
/// connections have ended or are closed after a grace period.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    router: Router,
    stop: CancellationToken,
) {
    let mut protocol = http::protocol(HEAD_TIME_MAX);
    // A client that has stopped sending may still read the answer.
    protocol.half_close(true);
    windlass_net::serve(listener, CONNECTIONS_MAX, stop, |stream, guest, closing| {
        talk(protocol.clone(), (stream, guest), tls.clone(), router.clone(), closing)
    })
    .await;
}

async fn talk(
    protocol: http1::Builder,
    (stream, guest): (TcpStream, Arc<Guest>),
    tls: Option<Arc<Tls>>,
    router: Router,
    closing: CancellationToken,
) {
    let service = TowerToHyperService::new(router);
    let Some(tls) = tls else {
        guest.admit();
        let stream = Stream::new(stream, WRITE_WAIT_MAX);
        return http::converse(protocol, stream, service, closing).await;
    };
    match tls.accept(stream, TLS_TIME_MAX, &closing).await {
        Accepted::Tls(stream) => {
            guest.admit();
            let stream = Stream::new(stream, WRITE_WAIT_MAX);
            http::converse(protocol, stream, service, closing).await;
        }
        Accepted::Plain(stream) => tls::refuse_plain(stream, WANTS_TLS).await,
        Accepted::Untrusted | Accepted::Ended => {}
    }
}

/// Loads certificate and key.
pub(crate) fn tls(config: &crate::config::Tls) -> Result<Arc<Tls>, String> {
    let files = tls::Files { cert: config.cert.clone(), key: config.key.clone(), client_ca: None };
    Ok(Arc::new(Tls::load(files, &[tls::HTTP1], now())?))
}

/// Loads them again when the files change.
pub(crate) async fn follow(tls: Option<Arc<Tls>>) {
    if let Some(tls) = tls {
        // The signal that asks for it elsewhere stops this program.
        match tls.follow(now, &Notify::new(), |_| ()).await {}
    }
}

fn now() -> i64 {
    SystemClock.now().ms() / 1000
}

/// Passwords and tasks must not cross a network unencrypted.
pub(crate) fn may_listen(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if has_tls || address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!("without `tls`, `listen` must be an address of this host alone, not {address}"))
}
