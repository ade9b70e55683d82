//! The programs of Disbatch: their command lines and their wiring.

mod client;
mod dci;
mod den;
mod dtr;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use windlass_door_disbatch::Config;
use windlass_program::Stop;

use crate::config::{Log, LogFormat};
use crate::signal::{Signals, StopSignal};
use crate::{FAILED, log, open_files, output, serve};

pub(crate) use self::client::{COMMAND, arguments_of, run as client};
pub(crate) use self::dci::run as dci;
pub(crate) use self::den::run as den;
pub(crate) use self::dtr::{FILE as TASK_RUNNER, arguments_of as task_runner_words, run as dtr};

/// How long a daemon may take to exit when its work is done.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// The configuration file, and warnings about it for the log.
fn read(path: &Path) -> anyhow::Result<(Config, Vec<String>)> {
    Config::read(path).map_err(anyhow::Error::msg)
}

/// Runs a daemon until it ends. The first signal asks it to stop, the second stops it at once; the
/// exit code is that of a process killed by the first.
fn live(
    config: &Config,
    warnings: &[String],
    daemon: impl AsyncFnOnce(Stop) -> Result<(), String>,
) -> anyhow::Result<ExitCode> {
    let level = config.log_level().unwrap_or(tracing::Level::ERROR);
    let log = log::start(&Log { format: LogFormat::Auto, level });
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a part of the daemon panicked");
    }));
    log.first(|| warnings.iter().for_each(|warning| tracing::warn!("{warning}")));
    open_files::allow_many();
    let runtime = serve::runtime(serve::cores())?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen_to_all().context("cannot install signal handlers")?;
        let stop = Stop::default();
        let tell = |signal: StopSignal| tracing::info!("{} received", signal.as_str());
        anyhow::Ok(signals.until_end(&stop, daemon(stop.clone()), tell).await)
    });
    runtime.shutdown_timeout(END_TIME_MAX);
    drop(log);
    Ok(match ended? {
        (Err(reason), _) => {
            output::print_error(&reason);
            ExitCode::from(FAILED)
        }
        (Ok(()), Some(signal)) => ExitCode::from(signal.exit_status()),
        (Ok(()), None) => ExitCode::SUCCESS,
    })
}
