//! The worker: runs jobs from a table that other programs fill, when a client or the master polls
//! it.
//!
//! | module | owns |
//! |---|---|
//! | `queue` | targets: what to fetch and to start next; pure |
//! | `state` | every job that is held, from its acceptance until its end is written |
//! | `request` | the requests and their answers |
//! | `manual` | jobs that a client waits for |
//! | `fetch` | from the table into the queue |
//! | `job` | from the start of a job to its end in the table |
//! | `recover` | leases, and the rows of workers that are gone |
//! | `retry` | retrying database operations |
//! | `master_link` | the registration with the master |
//! | `stop` | shutdown |

mod fetch;
mod job;
mod manual;
mod master_link;
mod queue;
mod recover;
mod request;
mod retry;
mod state;
mod stop;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use windlass_core::Clock;
use windlass_core::launch::Launcher;
use windlass_core::sync::lock;
use windlass_program::Stop;

use self::master_link::Address;
use self::queue::Queue;
use self::request::Requester;
use self::state::State;
use crate::config::WorkerConfig;
use crate::log::Log;
use crate::net::{Handler, Peer, Server};
use crate::table::{Interrupted, Row, Table};
use crate::wire::Json;

/// Maximum number of rows per call of the table.
const ROWS_AT_ONCE_MAX: usize = 500;
/// How often handing rows back is tried; after that their leases expire.
const HAND_BACK_TRIES_MAX: u32 = 5;

/// The reason for clients whose jobs are no longer run.
const STOPS: &str = "the worker stops";

/// How jobs are run.
#[derive(Debug, Clone, Default)]
struct Rules {
    name: String,
    fetch_limit: u32,
    launcher: String,
    cwd: Option<PathBuf>,
    env: Vec<(String, String)>,
    output_bytes_max: usize,
    time_limit: Option<Duration>,
    interrupted: Interrupted,
    lease: Duration,
    shutdown_timeout: Duration,
}

impl Rules {
    fn of(config: WorkerConfig) -> (Rules, Vec<(String, u32)>) {
        let rules = Rules {
            name: config.name,
            fetch_limit: config.fetch_limit,
            launcher: config.launcher.command,
            cwd: config.launcher.cwd,
            env: config.launcher.env,
            output_bytes_max: config.output_bytes_max,
            time_limit: config.time_limit,
            interrupted: config.interrupted,
            lease: config.lease,
            shutdown_timeout: config.shutdown_timeout,
        };
        (rules, config.targets)
    }
}

/// The dependencies of a worker.
pub(crate) struct Parts {
    pub table: Arc<dyn Table>,
    pub launcher: Arc<dyn Launcher>,
    pub clock: Arc<dyn Clock>,
    pub log: Log,
}

struct Worker {
    table: Arc<dyn Table>,
    launcher: Arc<dyn Launcher>,
    clock: Arc<dyn Clock>,
    log: Log,
    rules: Rules,
    state: Mutex<State>,
    /// A fetch may be due.
    fetch: Notify,
    /// Jobs may be startable.
    start: Notify,
    /// There are ends to be written.
    ends: Notify,
    /// Notified when a condition of the shutdown may have changed.
    changed: Notify,
    /// Counts the changes of the targets.
    targets: watch::Sender<u64>,
    /// When the database was away last.
    away_at: Mutex<Option<Instant>>,
    /// The master that it is registered with.
    master: Mutex<Option<Peer>>,
}

impl Worker {
    fn new(parts: Parts, rules: Rules, queue: Queue) -> Worker {
        let Parts { table, launcher, clock, log } = parts;
        Worker {
            table,
            launcher,
            clock,
            log,
            rules,
            state: Mutex::new(State::new(queue)),
            fetch: Notify::new(),
            start: Notify::new(),
            ends: Notify::new(),
            changed: Notify::new(),
            targets: watch::Sender::new(0),
            away_at: Mutex::new(None),
            master: Mutex::new(None),
        }
    }

    /// Held for short decisions only, never while something is awaited.
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// UNIX seconds.
    fn seconds(&self) -> i64 {
        self.clock.now().0.div_euclid(1000)
    }

    /// Requests a fetch for these targets, or for all.
    fn poll(&self, targets: Option<&[String]>) {
        self.state().queue.want(targets);
        self.fetch.notify_one();
    }

    /// More jobs may be startable or fetchable.
    fn wake_start_and_fetch(&self) {
        self.start.notify_one();
        self.fetch.notify_one();
    }

    fn targets_changed(&self) {
        self.targets.send_modify(|changes| *changes += 1);
    }

    fn changed(&self) {
        self.changed.notify_waiters();
    }

    fn database_was_away(&self) {
        *lock(&self.away_at) = Some(Instant::now());
    }

    fn away_at(&self) -> Option<Instant> {
        *lock(&self.away_at)
    }

    fn set_master(&self, master: Option<Peer>) {
        *lock(&self.master) = master;
    }

    fn master(&self) -> Option<Peer> {
        lock(&self.master).clone()
    }

    /// Tells the master, if there is one, about jobs that other workers may serve.
    fn poke(&self, targets: Vec<String>) {
        if let Some(master) = self.master() {
            let answer = master.ask("poke", Some(master_link::poke_data(targets)));
            tokio::spawn(answer.within(stop::WRITE_TIME_MAX));
        }
    }

    /// Hands back accepted rows that are not run here. They are already counted in the state, so
    /// that the worker does not exit before it is done.
    async fn hand_back(&self, rows: &[Row]) {
        let mut failures = retry::Failures::new(&self.log, "handing jobs back");
        for some in rows.chunks(ROWS_AT_ONCE_MAX) {
            for _ in 0..HAND_BACK_TRIES_MAX {
                match self.table.hand_back(some).await {
                    Ok(()) => break,
                    Err(error) => failures.pause(error).await,
                }
            }
        }
        self.state().returned(rows);
        self.changed();
    }
}

/// Runs until it is asked to stop. An error says why it cannot start.
pub(crate) async fn run(config: WorkerConfig, parts: Parts, stop: Stop) -> Result<(), String> {
    parts.table.prepare().await.map_err(|error| error.to_string())?;
    let access = config.access.clone();
    let bound = Server::bind(&config.host, config.port, access, &parts.log).await;
    let server = bound
        .map_err(|error| format!("cannot listen on {}:{}: {error}", config.host, config.port))?;
    serve(config, parts, server, stop).await;
    Ok(())
}

async fn serve(config: WorkerConfig, parts: Parts, server: Server, stop: Stop) {
    let master = config.master.as_ref().map(|master| Address {
        host: master.host.clone(),
        port: master.port,
        password: config.access.password.clone(),
        reconnect_pause: master.reconnect_timeout,
    });
    let (rules, targets) = Rules::of(config);
    let worker = Arc::new(Worker::new(parts, rules, Queue::new(targets)));
    let mut services = services(&worker);
    if let Some(master) = master.clone() {
        let worker = Arc::clone(&worker);
        let targets = worker.targets.subscribe();
        services.spawn(async move { master_link::run(&worker, &master, targets).await });
    }
    let clients: Arc<dyn Handler> = Arc::new(Clients(Arc::clone(&worker)));
    // Clients get the results of their jobs, however late.
    let grace = worker.rules.shutdown_timeout + stop::TIME_MAX;
    let serving = tokio::spawn(server.serve(clients, stop.asked.clone(), grace));
    stop.asked.cancelled().await;
    worker.log.info("the worker stops");
    let back = stop::stop(&worker, &stop).await;
    services.shutdown().await;
    if let (Some(peer), Some(master), false) = (worker.master(), &master, back.is_empty()) {
        peer.close();
        let poke = master_link::poke(&worker, master, back);
        let _ = tokio::time::timeout(stop::WRITE_TIME_SHORT, poke).await;
    }
    tokio::select! {
        _ = serving => {}
        () = stop.now.cancelled() => {}
    }
    worker.table.close().await;
}

/// The background activities.
fn services(worker: &Arc<Worker>) -> JoinSet<()> {
    let mut services = JoinSet::new();
    let own = Arc::clone(worker);
    services.spawn(async move { fetch::run(&own).await });
    let own = Arc::clone(worker);
    services.spawn(async move { job::start_all(&own).await });
    let own = Arc::clone(worker);
    services.spawn(async move { job::write_ends(&own).await });
    let own = Arc::clone(worker);
    services.spawn(async move { recover::renew_all(&own).await });
    let own = Arc::clone(worker);
    services.spawn(async move { recover::recover_all(&own).await });
    services
}

/// Answers clients.
struct Clients(Arc<Worker>);

#[async_trait]
impl Handler for Clients {
    async fn handle(&self, _: &Peer, kind: &str, data: Json) -> Result<Json, String> {
        request::answer(&self.0, Requester::Client, kind, data).await
    }
}
