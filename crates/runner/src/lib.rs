//! Runs handlers: warm contexts for `node`, `python` and `php`, a process for each job of `sh` and
//! `exec`, a request for `http`.
//!
//! | module | owns |
//! |---|---|
//! | `check` | which handlers this machine can run, checked when one is set |
//! | `context` | warm processes that run batch after batch |
//! | `process` | one attempt in a process: start, feed, capture, limit, verdict |
//! | `cell` | the place in which a handler's process runs |
//! | `command` | commands of the operator, run without isolation |
//! | `fence` | a process that kills what a node started when the node cannot |
//! | `launch` | the command of an attempt and its environment |
//! | `doctor` | which layers of isolation are in force on this machine |
//! | `isolate` | what a process may see, touch and use up |
//! | `os` | system calls without a safe form: descriptors, signals, the exit |
//! | `tree` | ending everything that an attempt started |
//! | `gate` | the end of a runner: nothing remains, frozen or not |
//! | `kill` | killing processes with their descendants, and all that carry a mark |
//! | `proc` | reading `/proc` |
//! | `output`, `tail` | the output of a handler: its log and the jobs it emits |
//! | `mask` | hides the values of secrets in what a handler says |
//! | `payload` | the payload as a handler receives it, piece by piece |
//! | `spare` | cells of `sh` and `exec` that wait for the next job |
//! | `scratch`, `remove` | the private directories of attempts, and how they are removed |
//! | `http`, `http_batch` | requests for one job, and for many at once |
//! | `http_client` | their connections, each decided by the handler's policy |
//! | `network` | what handlers may connect to |
//! | `stop` | stop orders and the attempts they are for |
//!
//! Whatever a handler does is data in a `Report`; nothing here fails or panics because of it.

pub mod cell;
mod check;
mod command;
mod context;
pub mod doctor;
pub mod fence;
mod gate;
mod http;
mod http_batch;
mod http_client;
mod isolate;
mod kill;
mod launch;
mod mask;
pub mod network;
mod os;
mod output;
mod payload;
mod proc;
mod process;
mod remove;
mod scratch;
mod spare;
mod stop;
mod tail;
mod tree;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_core::runner::{Batch, NotCompiled, Reports, Runner, Stop};
use windlass_core::secret::OpenSecrets;
use windlass_core::{AttemptId, Clock, Handler, HandlerId, HandlerSpec, Invalid, Lang, TypeKey};

pub use crate::command::CommandLauncher;
pub use crate::context::Bounds;
use crate::context::Contexts;
#[cfg(any(test, feature = "fuzz"))]
pub use crate::context::fuzz;
use crate::context::language::Language;
use crate::http::Http;
use crate::isolate::Isolation;
pub use crate::isolate::{IsolationOptions, Landlock, Layers, Level, Missing};
use crate::network::{NetworkOptions, Policies};
use crate::process::Processes;
use crate::scratch::Scratch;
use crate::spare::Spares;
use crate::stop::Stops;

/// How handlers are run on this machine.
#[derive(Clone)]
pub struct Options {
    /// Parent of the private directories of attempts. It belongs to one runner at a time.
    pub scratch_dir: PathBuf,
    /// How much of each attempt's log to keep, counted from its end.
    pub log_bytes_max: usize,
    /// `PATH` of handlers, where programs are looked up.
    pub path: String,
    pub isolation: IsolationOptions,
    pub network: NetworkOptions,
    /// How many contexts may exist.
    pub contexts: Bounds,
    /// CPUs of this machine.
    pub cores: usize,
    pub clock: Arc<dyn Clock>,
}

/// Why a runner cannot be created. All of these need an operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the scratch directory {} cannot be used: {source}", path.display())]
    Scratch { path: PathBuf, source: std::io::Error },
    #[error("the scratch directory {} belongs to another running daemon", path.display())]
    ScratchInUse { path: PathBuf },
    #[error("this system cannot keep processes apart (Linux with /proc is needed): {0}")]
    System(std::io::Error),
    #[error(
        "isolation.landlock is required, and this kernel has no Landlock ({0}): it needs Linux \
         5.13 with landlock among the security modules (lsm=landlock,… on its command line)"
    )]
    Landlock(std::io::Error),
    #[error("isolation.level is required, and a layer is missing: {0}")]
    Isolation(isolate::Missing),
    #[error("cannot start the fence process: {0}")]
    Fence(std::io::Error),
    #[error("the HTTP client cannot be set up: {0}")]
    Http(String),
}

/// What every process of a handler is started with.
pub(crate) struct Ground {
    /// First: waiting cells end before what they need.
    spares: Arc<Spares>,
    scratch: Scratch,
    isolation: Isolation,
    policies: Arc<Policies>,
    /// `PATH` of handlers.
    path: Box<str>,
}

impl Ground {
    /// Ends all processes; none is started from now on. Blocks.
    fn close(&self) {
        self.spares.close();
        self.scratch.gate.close();
    }
}

/// Runs handlers in processes on this machine, and over HTTP.
pub struct LocalRunner {
    options: Options,
    stops: Arc<Stops>,
    processes: Processes,
    contexts: Contexts,
    http: Http,
    ground: Arc<Ground>,
}

impl LocalRunner {
    /// Which layers of isolation are in force.
    pub fn layers(&self) -> &Layers {
        self.ground.isolation.layers()
    }

    /// Makes this process adopt orphans and keep its descriptors to itself, claims the scratch
    /// directory, and removes what a killed runner left: directories and processes.
    pub fn new(options: Options) -> Result<LocalRunner, Error> {
        os::keep_inherited_descriptors().map_err(Error::System)?;
        os::keep_exit_codes().map_err(Error::System)?;
        tree::adopt_orphans().map_err(Error::System)?;
        let scratch = Scratch::open(&options.scratch_dir)?;
        let isolation = Isolation::new(&options.isolation, &options.path, &scratch)?;
        let policies = Arc::new(Policies::new(options.network.clone()));
        let http = Http::new(Arc::clone(&policies))?;
        let (spares, path) = (Arc::default(), options.path.as_str().into());
        let ground = Arc::new(Ground { scratch, isolation, policies, spares, path });
        Ok(LocalRunner {
            stops: Arc::new(Stops::default()),
            processes: Processes::new(Arc::clone(&ground), &options),
            contexts: Contexts::new(Arc::clone(&ground), &options),
            http,
            ground,
            options,
        })
    }

    /// For a daemon that exits without a shutdown: ends all processes, and blocks until those that
    /// are just being ended are dead, which takes a few walks through the process table.
    pub fn end_at_once(&self) {
        self.ground.close();
    }
}

#[async_trait]
impl Runner for LocalRunner {
    fn check(&self, spec: &HandlerSpec) -> Result<(), Invalid> {
        check::check(spec, &self.options.path)
    }

    async fn compile(&self, key: &TypeKey, spec: &HandlerSpec) -> Result<(), NotCompiled> {
        // A handler that was set before the operator allowed less runs with less.
        spec.options
            .network
            .as_ref()
            .map_or(Ok(()), |network| self.ground.policies.check(network))?;
        match spec.lang {
            Lang::Node | Lang::Python | Lang::Php => self.contexts.compile(key, spec).await,
            Lang::Sh | Lang::Exec | Lang::Http => Ok(()),
        }
    }

    fn prepare(&self, handler: Arc<Handler>, secrets: Arc<OpenSecrets>) {
        if Language::of(handler.spec.lang).is_some() {
            self.contexts.prepare(handler, secrets);
        }
    }

    fn forget(&self, key: &TypeKey) {
        self.contexts.forget(key);
    }

    fn batch_max(&self, handler: &Handler) -> u32 {
        match handler.spec.lang {
            Lang::Node | Lang::Python | Lang::Php => self.contexts.batch_max(handler),
            Lang::Http => http_batch::batch_max(&handler.spec),
            Lang::Sh | Lang::Exec => 1,
        }
    }

    fn batches_max(&self, handler: &Handler) -> Option<u32> {
        match handler.spec.lang {
            Lang::Node | Lang::Python | Lang::Php => self.contexts.contexts_max(handler),
            Lang::Sh | Lang::Exec | Lang::Http => handler.spec.options.contexts,
        }
    }

    /// Dropping the future ends the running attempts without a report.
    async fn run(&self, batch: Batch, reports: Arc<dyn Reports>) {
        let ids = batch.jobs.iter().map(|assignment| assignment.id).collect();
        let mut watch = self.stops.watch(ids);
        match batch.handler.spec.lang {
            Lang::Sh | Lang::Exec => self.processes.run(batch, &mut watch, &*reports).await,
            Lang::Http => http_batch::run(&self.http, batch, &mut watch, &*reports).await,
            Lang::Node | Lang::Python | Lang::Php => {
                self.contexts.run(batch, &mut watch, &*reports).await;
            }
        }
    }

    fn stop(&self, attempt: AttemptId, why: Stop) {
        self.stops.stop(attempt, why);
    }

    fn warm(&self) -> Vec<HandlerId> {
        self.contexts.warm()
    }

    fn layers_missing(&self) -> Vec<String> {
        let layers = self.layers();
        match layers.is_cell {
            true => layers.missing.iter().map(ToString::to_string).collect(),
            false => vec!["all of them (isolation.level is off); set it to auto".to_owned()],
        }
    }

    async fn close(&self) {
        self.contexts.close().await;
        let ground = Arc::clone(&self.ground);
        let _ = tokio::task::spawn_blocking(move || ground.close()).await;
    }
}
