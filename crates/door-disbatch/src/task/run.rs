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

use super::ender::Ender;
use super::handover::{self, is_by_file};
use super::outcome::{self, Answer, Exit, HandedOff, Reply, Verdict, Why};
use super::temp::{Place, RESPONSE_BYTES_MAX, Temp};
use super::write::{self, GaveUp, until_back, until_done};
use crate::config::{Gfs, Plugin, PluginKind};
use crate::database::{Claim, Clock, Database, DbError, Me, Run};
use crate::doc::{Queue, Task, Times, json_shown};
use crate::status;

/// What is logged of each of the program's own streams.
const LOG_BYTES_MAX: usize = 16 * 1024;
/// Between two looks at whether a fence is there.
const FENCE_PAUSE: Duration = Duration::from_millis(50);

/// What every task of a node needs.
pub(crate) struct Parts {
    pub database: Database,
    pub launcher: Arc<dyn Launcher>,
    /// Absent for a task runner of a foreign node.
    pub fence: Option<Arc<dyn Fence>>,
    pub clock: Clock,
    pub temp: Arc<Temp>,
    pub gfs: Gfs,
    pub quiet: bool,
    /// The configuration that plugins are given.
    pub plugin_config: PathBuf,
}

/// A task to be run.
pub(crate) struct Work {
    pub me: Me,
    /// As it was claimed, with status -1.
    pub task: Document,
    pub queue: Queue,
    pub plugin: Plugin,
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    /// It stands in the database with this status.
    Ended(i32),
    /// It failed, and waits for another try.
    Again,
    /// Nothing was started; it may still be ours, claimed or as if it ran.
    NotStarted,
    /// It is not ours any more, and was left as it is.
    Lost,
    /// It ended, and the database was not there to be told.
    Unwritten,
}

/// Runs a claimed task. Waits for an unavailable database until it is asked to give up.
pub(crate) async fn run(parts: &Parts, work: Work, ender: Ender) -> Ran {
    let Work { me, task, queue, plugin } = work;
    let Some(run) = Run::of(&task) else {
        tracing::error!(queue = queue.name, "a claimed task lacks the fields of the claim");
        return Ran::Lost;
    };
    let claim = Claim::Node { me, run };
    if let Err(ran) = start(parts, &claim, &ender).await {
        return ran;
    }
    tracing::info!(task = %claim.id(), queue = queue.name, plugin = plugin.name, "task started");
    run_started(parts, &claim, &task, Ok(plugin), ender).await
}

async fn start(parts: &Parts, claim: &Claim, ender: &Ender) -> Result<(), Ran> {
    let mut told = None;
    loop {
        if ender.was_asked().is_some() {
            return Err(Ran::NotStarted);
        }
        match parts.database.claim_start(claim, parts.clock.now()).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                tracing::warn!(task = %claim.id(), "a task was taken from us before its start");
                return Err(Ran::Lost);
            }
            Err(error) => {
                if told.as_ref() != Some(&error) {
                    tracing::warn!(task = %claim.id(), %error, "cannot start a task yet");
                }
                told = Some(error);
                tokio::time::sleep(write::PAUSE).await;
            }
        }
    }
}

/// From running to ended. `plugin` is an error when none can be had, with the reason.
pub(super) async fn run_started(
    parts: &Parts,
    claim: &Claim,
    task: &Document,
    plugin: Result<Plugin, String>,
    ender: Ender,
) -> Ran {
    let place = parts.temp.place();
    let one = One { parts, claim, task, ender, place: place.clone() };
    let ran = one.run(plugin).await;
    // It has nothing to tell, whether it ended or not.
    let _ = spawn_blocking(move || place.remove()).await;
    match ran {
        Ok(ran) => ran,
        Err(GaveUp) => {
            tracing::error!(task = %claim.id(), "cannot write the end of a task");
            Ran::Unwritten
        }
    }
}

/// A task that runs.
pub(super) struct One<'a> {
    pub(super) parts: &'a Parts,
    pub(super) claim: &'a Claim,
    pub(super) task: &'a Document,
    pub(super) ender: Ender,
    /// Its files.
    place: Place,
}

impl One<'_> {
    async fn run(self, plugin: Result<Plugin, String>) -> Result<Ran, GaveUp> {
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
        // A disk or a database that has no room for it may take its time.
        let mut ender = self.ender.clone();
        let handed = tokio::select! {
            handed = self.hand_over(&plugin) => handed?,
            why = ender.asked() => return self.not_launched(why).await,
        };
        let task_word = match handed {
            Ok(word) => word,
            Err(why) => return self.end(Verdict::failed(why), None).await,
        };
        let words =
            handover::words(plugin.kind, &self.parts.plugin_config, &task_word, self.parts.quiet);
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
        // Until the task has ended.
        let _room = self.room(plugin.kind).await?;
        let answer = self.answer(plugin.kind).await?;
        let verdict = match why {
            Some(why) => outcome::cut_short(why, answer),
            None => outcome::judge(answer, &exit, &lossy(&launched.stderr)),
        };
        self.end(verdict, Some(&exit)).await
    }

    /// Makes ready what the plugin needs. Returns the word that names its task, or a failure.
    async fn hand_over(&self, plugin: &Plugin) -> Result<Result<String, String>, GaveUp> {
        let id = self.claim.id();
        if is_by_file(plugin.kind) {
            let json = handover::task_json(self.task);
            let place = self.place.clone();
            let write = move |temp: &Temp| {
                // An earlier try may have left a part.
                place.remove();
                temp.write_task(&place, id, json.as_bytes())
            };
            return Ok(match self.on_disk(write).await? {
                Ok(path) => Ok(path.display().to_string()),
                Err(error) => Err(format!("could not create task file: {error}")),
            });
        }
        if plugin.kind == PluginKind::Mongo {
            let remove = || self.parts.database.result_remove_old(id);
            let removed = until_back(&self.ender, remove).await?;
            if let Err(error) = removed {
                return Ok(Err(format!(
                    "could not delete any pre-existing result for task in 'results' collection: \
                     {error}"
                )));
            }
        }
        Ok(Ok(id.to_hex()))
    }

    /// Works with files, again and again while the machine is at a limit.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl Fn(&Temp) -> io::Result<T> + Clone + Send + 'static,
    ) -> Result<io::Result<T>, GaveUp> {
        let mut told = false;
        loop {
            let (temp, work) = (Arc::clone(&self.parts.temp), work.clone());
            let done = spawn_blocking(move || work(&temp)).await;
            let done = done.map_err(io::Error::other).and_then(|done| done);
            match &done {
                Err(error) if is_exhaustion(error) => {
                    if !told {
                        let task = self.claim.id();
                        tracing::warn!(%task, %error, "a task waits for its files");
                    }
                    told = true;
                }
                _ => return Ok(done),
            }
            tokio::select! {
                () = tokio::time::sleep(write::PAUSE) => {}
                () = self.ender.given_up() => return Err(GaveUp),
            }
        }
    }

    /// Runs the program to its end, and says why if it was ended. An error says why it was never
    /// started.
    async fn launch(
        &self,
        plugin: &Plugin,
        args: Vec<String>,
        limit: Option<Duration>,
    ) -> Result<(Launched, Option<Why>), Why> {
        let spec = LaunchSpec {
            program: plugin.program.display().to_string(),
            args,
            cwd: None,
            env: self.parts.fence.as_deref().map(Fence::mark).into_iter().collect(),
            input: Input::Ended,
            output_bytes_max: LOG_BYTES_MAX,
            time_limit: limit,
        };
        let mut told = false;
        loop {
            self.may_start().await?;
            let (launched, why) = self.launch_once(spec.clone()).await;
            if !launched.exhausted {
                return Ok((launched, why));
            }
            if !told {
                let failure = launched.failure.unwrap_or_default();
                tracing::warn!(task = %self.claim.id(), failure, "a task waits for its program");
            }
            told = true;
            tokio::time::sleep(write::PAUSE).await;
        }
    }

    /// Waits for a fence, without which nothing may be started; one that died is replaced at once.
    async fn may_start(&self) -> Result<(), Why> {
        loop {
            if let Some(why) = self.ender.was_asked() {
                return Err(why);
            }
            let Some(fence) = self.parts.fence.as_deref() else { return Ok(()) };
            match fence.process_id() {
                Some(_) if fence.allows() => return Ok(()),
                // Another node may have the task by now.
                Some(_) => return Err(Why::Fenced),
                None => tokio::time::sleep(FENCE_PAUSE).await,
            }
        }
    }

    async fn launch_once(&self, spec: LaunchSpec) -> (Launched, Option<Why>) {
        let mut ender = self.ender.clone();
        let fence = self.parts.fence.as_deref();
        let fired = fence.map(Fence::fired);
        let limit = spec.time_limit;
        let running = self.parts.launcher.launch(spec);
        let mut asked = None;
        let launched = loop {
            tokio::select! {
                launched = running.wait() => break launched,
                why = ender.asked(), if asked.is_none() => {
                    asked = Some(why);
                    running.kill_tree();
                }
            }
        };
        self.log(&launched);
        let fired = fence.is_some_and(|fence| Some(fence.fired()) != fired);
        let why = match (&Exit::of(&launched), launched.timed_out) {
            // It ended by itself before it could be ended.
            (Exit::Code(_) | Exit::NotStarted(_), _) => None,
            (_, true) => limit.map(Why::TimeLimit),
            (_, false) => asked.or(fired.then_some(Why::Fenced)),
        };
        (launched, why)
    }

    /// Nothing was started: a node releases the task; the caller of a runner expects its end.
    async fn not_launched(&self, why: Why) -> Result<Ran, GaveUp> {
        let Claim::Node { .. } = self.claim else {
            return self.end(outcome::cut_short(why, Answer::NoResult), None).await;
        };
        Ok(Ran::NotStarted)
    }

    /// Its own streams are not the task's output.
    fn log(&self, launched: &Launched) {
        for (stream, output) in [("stdout", &launched.stdout), ("stderr", &launched.stderr)] {
            if !output.bytes.is_empty() {
                let (text, dropped) = (lossy(output), output.dropped);
                tracing::info!(task = %self.claim.id(), stream, dropped, %text, "plugin wrote");
            }
        }
    }

    /// Waits until the answer may be held in memory, if it is large.
    async fn room(&self, kind: PluginKind) -> Result<Option<OwnedSemaphorePermit>, GaveUp> {
        if !is_by_file(kind) {
            return Ok(None);
        }
        let (place, id) = (self.place.clone(), self.claim.id());
        let bytes = spawn_blocking(move || place.response_bytes(id)).await.unwrap_or_default();
        tokio::select! {
            room = self.parts.temp.room_for(bytes) => Ok(room),
            () = self.ender.given_up() => Err(GaveUp),
        }
    }

    async fn answer(&self, kind: PluginKind) -> Result<Answer, GaveUp> {
        let id = self.claim.id();
        if is_by_file(kind) {
            let place = self.place.clone();
            let read = move |temp: &Temp| temp.read_response(&place, id, RESPONSE_BYTES_MAX);
            let read = self.on_disk(read).await?;
            return Ok(read.unwrap_or_else(|error| Answer::Unreadable(error.to_string())));
        }
        // Read and removed apart, because an answer may be lost on its way.
        let database = &self.parts.database;
        let read = until_back(&self.ender, || database.result(id)).await?;
        let removed = until_back(&self.ender, || database.result_remove(id)).await?;
        self.told(removed);
        Ok(match read {
            Ok(Some(document)) => Answer::Reply(reply(&document)),
            Ok(None) => Answer::NoResult,
            Err(error) => Answer::Unreadable(format!("'results' collection: {error}")),
        })
    }

    /// The plugin was to end the task itself; whatever it has left undone is done here.
    async fn end_handed_off(&self, exit: &Exit, why: Option<Why>) -> Result<Ran, GaveUp> {
        let database = &self.parts.database;
        let standing = until_done(&self.ender, || database.handed_over(self.claim)).await?;
        let Some(standing) = standing else { return Ok(Ran::Lost) };
        let task = reply(&standing);
        let verdict = match (outcome::judge_handoff(&task, exit), why) {
            (HandedOff::Done(status), _) => {
                let may_retry = status >= status::FAILED && self.has_retries();
                if !may_retry {
                    return self.keep_handed_off(exit, status).await;
                }
                return self.end_again(&standing, exit, status).await;
            }
            (HandedOff::Mended(_), Some(why)) => outcome::cut_short(why, Answer::Reply(task)),
            (HandedOff::Mended(verdict), None) => verdict,
        };
        self.take_back(&standing).await?;
        self.end(verdict, Some(exit)).await
    }

    async fn keep_handed_off(&self, exit: &Exit, status: i32) -> Result<Ran, GaveUp> {
        let (number, text) = (exit.number(), exit.text());
        let kept = until_done(&self.ender, || {
            let now = self.parts.clock.now();
            let exit = (number, text.as_str());
            self.parts.database.claim_finish_handed_over(self.claim, exit, now)
        });
        Ok(if kept.await? { Ran::Ended(status) } else { Ran::Lost })
    }

    /// It failed and has tries left: it ends here with what the plugin wrote.
    async fn end_again(
        &self,
        standing: &Document,
        exit: &Exit,
        status: i32,
    ) -> Result<Ran, GaveUp> {
        self.take_back(standing).await?;
        let output = |name| standing.get(name).cloned().unwrap_or(Bson::Null);
        self.finish(status, output("stdout"), output("stderr"), Some(exit)).await
    }

    async fn take_back(&self, standing: &Document) -> Result<(), GaveUp> {
        let from = standing.get("status");
        let back = || self.parts.database.claim_take_back(self.claim, from);
        // Whether it is ours is seen when it is ended.
        until_done(&self.ender, back).await.map(drop)
    }

    fn has_retries(&self) -> bool {
        let is_ours = matches!(self.claim, Claim::Node { .. });
        is_ours && Task::read(self.task).is_ok_and(|task| task.retries > 0)
    }

    fn told<T>(&self, answer: Result<T, DbError>) -> Option<T> {
        answer.inspect_err(|error| tracing::error!(task = %self.claim.id(), %error, "refused")).ok()
    }
}

fn lossy(output: &Output) -> Cow<'_, str> {
    String::from_utf8_lossy(&output.bytes)
}

/// The shorter one of the plugin's and the task's own; 0 is none.
fn limit(plugin: Option<Duration>, task_seconds: Option<i64>) -> Option<Duration> {
    let task = task_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let task = task.map(Duration::from_secs);
    let set = |limit: &Duration| !limit.is_zero();
    plugin.into_iter().chain(task).filter(set).min()
}

/// As extended JSON, in which the plugin's result is shown when it cannot be used.
fn reply(document: &Document) -> Reply {
    let value = |bson: &Bson| match bson {
        // JSON has no form for it.
        Bson::Double(number) if !number.is_finite() => {
            let name = if number.is_nan() { "NaN" } else { "Infinity" };
            let sign = if *number < 0.0 { "-" } else { "" };
            json!({ "$numberDouble": format!("{sign}{name}") })
        }
        other => json_shown(other, Times::Iso),
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
