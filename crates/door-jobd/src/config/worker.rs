//! The configuration of a worker.

use std::path::{Path, PathBuf};
use std::time::Duration;

use windlass_program::host_name;

use super::ConfigError;
use super::keys::{Keys, cut, numeric};
use crate::log::LogConfig;
use crate::net::Access;
use crate::table::{Interrupted, Server, Storage};
use crate::wire::Json;

const MASTER_RECONNECT_SECONDS: u32 = 10;
const FETCH_LIMIT: u32 = 100;
const OUTPUT_BYTES: u32 = 1024 * 1024;
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 30;
/// A shorter lease could expire while the database is merely busy.
const LEASE_MIN: Duration = Duration::from_secs(3);
const ENV: &str = "launcher.env.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerConfig {
    pub name: String,
    pub host: String,
    pub port: u16,
    /// Its password is also sent to the master.
    pub access: Access,
    pub master: Option<MasterAddress>,
    pub log: LogConfig,
    pub storage: Storage,
    /// Jobs per fetch.
    pub fetch_limit: u32,
    pub launcher: LauncherConfig,
    /// Bytes kept of each output stream of a job.
    pub output_bytes_max: usize,
    /// Jobs that run longer are killed.
    pub time_limit: Option<Duration>,
    /// Time for running jobs when the worker stops.
    pub shutdown_timeout: Duration,
    pub interrupted: Interrupted,
    /// How long a silent worker counts as alive.
    pub lease: Duration,
    /// With their concurrency, in their order.
    pub targets: Vec<(String, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MasterAddress {
    pub host: String,
    pub port: u16,
    pub reconnect_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LauncherConfig {
    /// Contains `{id}`.
    pub command: String,
    /// Default: the worker's own.
    pub cwd: Option<PathBuf>,
    pub env: Vec<(String, String)>,
}

impl WorkerConfig {
    pub(crate) fn read(path: &Path) -> Result<WorkerConfig, ConfigError> {
        WorkerConfig::parse(&super::read(path)?)
    }

    pub(crate) fn parse(text: &str) -> Result<WorkerConfig, ConfigError> {
        let keys = Keys::parse(text);
        Ok(WorkerConfig {
            name: keys.text("name")?.unwrap_or_else(host_name),
            host: keys.required_text("host")?,
            port: keys.required_port("port")?,
            access: keys.access(),
            master: master(&keys)?,
            log: keys.log()?,
            storage: storage(&keys)?,
            fetch_limit: keys.amount("mysql_fetch_limit", FETCH_LIMIT)?,
            launcher: launcher(&keys)?,
            output_bytes_max: keys.amount("max_output_buffer", OUTPUT_BYTES)? as usize,
            time_limit: keys.seconds_from_zero("time_limit")?.filter(|limit| !limit.is_zero()),
            shutdown_timeout: keys
                .seconds_from_zero("shutdown_timeout")?
                .unwrap_or(SHUTDOWN_TIMEOUT),
            interrupted: interrupted(&keys)?,
            lease: lease(&keys)?,
            targets: targets(&keys)?,
        })
    }
}

/// `None` unless both host and port are set.
fn master(keys: &Keys) -> Result<Option<MasterAddress>, ConfigError> {
    let host = keys.text("master_host")?;
    let port = keys.port("master_port")?.filter(|port| *port != 0);
    let reconnect_timeout = keys.seconds("master_reconnect_timeout", MASTER_RECONNECT_SECONDS)?;
    Ok(host.zip(port).map(|(host, port)| MasterAddress { host, port, reconnect_timeout }))
}

/// With a URL, the keys of MySQL are not needed.
fn storage(keys: &Keys) -> Result<Storage, ConfigError> {
    if let Some(url) = keys.text("storage")? {
        return Ok(Storage::parse(&url, keys.text("mysql_table")?.as_deref())?);
    }
    Ok(Storage::Mysql(Server {
        host: keys.required_text("mysql_host")?,
        port: keys.required_port("mysql_port")?,
        user: keys.required_text("mysql_user")?,
        password: keys.required_text("mysql_password")?,
        database: keys.required_text("mysql_database")?,
        table: keys.required_text("mysql_table")?,
    }))
}

fn launcher(keys: &Keys) -> Result<LauncherConfig, ConfigError> {
    let command = keys.required_text("launcher")?;
    let cwd = keys.text("launcher.cwd")?.map(PathBuf::from);
    let env = keys.iter().filter_map(|(key, value)| {
        let name = key.strip_prefix(ENV).filter(|name| !name.is_empty())?;
        Some((name.to_owned(), value.js_string()))
    });
    Ok(LauncherConfig { command, cwd, env: env.collect() })
}

fn interrupted(keys: &Keys) -> Result<Interrupted, ConfigError> {
    match keys.text("interrupted")?.as_deref() {
        None | Some("fail") => Ok(Interrupted::Fail),
        Some("retry") => Ok(Interrupted::Retry),
        Some(_) => Err("'interrupted' must be fail or retry".into()),
    }
}

fn lease(keys: &Keys) -> Result<Duration, ConfigError> {
    let lease = keys.seconds("lease", LEASE_SECONDS)?;
    if lease < LEASE_MIN {
        return Err(format!("'lease' must be at least {} seconds", LEASE_MIN.as_secs()).into());
    }
    Ok(lease)
}

fn targets(keys: &Keys) -> Result<Vec<(String, u32)>, ConfigError> {
    let section = match keys.require("targets")? {
        Json::Object(section) => section.clone(),
        // A list is an object with numbers as names.
        Json::Array(items) => items.iter().cloned().enumerate().map(numbered).collect(),
        _ => return Err("'targets' must be an object".into()),
    };
    section.iter().map(|(name, value)| target(name, value)).collect()
}

fn numbered((position, value): (usize, Json)) -> (String, Json) {
    (position.to_string(), value)
}

fn target(name: &str, value: &Json) -> Result<(String, u32), ConfigError> {
    if name == "null" {
        return Err("word 'null' is reserved, please don't use it as a target name".into());
    }
    let Some(number) = numeric(value) else {
        return Err(format!("value of target '{name}' must be a number").into());
    };
    match cut(&number) {
        ..1 => Err(format!("target '{name}' has invalid value").into()),
        concurrency => Ok((name.to_owned(), u32::try_from(concurrency).unwrap_or(u32::MAX))),
    }
}

#[cfg(test)]
mod tests;
