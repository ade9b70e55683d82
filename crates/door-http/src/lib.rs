//! The HTTP door: the API for clients, which add and manage jobs and handlers, and for workers,
//! which pull jobs. All decisions about jobs are the engine's.
//!
//! | module | owns |
//! |---|---|
//! | `server`, `presence` | connections: number, times, TLS, whether the client is still there |
//! | `door` | what every route shares: the engine, the limits, the clock |
//! | `access`, `tries` | who may use a route; wrong keys, counted by address |
//! | `record`, `audit` | what the audit learns of requests, and the route that lists it |
//! | `room` | connections that are kept for requests that do not wait |
//! | `around` | the layers around every request: the log line, panics, common headers |
//! | `site` | which web pages may use the door |
//! | `route`, `openapi` | the table of routes, from which router and document are made |
//! | `error`, `answer` | the wire form of refusals and of answers |
//! | `path`, `query`, `body`, `json` | reading requests, strictly and within bounds |
//! | `time`, `size`, `network`, `wire_job`, `wire_handler` | wire forms of the domain |
//! | `add`, `add_text`, `add_binary`, `add_json` | adding jobs |
//! | `fuzz` | rules for any request, for the fuzzer and the tests |
//! | `jobs`, `log`, `handlers`, `types`, `pull`, `keys` | other routes, by resource |
//! | `secrets` | secrets of handlers: set, listed, removed |
//! | `tenants` | settings of tenants |
//! | `daemons` | all daemons of the queue |
//! | `operate`, `seed` | routes for operators, and those of the original API |

mod access;
mod add;
mod add_binary;
mod add_json;
mod add_text;
mod answer;
mod around;
mod audit;
mod body;
mod daemons;
mod door;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handlers;
mod jobs;
mod json;
mod keys;
mod log;
mod network;
mod openapi;
mod operate;
mod path;
mod presence;
mod pull;
mod query;
mod record;
mod room;
mod route;
mod secrets;
mod seed;
mod server;
mod site;
mod size;
mod tenants;
mod time;
mod tries;
mod types;
mod wire_handler;
mod wire_job;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;

use windlass_core::Clock;
use windlass_core::time::SystemClock;
use windlass_engine::Engine;
use windlass_net::Memory;

pub use access::Access;
pub use openapi::openapi;
pub use server::serve;
pub use windlass_net::{Network, Sites, tls};

/// Settings of the door.
#[derive(Clone)]
pub struct Options {
    /// Maximum body of one request; lines and JSON have lower bounds of their own.
    pub body_bytes_max: u64,
    /// How long a client may take to send a request's head, from the connection or the previous
    /// answer, and for its TLS handshake.
    pub header_timeout: Duration,
    /// Longest time between two bytes of a body, in either direction.
    pub body_timeout: Duration,
    /// Maximum number of connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// If it is set, all connections speak TLS.
    pub tls: Option<Arc<tls::Tls>>,
    /// Whether requests need keys.
    pub access: Access,
    /// Whose requests for metrics need none.
    pub metrics_allow: Vec<Network>,
    /// What this server is called, and which web pages may use it.
    pub sites: Sites,
    /// Shown in the status.
    pub version: &'static str,
    /// The engine's clock; `delay` counts from its time.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            body_bytes_max: 1024 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            connections_max: 10_000,
            tls: None,
            access: Access::Keys,
            metrics_allow: Vec::new(),
            sites: Sites::default(),
            version: env!("CARGO_PKG_VERSION"),
            clock: Arc::new(SystemClock),
        }
    }
}

/// All routes, without the connection limits of `serve`.
pub fn router(engine: Engine, options: &Options) -> Router {
    router_until(engine, options, CancellationToken::new())
}

/// Waiting requests are answered when `closing` is cancelled.
fn router_until(engine: Engine, options: &Options, closing: CancellationToken) -> Router {
    let door = door::Door::new(door::DoorState {
        engine,
        clock: options.clock.clone(),
        body_bytes_max: options.body_bytes_max,
        body_timeout: options.body_timeout,
        access: options.access,
        tries: tries::Tries::default(),
        metrics_allow: options.metrics_allow.clone(),
        sites: options.sites.clone(),
        version: options.version,
        openapi: openapi().into(),
        memory: Memory::new(body::MEMORY_BYTES_MAX),
        room: room::Room::new(options.connections_max),
        closing,
    });
    around::wrap(route::router(&door), &door).with_state(door)
}
