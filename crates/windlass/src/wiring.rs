//! Builds a daemon from its parts (store, runner, engine and doors) and one `Config`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use windlass_core::audit::{Subject, action};
use windlass_core::limit::SYSID_MAX;
use windlass_core::time::SystemClock;
use windlass_core::{KeyText, Store};
use windlass_door_http::tls::Tls;
use windlass_door_http::{Access, Sites};
use windlass_engine::api::SecretStatus;
use windlass_engine::metrics::Metrics;
use windlass_engine::{Engine, Identity, Parts, RealDisk};
use windlass_runner::network::NetworkOptions;
use windlass_runner::{IsolationOptions, LocalRunner};
use windlass_store_postgres::PostgresStore;
use windlass_store_sqlite::SqliteStore;

use crate::client::http::install_tls;
use crate::config::{Config, StorePlace};
use crate::keys;
use crate::open_files;
use crate::secrets::KeyFile;

/// A running daemon.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) bedrock: Option<SocketAddr>,
    pub(crate) engine: Engine,
    /// The admin key in the data directory, unless requests need no keys.
    pub(crate) key: Option<KeyText>,
    pub(crate) doors: Doors,
    pub(crate) runner: Arc<LocalRunner>,
    closing: CancellationToken,
}

/// The running doors: each task returns the name of its door and how it ended.
pub(crate) struct Doors(JoinSet<(&'static str, io::Result<()>)>);

/// The bound sockets.
pub(crate) struct Listeners {
    pub(crate) http: TcpListener,
    /// The HTTP door speaks TLS if it is set.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) bedrock: Option<TcpListener>,
}

/// Opens the store in the data directory, starts the engine and opens the doors.
/// `path` is the handlers' `PATH`.
pub(crate) async fn start(
    config: &Config,
    listeners: Listeners,
    path: String,
) -> anyhow::Result<Running> {
    install_tls();
    let address = address_of(&listeners.http)?;
    let bedrock = listeners.bedrock.as_ref().map(address_of).transpose()?;
    let metrics = Arc::new(Metrics::default());
    let store = open_store(&config.store, &metrics).await?;
    let forgets = store.capabilities().forgets;
    let doors = std::iter::once(address).chain(bedrock).collect();
    let runner = Arc::new(open_runner(config, path, doors)?);
    let parts = Parts {
        store,
        runner: runner.clone(),
        clock: Arc::new(SystemClock),
        disk: Arc::new(RealDisk),
        seal_keys: Arc::new(KeyFile::new(config.secrets_key_file.clone())),
    };
    let engine = Engine::start(parts, engine_options(config, address, forgets), metrics)
        .await
        .map_err(|error| {
            let data_dir = config.data_dir.display();
            anyhow!("the daemon cannot start with its data in {data_dir}: {error}")
        })?;
    let key = match first_key(config, &engine).await {
        Ok(key) => key,
        Err(error) => {
            // Report why there is no key, not errors during the shutdown.
            let _ = engine.shutdown().await;
            return Err(error);
        }
    };
    check_secrets(&engine).await;
    let closing = CancellationToken::new();
    let doors = open_doors(config, listeners, &engine, &closing);
    Ok(Running { address, bedrock, engine, key, doors, runner, closing })
}

/// The admin key, unless keys are switched off. The audit says if they are.
async fn first_key(config: &Config, engine: &Engine) -> anyhow::Result<Option<KeyText>> {
    if !config.insecure {
        return keys::admin::ensure(engine, &config.data_dir).await.map(Some);
    }
    let noted = engine.audit_note(keys::act(action::INSECURE, Subject::default())).await;
    noted.map_err(|error| anyhow!("the start cannot be entered in the audit: {error}"))?;
    Ok(None)
}

/// Makes the key file of secrets at the first start. Without it everything else works.
async fn check_secrets(engine: &Engine) {
    match engine.secret_prepare().await {
        Err(why) => {
            tracing::warn!(%why, "secrets cannot be used; jobs of handlers that name one fail");
        }
        Ok(SecretStatus { keys, .. }) if keys > 1 => tracing::warn!(
            keys,
            "the key file of secrets has old keys: `windlass secret rekey` was interrupted, or \
             could not read some secrets; run it again"
        ),
        Ok(_) => {}
    }
}

fn address_of(listener: &TcpListener) -> anyhow::Result<SocketAddr> {
    listener.local_addr().context("cannot read the bound address")
}

fn open_doors(
    config: &Config,
    listeners: Listeners,
    engine: &Engine,
    closing: &CancellationToken,
) -> Doors {
    let mut doors = JoinSet::new();
    let version = env!("CARGO_PKG_VERSION");
    if let Some(listener) = listeners.bedrock {
        let options = windlass_door_bedrock::Options {
            allow: config.bedrock.allow.clone(),
            version,
            clock: engine.clock(),
            ..windlass_door_bedrock::Options::new(config.bedrock.tenant.clone())
        };
        let door = windlass_door_bedrock::Door::new(engine.clone(), options);
        let serving = door.serve(listener, closing.clone());
        doors.spawn(async { ("Bedrock", serving.await) });
    }
    let options = windlass_door_http::Options {
        body_bytes_max: config.http.body_bytes_max,
        header_timeout: config.http.header_timeout,
        body_timeout: config.http.body_timeout,
        connections_max: open_files::connections_max(config.http.connections_max),
        tls: listeners.tls,
        access: if config.insecure { Access::Everybody } else { Access::Keys },
        metrics_allow: config.http.metrics_allow.clone(),
        sites: sites(config),
        version,
        clock: engine.clock(),
    };
    let serving =
        windlass_door_http::serve(listeners.http, engine.clone(), options, closing.clone());
    doors.spawn(async { ("HTTP", serving.await) });
    Doors(doors)
}

/// Clients may also call this daemon by the name of its machine.
fn sites(config: &Config) -> Sites {
    let mut hosts = config.http.hosts.clone();
    hosts.extend(host_name());
    Sites { hosts, origins: config.http.origins.clone() }
}

/// The name of this machine.
fn host_name() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

impl Doors {
    /// Waits until a door ends unexpectedly, and returns the reason.
    pub(crate) async fn ended(&mut self) -> String {
        match self.0.join_next().await {
            Some(Ok((name, Err(error)))) => format!("the {name} door failed: {error}"),
            Some(Ok((name, Ok(())))) => format!("the {name} door ended unexpectedly"),
            Some(Err(error)) => format!("a door failed: {error}"),
            None => "all doors have ended".into(),
        }
    }
}

impl Running {
    /// Closes the doors after the requests in progress, then lets running jobs end or requeues
    /// them.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.engine.set_picking(false);
        self.closing.cancel();
        // Doors bound their own shutdown, and a failure there does not affect jobs.
        while self.doors.0.join_next().await.is_some() {}
        self.engine.shutdown().await.map_err(|error| anyhow!("the shutdown was not clean: {error}"))
    }
}

async fn open_store(place: &StorePlace, metrics: &Arc<Metrics>) -> anyhow::Result<Arc<dyn Store>> {
    match place {
        StorePlace::File(path) => Ok(Arc::new(open_file(path, metrics)?)),
        StorePlace::Postgres(url) => {
            let mut options = windlass_store_postgres::Options::new(url);
            let metrics = Arc::clone(metrics);
            options.on_commit = Some(Arc::new(move |took| metrics.store_committed(took)));
            let opened = PostgresStore::open(options).await;
            Ok(Arc::new(opened.map_err(|error| anyhow!("cannot open the store: {error}"))?))
        }
    }
}

fn open_file(path: &Path, metrics: &Arc<Metrics>) -> anyhow::Result<SqliteStore> {
    let mut options = windlass_store_sqlite::Options::new(path);
    let metrics = Arc::clone(metrics);
    options.on_commit = Some(Arc::new(move |took, _| metrics.store_committed(took)));
    let opened = SqliteStore::open(options);
    opened.map_err(|error| anyhow!("cannot open the store {}: {error}", path.display()))
}

/// Daemons that share a data directory each have their own scratch directory in it. The next daemon
/// reuses and clears one that a killed daemon left behind.
fn open_runner(
    config: &Config,
    path: String,
    doors: Vec<SocketAddr>,
) -> anyhow::Result<LocalRunner> {
    let scratch = std::path::absolute(config.data_dir.join("scratch"));
    let scratch = scratch.context("cannot determine the working directory")?;
    for number in 1..=SYSID_MAX {
        let scratch_dir = scratch.join(number.to_string());
        let options = runner_options(config, scratch_dir, path.clone(), doors.clone())?;
        match LocalRunner::new(options) {
            Err(windlass_runner::Error::ScratchInUse { .. }) => {}
            made => return Ok(made?),
        }
    }
    bail!("all {SYSID_MAX} scratch directories in {} are in use", scratch.display())
}

/// Options of the runner, with the handlers' private directories below `scratch_dir`. The daemon
/// listens on `doors`.
pub(crate) fn runner_options(
    config: &Config,
    scratch_dir: PathBuf,
    path: String,
    doors: Vec<SocketAddr>,
) -> anyhow::Result<windlass_runner::Options> {
    Ok(windlass_runner::Options {
        scratch_dir,
        log_bytes_max: config.job.log_bytes_max,
        path,
        isolation: isolation_options(config)?,
        network: NetworkOptions::of_machine(config.isolation.network_allow.clone(), doors)
            .context("cannot read the addresses of this machine")?,
        contexts: context_bounds(config),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
        clock: Arc::new(SystemClock),
    })
}

/// A batch in a reserved slot finds a context: there are as many.
fn context_bounds(config: &Config) -> windlass_runner::Bounds {
    windlass_runner::Bounds {
        contexts_max: config.contexts.max,
        tenant_contexts_max: config.contexts.tenant_max,
        contexts_reserved: config.scheduler.slots_reserved,
        tenant_contexts_min: config.scheduler.tenant_slots_min,
    }
}

/// Handlers never see the data directory, a store outside of it, or files with keys.
fn isolation_options(config: &Config) -> anyhow::Result<IsolationOptions> {
    let mut hidden = Vec::new();
    let places = keys::Places::of_process();
    let runtime = places.runtime.as_deref().map(keys::runtime::directory);
    let saved = keys::saved::path(&places);
    let ours = [config.data_dir.as_path(), &config.secrets_key_file];
    let ours = ours.into_iter().chain(config.store.file());
    let others = [runtime.as_deref(), saved.as_deref(), config.tls.as_ref().map(|tls| &*tls.key)];
    for path in ours.chain(others.into_iter().flatten()) {
        let path = std::path::absolute(path).context("cannot determine the working directory")?;
        // Hide both the link and its target.
        hidden.extend(path.canonicalize());
        hidden.push(path);
    }
    let crate::config::Isolation { level, landlock, read, write, limits, .. } =
        config.isolation.clone();
    let defaults = IsolationOptions::default();
    Ok(IsolationOptions { level, landlock, read, write, hidden, limits, ..defaults })
}

/// How long segments of the journal are kept for a store that may forget what it has confirmed, as
/// a server does that fails over to a standby which had not received everything.
const JOURNAL_KEEP: Duration = Duration::from_secs(300);
/// How often a daemon compares its position with that of a store that may forget.
const JOURNAL_CHECK: Duration = Duration::from_secs(30);

fn engine_options(
    config: &Config,
    address: SocketAddr,
    store_forgets: bool,
) -> windlass_engine::Options {
    let tenants = &config.tenants;
    windlass_engine::Options {
        identity: Identity {
            host: host_name().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listen: address.to_string(),
        },
        data_dir: config.data_dir.clone(),
        accept: config.accept,
        sysid: config.sysid,
        fairness: config.scheduler.fairness,
        tenants: (!tenants.is_empty()).then(|| tenants.clone()),
        // Bedrock's jobs wait for their workers without a time limit.
        keep_unhandled: config
            .bedrock
            .listen
            .map(|_| config.bedrock.tenant.clone())
            .into_iter()
            .collect(),
        slots: config.scheduler.slots,
        slots_reserved: config.scheduler.slots_reserved,
        tenant_slots_min: config.scheduler.tenant_slots_min,
        lease: config.lease.duration,
        reap_interval: config.lease.reap_interval,
        purge_interval: config.job.purge_interval,
        poll_min: config.poll.min,
        poll_max: config.poll.max,
        timeout: config.job.timeout,
        retry: config.retry.clone(),
        retention: config.job.retention,
        audit_retention: config.audit_retention,
        maxima: config.maxima.clone(),
        stop_grace: config.stop_grace,
        journal_segment_bytes_max: config.journal_segment_bytes_max,
        journal_keep: if store_forgets { JOURNAL_KEEP } else { Duration::ZERO },
        journal_check: JOURNAL_CHECK,
        seed: fastrand::u64(..),
    }
}
