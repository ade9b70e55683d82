//! `windlass den`: an execution node.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use windlass_door_disbatch::{Tools, den};
use windlass_runner::CommandLauncher;
use windlass_runner::fence::ProcessFence;

use super::{live, read};

/// Open files per task: its pipes, its process, and those needed to finish it.
const FILES_OF_A_TASK: u64 = 8;
/// Open files for everything else: connections, logs, the fence.
const FILES_APART: u64 = 128;

pub(crate) fn run(config: &Path) -> anyhow::Result<ExitCode> {
    let (config, warnings) = read(config)?;
    live(&config, &warnings, async |stop| {
        let sentence = |error: windlass_runner::Error| error.to_string();
        let launcher = CommandLauncher::new().map_err(sentence)?;
        // This very program, even if its file has been replaced by a newer one.
        let program = Path::new("/proc/self/exe");
        let boot = format!("{:032x}", fastrand::u128(..));
        let time = config.fence_time();
        let fence = ProcessFence::start(program, &boot, time).map_err(sentence)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let tools = Tools { launcher: Arc::new(launcher), fence, version, runs_max: runs_max() };
        den(config.clone(), tools, stop).await
    })
}

/// The maximum number of tasks that the limit of open files allows.
fn runs_max() -> u64 {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (files.saturating_sub(FILES_APART) / FILES_OF_A_TASK).max(1)
}
