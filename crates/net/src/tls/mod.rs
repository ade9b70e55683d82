//! TLS of a server: certificates from files, loaded again when they change, and handshakes within
//! bounds.
//!
//! | module | owns |
//! |---|---|
//! | `files` | reading and checking the files; every refusal is one sentence |
//! | `validity` | from when until when a certificate is valid |
//! | `watch` | noticing that the files have changed |
//! | `handshake` | how a connection begins, and how long that may take |
//! | `plain` | the answer to a client that does not speak TLS |

mod files;
mod handshake;
mod plain;
mod validity;
mod watch;

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::sync::Notify;

pub use self::files::Files;
pub use self::handshake::Accepted;
pub use self::plain::refuse_plain;
use self::watch::{Stamps, Watch};

/// A connection after its handshake.
pub type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Names of protocols that a client chooses from in its handshake.
pub const HTTP1: &[u8] = b"http/1.1";
pub const HTTP2: &[u8] = b"h2";

/// How often to look whether the files have changed. A change is loaded when two looks in a row
/// have seen the same, because two files cannot be replaced at once.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// A warning is logged when a certificate expires sooner than this, in seconds.
const EXPIRES_SOON_S: i64 = 7 * 24 * 3600;
/// And again after this long, in seconds.
const WARNING_INTERVAL_S: i64 = 24 * 3600;

/// A server's certificate, which new connections get. Connections keep the one they began with.
pub struct Tls {
    files: Files,
    protocols: &'static [&'static [u8]],
    current: Mutex<Loaded>,
    /// The files as they were just before they were first read.
    first: Stamps,
}

/// What the files contain.
#[derive(Clone)]
struct Loaded {
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    /// In seconds since 1970, as all times here.
    expires_at: i64,
}

impl Tls {
    /// Loads the files. Clients choose one of `protocols`, the first that both have.
    pub fn load(
        files: Files,
        protocols: &'static [&'static [u8]],
        now: i64,
    ) -> Result<Tls, String> {
        let first = files.stamps();
        let current = Mutex::new(files.load(protocols, now)?);
        Ok(Tls { files, protocols, current, first })
    }

    /// The server's own certificate, in DER.
    pub fn certificate(&self) -> Vec<u8> {
        self.lock().certificate.to_vec()
    }

    /// Loads the files again, whenever they have changed and when `asked` is notified. If they
    /// cannot be used, the certificate from before stays. `on_new` is called after each change.
    pub async fn follow(
        self: Arc<Self>,
        now: impl Fn() -> i64,
        asked: &Notify,
        on_new: impl Fn(&Tls),
    ) -> Infallible {
        let mut watch = Watch::new(self.first.clone());
        let mut warned_at = None;
        loop {
            self.warn_of_end(now(), &mut warned_at);
            let is_asked = tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => false,
                () = asked.notified() => true,
            };
            let this = self.clone();
            let looked = tokio::task::spawn_blocking(move || this.files.stamps()).await;
            let Ok(stamps) = looked else { continue };
            if watch.look(stamps, is_asked) && self.reload(now()).await {
                on_new(&self);
            }
        }
    }

    /// True if there is a new certificate.
    async fn reload(self: &Arc<Self>, now: i64) -> bool {
        let this = self.clone();
        let load = move || this.files.load(this.protocols, now);
        let loaded = match tokio::task::spawn_blocking(load).await {
            Ok(loaded) => loaded,
            Err(failed) => Err(failed.to_string()),
        };
        match loaded {
            Ok(loaded) => {
                let cert = self.files.cert.display();
                let expires = validity::text_of(loaded.expires_at);
                *self.lock() = loaded;
                tracing::info!(%cert, expires, "new connections get the certificate in this file");
                true
            }
            Err(reason) => {
                tracing::error!("{reason}; the certificate from before stays in use");
                false
            }
        }
    }

    fn warn_of_end(&self, now: i64, warned_at: &mut Option<i64>) {
        let expires_at = self.lock().expires_at;
        let is_time = warned_at.is_none_or(|before| now - before >= WARNING_INTERVAL_S);
        if expires_at - now < EXPIRES_SOON_S && is_time {
            *warned_at = Some(now);
            let (cert, at) = (self.files.cert.display(), validity::text_of(expires_at));
            let verb = if expires_at < now { "expired" } else { "expires" };
            tracing::warn!("tls.cert: the certificate in {cert} {verb} at {at}; replace the file");
        }
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.lock().config.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Loaded> {
        // What is stored is replaced as a whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the client has chosen HTTP/2.
pub fn is_http2(stream: &TlsStream) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}
