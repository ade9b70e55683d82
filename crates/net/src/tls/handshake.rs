//! A handshake within its time.

use std::time::Duration;

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
    /// It has ended, was too slow, or has no valid certificate.
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
            Accepted::Ended
        }
    }
}
