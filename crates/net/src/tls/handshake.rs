//! A handshake within its time.

use std::io;
use std::time::Duration;

use rustls::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Tls, TlsStream};

/// The first byte of a client that speaks TLS.
const HANDSHAKE: u8 = 0x16;

/// How a connection begins.
pub enum Accepted {
    Tls(Box<TlsStream>),
    /// The client speaks something else, most likely plain HTTP.
    Plain(TcpStream),
    /// The client has no certificate that the server trusts.
    Untrusted,
    /// It has ended, was too slow, or does not speak a version of TLS that the server does.
    Ended,
}

impl Tls {
    /// Shakes hands with a client. Ends early when `closing` is cancelled.
    pub async fn accept(
        &self,
        stream: TcpStream,
        time_max: Duration,
        closing: &CancellationToken,
    ) -> Accepted {
        tokio::select! {
            biased;
            done = tokio::time::timeout(time_max, shake(self, stream)) => done.unwrap_or_else(|_| {
                tracing::debug!("a TLS handshake took too long");
                Accepted::Ended
            }),
            () = closing.cancelled() => Accepted::Ended,
        }
    }
}

async fn shake(tls: &Tls, stream: TcpStream) -> Accepted {
    let mut first = [0];
    match stream.peek(&mut first).await {
        Ok(1) if first[0] != HANDSHAKE => return Accepted::Plain(stream),
        Ok(1) => {}
        _ => return Accepted::Ended,
    }
    match TlsAcceptor::from(tls.config()).accept(stream).await {
        Ok(stream) => Accepted::Tls(Box::new(stream)),
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake failed");
            if is_about_certificate(&error) { Accepted::Untrusted } else { Accepted::Ended }
        }
    }
}

/// Whether the client's certificate is why the server has refused it.
fn is_about_certificate(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(error, Some(Error::NoCertificatesPresented | Error::InvalidCertificate(_)))
}
