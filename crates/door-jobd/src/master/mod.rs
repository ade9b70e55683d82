//! The master: workers register with it, and clients reach all of them through it. It stores
//! nothing on disk: after a restart, workers register again by themselves.

mod manual;
mod registry;
mod request;
mod signal;
#[cfg(test)]
mod tests;
mod throttle;
mod wanted;

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use windlass_core::sync::lock;

use self::registry::Registry;
use self::throttle::Throttle;
use crate::config::MasterConfig;
use crate::log::Log;
use crate::net::{Peer, Server};

/// How long requests in progress may take when the master stops.
const STOP_GRACE: Duration = Duration::from_secs(2);
/// How long a worker may take to answer. `run-manual` has no such limit: it takes as long as its
/// jobs, and pings detect a lost worker.
const WORKER_ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long after its registration a silent worker gets no requests. jobd's own worker starts to
/// listen only after it has read the answer, and loses what arrives together with it.
const LISTEN_PAUSE: Duration = Duration::from_millis(100);

/// A cheap handle.
#[derive(Clone)]
struct Master(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// A poke is held back.
    poked: Notify,
    ping_interval: Duration,
    times: TimeLimits,
    log: Log,
}

/// Time limits, which tests change.
#[derive(Debug, Clone, Copy)]
struct TimeLimits {
    worker_answer_max: Duration,
    listen_pause: Duration,
}

impl Default for TimeLimits {
    fn default() -> TimeLimits {
        TimeLimits { worker_answer_max: WORKER_ANSWER_TIME_MAX, listen_pause: LISTEN_PAUSE }
    }
}

struct State {
    registry: Registry<Peer>,
    throttle: Throttle,
}

/// Listens and serves until `stop` is cancelled. An error, such as a port in use, is a complete
/// sentence.
pub(crate) async fn run(
    config: MasterConfig,
    log: Log,
    stop: CancellationToken,
) -> Result<(), String> {
    let (host, port) = (&config.host, config.port);
    let server = Server::bind(host, port, config.access.clone(), &log)
        .await
        .map_err(|error| format!("cannot listen on {host}:{port}: {error}"))?;
    serve(server, Master::new(&config, TimeLimits::default(), &log), stop).await;
    Ok(())
}

async fn serve(server: Server, master: Master, stop: CancellationToken) {
    let serving = server.serve(Arc::new(master.clone()), stop, STOP_GRACE);
    tokio::select! {
        () = serving => {}
        () = master.release_pokes() => {}
    }
}

impl Master {
    fn new(config: &MasterConfig, times: TimeLimits, log: &Log) -> Master {
        let throttle = Throttle::new(config.poke_throttle_interval);
        Master(Arc::new(Inner {
            state: Mutex::new(State { registry: Registry::new(), throttle }),
            poked: Notify::new(),
            ping_interval: config.ping_interval,
            times,
            log: log.named("master"),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}
