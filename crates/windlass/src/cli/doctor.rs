//! `windlass doctor`: its only flag, and the help that says what it does.

use std::path::PathBuf;

use clap::Args;

pub(super) const DOCTOR_HELP: &str = "\
Starts a few small handlers in a temporary directory, as the daemon of this configuration would, and
looks at what they see, reach and get away with. No daemon is needed, and none is touched.

Exit status: 0 everything that is configured is in force, 1 something is not.";

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Read this file instead of windlass.toml of the working directory [env: WINDLASS_CONFIG].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
