//! The stand-alone task runner: runs one task that a node, possibly a foreign one, has claimed.
//! Only the node's name identifies the owner, as everywhere in Disbatch.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mongodb::bson::{Bson, Document};
use windlass_core::launch::Launcher;
use windlass_program::Stop;

use super::args::RunnerArgs;
use super::end_signal::{EndSignal, end_signal};
use super::outcome::StopReason;
use super::run::{RunContext, RunEnd, run_started};
use super::temp::Temp;
use super::write::{GaveUp, until_back};
use crate::config::{self, Config, Plugin, User};
use crate::database::{Claim, Clock, Database, DbError};
use crate::doc::Queue;
use crate::status;

/// Suffixes of configuration files with reduced content; plugins have their own file beside them.
const NARROWED: [&str; 2] = ["-task_runner", "-strict"];

/// Runs the task to its end. On an error it was not, or not completely, handled.
pub async fn runner(
    config: &Config,
    args: &RunnerArgs,
    launcher: Arc<dyn Launcher>,
    stop: Stop,
) -> Result<(), String> {
    let text = |error: DbError| error.to_string();
    let database = Database::connect(config, User::TaskRunner).await.map_err(text)?;
    let clock = Clock::system();
    clock.learn(database.server_time().await.map_err(text)?);
    database.learn_dialect().await.map_err(text)?;
    let claim = Claim::Runner { node: config.node.clone(), id: args.task };
    let task = database.task(args.task).await.map_err(text)?;
    let wanted = if args.handoff { status::RUNNING } else { status::CLAIMED };
    let task = task
        .filter(|task| has_claimed(task, &config.node, wanted))
        .ok_or_else(|| not_claimed(args, config))?;
    let end_signal = end_of(stop);
    let unanswered =
        |GaveUp| format!("task {} was not started: the database is unavailable", args.task);
    let look = || plugin_of(config, args, &database, &task);
    let plugin = until_back(&end_signal, look).await.map_err(unanswered)?.map_err(text)?;
    if let Ok(Plugin { name, program, .. }) = &plugin
        && !program.is_absolute()
    {
        // Another runner of this node may have it.
        let id = args.task;
        return Err(format!(
            "task {id} is left as it is: plugin {name} has no program in the configuration"
        ));
    }
    let temp = Temp::open(&config.temp_dir, config.temp_dir_mode);
    let temp = temp.map_err(|error| {
        format!("cannot create temporary files in {}: {error}", config.temp_dir.display())
    })?;
    if !args.handoff {
        let now = clock.now();
        let start = || database.claim_start(&claim, now);
        let started = until_back(&end_signal, start).await.map_err(unanswered)?.map_err(text)?;
        if !started {
            return Err(not_claimed(args, config));
        }
    }
    tracing::info!(task = %args.task, "task started");
    let context = RunContext {
        database,
        launcher,
        fence: None,
        clock,
        temp: Arc::new(temp),
        gfs: args.gfs,
        quiet: args.quiet,
        plugin_config: plugin_config(config),
    };
    let running = run_started(&context, &claim, &task, plugin, end_signal);
    match running.await {
        RunEnd::Ended(_) | RunEnd::Again => Ok(()),
        RunEnd::NotStarted | RunEnd::Lost => {
            Err(format!("task {} was taken away while it ran", args.task))
        }
        RunEnd::Unwritten => Err(format!("cannot write the end of task {}", args.task)),
    }
}

fn has_claimed(task: &Document, node: &str, status: i32) -> bool {
    let is_at = task.get("status").and_then(crate::doc::whole) == Some(status.into());
    let is_ours = crate::database::owning_boot(task).is_some();
    is_at && !is_ours && task.get("node").and_then(Bson::as_str) == Some(node)
}

fn not_claimed(args: &RunnerArgs, config: &Config) -> String {
    format!("could not find task {} claimed by node {} to set status 0", args.task, config.node)
}

/// Forwards the request to stop while the task runs.
fn end_of(stop: Stop) -> EndSignal {
    let (handle, end_signal) = end_signal();
    tokio::spawn(async move {
        stop.asked.cancelled().await;
        handle.end(StopReason::Stopped);
        stop.now.cancelled().await;
        handle.give_up();
    });
    end_signal
}

/// The plugin of the task's queue, or why there is none. The outer error comes from the database.
async fn plugin_of(
    config: &Config,
    args: &RunnerArgs,
    database: &Database,
    task: &Document,
) -> Result<Result<Plugin, String>, DbError> {
    let id = args.task;
    let name = match (&args.plugin, task.get("queue")) {
        (Some(name), _) => Ok(name.clone()),
        (None, Some(Bson::ObjectId(queue))) => match database.queue(&queue.to_hex()).await? {
            Some(found) => Queue::read(&found, database.dialect())
                .map(|queue| queue.plugin)
                .map_err(|odd| format!("no plugin for task {id} in queue {queue}: {odd}")),
            None => Err(format!("queue {queue} not found for task {id}")),
        },
        (None, _) => Err(format!("no queue defined for task {id}")),
    };
    Ok(name.and_then(|name| {
        let plugin = config.plugins.get(&name).cloned();
        plugin.ok_or_else(|| {
            format!("plugin {name} for task {id} is not listed in the configuration")
        })
    }))
}

/// The plugin configuration beside ours. Older nodes write none; then we do.
fn plugin_config(config: &Config) -> PathBuf {
    let path = plugin_config_beside(&config.path);
    let is_missing = path == config::plugin_file(config) && !path.exists();
    if is_missing && let Err(reason) = config::write_files(config) {
        tracing::warn!("{reason}");
    }
    path
}

fn plugin_config_beside(path: &Path) -> PathBuf {
    let name = path.as_os_str().as_bytes();
    let ending = NARROWED.iter().find_map(|ending| name.strip_suffix(ending.as_bytes()));
    let mut name = OsString::from_vec(ending.unwrap_or(name).to_vec());
    name.push("-plugin");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_have_a_configuration_of_their_own_beside_every_other_one() {
        for own in ["/c.json", "/c.json-task_runner", "/c.json-strict"] {
            assert_eq!(plugin_config_beside(Path::new(own)), Path::new("/c.json-plugin"));
        }
    }
}
