//! `windlass serve`: the daemon's life cycle, from the first check to the last signal. Nothing is
//! created on disk before the address is bound, and a failed start ends with one sentence.

use std::convert::Infallible;
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::net::TcpListener;

use crate::backup;
use crate::cli::Serve;
use crate::config::{Config, Inputs, misspelt};
use crate::keys;
use crate::log;
use crate::open_files;
use crate::private;
use crate::reload;
use crate::signal::{Signals, hangups};
use crate::wiring::{self, Listeners, Running};

/// The data directory holds payloads, so only its owner may access it.
const DATA_DIR_MODE: u32 = 0o700;
/// Written once at start, to detect a full disk before the first client does.
const PROBE_BYTES: usize = 64 * 1024;
/// The handlers' `PATH` if the environment has none.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a failed daemon may take to end its running jobs.
const FAILED_STOP_MAX: Duration = Duration::from_secs(10);
const WORKER_THREADS_MIN: usize = 2;
const WARNING_INTERVAL: Duration = Duration::from_secs(3600);
/// How often an address in use is tried again, for two seconds in all.
const BIND_TRIES: u32 = 40;
const BIND_PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run(flags: &Serve) -> anyhow::Result<ExitCode> {
    let cores = cores();
    let config = Config::load(&Inputs {
        flags: flags.flags(),
        config_flag: flags.config.as_deref(),
        environment: &|name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        cores,
    })?;
    let runtime = runtime(cores)?;
    let log = log::start(&config.log);
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a part of the daemon panicked");
    }));
    open_files::allow_many();
    let ended = runtime.block_on(daemon(&config, &log));
    runtime.shutdown_background();
    drop(log);
    ended
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn runtime(cores: usize) -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.max(WORKER_THREADS_MIN))
        .enable_all()
        .build()
        .context("cannot start the async runtime")
}

/// The `PATH` of this process, which handlers inherit.
pub(crate) fn handler_path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| PATH_DEFAULT.into())
}

async fn daemon(config: &Config, log: &log::Guard) -> anyhow::Result<ExitCode> {
    let hangups = hangups().context("cannot install signal handlers")?;
    let tls = reload::load(config)?;
    let listener = bind(config.listen, "--listen").await?;
    let bedrock = match config.bedrock.listen {
        Some(listen) => Some(bind(listen, "--bedrock").await?),
        None => None,
    };
    let _in_use = prepare(&config.data_dir)?;
    if let Some(file) = config.store.file() {
        private::make_store(file);
    }
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    let listeners = Listeners { http: listener, tls: tls.clone(), bedrock };
    let running = wiring::start(config, listeners, handler_path()).await?;
    // Before the address is announced: commands may come at once.
    let runtime = keys::Places::of_process().runtime;
    keys::runtime::clear(runtime.as_deref(), running.address);
    let for_user = running.key.as_ref();
    let for_user = for_user
        .and_then(|key| keys::runtime::publish_key(runtime.as_deref(), running.address, key));
    let published = reload::Published::new(runtime, running.address, tls.as_deref());
    let status = running.engine.status().await;
    log.first(|| {
        tracing::info!(
            listen = %running.address,
            tls = tls.is_some(),
            bedrock = running.bedrock.map(tracing::field::display),
            sysid = status.sysid.get(),
            version = env!("CARGO_PKG_VERSION"),
            data_dir = %config.data_dir.display(),
            "listening"
        );
    });
    close_store(config)?;
    warn_of_misspelt_variables();
    tokio::select! {
        ended = work(running, (for_user, &published), &mut signals) => ended,
        never = every_hour_if(config.insecure, warn_of_open_doors) => match never {},
        never = reload::follow(tls, hangups, &published) => match never {},
    }
}

fn close_store(config: &Config) -> anyhow::Result<()> {
    let Some(file) = config.store.file() else { return Ok(()) };
    if let Some(mode) = private::close_store(file)? {
        let (store, mode) = (file.display(), format!("{mode:o}"));
        tracing::warn!(%store, mode, "other users had access to the store; it is closed now");
    }
    Ok(())
}

/// Runs until a signal arrives or a part fails.
async fn work(
    mut running: Running,
    for_user: (Option<keys::runtime::RuntimeFile>, &reload::Published),
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    let asked = tokio::select! {
        asked = signals.next() => asked,
        reason = running.engine.failed() => return Err(give_up(running, reason).await),
        reason = running.doors.ended() => return Err(give_up(running, reason).await),
    };
    tracing::info!(signal = asked.as_str(), "stopping");
    // While the address is still ours.
    let (key, certificate) = for_user;
    drop(key);
    certificate.remove();
    let runner = running.runner.clone();
    tokio::select! {
        stopped = running.stop() => {
            stopped?;
            tracing::info!("stopped");
            Ok(ExitCode::SUCCESS)
        }
        again = signals.again() => {
            tracing::warn!(signal = again.as_str(), "stopping at once");
            tokio::task::block_in_place(|| runner.end_at_once());
            Ok(ExitCode::from(again.exit_status()))
        }
    }
}

async fn give_up(running: Running, reason: String) -> anyhow::Error {
    // Report the reason of the failure, not errors during the shutdown.
    let _ = tokio::time::timeout(FAILED_STOP_MAX, running.stop()).await;
    anyhow!(reason)
}

/// Warns at once and then every hour, if there is a reason to.
async fn every_hour_if(reason: bool, warn: impl Fn()) -> Infallible {
    if !reason {
        return std::future::pending().await;
    }
    loop {
        warn();
        tokio::time::sleep(WARNING_INTERVAL).await;
    }
}

fn warn_of_open_doors() {
    tracing::warn!(
        "API keys are switched off (insecure): everybody who reaches this daemon may use it"
    );
}

fn warn_of_misspelt_variables() {
    for (name, _) in std::env::vars_os() {
        if let Some(meant) = name.to_str().and_then(misspelt) {
            let name = name.to_string_lossy();
            tracing::warn!("unknown environment variable {name}; did you mean {meant}?");
        }
    }
}

/// `flag` is the option that chooses another address. Waits a moment for an address in use: a
/// process that a killed daemon was just starting has its socket until it executes its program.
async fn bind(listen: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    let mut bound = TcpListener::bind(listen).await;
    for _ in 0..BIND_TRIES {
        if !bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
        tokio::time::sleep(BIND_PAUSE).await;
        bound = TcpListener::bind(listen).await;
    }
    bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "cannot listen on {listen}: another program already does; stop it, or choose another \
             address with {flag}"
        ),
        _ => anyhow!("cannot listen on {listen}: {error}"),
    })
}

/// Creates the data directory if missing, and checks that it is complete and writable. It counts as
/// in use until the returned file is dropped.
pub(crate) fn prepare(data_dir: &Path) -> anyhow::Result<File> {
    create_data_dir(data_dir)?;
    let in_use = backup::restore::lock_for_use(data_dir)?;
    backup::restore::check_finished(data_dir)?;
    probe(data_dir)
        .with_context(|| format!("cannot write to the data directory {}", data_dir.display()))?;
    Ok(in_use)
}

pub(crate) fn create_data_dir(data_dir: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(DATA_DIR_MODE).create(data_dir);
    made.with_context(|| format!("cannot create the data directory {}", data_dir.display()))?;
    private::close_data_dir(data_dir)?;
    Ok(())
}

fn probe(directory: &Path) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".probe-").tempfile_in(directory)?;
    file.write_all(&[0; PROBE_BYTES])?;
    file.as_file().sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_data_directory_is_made_for_its_owner_alone_and_keeps_no_trace_of_the_probe() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        prepare(&data).unwrap();
        assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(data.read_dir().unwrap().count(), 0);
        std::fs::set_permissions(&data, PermissionsExt::from_mode(0o755)).unwrap();
        prepare(&data).unwrap();
        assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, 0o700, "closed again");
    }

    #[test]
    fn a_file_in_place_of_the_data_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data");
        std::fs::write(&file, "x").unwrap();
        let error = format!("{:#}", prepare(&file).unwrap_err());
        assert!(error.contains(file.to_str().unwrap()), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_that_is_free_a_moment_later_is_taken() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let freed = async {
            tokio::time::sleep(BIND_PAUSE * 3 / 2).await;
            drop(taken);
        };
        let (bound, ()) = tokio::join!(bind(address, "--listen"), freed);
        assert_eq!(bound.unwrap().local_addr().unwrap(), address);
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address, "--bedrock").await.unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("--bedrock"), "{error}");
    }

    /// How many warnings there are in so much time.
    async fn warnings(reason: bool, time: Duration) -> u32 {
        let count = std::cell::Cell::new(0);
        let warn = || count.set(count.get() + 1);
        let ended = tokio::time::timeout(time, every_hour_if(reason, warn)).await;
        assert!(ended.is_err(), "it does not end");
        count.get()
    }

    #[tokio::test(start_paused = true)]
    async fn open_doors_are_warned_of_at_once_and_every_hour() {
        const HOUR: Duration = Duration::from_secs(3600);
        let second = Duration::from_secs(1);
        assert_eq!(warnings(true, second).await, 1);
        assert_eq!(warnings(true, HOUR - second).await, 1);
        assert_eq!(warnings(true, HOUR + second).await, 2);
        assert_eq!(warnings(true, HOUR * 24 + second).await, 25);
        assert_eq!(warnings(false, HOUR * 24).await, 0);
    }
}
