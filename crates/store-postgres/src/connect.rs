//! Opens connections to the server, each within a time limit.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use windlass_core::store::{Cause, Error};

use crate::connection::Session;
use crate::error::{Failure, Result};
use crate::tls::{Stream, Tls};
use crate::url::Address;

/// For a connection to one host with its handshakes, over all addresses of the host.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(15);
/// A host that takes longer does not hold up the next one: its process or machine may stand still.
const HEAD_START: Duration = Duration::from_secs(1);
/// A call that takes longer may wait for a server that another one has replaced.
const SILENCE_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Connector {
    address: Address,
    tls: Tls,
    /// The position of the host that was connected to last: the others are tried after it.
    latest: AtomicUsize,
}

/// A connection, and what has to be polled for anything to happen on it.
pub(crate) struct Connected {
    pub(crate) client: Client,
    pub(crate) connection: Connection<Socket, Stream<Socket>>,
    /// The position of its host.
    host: usize,
}

impl Connector {
    pub(crate) fn new(url: &str) -> std::result::Result<Connector, Error> {
        let address = Address::parse(url)?;
        let tls = Tls::new(&address.check)?;
        Ok(Connector { address, tls, latest: AtomicUsize::new(0) })
    }

    /// The server and the database, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.address.name
    }

    /// A connection that is served by a task of its own, which ends with it.
    pub(crate) async fn session(&self) -> Result<Session> {
        let Connected { client, mut connection, host } = self.connect().await?;
        let session = Session::new(client, host);
        let warned = session.warned();
        tokio::spawn(async move {
            // Its end is seen by the statements that wait for an answer.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if is_warning(&message) {
                    warned.store(true, Ordering::Release);
                }
            }
        });
        Ok(session)
    }

    /// The host that was connected to last.
    pub(crate) fn latest(&self) -> usize {
        self.latest.load(Ordering::Relaxed)
    }

    /// Returns when another host has taken the place of this one. A server that stands still keeps
    /// its connections, so nothing but a new connection shows that. Never returns if there is no
    /// other host.
    pub(crate) async fn moved_from(&self, host: usize) {
        if self.address.hosts.len() == 1 {
            return std::future::pending().await;
        }
        loop {
            sleep(SILENCE_MAX).await;
            if self.connect().await.is_ok_and(|connected| connected.host != host) {
                return;
            }
        }
    }

    /// A connection to the first host that can be written.
    pub(crate) async fn connect(&self) -> Result<Connected> {
        let count = self.address.hosts.len();
        let first = self.latest();
        let mut waiting = (0..count).map(|nth| (first + nth) % count);
        let mut tries = FuturesUnordered::new();
        let mut failure = None;
        loop {
            match waiting.next() {
                Some(host) => tries.push(self.connect_to(host)),
                None if tries.is_empty() => break,
                None => {}
            }
            tokio::select! {
                Some(tried) = tries.next() => match tried {
                    Ok(connected) => return Ok(connected),
                    Err(refusal) => failure = Some(refusal),
                },
                () = sleep(HEAD_START), if waiting.len() > 0 => {}
            }
        }
        Err(failure.unwrap_or_else(|| Failure::unavailable(format!("{}: no host", self.name()))))
    }

    async fn connect_to(&self, host: usize) -> Result<Connected> {
        let connecting = self.address.hosts[host].connect(self.tls.clone());
        match timeout(CONNECT_TIME_MAX, connecting).await {
            Ok(Err(error)) if is_read_only(&error) => {
                let text = format!("{}: the server is read-only", self.name());
                Err(Failure::Store(Error::Unavailable(Cause::new(text, error))))
            }
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok((client, connection))) => {
                self.latest.store(host, Ordering::Relaxed);
                Ok(Connected { client, connection, host })
            }
            Err(_) => Err(Failure::unavailable(format!(
                "{}: connecting took longer than {} s",
                self.name(),
                CONNECT_TIME_MAX.as_secs()
            ))),
        }
    }
}

/// The code of warnings without one of their own.
fn is_warning(message: &AsyncMessage) -> bool {
    matches!(message, AsyncMessage::Notice(notice) if *notice.code() == SqlState::WARNING)
}

/// The driver's error when none of the servers allows writes.
fn is_read_only(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| {
        cause.kind() == io::ErrorKind::PermissionDenied && cause.raw_os_error().is_none()
    })
}
