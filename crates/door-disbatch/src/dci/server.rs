//! Connections: how many there are, how long they may be silent, TLS, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::stream::Stream;

/// Connections at once; others wait to be accepted.
const CONNECTIONS_MAX: usize = 512;
/// A request's line and headers together; more is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long line and headers may take, and how long a connection may be silent between requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long client and server may need to agree on keys.
const TLS_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause after the machine refused to accept (mostly: no free file descriptor).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// At the end, requests under way get this long to be answered.
const CLOSE_GRACE: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled. Requests that are under way then are answered; returns when
/// all connections have ended, or are cut off after a grace.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let connections = TaskTracker::new();
    let cut = CancellationToken::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        // Who stops sending may still read: it has said all that it has to say.
        .half_close(true);
    let accept = async {
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let stream = accept_one(&listener).await;
            let (http, router, tls) = (http.clone(), router.clone(), tls.clone());
            let (stop, cut) = (stop.child_token(), cut.child_token());
            connections.spawn(async move {
                let talk = talk(http, stream, tls, router, stop);
                tokio::select! {
                    () = talk => {}
                    () = cut.cancelled() => {}
                }
                drop(slot);
            });
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = accept => {}
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(CLOSE_GRACE, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "cutting off connections that do not end");
        cut.cancel();
        connections.wait().await;
    }
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

async fn talk(
    http: http1::Builder,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let stream = Stream::new(stream);
    let ended = match tls {
        None => converse(http, stream, router, stop).await,
        Some(tls) => match tokio::time::timeout(TLS_TIME_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(http, stream, router, stop).await,
            Ok(Err(error)) => return tracing::debug!(%error, "a connection without TLS"),
            Err(_) => return tracing::debug!("a connection did not begin in time"),
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn converse(
    http: http1::Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    stop: CancellationToken,
) -> hyper::Result<()> {
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return ended,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// The keys of the two files.
pub(crate) fn tls(files: &crate::config::Tls) -> Result<TlsAcceptor, String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    let cert = files.cert.display();
    let chain = CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect);
    let chain: Vec<_> = chain.map_err(|error| format!("tls: {cert} cannot be read: {error}"))?;
    if chain.is_empty() {
        return Err(format!("tls: there is no certificate in {cert}"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("tls: {} cannot be read: {error}", files.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("tls: {error}"))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("tls: {cert} and {}: {error}", files.key.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Passwords and tasks do not go over a network for everybody to read.
pub(crate) fn may_listen(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if has_tls || address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!("without `tls`, `listen` must be an address of this host alone, not {address}"))
}
