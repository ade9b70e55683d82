//! The configuration file of Disbatch's programs: every key, its default, and the error messages.
//! One file serves node, task runner and command interface.

pub(crate) mod access;
mod connection;
mod files;
mod keys;
mod overlay;
mod plugin;
mod read;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use tracing::Level;
use tracing::level_filters::LevelFilter;

pub(crate) use self::access::{Access, Tls};
pub(crate) use self::connection::{Auth, Connection, ServerTls, User};
pub(crate) use self::files::{plugin_file, write_files};
pub(crate) use self::overlay::overlay;
pub(crate) use self::plugin::{Plugin, PluginKind, Plugins};
use crate::den::fence_time;
use crate::dialect::Dialect;
use crate::relaxed::SyntaxError;

/// The default configuration file of Disbatch's programs.
pub const DEFAULT_PATH: &str = "/etc/disbatch/config.json";
const OTHERS_READ: u32 = 0o004;

/// All settings. Never printed with a password or a token.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file that they were read from.
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    /// The name of this node; defaults to the host's name.
    pub(crate) node: String,
    /// `None`: detected from the database.
    pub(crate) dialect: Option<Dialect>,
    pub(crate) plugins: Plugins,
    /// Ids of queues as text. If there are any, no other queue is served.
    pub(crate) active_queues: Vec<String>,
    /// Ids of queues that are not served, as text; ignored if there are `active_queues`.
    pub(crate) ignore_queues: Vec<String>,
    /// Maximum number of tasks that this node starts per pass.
    pub(crate) node_increase: Option<u32>,
    /// Maximum number of tasks of one queue that this node starts per pass.
    pub(crate) queue_increase: Option<u32>,
    pub(crate) gfs: Gfs,
    pub(crate) quiet: bool,
    pub(crate) temp_dir: PathBuf,
    pub(crate) temp_dir_mode: u32,
    pub(crate) heartbeat: Duration,
    pub(crate) orphan_after: Duration,
    /// `None`: running tasks of foreign nodes are never orphaned.
    pub(crate) orphan_foreign: Option<Duration>,
    pub(crate) stop_timeout: Duration,
    /// Where the command interface listens.
    pub(crate) listen: SocketAddr,
    pub(crate) access: Access,
    pub(crate) tls: Option<Tls>,
    /// Collections that tasks may be created from; `None`: all except those of Disbatch and of the
    /// server.
    pub(crate) task_collections: Option<Vec<String>>,
    pub(crate) web_root: Option<PathBuf>,
    pub(crate) dashboard: Dashboard,
    pub(crate) monitoring: bool,
    pub(crate) balance: BalanceSettings,
    pub(crate) pre_hook: Option<Hook>,
    /// Perl packages, such as `Disbatch::Web::V3`.
    pub(crate) web_extensions: Vec<String>,
    pub(crate) log_level: LevelFilter,
    source: Source,
}

/// The content of the file, for the files derived from it.
#[derive(Clone, PartialEq)]
struct Source(Map<String, Value>);

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Source(hidden)")
    }
}

impl Config {
    /// Reads a file. Also returns warnings for the log. The error is a complete sentence.
    pub fn read(path: &Path) -> Result<(Self, Vec<String>), String> {
        Self::read_file(path).map_err(|error| error.to_string())
    }

    /// The log level; `None` for errors only.
    pub fn log_level(&self) -> Option<Level> {
        self.log_level.into_level()
    }

    /// The time limit of a node's fence with these settings.
    pub fn fence_time(&self) -> Duration {
        fence_time(self.orphan_after)
    }

    fn read_file(path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.into(), error };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let (config, mut warnings) = Self::parse(&text, path)?;
        let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
        if mode & OTHERS_READ != 0 && config.has_secrets() {
            warnings.push(format!(
                "{} contains passwords, and every user on this host can read it",
                path.display()
            ));
        }
        Ok((config, warnings))
    }

    /// `balance` as written in the file.
    pub(crate) fn balance_as_written(&self) -> Value {
        self.source.0.get("balance").cloned().unwrap_or(Value::Null)
    }

    fn has_secrets(&self) -> bool {
        let login = self.connection.uri.reveal().contains('@');
        login || self.connection.auth != Auth::default() || !self.access.is_open()
    }

    /// Reads the text of a file.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<(Self, Vec<String>), ConfigError> {
        read::config(text, path)
    }
}

/// Whether output is kept in GridFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gfs {
    Never,
    Always,
    /// Only output that is too large for the document.
    Auto,
}

/// Settings for the web page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dashboard {
    pub refresh_ms: u64,
    /// A node is shown as alive if its timestamp is not older than this.
    pub live_window_ms: u64,
}

/// Settings of the queue balancer, if enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BalanceSettings {
    pub enabled: bool,
    /// Log each change of a limit.
    pub log: bool,
    /// Log each step.
    pub verbose: bool,
    /// Only log what would be changed.
    pub pretend: bool,
}

/// A program that runs before each pass of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hook {
    /// The path of a program, or a Perl package, which we cannot run.
    pub name: String,
    /// Whether its failure ends the node.
    pub fatal: bool,
}

impl Hook {
    /// `None` if it is a Perl package.
    pub(crate) fn program(&self) -> Option<&Path> {
        Some(Path::new(&self.name)).filter(|path| path.is_absolute())
    }
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("the configuration {} cannot be read: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("the configuration {} is not JSON: {mistake}", path.display())]
    Syntax { path: PathBuf, mistake: SyntaxError },
    #[error("the configuration {}: {why}", path.display())]
    Wrong { path: PathBuf, why: String },
}
