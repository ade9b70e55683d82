//! `windlass backup` and `windlass restore`: their flags and their help.

use std::path::PathBuf;

use clap::Args;

pub(super) const BACKUP_HELP: &str = "\
Works while daemons are running, and needs none. Everything that was acknowledged before the command
was started is in the backup. Run it as the daemon's user, with the daemon's configuration.

The key file of secrets is not in the backup, which would show them to everybody who has it. Keep a
copy of it elsewhere: without it, nobody can read the secrets of a restored backup.

Example:
  windlass backup /backups/windlass-monday --data-dir /var/lib/windlass";

pub(super) const RESTORE_HELP: &str = "\
Checks the backup first and changes nothing if it is damaged. The data directory must be empty or
missing. Stop the old daemon before you start one on the restored directory: both would run the same
jobs. Run it as the daemon's user, with the daemon's configuration.

Example:
  windlass restore /backups/windlass-monday --data-dir /var/lib/windlass";

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Directory for the backup: a new or an empty one.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Directory with the backup.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) data: DataFlags,
}

/// Where a daemon keeps its data, as for `serve`.
#[derive(Debug, Args)]
pub(crate) struct DataFlags {
    /// Configuration file [env: WINDLASS_CONFIG] [default: windlass.toml, if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The daemon's data directory [env: WINDLASS_DATA_DIR] [default: windlass-data].
    #[arg(long, value_name = "DIRECTORY")]
    data_dir: Option<String>,
    /// The daemon's store [env: WINDLASS_STORE] [default: sqlite:<data_dir>/store.db].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

impl DataFlags {
    /// The given flags, by the names of their keys.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let all = [("data_dir", &self.data_dir), ("store", &self.store)];
        all.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect()
    }
}
