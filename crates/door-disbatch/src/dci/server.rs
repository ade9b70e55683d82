//! Connections: their number, idle times, TLS, and how they end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use windlass_net::{Stream, http};

/// Maximum number of connections; others wait to be accepted.
const CONNECTIONS_MAX: usize = 512;
/// Time limit for the request line and headers, and for idle connections.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest time without progress while the client does not read.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);
/// Time limit for the TLS handshake.
const TLS_TIME_MAX: Duration = Duration::from_secs(10);

/// Serves until `stop` is cancelled. Requests in progress are then answered; returns when all
/// connections have ended or are closed after a grace period.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: CancellationToken,
) {
    let mut protocol = http::protocol(HEAD_TIME_MAX);
    // A client that has stopped sending may still read the answer.
    protocol.half_close(true);
    windlass_net::serve(listener, CONNECTIONS_MAX, stop, |stream, closing| {
        talk(protocol.clone(), stream, tls.clone(), router.clone(), closing)
    })
    .await;
}

async fn talk(
    protocol: http1::Builder,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    closing: CancellationToken,
) {
    let service = TowerToHyperService::new(router);
    let stream = Stream::new(stream, WRITE_WAIT_MAX);
    let Some(tls) = tls else {
        return http::converse(protocol, stream, service, closing).await;
    };
    match tokio::time::timeout(TLS_TIME_MAX, tls.accept(stream)).await {
        Ok(Ok(stream)) => http::converse(protocol, stream, service, closing).await,
        Ok(Err(error)) => tracing::debug!(%error, "a connection without TLS"),
        Err(_) => tracing::debug!("a connection did not begin in time"),
    }
}

/// Loads certificate and key.
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

/// Passwords and tasks must not cross a network unencrypted.
pub(crate) fn may_listen(address: SocketAddr, has_tls: bool) -> Result<(), String> {
    if has_tls || address.ip().is_loopback() {
        return Ok(());
    }
    Err(format!("without `tls`, `listen` must be an address of this host alone, not {address}"))
}
