//! Connections: their number, and how they end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use windlass_net::{CLOSE_GRACE, Connections, LINGER_BYTES_MAX, Memory, accept, tcp};

use crate::Options;
use crate::background::Background;
use crate::connection::{DoorState, serve_client};
use crate::execute::Commands;
use crate::inbound::Patience;
use crate::wire::{Limits, Response};

/// Excess clients that get a reply at the same time; further ones are just disconnected.
const REFUSALS_MAX: usize = 64;
/// Memory for the large requests of all connections.
const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Serves until `shutdown` is cancelled. Then no more requests are read, workers that wait for a
/// job are told that there is none, and requests in progress are answered. Returns when all
/// connections have ended; those that do not are cut off after a grace period.
pub(crate) async fn serve<C: Commands>(
    listener: TcpListener,
    commands: C,
    options: &Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let door = Arc::new(DoorState {
        commands: Arc::new(commands),
        clock: options.clock.clone(),
        limits: Limits::default(),
        patience: Patience {
            idle_max: options.idle_max,
            silence_max: options.silence_max,
            request_max: options.request_max,
        },
        memory: Memory::new(MEMORY_BYTES_MAX),
        background: Background::default(),
        connections: Connections::default(),
        closing: shutdown.clone(),
    });
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accept_all(&listener, &door, options) => {}
    }
    drop(listener);
    let tell = |left| tracing::warn!(connections = left, "cutting off connections that do not end");
    door.connections.end(CLOSE_GRACE, tell).await;
    Ok(())
}

async fn accept_all<C: Commands>(
    listener: &TcpListener,
    door: &Arc<DoorState<C>>,
    options: &Options,
) {
    let slots = Arc::new(Semaphore::new(options.connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let tell = |error| tracing::warn!(%error, "cannot accept a connection");
        let (mut stream, peer) = accept(listener, tell).await;
        let peer = peer.ip().to_canonical();
        if !peer.is_loopback() && !options.allow.iter().any(|network| network.contains(peer)) {
            tracing::debug!(%peer, "closing a connection from an address that is not allowed");
            door.commands.refused(peer);
            continue;
        }
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            door.connections.spawn(slot, serve_client(door.clone(), stream, peer));
        } else if let Ok(refusal) = refusals.clone().try_acquire_owned() {
            let silence_max = door.patience.silence_max;
            let refuse = async move { refuse(&mut stream, silence_max).await };
            door.connections.spawn(refusal, refuse);
        }
    }
}

async fn refuse(stream: &mut TcpStream, silence_max: Duration) {
    let response = Response::error(503, "Too many connections").with_header("Connection", "close");
    if tcp::write(stream, &response.compose(), silence_max).await.is_ok() {
        tcp::close(stream, LINGER_BYTES_MAX).await;
    }
}
