//! Writes the end of a task: its output first, then the status and everything else in one update.
//! If the database is unavailable, it waits; if the database refuses, it writes less until
//! accepted.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use super::end_signal::EndSignal;
use super::outcome::{Exit, Verdict};
use super::run::{RunEnd, TaskRun};
use crate::database::{DbError, Ending, Finished};
use crate::gridfs::{self, ChunkForm, Output};

/// Pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Nothing waits for the database any more.
pub(crate) struct GaveUp;

/// Repeats while the database is unavailable. Callers decide when that takes too long.
pub(crate) async fn until_back<T, F>(
    end_signal: &EndSignal,
    ask: impl Fn() -> F,
) -> Result<Result<T, DbError>, GaveUp>
where
    F: Future<Output = Result<T, DbError>>,
{
    let mut logged = false;
    loop {
        let answer = tokio::select! {
            answer = ask() => answer,
            () = end_signal.given_up() => return Err(GaveUp),
        };
        match answer {
            Err(DbError::Away(reason)) => {
                if !logged {
                    tracing::warn!(reason, "the database is unavailable; writes are waiting");
                }
                logged = true;
            }
            answer => return Ok(answer),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = end_signal.given_up() => return Err(GaveUp),
        }
    }
}

/// Retries until it is done, even when refused: an operator has to fix the cause.
pub(super) async fn until_done<T, F>(
    end_signal: &EndSignal,
    ask: impl Fn() -> F,
) -> Result<T, GaveUp>
where
    F: Future<Output = Result<T, DbError>>,
{
    let mut logged = None;
    loop {
        match until_back(end_signal, &ask).await? {
            Ok(done) => return Ok(done),
            Err(error) if logged.as_ref() != Some(&error) => {
                tracing::error!(%error, "cannot write the end of a task yet");
                logged = Some(error);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = end_signal.given_up() => return Err(GaveUp),
        }
    }
}

impl TaskRun<'_> {
    /// Stores the output and ends the task.
    pub(super) async fn end(
        &self,
        verdict: Verdict,
        exit: Option<&Exit>,
    ) -> Result<RunEnd, GaveUp> {
        let Verdict { status, stdout, stderr } = verdict;
        let given = (stdout.is_some(), stderr.is_some());
        let form = ChunkForm::of(self.context.database.dialect());
        let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
        let stored = until_back(&self.end_signal, || {
            let output = Output {
                task: self.claim.id(),
                held: self.held(),
                stdout: &stdout,
                stderr: &stderr,
            };
            let (context, now) = (self.context, self.context.clock.now());
            gridfs::store(&context.database, form, context.gfs, output, now)
        });
        let (stdout, stderr) = match stored.await? {
            Ok((stdout, stderr)) => (or_null(stdout, given.0), or_null(stderr, given.1)),
            Err(error) => {
                // Users look for errors, so they stay in the task if they fit.
                let fits = given.1 && gridfs::fits(self.held(), &stderr);
                let stderr = if fits { Bson::String(stderr) } else { Bson::Null };
                return self.finish_without(status, &error, stderr, exit).await;
            }
        };
        self.finish(status, stdout, stderr, exit).await
    }

    pub(super) async fn finish(
        &self,
        status: i32,
        stdout: Bson,
        stderr: Bson,
        exit: Option<&Exit>,
    ) -> Result<RunEnd, GaveUp> {
        let whole = ending(status, stdout, stderr.clone(), exit, true);
        match self.try_finish(&whole).await? {
            Ok(ran) => Ok(ran),
            Err(error) => self.finish_without(status, &error, stderr, exit).await,
        }
    }

    /// Ends the task without the output that the database refused, and says so in the task. The
    /// status is never lost; `stderr` is dropped only if it is refused, too.
    async fn finish_without(
        &self,
        status: i32,
        error: &DbError,
        stderr: Bson,
        exit: Option<&Exit>,
    ) -> Result<RunEnd, GaveUp> {
        tracing::error!(task = %self.claim.id(), %error, "cannot save the output of a task");
        let why = Bson::String(format!("the output could not be saved: {error}"));
        let mut less = ending(status, why, stderr, exit, false);
        let mut logged = None;
        loop {
            match self.try_finish(&less).await? {
                Ok(ran) => return Ok(ran),
                Err(error) if logged.as_ref() != Some(&error) => {
                    tracing::error!(task = %self.claim.id(), %error, "cannot end a task");
                    logged = Some(error);
                }
                Err(_) => {}
            }
            less.stderr = Bson::Null;
            // Refused even without output: an operator has to fix the cause.
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.end_signal.given_up() => return Err(GaveUp),
            }
        }
    }

    async fn try_finish(&self, ending: &Ending) -> Result<Result<RunEnd, DbError>, GaveUp> {
        let finish = || {
            let (context, now) = (self.context, self.context.clock.now());
            context.database.claim_finish(self.claim, ending, now)
        };
        let id = self.claim.id();
        let finished = until_back(&self.end_signal, finish).await?;
        Ok(finished.map(|finished| match finished {
            Finished::Ended => {
                tracing::info!(task = %id, status = ending.status, "task ended");
                RunEnd::Ended(ending.status)
            }
            Finished::Again => {
                tracing::info!(task = %id, status = ending.status, "task failed, will be retried");
                RunEnd::Again
            }
            Finished::NotMine => {
                tracing::warn!(task = %id, status = ending.status, "a task is no longer ours");
                RunEnd::Lost
            }
        }))
    }

    /// Size of the task's document without output, in bytes.
    fn held(&self) -> usize {
        let mut task: Document = self.task.clone();
        task.remove("stdout");
        task.remove("stderr");
        task.to_vec().map_or(0, |bytes| bytes.len())
    }
}

fn ending(status: i32, stdout: Bson, stderr: Bson, exit: Option<&Exit>, complete: bool) -> Ending {
    let (cmd_exit, cmd_err) = (exit.map(Exit::number), exit.map(Exit::text));
    Ending { status, stdout, stderr, cmd_exit, cmd_err, complete }
}

/// Output that the plugin did not provide is null, unless a file exists for it.
fn or_null(stored: Bson, given: bool) -> Bson {
    match stored {
        Bson::String(_) if !given => Bson::Null,
        stored => stored,
    }
}
