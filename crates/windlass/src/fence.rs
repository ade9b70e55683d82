//! `windlass fence`: a helper process that a Disbatch node starts; not for use by hand.

use std::process::ExitCode;

use crate::config::{Log, LogFormat};
use crate::log;

/// It writes to the log of the node, which may be dead by then.
const LOG: Log = Log { format: LogFormat::Auto, level: tracing::Level::INFO };

pub(crate) fn run(words: &[String]) -> anyhow::Result<ExitCode> {
    let log = log::start(&LOG);
    // There is no first line to wait for.
    log.first(|| {});
    windlass_runner::fence::guard(words)?;
    Ok(ExitCode::SUCCESS)
}
