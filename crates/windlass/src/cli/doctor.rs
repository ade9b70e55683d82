//! `windlass doctor`: its flag and its help.

use std::path::PathBuf;

use clap::Args;

pub(super) const DOCTOR_HELP: &str = "\
Starts a few small handlers in a temporary directory, as a daemon with this configuration would, and
checks what they can see and reach. No daemon is needed, and none is affected.

Exit code: 0 if every configured layer is in force, 1 if one is not.";

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Configuration file [env: WINDLASS_CONFIG] [default: windlass.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
