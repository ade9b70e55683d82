//! The seam between connections and commands: a connection hands over one request after the other
//! and says afterwards what became of the reply.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_core::Job;

use crate::wire::{Request, Response};

/// Who asks, and how long.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub peer: IpAddr,
    /// When a command that waits for something stops waiting.
    pub until: Instant,
    /// Cancelled when nobody waits for the reply any more: the client sends no more (it may still
    /// read), never wanted a reply, or the door closes. A command that waits for something then
    /// answers as if its time were over; whatever else it does, it does to the end.
    pub gone: CancellationToken,
}

/// A job as it was given away: whether it is still so tells if it may be taken back.
pub(crate) type Given = Job;

/// A command's answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub response: Response,
    /// The jobs that the reply gives away.
    pub given: Vec<Given>,
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply { response, given: Vec::new() }
    }
}

/// Everything that clients can ask for. The future of a method is never dropped before its end,
/// unless the door is cut off because it does not close in time.
#[async_trait]
pub(crate) trait Commands: Send + Sync + 'static {
    /// Never fails: what goes wrong is the reply.
    async fn run(&self, request: &Request, call: Call) -> Reply;

    /// The reply that gave these jobs away was written. Never called without jobs.
    async fn delivered(&self, given: Vec<Given>);

    /// The reply that gave these jobs away did not reach its client: they are queued again. Never
    /// called without jobs.
    async fn undelivered(&self, given: Vec<Given>);
}

/// Whether a command waits for what it asks for, until its time is over.
pub(crate) fn waits(request: &Request) -> bool {
    (request.is("GetJob") || request.is("GetJobs")) && request.connection_is("wait")
}

/// A defect in a command costs its client the reply, and nobody else anything.
pub(crate) async fn run_safely<C: Commands>(commands: &C, request: &Request, call: Call) -> Reply {
    let ran = AssertUnwindSafe(commands.run(request, call)).catch_unwind().await;
    ran.unwrap_or_else(|_| {
        tracing::error!(verb = request.verb(), "a command made the daemon panic; this is a defect");
        Response::error(500, "Unhandled Exception").into()
    })
}
