//! The Bedrock door: clients of Bedrock::Jobs talk to Windlass as they talk to Bedrock. The core's
//! rules decide what happens to a job; this crate adds Bedrock's texts and details.
//!
//! | module | owns |
//! |---|---|
//! | `server`, `connection` | connections: their number, time limits, one request at a time |
//! | `inbound`, `outbound` | what a connection reads and writes, within bounds |
//! | `wire` | bytes to requests, replies to bytes: pure |
//! | `run_options`, `background` | options of every request: timeouts, closing, not waiting |
//! | `execute` | the interface between connections and commands |
//! | `command` | the commands |
//! | `number` | integers as C parses them |

mod background;
mod command;
mod connection;
mod execute;
mod inbound;
mod number;
mod outbound;
mod run_options;
mod server;
#[cfg(test)]
mod tests;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use windlass_core::time::SystemClock;
use windlass_core::{Clock, Tenant};
use windlass_engine::Engine;

pub use windlass_net::Network;

#[cfg(any(test, feature = "fuzz"))]
pub use wire::fuzz;

/// Settings of the door.
#[derive(Clone)]
pub struct Options {
    /// The tenant whose jobs this door shows; a Bedrock name is a type of this tenant.
    pub tenant: Tenant,
    /// Clients on other machines that may connect. Those of this machine always may.
    pub allow: Vec<Network>,
    /// Maximum number of connections; further ones are refused with a reply.
    pub connections_max: usize,
    /// Longest time between two requests of a connection; long, because workers keep theirs open.
    pub idle_max: Duration,
    /// Longest time without progress while a request is read or a reply is written.
    pub silence_max: Duration,
    /// Longest time from the first byte of a request to its last.
    pub request_max: Duration,
    /// Shown by the status.
    pub version: &'static str,
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
}

impl Options {
    pub fn new(tenant: Tenant) -> Options {
        Options {
            tenant,
            allow: Vec::new(),
            connections_max: 20_000,
            idle_max: Duration::from_secs(24 * 60 * 60),
            silence_max: Duration::from_secs(30),
            request_max: Duration::from_secs(5 * 60),
            version: env!("CARGO_PKG_VERSION"),
            clock: Arc::new(SystemClock),
        }
    }
}

/// The door, before it is opened.
pub struct Door {
    engine: Engine,
    options: Options,
}

impl Door {
    pub fn new(engine: Engine, options: Options) -> Door {
        Door { engine, options }
    }

    /// Serves until `shutdown` is cancelled, then answers the requests in progress. Returns when
    /// all connections have ended; those that do not are cut off after a grace period.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) -> io::Result<()> {
        let commands =
            command::Bedrock::new(self.engine, self.options.tenant.clone(), self.options.version);
        server::serve(listener, commands, &self.options, shutdown).await
    }
}
