//! The HTTP door: the API with which clients add jobs, look at them and manage handlers, and with
//! which workers pull. Nothing here decides anything about a job; that is the engine's.
//!
//! | module | owns |
//! |---|---|
//! | `server`, `presence` | connections: how many, how long, whether the client is still there |
//! | `door` | what every route shares: the engine, the limits, the clock |
//! | `around` | the layers around every request: the log line, panics, common headers |
//! | `route`, `openapi` | the table of routes, from which router and document are made |
//! | `error`, `answer` | the wire form of refusals and of answers |
//! | `path`, `query`, `body`, `json` | reading requests, strictly and within bounds |
//! | `time`, `size`, `wire_job`, `wire_handler` | wire forms of the domain |
//! | `add`, `add_text`, `add_binary`, `add_json` | adding jobs |
//! | `jobs`, `log`, `handlers`, `types`, `pull`, `operate`, `seed` | the other routes, by resource |

mod add;
mod add_binary;
mod add_json;
mod add_text;
mod answer;
mod around;
mod body;
mod door;
mod error;
mod handlers;
mod jobs;
mod json;
mod log;
mod openapi;
mod operate;
mod path;
mod presence;
mod pull;
mod query;
mod route;
mod seed;
mod server;
mod size;
mod time;
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

pub use openapi::openapi;
pub use server::serve;

/// What an operator may choose.
#[derive(Clone)]
pub struct Options {
    /// Largest body of one request; lines and JSON have lower bounds of their own.
    pub body_bytes_max: u64,
    /// A request's head must be there this long after the connection is made, or after the
    /// request before it was answered.
    pub header_timeout: Duration,
    /// Longest time between two bytes of a body, in either direction.
    pub body_timeout: Duration,
    /// Connections at the same time; further ones wait to be accepted.
    pub connections_max: usize,
    /// Shown by the status.
    pub version: &'static str,
    /// Tells when `delay` counts from; the engine's own.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            body_bytes_max: 1024 * 1024 * 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(60),
            connections_max: 10_000,
            version: env!("CARGO_PKG_VERSION"),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Every route, without the bounds on connections that `serve` adds.
pub fn router(engine: Engine, options: &Options) -> Router {
    router_until(engine, options, CancellationToken::new())
}

/// Whoever waits for something is answered when `closing` is cancelled.
fn router_until(engine: Engine, options: &Options, closing: CancellationToken) -> Router {
    let door = door::Door::new(door::Shared {
        engine,
        clock: options.clock.clone(),
        body_bytes_max: options.body_bytes_max,
        body_timeout: options.body_timeout,
        version: options.version,
        openapi: openapi().into(),
        memory: Memory::new(body::MEMORY_BYTES_MAX),
        closing,
    });
    around::wrap(route::router()).with_state(door)
}
