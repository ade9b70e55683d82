//! The files that a running daemon loads again, after a HUP or when they change: the certificate of
//! the HTTP door.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::anyhow;
use tokio::signal::unix::Signal;
use tokio::sync::Notify;

use windlass_core::sync::lock;
use windlass_core::time::{Clock, SystemClock};
use windlass_door_http::tls::{self, Tls};

use crate::config::Config;
use crate::keys::runtime::{RuntimeFile, publish_certificate};

/// What clients may speak, in the order of preference.
const PROTOCOLS: &[&[u8]] = &[tls::HTTP2, tls::HTTP1];

/// The certificate of the HTTP door, if it has one.
pub(crate) fn load(config: &Config) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some(files) = config.tls.clone() else { return Ok(None) };
    let tls = Tls::load(files, PROTOCOLS, now_s()).map_err(|reason| anyhow!(reason))?;
    Ok(Some(Arc::new(tls)))
}

/// The certificate in the file for commands of the same user, which follows the one in use.
pub(crate) struct Published {
    runtime: Option<PathBuf>,
    address: SocketAddr,
    file: Mutex<Option<RuntimeFile>>,
}

impl Published {
    pub(crate) fn new(
        runtime: Option<PathBuf>,
        address: SocketAddr,
        tls: Option<&Tls>,
    ) -> Published {
        let published = Published { runtime, address, file: Mutex::default() };
        if let Some(tls) = tls {
            published.update(tls);
        }
        published
    }

    fn update(&self, tls: &Tls) {
        let (certificate, mut file) = (tls.certificate(), lock(&self.file));
        if !file.as_ref().is_some_and(|file| file.has(&certificate)) {
            *file = publish_certificate(self.runtime.as_deref(), self.address, certificate);
        }
    }

    pub(crate) fn remove(&self) {
        *lock(&self.file) = None;
    }
}

/// A HUP never ends the daemon, even if there is nothing to load.
pub(crate) async fn follow(
    tls: Option<Arc<Tls>>,
    mut hangups: Signal,
    published: &Published,
) -> Infallible {
    let (asked, has_tls) = (Notify::new(), tls.is_some());
    let asking = async {
        while hangups.recv().await.is_some() {
            match has_tls {
                true => tracing::info!(signal = "SIGHUP", "loading the certificate again"),
                false => tracing::info!(signal = "SIGHUP", "there is nothing to load again"),
            }
            asked.notify_one();
        }
        std::future::pending().await
    };
    let following = async {
        match tls {
            Some(tls) => tls.follow(now_s, &asked, |tls| published.update(tls)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        never = asking => never,
        never = following => never,
    }
}

fn now_s() -> i64 {
    SystemClock.now().ms() / 1000
}
