//! The flags of Disbatch's programs.

use std::path::PathBuf;

use clap::Args;

/// A program that is set up by a file of Disbatch's form.
#[derive(Debug, Args)]
pub(crate) struct Dci {
    /// Configuration file of Disbatch's programs.
    #[arg(long, value_name = "FILE", default_value = windlass_door_disbatch::config::DEFAULT_PATH)]
    pub(crate) config: PathBuf,
}
