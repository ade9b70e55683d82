//! Runs one task:
//!
//! ```text
//! claimed ─► running ─► program ─┬─ ends by itself ─► its answer ─► judged ─┐
//!                                └─ is ended: why ──► what it gave ─────────┴─► written
//! ```

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Bson, Document};
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use windlass_core::launch::{Fence, Input, LaunchSpec, Launched, Launcher, Output, is_exhaustion};

use super::end_signal::EndSignal;
use super::handover::{self, is_by_file};
use super::outcome::{self, Exit, HandedOff, PluginAnswer, Reply, StopReason, Verdict};
use super::temp::{RESPONSE_BYTES_MAX, RunDir, Temp};
use super::write::{self, GaveUp, until_back, until_done};
use crate::config::{Gfs, Plugin, PluginKind};
use crate::database::{Claim, Clock, Database, DbError, NodeBoot, Run};
use crate::doc::{DateFormat, Queue, Task, json_shown};
use crate::status;

/// Bytes logged of each of the program's own output streams.
const LOG_BYTES_MAX: usize = 16 * 1024;
/// Pause between two checks for a fence.
const FENCE_PAUSE: Duration = Duration::from_millis(50);

/// What all tasks of a node share.
pub(crate) struct RunContext {
    pub database: Database,
    pub launcher: Arc<dyn Launcher>,
    /// Absent for a task runner of a foreign node.
    pub fence: Option<Arc<dyn Fence>>,
    pub clock: Clock,
    pub temp: Arc<Temp>,
    pub gfs: Gfs,
    pub quiet: bool,
    /// The configuration file for plugins.
    pub plugin_config: PathBuf,
}

/// A claimed task.
pub(crate) struct TaskToRun {
    pub me: NodeBoot,
    /// The claimed document, with status -1.
    pub task: Document,
    pub queue: Queue,
    pub plugin: Plugin,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// The database has this status.
    Ended(i32),
    /// It failed and is queued for a retry.
    Again,
    /// Nothing was started; the task may still be ours, claimed or marked as running.
    NotStarted,
    /// It is no longer ours and was left alone.
    Lost,
    /// It ended, but the database could not be written.
    Unwritten,
}

/// Runs a claimed task. Waits for an unavailable database until it is asked to give up.
pub(crate) async fn run(context: &RunContext, work: TaskToRun, end_signal: EndSignal) -> RunEnd {
    let TaskToRun { me, task, queue, plugin } = work;
    let Some(run) = Run::of(&task) else {
        tracing::error!(queue = queue.name, "a claimed task lacks the fields of the claim");
        return RunEnd::Lost;
    };
    let claim = Claim::Node { me, run };
    if let Err(ran) = start(context, &claim, &end_signal).await {
        return ran;
    }
    tracing::info!(task = %claim.id(), queue = queue.name, plugin = plugin.name, "task started");
    run_started(context, &claim, &task, Ok(plugin), end_signal).await
}

async fn start(context: &RunContext, claim: &Claim, end_signal: &EndSignal) -> Result<(), RunEnd> {
    let mut logged = None;
    loop {
        if end_signal.was_requested().is_some() {
            return Err(RunEnd::NotStarted);
        }
        match context.database.claim_start(claim, context.clock.now()).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                tracing::warn!(task = %claim.id(), "a task was taken from us before its start");
                return Err(RunEnd::Lost);
            }
            Err(error) => {
                if logged.as_ref() != Some(&error) {
                    tracing::warn!(task = %claim.id(), %error, "cannot start a task yet");
                }
                logged = Some(error);
                tokio::time::sleep(write::PAUSE).await;
            }
        }
    }
}

/// Runs a task that is marked as running. `plugin` is an error with the reason if there is none.
pub(super) async fn run_started(
    context: &RunContext,
    claim: &Claim,
    task: &Document,
    plugin: Result<Plugin, String>,
    end_signal: EndSignal,
) -> RunEnd {
    let run_dir = context.temp.run_dir();
    let one = TaskRun { context, claim, task, end_signal, run_dir: run_dir.clone() };
    let ran = one.run(plugin).await;
    // Removing it is best effort.
    let _ = spawn_blocking(move || run_dir.remove()).await;
    match ran {
        Ok(ran) => ran,
        Err(GaveUp) => {
            tracing::error!(task = %claim.id(), "cannot write the end of a task");
            RunEnd::Unwritten
        }
    }
}

/// A task in progress.
pub(super) struct TaskRun<'a> {
    pub(super) context: &'a RunContext,
    pub(super) claim: &'a Claim,
    pub(super) task: &'a Document,
    pub(super) end_signal: EndSignal,
    /// The directory for its files.
    run_dir: RunDir,
}

impl TaskRun<'_> {
    async fn run(self, plugin: Result<Plugin, String>) -> Result<RunEnd, GaveUp> {
        let id = self.claim.id().to_hex();
        let prepared = plugin.and_then(|plugin| {
            let read = Task::read(self.task).map_err(|odd| odd.to_string())?;
            read.params.as_ref().map_err(ToString::to_string)?;
            match handover::fault(&plugin, &id) {
                Some(fault) => Err(fault),
                None => Ok((limit(plugin.timeout, read.timeout_seconds), plugin)),
            }
        });
        let (limit, plugin) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return self.end(Verdict::unable_to_start(why), None).await,
        };
        // A full disk or database may delay this.
        let mut end_signal = self.end_signal.clone();
        let handed = tokio::select! {
            handed = self.hand_over(&plugin) => handed?,
            why = end_signal.requested() => return self.not_launched(why).await,
        };
        let task_word = match handed {
            Ok(word) => word,
            Err(why) => return self.end(Verdict::failed(why), None).await,
        };
        let words = handover::words(
            plugin.kind,
            &self.context.plugin_config,
            &task_word,
            self.context.quiet,
        );
        let (launched, why) = match self.launch(&plugin, words, limit).await {
            Ok(ended) => ended,
            Err(why) => return self.not_launched(why).await,
        };
        let exit = Exit::of(&launched);
        tracing::info!(task = id, exit = exit.number(), text = exit.text(), "plugin ended");
        if let (Exit::NotStarted(fault), None) = (&exit, why) {
            return self.end(Verdict::unable_to_start(fault), Some(&exit)).await;
        }
        if plugin.kind == PluginKind::Handoff {
            return self.end_handed_off(&exit, why).await;
        }
        // Held until the task has ended.
        let _room = self.room(plugin.kind).await?;
        let answer = self.answer(plugin.kind).await?;
        let verdict = match why {
            Some(why) => outcome::cut_short(why, answer),
            None => outcome::judge(answer, &exit, &lossy(&launched.stderr)),
        };
        self.end(verdict, Some(&exit)).await
    }

    /// Prepares the plugin's input. Returns the argument that names the task, or the reason for a
    /// failure.
    async fn hand_over(&self, plugin: &Plugin) -> Result<Result<String, String>, GaveUp> {
        let id = self.claim.id();
        if is_by_file(plugin.kind) {
            let json = handover::task_json(self.task);
            let run_dir = self.run_dir.clone();
            let write = move |temp: &Temp| {
                // A failed attempt may have left files.
                run_dir.remove();
                temp.write_task(&run_dir, id, json.as_bytes())
            };
            return Ok(match self.on_disk(write).await? {
                Ok(path) => Ok(path.display().to_string()),
                Err(error) => Err(format!("could not create task file: {error}")),
            });
        }
        if plugin.kind == PluginKind::Mongo {
            let remove = || self.context.database.result_remove_old(id);
            let removed = until_back(&self.end_signal, remove).await?;
            if let Err(error) = removed {
                return Ok(Err(format!(
                    "could not delete any pre-existing result for task in 'results' collection: \
                     {error}"
                )));
            }
        }
        Ok(Ok(id.to_hex()))
    }

    /// Runs a file operation, and retries while the machine is out of resources.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl Fn(&Temp) -> io::Result<T> + Clone + Send + 'static,
    ) -> Result<io::Result<T>, GaveUp> {
        let mut logged = false;
        loop {
            let (temp, work) = (Arc::clone(&self.context.temp), work.clone());
            let done = spawn_blocking(move || work(&temp)).await;
            let done = done.map_err(io::Error::other).and_then(|done| done);
            match &done {
                Err(error) if is_exhaustion(error) => {
                    if !logged {
                        let task = self.claim.id();
                        tracing::warn!(%task, %error, "a task waits for its files");
                    }
                    logged = true;
                }
                _ => return Ok(done),
            }
            tokio::select! {
                () = tokio::time::sleep(write::PAUSE) => {}
                () = self.end_signal.given_up() => return Err(GaveUp),
            }
        }
    }

    /// Runs the program to its end; also returns why it was killed, if it was. An error says why it
    /// was never started.
    async fn launch(
        &self,
        plugin: &Plugin,
        args: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<(Launched, Option<StopReason>), StopReason> {
        let spec = LaunchSpec {
            program: plugin.program.display().to_string(),
            args,
            cwd: None,
            env: self.context.fence.as_deref().map(Fence::mark).into_iter().collect(),
            input: Input::Ended,
            output_bytes_max: LOG_BYTES_MAX,
            time_limit: limit,
        };
        let mut logged = false;
        loop {
            self.may_start().await?;
            let (launched, why) = self.launch_once(spec.clone()).await;
            if !launched.exhausted {
                return Ok((launched, why));
            }
            if !logged {
                let failure = launched.failure.unwrap_or_default();
                tracing::warn!(task = %self.claim.id(), failure, "a task waits for its program");
            }
            logged = true;
            tokio::time::sleep(write::PAUSE).await;
        }
    }

    /// Waits for a fence, without which nothing may be started; a dead fence is replaced quickly.
    async fn may_start(&self) -> Result<(), StopReason> {
        loop {
            if let Some(why) = self.end_signal.was_requested() {
                return Err(why);
            }
            let Some(fence) = self.context.fence.as_deref() else { return Ok(()) };
            match fence.process_id() {
                Some(_) if fence.allows() => return Ok(()),
                // Another node may have the task by now.
                Some(_) => return Err(StopReason::Fenced),
                None => tokio::time::sleep(FENCE_PAUSE).await,
            }
        }
    }

    async fn launch_once(&self, spec: LaunchSpec) -> (Launched, Option<StopReason>) {
        let mut end_signal = self.end_signal.clone();
        let fence = self.context.fence.as_deref();
        let fired = fence.map(Fence::fired);
        let limit = spec.time_limit;
        let running = self.context.launcher.launch(spec);
        let mut asked = None;
        let launched = loop {
            tokio::select! {
                launched = running.wait() => break launched,
                why = end_signal.requested(), if asked.is_none() => {
                    asked = Some(why);
                    running.kill_tree();
                }
            }
        };
        self.log(&launched);
        let fired = fence.is_some_and(|fence| Some(fence.fired()) != fired);
        let why = match (&Exit::of(&launched), launched.timed_out) {
            // It exited before it could be killed.
            (Exit::Code(_) | Exit::NotStarted(_), _) => None,
            (_, true) => limit.map(StopReason::TimeLimit),
            (_, false) => asked.or(fired.then_some(StopReason::Fenced)),
        };
        (launched, why)
    }

    /// Nothing was started: a node releases the task; a runner has to end it, because its caller
    /// expects that.
    async fn not_launched(&self, why: StopReason) -> Result<RunEnd, GaveUp> {
        let Claim::Node { .. } = self.claim else {
            return self.end(outcome::cut_short(why, PluginAnswer::NoResult), None).await;
        };
        Ok(RunEnd::NotStarted)
    }

    /// The program's own streams are not the task's output.
    fn log(&self, launched: &Launched) {
        for (stream, output) in [("stdout", &launched.stdout), ("stderr", &launched.stderr)] {
            if !output.bytes.is_empty() {
                let (text, dropped) = (lossy(output), output.dropped);
                tracing::info!(task = %self.claim.id(), stream, dropped, %text, "plugin wrote");
            }
        }
    }

    /// Waits until a large answer fits into memory.
    async fn room(&self, kind: PluginKind) -> Result<Option<OwnedSemaphorePermit>, GaveUp> {
        if !is_by_file(kind) {
            return Ok(None);
        }
        let (run_dir, id) = (self.run_dir.clone(), self.claim.id());
        let bytes = spawn_blocking(move || run_dir.response_bytes(id)).await.unwrap_or_default();
        tokio::select! {
            room = self.context.temp.room_for(bytes) => Ok(room),
            () = self.end_signal.given_up() => Err(GaveUp),
        }
    }

    async fn answer(&self, kind: PluginKind) -> Result<PluginAnswer, GaveUp> {
        let id = self.claim.id();
        if is_by_file(kind) {
            let run_dir = self.run_dir.clone();
            let read = move |temp: &Temp| temp.read_response(&run_dir, id, RESPONSE_BYTES_MAX);
            let read = self.on_disk(read).await?;
            return Ok(read.unwrap_or_else(|error| PluginAnswer::Unreadable(error.to_string())));
        }
        // Read and removed in two steps, because an answer may be lost.
        let database = &self.context.database;
        let read = until_back(&self.end_signal, || database.result(id)).await?;
        let removed = until_back(&self.end_signal, || database.result_remove(id)).await?;
        self.logged(removed);
        Ok(match read {
            Ok(Some(document)) => PluginAnswer::Reply(reply(&document)),
            Ok(None) => PluginAnswer::NoResult,
            Err(error) => PluginAnswer::Unreadable(format!("'results' collection: {error}")),
        })
    }

    /// The plugin ends the task itself; this completes what it left undone.
    async fn end_handed_off(&self, exit: &Exit, why: Option<StopReason>) -> Result<RunEnd, GaveUp> {
        let database = &self.context.database;
        let standing = until_done(&self.end_signal, || database.handed_over(self.claim)).await?;
        let Some(standing) = standing else { return Ok(RunEnd::Lost) };
        let task = reply(&standing);
        let verdict = match (outcome::judge_handoff(&task, exit), why) {
            (HandedOff::Done(status), _) => {
                let may_retry = status >= status::FAILED && self.has_retries();
                if !may_retry {
                    return self.keep_handed_off(exit, status).await;
                }
                return self.end_again(&standing, exit, status).await;
            }
            (HandedOff::Corrected(_), Some(why)) => {
                outcome::cut_short(why, PluginAnswer::Reply(task))
            }
            (HandedOff::Corrected(verdict), None) => verdict,
        };
        self.take_back(&standing).await?;
        self.end(verdict, Some(exit)).await
    }

    async fn keep_handed_off(&self, exit: &Exit, status: i32) -> Result<RunEnd, GaveUp> {
        let (number, text) = (exit.number(), exit.text());
        let kept = until_done(&self.end_signal, || {
            let now = self.context.clock.now();
            let exit = (number, text.as_str());
            self.context.database.claim_finish_handed_over(self.claim, exit, now)
        });
        Ok(if kept.await? { RunEnd::Ended(status) } else { RunEnd::Lost })
    }

    /// It failed with retries left, so we end it here with the output that the plugin wrote.
    async fn end_again(
        &self,
        standing: &Document,
        exit: &Exit,
        status: i32,
    ) -> Result<RunEnd, GaveUp> {
        self.take_back(standing).await?;
        let output = |name| standing.get(name).cloned().unwrap_or(Bson::Null);
        self.finish(status, output("stdout"), output("stderr"), Some(exit)).await
    }

    async fn take_back(&self, standing: &Document) -> Result<(), GaveUp> {
        let from = standing.get("status");
        let back = || self.context.database.claim_take_back(self.claim, from);
        // Ending it will show whether it is still ours.
        until_done(&self.end_signal, back).await.map(drop)
    }

    fn has_retries(&self) -> bool {
        let is_ours = matches!(self.claim, Claim::Node { .. });
        is_ours && Task::read(self.task).is_ok_and(|task| task.retries > 0)
    }

    fn logged<T>(&self, answer: Result<T, DbError>) -> Option<T> {
        answer.inspect_err(|error| tracing::error!(task = %self.claim.id(), %error, "refused")).ok()
    }
}

fn lossy(output: &Output) -> Cow<'_, str> {
    String::from_utf8_lossy(&output.bytes)
}

/// The shorter of the plugin's and the task's limits; 0 means none.
fn limit(plugin: Option<Duration>, task_seconds: Option<i64>) -> Option<Duration> {
    let task = task_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let task = task.map(Duration::from_secs);
    let set = |limit: &Duration| !limit.is_zero();
    plugin.into_iter().chain(task).filter(set).min()
}

/// As extended JSON, which shows an unusable result.
fn reply(document: &Document) -> Reply {
    let value = |bson: &Bson| match bson {
        // JSON cannot express it.
        Bson::Double(number) if !number.is_finite() => {
            let name = if number.is_nan() { "NaN" } else { "Infinity" };
            let sign = if *number < 0.0 { "-" } else { "" };
            json!({ "$numberDouble": format!("{sign}{name}") })
        }
        other => json_shown(other, DateFormat::Iso),
    };
    Reply::new(document.iter().map(|(name, bson)| (name.clone(), value(bson))).collect())
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;
    use mongodb::bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_result_from_the_database_is_shown_as_extended_json() {
        let id = ObjectId::parse_str("571fac85ee63413233049fbd").unwrap();
        for (status, shown) in [
            (Bson::Int64(7), r#"{"status":7}"#),
            (Bson::Double(f64::INFINITY), r#"{"status":{"$numberDouble":"Infinity"}}"#),
            (Bson::Double(f64::NEG_INFINITY), r#"{"status":{"$numberDouble":"-Infinity"}}"#),
            (Bson::ObjectId(id), r#"{"status":{"$oid":"571fac85ee63413233049fbd"}}"#),
        ] {
            assert_eq!(reply(&doc! { "_id": id, "status": status }).to_text(), shown);
        }
    }

    #[test]
    fn the_shorter_limit_counts_and_zero_is_none() {
        let second = Duration::from_secs;
        for (plugin, task, expected) in [
            (None, None, None),
            (Some(second(5)), None, Some(second(5))),
            (None, Some(3), Some(second(3))),
            (Some(second(5)), Some(3), Some(second(3))),
            (Some(second(5)), Some(9), Some(second(5))),
            (Some(second(5)), Some(0), Some(second(5))),
            (Some(Duration::ZERO), Some(-1), None),
        ] {
            assert_eq!(limit(plugin, task), expected, "{plugin:?} {task:?}");
        }
    }
}
