//! `windlass fence`: a process that a node starts beside itself, and nobody by hand.

use std::process::ExitCode;

use crate::config::{Log, LogFormat};
use crate::log;

/// Its lines stand in the log of the node, which may be dead when they are written.
const LOG: Log = Log { format: LogFormat::Auto, level: tracing::Level::INFO };

pub(crate) fn run(words: &[String]) -> anyhow::Result<ExitCode> {
    let log = log::start(&LOG);
    // There is no line of its start that others would have to wait for.
    log.first(|| {});
    windlass_runner::fence::guard(words)?;
    Ok(ExitCode::SUCCESS)
}
