//! The programs of Disbatch: their command lines, and the parts they are made of.

mod client;
mod dci;
mod den;
mod dtr;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use windlass_door_disbatch::config::Config;

use crate::config::{Log, LogFormat};
use crate::signal::{Asked, Signals};
use crate::{FAILED, log, output, serve};

pub(crate) use self::client::{COMMAND, run as client, words_of};
pub(crate) use self::dci::run as dci;
pub(crate) use self::den::run as den;
pub(crate) use self::dtr::{FILE as TASK_RUNNER, run as dtr, words_of as task_runner_words};

/// How long the end of a daemon may take when its work is done.
const END_TIME_MAX: Duration = Duration::from_secs(2);

/// The file for the programs, and what is to be said of it in the log.
fn read(path: &Path) -> anyhow::Result<(Config, Vec<String>)> {
    Ok(Config::read(path)?)
}

/// How a daemon is asked to end.
#[derive(Clone, Default)]
pub(crate) struct Stop {
    /// End, in order.
    pub(crate) asked: CancellationToken,
    /// And now at once.
    pub(crate) now: CancellationToken,
}

/// Runs a daemon to its end. The first signal asks it to stop, the second one at once; the exit
/// status names the first, as that of a process which the signal has ended.
fn live(
    config: &Config,
    warnings: &[String],
    daemon: impl AsyncFnOnce(Stop) -> Result<(), String>,
) -> anyhow::Result<ExitCode> {
    let level = config.log_level.into_level().unwrap_or(tracing::Level::ERROR);
    let log = log::start(&Log { format: LogFormat::Auto, level });
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "a part of the daemon panicked");
    }));
    log.first(|| warnings.iter().for_each(|warning| tracing::warn!("{warning}")));
    serve::allow_open_files();
    let runtime = serve::runtime(serve::cores())?;
    let ended = runtime.block_on(async {
        let signals = Signals::listen_to_all().context("signals cannot be listened to")?;
        let stop = Stop::default();
        anyhow::Ok(until_end(signals, &stop, daemon(stop.clone())).await)
    });
    runtime.shutdown_timeout(END_TIME_MAX);
    drop(log);
    Ok(match ended? {
        (Err(reason), _) => {
            output::complain(&reason);
            ExitCode::from(FAILED)
        }
        (Ok(()), Some(signal)) => ExitCode::from(signal.exit_status()),
        (Ok(()), None) => ExitCode::SUCCESS,
    })
}

async fn until_end(
    mut signals: Signals,
    stop: &Stop,
    daemon: impl Future<Output = Result<(), String>>,
) -> (Result<(), String>, Option<Asked>) {
    let mut daemon = std::pin::pin!(daemon);
    let signal = tokio::select! {
        ended = &mut daemon => return (ended, None),
        signal = signals.next() => signal,
    };
    tracing::info!("{} received", signal.as_str());
    stop.asked.cancel();
    tokio::select! {
        ended = &mut daemon => return (ended, Some(signal)),
        _ = signals.again() => stop.now.cancel(),
    }
    (daemon.await, Some(signal))
}
