//! Writes the end of a task: its output first, then the status and everything else in one update.
//! If the database is unavailable, it waits; if the database refuses, it writes less until
//! accepted.

use std::time::Duration;

use mongodb::bson::{Bson, Document};

use super::ender::Ender;
use super::outcome::{Exit, Verdict};
use super::run::{One, Ran};
use crate::database::{DbError, Ending, Finished};
use crate::gridfs::{self, Form, Output};

/// Between two tries.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The database is no longer waited for.
pub(crate) struct GaveUp;

/// Asks until the database is there. Only others say when that takes too long.
pub(crate) async fn until_back<T, F>(
    ender: &Ender,
    ask: impl Fn() -> F,
) -> Result<Result<T, DbError>, GaveUp>
where
    F: Future<Output = Result<T, DbError>>,
{
    let mut told = false;
    loop {
        let answer = tokio::select! {
            answer = ask() => answer,
            () = ender.given_up() => return Err(GaveUp),
        };
        match answer {
            Err(DbError::Away(reason)) => {
                if !told {
                    tracing::warn!(reason, "the database is unavailable; writes are waiting");
                }
                told = true;
            }
            answer => return Ok(answer),
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = ender.given_up() => return Err(GaveUp),
        }
    }
}

/// Retries until it is done, even when refused: an operator has to fix the cause.
pub(super) async fn until_done<T, F>(ender: &Ender, ask: impl Fn() -> F) -> Result<T, GaveUp>
where
    F: Future<Output = Result<T, DbError>>,
{
    let mut told = None;
    loop {
        match until_back(ender, &ask).await? {
            Ok(done) => return Ok(done),
            Err(error) if told.as_ref() != Some(&error) => {
                tracing::error!(%error, "cannot write the end of a task yet");
                told = Some(error);
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = ender.given_up() => return Err(GaveUp),
        }
    }
}

impl One<'_> {
    /// Stores the output and ends the task.
    pub(super) async fn end(&self, verdict: Verdict, exit: Option<&Exit>) -> Result<Ran, GaveUp> {
        let Verdict { status, stdout, stderr } = verdict;
        let given = (stdout.is_some(), stderr.is_some());
        let form = Form::of(self.parts.database.dialect());
        let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
        let stored = until_back(&self.ender, || {
            let output = Output {
                task: self.claim.id(),
                held: self.held(),
                stdout: &stdout,
                stderr: &stderr,
            };
            let (parts, now) = (self.parts, self.parts.clock.now());
            gridfs::store(&parts.database, form, parts.gfs, output, now)
        });
        let (stdout, stderr) = match stored.await? {
            Ok((stdout, stderr)) => (or_null(stdout, given.0), or_null(stderr, given.1)),
            Err(error) => {
                // The errors are what is looked for, and stand in the task if they can.
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
    ) -> Result<Ran, GaveUp> {
        let whole = ending(status, stdout, stderr.clone(), exit, true);
        match self.try_finish(&whole).await? {
            Ok(ran) => Ok(ran),
            Err(error) => self.finish_without(status, &error, stderr, exit).await,
        }
    }

    /// What was refused is lost, and that is told; the status is not. `stderr` is given up only
    /// when it is refused too.
    async fn finish_without(
        &self,
        status: i32,
        error: &DbError,
        stderr: Bson,
        exit: Option<&Exit>,
    ) -> Result<Ran, GaveUp> {
        tracing::error!(task = %self.claim.id(), %error, "cannot save the output of a task");
        let why = Bson::String(format!("the output could not be saved: {error}"));
        let mut less = ending(status, why, stderr, exit, false);
        let mut told = None;
        loop {
            match self.try_finish(&less).await? {
                Ok(ran) => return Ok(ran),
                Err(error) if told.as_ref() != Some(&error) => {
                    tracing::error!(task = %self.claim.id(), %error, "cannot end a task");
                    told = Some(error);
                }
                Err(_) => {}
            }
            less.stderr = Bson::Null;
            // Refused even without output: an operator has to fix the cause.
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.ender.given_up() => return Err(GaveUp),
            }
        }
    }

    async fn try_finish(&self, ending: &Ending) -> Result<Result<Ran, DbError>, GaveUp> {
        let finish = || {
            let (parts, now) = (self.parts, self.parts.clock.now());
            parts.database.claim_finish(self.claim, ending, now)
        };
        let id = self.claim.id();
        let finished = until_back(&self.ender, finish).await?;
        Ok(finished.map(|finished| match finished {
            Finished::Ended => {
                tracing::info!(task = %id, status = ending.status, "task ended");
                Ran::Ended(ending.status)
            }
            Finished::Again => {
                tracing::info!(task = %id, status = ending.status, "task failed, will be retried");
                Ran::Again
            }
            Finished::NotMine => {
                tracing::warn!(task = %id, status = ending.status, "a task is no longer ours");
                Ran::Lost
            }
        }))
    }

    /// The bytes of the task's document without output.
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

/// What the plugin did not give is null, unless there is a file for it.
fn or_null(stored: Bson, given: bool) -> Bson {
    match stored {
        Bson::String(_) if !given => Bson::Null,
        stored => stored,
    }
}
