//! The server side: number of connections, access, and how they end.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use windlass_net::{Connections, Memory, accept};

use super::connection::{ConnectionRules, MEMORY_BYTES_MAX, converse};
use super::peer::{Handler, Peer};
use super::tries::Tries;
use crate::log::Log;
use crate::password::Password;

/// Connections beyond this are closed at once.
const CONNECTIONS_MAX: usize = 8192;

/// Access control.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Without one, access is open.
    pub password: Option<Password>,
    /// Whether 127.0.0.1 (and no other address) needs no password.
    pub always_allow_localhost: bool,
}

impl Access {
    /// The password required of a peer.
    pub(super) fn password_for(&self, addr: IpAddr) -> Option<Password> {
        let is_localhost = addr == IpAddr::V4(Ipv4Addr::LOCALHOST);
        if self.always_allow_localhost && is_localhost { None } else { self.password.clone() }
    }
}

pub(crate) struct Server {
    listener: TcpListener,
    access: Access,
    log: Log,
    connections_max: usize,
    memory: Memory,
}

impl Server {
    pub(crate) async fn bind(
        host: &str,
        port: u16,
        access: Access,
        log: &Log,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind((host, port)).await?;
        let log = log.named("server");
        log.info(format_args!("server is listening on {}", listener.local_addr()?));
        let (connections_max, memory) = (CONNECTIONS_MAX, Memory::new(MEMORY_BYTES_MAX));
        Ok(Server { listener, access, log, connections_max, memory })
    }

    #[cfg(test)]
    pub(super) fn with_connections_max(self, connections_max: usize) -> Server {
        Server { connections_max, ..self }
    }

    #[cfg(test)]
    pub(super) fn with_memory(self, memory: Memory) -> Server {
        Server { memory, ..self }
    }

    #[cfg(test)]
    pub(crate) fn addr(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is cancelled. Then nothing more is accepted, and requests under
    /// way get `grace` to be answered.
    pub(crate) async fn serve(
        self,
        handler: Arc<dyn Handler>,
        stop: CancellationToken,
        grace: Duration,
    ) {
        let Server { listener, access, log, connections_max, memory } = self;
        let slots = Arc::new(Semaphore::new(connections_max));
        let (connections, tries) = (Connections::default(), Tries::default());
        let tell = |error| log.error(format_args!("cannot accept a connection: {error}"));
        loop {
            let (stream, addr) = tokio::select! {
                () = stop.cancelled() => break,
                accepted = accept(&listener, tell) => accepted,
            };
            let Ok(slot) = slots.clone().try_acquire_owned() else {
                log.warn(format_args!("too many connections, closing the one from {addr}"));
                continue;
            };
            log.info(format_args!("new connection from {addr}"));
            // A separate token, to avoid contention on a shared one.
            let closing = stop.child_token();
            let password = access.password_for(addr.ip());
            let (tries, memory) = (tries.clone(), memory.clone());
            let rules = ConnectionRules { password, tries, closing, memory };
            connections.spawn_whole(slot, |cut| {
                let peer = Peer::new(addr, None, cut, &log);
                converse(stream, peer, handler.clone(), rules)
            });
        }
        drop(listener);
        let tell = |left| log.warn(format_args!("cutting off {left} connections that do not end"));
        connections.end(grace, tell).await;
    }
}
