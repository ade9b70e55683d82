//! Connections: how many there are, and how they end.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Options;
use crate::background::Background;
use crate::connection::{Shared, converse};
use crate::execute::Commands;
use crate::inbound::Patience;
use crate::memory::Memory;
use crate::outbound;
use crate::wire::{Limits, Response};

/// Pause after the machine refused to accept (mostly: no free file descriptor).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// When the door closes, requests under way get this long to be answered.
const CLOSE_GRACE: Duration = Duration::from_secs(10);
/// Clients that are told at the same time that there are too many; the rest are told nothing.
const REFUSALS_MAX: usize = 64;
/// What the large requests of all connections may take together.
const MEMORY_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Serves until `shutdown` is cancelled. Then nothing more is taken, those who wait for a job are
/// told that there is none, and what is under way is answered. Returns when all connections have
/// ended, or are cut off after a grace.
pub(crate) async fn serve<C: Commands>(
    listener: TcpListener,
    commands: C,
    options: &Options,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let shared = Arc::new(Shared {
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
        tasks: TaskTracker::new(),
        closing: shutdown.clone(),
        cut: CancellationToken::new(),
    });
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = accept_all(&listener, &shared, options.connections_max) => {}
    }
    drop(listener);
    let tasks = &shared.tasks;
    tasks.close();
    if tokio::time::timeout(CLOSE_GRACE, tasks.wait()).await.is_err() {
        tracing::warn!(connections = tasks.len(), "cutting off connections that do not end");
        shared.cut.cancel();
        tasks.wait().await;
    }
    Ok(())
}

async fn accept_all<C: Commands>(
    listener: &TcpListener,
    shared: &Arc<Shared<C>>,
    connections_max: usize,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let (mut stream, peer) = accept_one(listener).await;
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            shared.spawn(slot, converse(shared.clone(), stream, peer));
        } else if let Ok(refusal) = refusals.clone().try_acquire_owned() {
            let silence_max = shared.patience.silence_max;
            shared.spawn(refusal, async move { refuse(&mut stream, silence_max).await });
        }
    }
}

/// Errors of one connection do not concern the others; a machine without file descriptors gets
/// time to find some.
async fn accept_one(listener: &TcpListener) -> (TcpStream, IpAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Replies are written whole; waiting for more to send would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection ended before it began");
                    continue;
                }
                return (stream, peer.ip().to_canonical());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn refuse(stream: &mut TcpStream, silence_max: Duration) {
    let response = Response::error(503, "Too many connections").with_header("Connection", "close");
    if outbound::write(stream, &response.compose(), silence_max).await.is_ok() {
        outbound::close(stream).await;
    }
}
