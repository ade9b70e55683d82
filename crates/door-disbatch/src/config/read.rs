//! From the text of a file to its settings. The first error counts; harmless oddities are warnings.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};
use tracing::level_filters::LevelFilter;
use windlass_program::host_name;

use super::keys::{Keys, kind};
use super::{BalanceSettings, Config, ConfigError, Dashboard, Gfs, Hook};
use super::{access, connection, plugin};
use crate::dialect::Dialect;
use crate::relaxed;

const HEARTBEAT: Duration = Duration::from_secs(5);
const ORPHAN_AFTER: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const TEMP_DIR: &str = "/tmp/disbatch";
const TEMP_DIR_MODE: u32 = 0o755;
const DASHBOARD: Dashboard = Dashboard { refresh_ms: 30_000, live_window_ms: 15_000 };
/// Extensions of the command interface whose routes are built in.
const WEB_EXTENSIONS: [&str; 2] = ["Disbatch::Web::Tasks", "Disbatch::Web::V3"];

/// All keys of the file.
pub(super) const KEYS: [&str; 35] = [
    "activequeues",
    "attributes",
    "auth",
    "balance",
    "dashboard",
    "database",
    "dialect",
    "gfs",
    "heartbeat",
    "ignorequeues",
    "listen",
    "log4perl",
    "mongohost",
    "monitoring",
    "node",
    "node_increase",
    "orphan_after",
    "orphan_foreign",
    "plugin_runner",
    "plugins",
    "pre_hook",
    "queue_increase",
    "quiet",
    "stop_timeout",
    "task_collections",
    "task_runner",
    "temp_dir",
    "temp_dir_mode",
    "testing",
    "tls",
    "tokens",
    "users",
    "views_dir",
    "web_extensions",
    "web_root",
];

/// Disbatch keys that have no effect here, with the reason.
const NOT_USED: [(&str, &str); 4] = [
    ("plugin_runner", "the node starts the programs of `plugins` itself"),
    ("task_runner", "the node runs tasks itself"),
    ("testing", "tests run what everybody runs"),
    ("views_dir", "the page is part of the program"),
];

pub(super) fn config(text: &str, path: &Path) -> Result<(Config, Vec<String>), ConfigError> {
    let path = path.to_path_buf();
    let value = match relaxed::parse(text) {
        Ok(value) => value,
        Err(mistake) => return Err(ConfigError::Syntax { path, mistake }),
    };
    let Value::Object(map) = value else {
        let why = format!("the file must hold an object, not {}", kind(&value));
        return Err(ConfigError::Wrong { path, why });
    };
    let mut warnings = Vec::new();
    match settings(&map, &path, &mut warnings) {
        Ok(config) => Ok((config, warnings)),
        Err(why) => Err(ConfigError::Wrong { path, why }),
    }
}

fn settings(
    map: &Map<String, Value>,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<Config, String> {
    let keys = Keys::new(map);
    keys.warn_unknown(&KEYS, warnings);
    for (key, why) in NOT_USED {
        if keys.get(key).is_some() {
            warnings.push(format!("{} is not used: {why}", keys.name(key)));
        }
    }
    let connection = connection::read(keys, warnings)?;
    let (access, tls) = (access::read_access(keys)?, access::read_tls(keys, warnings)?);
    let listen = access::read_listen(keys, &access, tls.as_ref(), warnings)?;
    let (node_increase, queue_increase) = increases(keys)?;
    let (heartbeat, orphan_after) = liveness(keys)?;
    Ok(Config {
        path: path.to_path_buf(),
        connection,
        node: node(keys)?,
        dialect: dialect(keys)?,
        plugins: plugin::read(keys, warnings)?,
        active_queues: queue_ids(keys, "activequeues", warnings)?,
        ignore_queues: queue_ids(keys, "ignorequeues", warnings)?,
        node_increase,
        queue_increase,
        gfs: gfs(keys)?,
        quiet: keys.flag("quiet")?.unwrap_or(false),
        temp_dir: temp_dir(keys)?,
        temp_dir_mode: temp_dir_mode(keys)?,
        heartbeat,
        orphan_after,
        orphan_foreign: keys.seconds("orphan_foreign")?,
        stop_timeout: keys.seconds_from_zero("stop_timeout")?.unwrap_or(STOP_TIMEOUT),
        listen,
        access,
        tls,
        task_collections: task_collections(keys)?,
        web_root: keys.path("web_root")?,
        dashboard: dashboard(keys, warnings)?,
        monitoring: keys.flag("monitoring")?.unwrap_or(false),
        balance: balance(keys, warnings)?,
        pre_hook: pre_hook(keys, warnings)?,
        web_extensions: web_extensions(keys, warnings)?,
        log_level: log_level(keys, warnings)?,
        source: super::Source(map.clone()),
    })
}

fn node(keys: Keys<'_>) -> Result<String, String> {
    let name = match keys.text("node")? {
        Some(name) => name.to_owned(),
        None => host_name(),
    };
    if name.chars().any(char::is_control) {
        return Err("`node` must be a name without control characters".into());
    }
    Ok(name)
}

fn dialect(keys: Keys<'_>) -> Result<Option<Dialect>, String> {
    let Some(name) = keys.text("dialect")? else { return Ok(None) };
    let dialect = Dialect::from_name(name);
    dialect.map(Some).ok_or_else(|| "`dialect` must be \"seed\" or \"released\"".into())
}

fn queue_ids(keys: Keys<'_>, key: &str, warnings: &mut Vec<String>) -> Result<Vec<String>, String> {
    let ids = keys.texts(key)?;
    let odd = |id: &&String| id.len() != 24 || !id.bytes().all(|byte| byte.is_ascii_hexdigit());
    for id in ids.iter().filter(odd) {
        warnings
            .push(format!("{}: {id:?} is not the id of a queue: 24 hex digits", keys.name(key)));
    }
    Ok(ids.into_iter().map(|id| id.to_ascii_lowercase()).collect())
}

fn increases(keys: Keys<'_>) -> Result<(Option<u32>, Option<u32>), String> {
    let (node, queue) = (keys.count("node_increase")?, keys.count("queue_increase")?);
    if let (Some(node), Some(queue)) = (node, queue)
        && queue > node
    {
        return Err(format!(
            "`queue_increase` ({queue}) must not be larger than `node_increase` ({node})"
        ));
    }
    Ok((node, queue))
}

fn liveness(keys: Keys<'_>) -> Result<(Duration, Duration), String> {
    let heartbeat = keys.seconds("heartbeat")?.unwrap_or(HEARTBEAT);
    let orphan_after = keys.seconds("orphan_after")?.unwrap_or(ORPHAN_AFTER);
    if heartbeat >= orphan_after / 2 {
        return Err(format!(
            "`heartbeat` ({} s) must be less than half of `orphan_after` ({} s), or one late \
             heartbeat would orphan what runs",
            heartbeat.as_secs_f64(),
            orphan_after.as_secs_f64()
        ));
    }
    Ok((heartbeat, orphan_after))
}

fn gfs(keys: Keys<'_>) -> Result<Gfs, String> {
    match keys.get("gfs") {
        None => Ok(Gfs::Auto),
        Some(Value::String(text)) if text == "auto" => Ok(Gfs::Auto),
        Some(value) => match super::keys::flag_of(value) {
            Some(true) => Ok(Gfs::Always),
            Some(false) => Ok(Gfs::Never),
            None => Err(format!("`gfs` must be true, false or \"auto\", not {}", kind(value))),
        },
    }
}

fn temp_dir(keys: Keys<'_>) -> Result<PathBuf, String> {
    let path = keys.path("temp_dir")?.unwrap_or_else(|| TEMP_DIR.into());
    if !path.is_absolute() {
        return Err("`temp_dir` must be an absolute path".into());
    }
    Ok(path)
}

fn temp_dir_mode(keys: Keys<'_>) -> Result<u32, String> {
    let Some(text) = keys.text("temp_dir_mode")? else { return Ok(TEMP_DIR_MODE) };
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| "`temp_dir_mode` must be octal digits in a text, such as \"0755\"".into())
}

fn task_collections(keys: Keys<'_>) -> Result<Option<Vec<String>>, String> {
    const KEY: &str = "task_collections";
    keys.get(KEY).map(|_| keys.texts(KEY)).transpose()
}

fn dashboard(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Dashboard, String> {
    let Some(keys) = keys.below("dashboard", "dashboard")? else { return Ok(DASHBOARD) };
    keys.warn_unknown(&["refresh_ms", "live_window_ms"], warnings);
    let count = |key, default| Ok::<u64, String>(keys.count(key)?.map_or(default, u64::from));
    Ok(Dashboard {
        refresh_ms: count("refresh_ms", DASHBOARD.refresh_ms)?,
        live_window_ms: count("live_window_ms", DASHBOARD.live_window_ms)?,
    })
}

fn balance(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<BalanceSettings, String> {
    let Some(keys) = keys.below("balance", "balance")? else {
        return Ok(BalanceSettings::default());
    };
    keys.warn_unknown(&["enabled", "log", "verbose", "pretend"], warnings);
    let flag = |key| keys.flag(key).map(Option::unwrap_or_default);
    Ok(BalanceSettings {
        enabled: flag("enabled")?,
        log: flag("log")?,
        verbose: flag("verbose")?,
        pretend: flag("pretend")?,
    })
}

fn pre_hook(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Option<Hook>, String> {
    let Some(keys) = keys.below("pre_hook", "pre_hook")? else { return Ok(None) };
    // Other keys are for the hook.
    let name = keys.required("name", "\"/usr/local/bin/may-run\"")?.to_owned();
    let hook = Hook { name, fatal: keys.flag("fatal")?.unwrap_or(false) };
    if hook.program().is_none() {
        warnings.push(format!(
            "`pre_hook.name` ({:?}) is not the absolute path of a program, and is not run: nothing \
             in Perl is",
            hook.name
        ));
    }
    Ok(Some(hook))
}

/// An object of packages and their arguments, or a list of packages.
fn web_extensions(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<Vec<String>, String> {
    let names = match keys.get("web_extensions") {
        Some(Value::Array(_)) => keys.texts("web_extensions")?,
        _ => match keys.below("web_extensions", "web_extensions")? {
            Some(packages) => packages.iter().map(|(name, _)| name.clone()).collect(),
            None => Vec::new(),
        },
    };
    for name in names.iter().filter(|name| !WEB_EXTENSIONS.contains(&name.as_str())) {
        warnings.push(format!("`web_extensions`: {name} is not used: nothing in Perl is loaded"));
    }
    Ok(names)
}

fn log_level(keys: Keys<'_>, warnings: &mut Vec<String>) -> Result<LevelFilter, String> {
    let Some(keys) = keys.below("log4perl", "log4perl")? else { return Ok(LevelFilter::INFO) };
    keys.warn_unknown(&["level", "appenders"], warnings);
    if keys.get("appenders").is_some() {
        warnings.push("`log4perl.appenders` is not used: the log goes to standard error".into());
    }
    let Some(level) = keys.text("level")? else { return Ok(LevelFilter::INFO) };
    Ok(match level.to_ascii_uppercase().as_str() {
        "ALL" | "TRACE" => LevelFilter::TRACE,
        "DEBUG" => LevelFilter::DEBUG,
        "INFO" => LevelFilter::INFO,
        "WARN" => LevelFilter::WARN,
        "ERROR" | "FATAL" => LevelFilter::ERROR,
        "OFF" => LevelFilter::OFF,
        _ => {
            const LEVELS: &str = "TRACE, DEBUG, INFO, WARN, ERROR, FATAL or OFF";
            return Err(format!("`log4perl.level` must be {LEVELS}"));
        }
    })
}

/// A `host:port`, where the host may be `localhost`.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port.parse().ok()?));
    }
    text.parse().ok()
}
