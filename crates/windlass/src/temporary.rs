//! A complete daemon in a temporary directory, for commands that need a queue for a short time.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;

use windlass_core::KeyText;

use crate::config::{Config, LogFormat, StorePlace};
use crate::signal::Signals;
use crate::wiring::{self, Listeners};
use crate::{log, secrets, serve};

/// Short, since nothing worth waiting for is left.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Starts a daemon with this many slots, runs `work` with its URL and key, and removes it with all
/// its files, also when a signal comes first.
pub(crate) fn with_daemon(
    slots: usize,
    work: impl AsyncFnOnce(&str, &KeyText) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("windlass-").tempdir();
    let directory = directory.context("cannot create a temporary directory")?;
    let cores = serve::cores();
    let mut config = Config::defaults(cores);
    config.listen.set_port(0);
    config.data_dir = directory.path().join("data");
    config.store = StorePlace::File(config.data_dir.join("store.db"));
    config.secrets_key_file = config.data_dir.join(secrets::FILE);
    config.scheduler.slots = slots;
    config.stop_grace = STOP_GRACE;
    config.log.format = LogFormat::Human;
    config.log.level = tracing::Level::ERROR;
    let runtime = serve::runtime(cores)?;
    let log = log::start(&config.log);
    log.first(|| ());
    let ended = runtime.block_on(live(&config, work));
    runtime.shutdown_background();
    drop(log);
    directory.close().context("cannot remove the temporary directory")?;
    ended
}

async fn live(
    config: &Config,
    work: impl AsyncFnOnce(&str, &KeyText) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot install signal handlers")?;
    let _in_use = serve::prepare(&config.data_dir)?;
    let http = TcpListener::bind(config.listen).await.context("cannot get a free port")?;
    let listeners = Listeners { http, tls: None, bedrock: None };
    let running = wiring::start(config, listeners, serve::handler_path()).await?;
    let url = format!("http://{}", running.address);
    let key = running.key.clone().context("a temporary daemon has a key")?;
    let ended = tokio::select! {
        ended = work(&url, &key) => ended,
        asked = signals.next() => Ok(ExitCode::from(asked.exit_status())),
    };
    running.stop().await?;
    ended
}
