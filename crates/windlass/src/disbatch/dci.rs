//! `windlass dci`: the command interface.

use std::path::Path;
use std::process::ExitCode;

use windlass_door_disbatch::dci;

use super::{live, read};

pub(crate) fn run(config: &Path) -> anyhow::Result<ExitCode> {
    let (config, warnings) = read(config)?;
    live(&config, &warnings, async |stop| {
        let serving = dci(config.clone(), stop.asked);
        tokio::select! {
            ended = serving => ended,
            () = stop.now.cancelled() => Ok(()),
        }
    })
}
