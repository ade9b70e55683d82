//! Opens connections to the server, each within a time limit.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};
use windlass_core::store::{Cause, Error};

use crate::connection::{Session, Wire};
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
    latest: watch::Sender<usize>,
    closed: watch::Sender<bool>,
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
        let (latest, closed) = (watch::Sender::new(0), watch::Sender::new(false));
        Ok(Connector { address, tls, latest, closed })
    }

    /// The server and the database, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.address.name
    }

    /// A connection that is served by a task of its own, which ends with it.
    pub(crate) async fn session(&self) -> Result<Session> {
        let Connected { client, mut connection, host } = self.connect().await?;
        let session = Session::new(client, host);
        let (wire, given_up) = (session.wire(), self.given_up(session.wire(), host));
        tokio::spawn(async move {
            // Its end is seen by the statements that wait for an answer.
            let served = async {
                while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                    if is_warning(&message) {
                        wire.note_warning();
                    }
                }
            };
            tokio::select! {
                () = served => {}
                () = given_up => {}
            }
        });
        Ok(session)
    }

    /// Returns when nobody needs the answer to an abandoned call any more: another host has the
    /// place of the one that it was sent to, or no connection is wanted at all.
    fn given_up(&self, wire: Arc<Wire>, host: usize) -> impl Future<Output = ()> + use<> {
        let (mut latest, mut closed) = (self.latest.subscribe(), self.closed.subscribe());
        async move {
            wire.abandoned().await;
            tokio::select! {
                _ = latest.wait_for(|latest| *latest != host) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        }
    }

    /// The answers to abandoned calls are not waited for from now on.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// The host that was connected to last.
    pub(crate) fn latest(&self) -> usize {
        *self.latest.borrow()
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
                self.latest.send_replace(host);
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
