//! The seam between connections and commands: a connection hands over one request after the other
//! and says afterwards what became of the reply.

use std::net::IpAddr;

use async_trait::async_trait;
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
