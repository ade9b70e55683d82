//! Handlers in warm contexts, run by the daemon's own runner with its default settings.

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use windlass_core::limit::LOG_BYTES_MAX;
use windlass_core::time::SystemClock;
use windlass_core::{HandlerOptions, HandlerSpec, Lang};
use windlass_runner::network::NetworkOptions;
use windlass_runner::{Bounds, IsolationOptions, Level, LocalRunner, Options};

use crate::engine::daemon;
use crate::engine::noop::BATCH_JOBS;

/// Interpreters of the system: version managers put scripts in front of theirs, whose start would
/// be measured, too.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// As in the daemon's configuration.
const BOUNDS: Bounds = Bounds {
    contexts_max: 64,
    tenant_contexts_max: 32,
    contexts_reserved: 0,
    tenant_contexts_min: 1,
};
/// A context that is not replaced during the measurement.
const CONTEXT_JOBS: u32 = 1_000_000;

/// A handler that does almost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Sample {
    Node,
    /// Contexts are replaced after the default number of jobs.
    NodeReplaced,
    /// Each job writes a line to its log.
    NodeLogging,
    Python,
    Php,
    /// A process for each job, in a cell and without one.
    Shell,
    ShellBare,
}

impl Sample {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sample::Node => "node",
            Sample::NodeReplaced => "node, new contexts after 10,000 jobs",
            Sample::NodeLogging => "node, a line of log a job",
            Sample::Python => "python",
            Sample::Php => "php",
            Sample::Shell => "sh",
            Sample::ShellBare => "sh, bare",
        }
    }

    pub(crate) fn level(self) -> Level {
        if self == Sample::ShellBare { Level::Off } else { Level::default() }
    }

    /// Jobs to run before the measurement.
    pub(crate) fn warm_up_jobs(self) -> u64 {
        match self {
            Sample::Shell | Sample::ShellBare => 100,
            _ => 5000,
        }
    }

    pub(crate) fn handler(self) -> HandlerSpec {
        let (lang, body) = match self {
            Sample::Node | Sample::NodeReplaced => (Lang::Node, "return"),
            Sample::NodeLogging => (Lang::Node, "console.log('done')"),
            Sample::Python => (Lang::Python, "return"),
            Sample::Php => (Lang::Php, "return;"),
            Sample::Shell | Sample::ShellBare => (Lang::Sh, "true"),
        };
        let options = HandlerOptions {
            batch: Some(BATCH_JOBS),
            context_jobs: (self != Sample::NodeReplaced).then_some(CONTEXT_JOBS),
            ..HandlerOptions::default()
        };
        HandlerSpec { lang, body: body.into(), options, ..daemon::handler() }
    }
}

/// Contexts have their directories below `dir`.
pub(crate) fn runner(dir: &Path, level: Level) -> anyhow::Result<LocalRunner> {
    let options = Options {
        scratch_dir: dir.join("scratch"),
        log_bytes_max: LOG_BYTES_MAX,
        network: NetworkOptions::of_machine(Vec::new(), Vec::new())?,
        path: PATH.into(),
        isolation: IsolationOptions { level, ..IsolationOptions::default() },
        contexts: BOUNDS,
        cores: daemon::cores(),
        clock: Arc::new(SystemClock),
    };
    LocalRunner::new(options).map_err(|error| anyhow!("handlers cannot be run: {error}"))
}
