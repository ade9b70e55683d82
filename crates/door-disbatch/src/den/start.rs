//! What a node needs before it runs anything: its files, the database, the indexes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use windlass_program::host_name;

use super::Tools;
use super::pass::RUNS_MAX;
use crate::config::{self, Config, Plugin, PluginKind};
use crate::database::{Clock, Database, DbError, User};
use crate::task::Temp;

/// How long to wait for an unavailable database at the start.
const WAIT_MAX: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_secs(1);

pub(super) struct PreparedNode {
    pub(super) database: Database,
    /// The same database as the user that may write task output.
    pub(super) for_tasks: Database,
    pub(super) clock: Clock,
    /// The dialect is not known yet.
    pub(super) dialect_open: bool,
    pub(super) temp: Arc<Temp>,
}

pub(super) async fn start(config: &Config, tools: &Tools) -> Result<PreparedNode, String> {
    if let Some(hook) = config.pre_hook.as_ref().filter(|hook| hook.program().is_none()) {
        let text = format!(
            "`pre_hook`: {} is a package of Perl, which this node cannot run; write the absolute \
             path of a program",
            hook.name
        );
        if hook.fatal {
            return Err(text);
        }
        tracing::warn!("{text}");
    }
    warn_of_name(config);
    if tools.runs_max < RUNS_MAX {
        let room = tools.runs_max;
        tracing::info!("running at most {room} tasks at the same time, limited by open files");
    }
    let temp = Temp::open(&config.temp_dir, config.temp_dir_mode).map_err(|error| {
        format!("cannot use the directory `temp_dir` {}: {error}", config.temp_dir.display())
    })?;
    write_files(config)?;
    if tools.fence.process_id().is_none() {
        return Err("there is no fence process, so no tasks can be run".into());
    }
    let connect = async |user| {
        let connected = Database::connect(config, user).await;
        connected.map_err(|error| error.to_string())
    };
    let database = connect(User::Den).await?;
    let for_tasks = match config.connection.password(User::TaskRunner) {
        Some(_) => connect(User::TaskRunner).await?.with_dialect_of(&database),
        None => database.clone(),
    };
    let clock = Clock::system();
    let dialect_open = !prepared(&database, &clock).await?;
    Ok(PreparedNode { database, for_tasks, clock, dialect_open, temp: Arc::new(temp) })
}

/// Writes the configuration files for plugins; only plugins that use the database need them.
pub(super) fn write_files(config: &Config) -> Result<(), String> {
    match config::write_files(config) {
        Err(error) if needs_files(config) => Err(error),
        Err(error) => {
            tracing::warn!("{error}");
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn needs_files(config: &Config) -> bool {
    runs_some(config, |plugin| plugin.kind != PluginKind::NoMongo)
}

fn runs_some(config: &Config, which: impl Fn(&Plugin) -> bool) -> bool {
    let plugins = config.plugins.names();
    let mut plugins = plugins.iter().filter_map(|name| config.plugins.get(name));
    plugins.any(|plugin| plugin.program.is_absolute() && which(plugin))
}

/// Programs written for Disbatch 4.4 expect a node to have the host's name.
fn warn_of_name(config: &Config) {
    let (node, host) = (&config.node, host_name());
    let looks = |plugin: &Plugin| matches!(plugin.kind, PluginKind::Mongo | PluginKind::Handoff);
    if *node != host && runs_some(config, looks) {
        tracing::warn!(
            "a plugin of the type `mongo` or `handoff` that looks for its task under the name of \
             the host, {host}, as those of Disbatch 4.4 do, will not find it: `node` is {node}"
        );
    }
}

/// Whether the dialect is known.
async fn prepared(database: &Database, clock: &Clock) -> Result<bool, String> {
    let give_up = Instant::now() + WAIT_MAX;
    let mut logged = false;
    loop {
        match prepare(database, clock).await {
            Ok(is_shown) => return Ok(is_shown),
            Err(DbError::Away(error)) if Instant::now() < give_up => {
                if !std::mem::replace(&mut logged, true) {
                    tracing::warn!("waiting for the database: {error}");
                }
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn prepare(database: &Database, clock: &Clock) -> Result<bool, DbError> {
    clock.learn(database.server_time().await?);
    let is_shown = database.learn_dialect().await?;
    database.ensure_indexes().await?;
    Ok(is_shown)
}
