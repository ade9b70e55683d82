//! The command interface: Disbatch's HTTP routes, with a login, for managing queues, nodes and
//! tasks.
//!
//! | module | owns |
//! |---|---|
//! | `server` | connections and TLS |
//! | `around`, `access`, `page` | the layers around every request, and static files |
//! | `route`, `param`, `path`, `body`, `answer`, `error` | the form of requests and answers |
//! | `queue`, `count`, `delete` | `/queues`: changing, counting and deleting them |
//! | `task`, `act` | `/tasks`: searching, creating, cancelling and retrying them |
//! | `node`, `balance`, `monitoring`, `plugin`, `info` | the other routes, by their first word |
//! | `old` | routes of older versions |

mod access;
mod act;
mod answer;
mod around;
mod balance;
mod body;
mod count;
mod delete;
mod error;
mod info;
mod monitoring;
mod node;
mod old;
mod page;
pub(crate) mod param;
mod path;
mod plugin;
mod queue;
mod route;
mod server;
mod task;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use mongodb::bson::DateTime;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use windlass_net::Memory;

use self::access::Guard;
use self::count::{CountedQueues, Queues};
use self::route::Routes;
use windlass_core::sync::lock;

use self::task::slot::AnswerSlots;
use crate::config::Config;
use crate::database::{Clock, Database, DbError, User};
use crate::dialect::Dialect;

/// How long the database's time and dialect count as known.
const LEARNT_AGE_MAX: Duration = Duration::from_secs(10);

/// Serves the configured address until `stop` is cancelled.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), String> {
    let listen = config.listen;
    server::may_listen(listen, config.tls.is_some())?;
    let database = Database::connect(&config, User::Web).await;
    let database = database.map_err(|error| error.to_string())?;
    let listener = TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("cannot listen on {listen} because another program does")
        }
        _ => format!("cannot listen on {listen}: {error}"),
    })?;
    serve(listener, config, database, stop).await
}

/// Serves on a listening socket until `stop` is cancelled.
pub(crate) async fn serve(
    listener: TcpListener,
    config: Config,
    database: Database,
    stop: CancellationToken,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    server::may_listen(address, config.tls.is_some())?;
    let tls = config.tls.as_ref().map(server::tls).transpose()?;
    let (routes, listed) = routes().finish();
    let dci = Dci::new(config, database, listed)?;
    let router: Router = around::wrap(routes, &dci).with_state(dci.clone());
    let scheme = if tls.is_some() { "https" } else { "http" };
    tracing::info!(
        database = dci.config().connection.database,
        "listening on {scheme}://{address}"
    );
    let reaching = stop.run_until_cancelled(async {
        if let Err(error) = dci.now().await {
            tracing::warn!("{error}; requests are refused until it can");
        }
    });
    let balancing = balance::balance(&dci, stop.clone());
    let following = stop.run_until_cancelled(server::follow(tls.clone()));
    let serving = server::serve(listener, tls, router, stop.clone());
    tokio::join!(serving, reaching, Box::pin(balancing), following);
    Ok(())
}

/// All routes. Each file of routes has a function that adds its own.
fn routes() -> Routes {
    let files = [
        info::add,
        balance::add,
        monitoring::add,
        node::add,
        plugin::add,
        queue::add,
        delete::add,
        task::add,
        act::add,
        old::add,
    ];
    files.into_iter().fold(Routes::default(), |routes, add| add(routes))
}

/// State shared by all requests; cheap to clone.
#[derive(Clone)]
pub(crate) struct Dci(Arc<Inner>);

struct Inner {
    config: Config,
    database: Database,
    clock: Clock,
    learnt: Mutex<LearntAt>,
    guard: Guard,
    memory: Memory,
    slots: AnswerSlots,
    queues: Queues,
    routes: Value,
}

/// When facts about the database were last checked.
#[derive(Default)]
struct LearntAt {
    time: Option<Instant>,
    dialect: Option<Instant>,
}

impl Dci {
    fn new(config: Config, database: Database, routes: Value) -> Result<Dci, String> {
        let guard = Guard::new(&config.access)?;
        let (clock, learnt) = (Clock::system(), Mutex::default());
        let memory = Memory::new(body::MEMORY_BYTES_MAX);
        let (slots, queues) = (AnswerSlots::default(), Queues::default());
        let inner = Inner { config, database, clock, learnt, guard, memory, slots, queues, routes };
        Ok(Dci(Arc::new(inner)))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    /// The database's time, regardless of this host's clock.
    pub(crate) async fn now(&self) -> Result<DateTime, DbError> {
        let asked_at = self.learnt().time;
        if asked_at.is_none_or(|at| at.elapsed() > LEARNT_AGE_MAX) {
            self.0.clock.learn(self.database().server_time().await?);
            self.learnt().time = Some(Instant::now());
        }
        Ok(self.0.clock.now())
    }

    /// The current dialect.
    pub(crate) async fn dialect(&self) -> Result<Dialect, DbError> {
        Ok(self.writable().await?.dialect())
    }

    /// The database with the current dialect. An empty database is checked each time, because the
    /// first program that writes decides.
    pub(crate) async fn writable(&self) -> Result<&Database, DbError> {
        let learnt_at = self.learnt().dialect;
        if learnt_at.is_none_or(|at| at.elapsed() > LEARNT_AGE_MAX) {
            let is_shown = self.database().learn_dialect().await?;
            self.learnt().dialect = is_shown.then(Instant::now);
        }
        Ok(self.database())
    }

    fn guard(&self) -> &Guard {
        &self.0.guard
    }

    fn memory(&self) -> &Memory {
        &self.0.memory
    }

    fn slots(&self) -> &AnswerSlots {
        &self.0.slots
    }

    /// All queues with their task counts.
    async fn queues_counted(&self) -> Result<Arc<CountedQueues>, DbError> {
        self.0.queues.counted(self.database()).await
    }

    fn learnt(&self) -> std::sync::MutexGuard<'_, LearntAt> {
        lock(&self.0.learnt)
    }
}
