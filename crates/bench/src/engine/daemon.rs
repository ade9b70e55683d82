//! Windlass as it is served: the embedded store, the journal, the engine and the HTTP door, all
//! with their default settings. Only the runner is ours, and the log is discarded.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};

use windlass_core::secret::MemoryKeys;
use windlass_core::time::SystemClock;
use windlass_core::{HandlerSpec, Lang, Runner, Store};
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Options, Parts, RealDisk};
use windlass_store_sqlite::SqliteStore;

const STORE_FILE: &str = "windlass.db";
/// As the daemon chooses them: simultaneous batches per core, and the minimum.
const SLOTS_PER_CORE: usize = 4;
const SLOTS_MIN: usize = 8;
const WORKER_THREADS_MIN: usize = 2;

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The runtime of every server here, with the daemon's own settings.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores().max(WORKER_THREADS_MIN))
        .enable_all()
        .build()
        .context("the runtime cannot be started")
}

pub(crate) fn open_store(dir: &Path, metrics: &Arc<Metrics>) -> anyhow::Result<SqliteStore> {
    let mut options = windlass_store_sqlite::Options::new(dir.join(STORE_FILE));
    let metrics = Arc::clone(metrics);
    options.on_commit = Some(Arc::new(move |took, _| metrics.store_committed(took)));
    SqliteStore::open(options).map_err(|error| anyhow!("the store cannot be opened: {error}"))
}

/// Size of the store, including its log.
pub(crate) fn store_bytes(dir: &Path) -> u64 {
    let sizes = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let ours = sizes.filter(|entry| entry.file_name().to_string_lossy().starts_with(STORE_FILE));
    ours.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

pub(crate) async fn start(dir: &Path, runner: Arc<dyn Runner>) -> anyhow::Result<Engine> {
    let metrics = Arc::new(Metrics::default());
    let store = Arc::new(open_store(dir, &metrics)?);
    start_on(store, dir, runner, metrics).await
}

/// On a store of any kind.
pub(crate) async fn start_on(
    store: Arc<dyn Store>,
    dir: &Path,
    runner: Arc<dyn Runner>,
    metrics: Arc<Metrics>,
) -> anyhow::Result<Engine> {
    let mut options = Options::new(dir.to_owned());
    options.seed = 0;
    options.slots = (SLOTS_PER_CORE * cores()).max(SLOTS_MIN);
    let (clock, disk) = (Arc::new(SystemClock), Arc::new(RealDisk));
    let parts = Parts { store, runner, clock, disk, seal_keys: Arc::new(MemoryKeys::default()) };
    Engine::start(parts, options, metrics)
        .await
        .map_err(|error| anyhow!("the engine cannot start: {error}"))
}

/// A handler for the runner that does nothing.
pub(crate) fn handler() -> HandlerSpec {
    HandlerSpec::new(Lang::Exec, "true")
}
