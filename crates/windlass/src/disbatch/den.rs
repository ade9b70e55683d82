//! `windlass den`: an execution node.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use windlass_door_disbatch::den::{self, Tools, fence_time};
use windlass_runner::CommandLauncher;
use windlass_runner::fence::ProcessFence;

use super::{live, read};

pub(crate) fn run(config: &Path) -> anyhow::Result<ExitCode> {
    let (config, warnings) = read(config)?;
    live(&config, &warnings, async |stop| {
        let sentence = |error: windlass_runner::Error| error.to_string();
        let launcher = CommandLauncher::new().map_err(sentence)?;
        // Means this very program, also when its file was replaced by a newer one meanwhile.
        let program = Path::new("/proc/self/exe");
        let boot = format!("{:032x}", fastrand::u128(..));
        let time = fence_time(config.orphan_after);
        let fence = ProcessFence::start(program, &boot, time).map_err(sentence)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let tools = Tools { launcher: Arc::new(launcher), fence, version };
        den::run(config.clone(), tools, den::Stop { asked: stop.asked, now: stop.now }).await
    })
}
