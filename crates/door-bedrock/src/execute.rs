//! The interface between connections and commands: a connection passes one request at a time and
//! reports afterwards whether the reply was delivered.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_engine::Taken;

use crate::wire::{Request, Response};

/// How often the jobs in a reply are held anew while it is written.
pub(crate) const HOLD_INTERVAL: Duration = Duration::from_secs(20);

/// The caller of a command, and its deadline.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub peer: IpAddr,
    /// When a command that waits for something stops waiting.
    pub until: Instant,
    /// Cancelled when waiting is no longer useful: the client has stopped sending (it may still
    /// read), never wanted a reply, or the door closes. A waiting command then answers as if its
    /// time were over; everything else runs to completion.
    pub gone: CancellationToken,
}

/// A job that was handed out, and what it becomes again if the reply is not delivered.
#[derive(Debug)]
pub(crate) struct HandedOut {
    pub taken: Taken,
    /// Whether the data counts that it was handed out.
    pub counted: bool,
}

/// A command's answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub response: Response,
    /// The jobs that the reply hands out.
    pub handed_out: Vec<HandedOut>,
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply { response, handed_out: Vec::new() }
    }
}

/// The commands. The future of a method is never dropped before it completes, unless the door is
/// cut off because it does not close in time.
#[async_trait]
pub(crate) trait Commands: Send + Sync + 'static {
    /// Never fails: an error is a reply, too.
    async fn run(&self, request: Arc<Request>, call: Call) -> Reply;

    /// A connection from this address was closed, because the door is not open to it.
    fn refused(&self, peer: IpAddr);

    /// The reply with these jobs is still being written, also while this runs: holds them for its
    /// client for at least `HOLD_INTERVAL`. Never called without jobs.
    async fn hold(&self, handed_out: &[HandedOut]);

    /// The reply with these jobs was delivered. Never called without jobs.
    async fn delivered(&self, handed_out: Vec<HandedOut>);

    /// The reply with these jobs did not reach its client: takes them back. Never called without
    /// jobs.
    async fn undelivered(&self, handed_out: Vec<HandedOut>);
}

/// Whether a command waits for what it asks for, until its time is over.
pub(crate) fn waits(request: &Request) -> bool {
    (request.is("GetJob") || request.is("GetJobs")) && request.connection_is("wait")
}

/// A panic in a command costs its client the reply, and affects no other client.
pub(crate) async fn run_safely<C: Commands>(
    commands: &C,
    request: &Arc<Request>,
    call: Call,
) -> Reply {
    let ran = AssertUnwindSafe(commands.run(request.clone(), call)).catch_unwind().await;
    ran.unwrap_or_else(|_| {
        tracing::error!(verb = request.verb(), "a command made the daemon panic; this is a bug");
        Response::error(500, "Unhandled Exception").into()
    })
}
