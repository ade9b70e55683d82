//! The end of a task: its status and its output in one update.

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::{Database, DbError, NodeBoot, Run};
use crate::dialect::Dialect;
use crate::doc::{at, whole};
use crate::status::{ACTIVE, FAILED, QUEUED, SUCCEEDED};

/// How a task ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ending {
    pub status: i32,
    /// Text, null, or the id of a file.
    pub stdout: Bson,
    pub stderr: Bson,
    pub cmd_exit: Option<i32>,
    pub cmd_err: Option<String>,
    /// Whether all output was saved.
    pub complete: bool,
}

/// The result of ending a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    /// Its end is stored.
    Ended,
    /// It failed with retries left and is queued again.
    Again,
    /// It is no longer ours; nothing was changed.
    NotMine,
}

impl Database {
    /// Ends a task. May be repeated after an error: a completed end is recognised.
    pub(crate) async fn finish(
        &self,
        run: &Run,
        me: &NodeBoot,
        ending: &Ending,
        now: DateTime,
    ) -> Result<Finished, DbError> {
        if ending.status >= FAILED {
            let mut filter = run.filter(me, doc! { "$in": ACTIVE.to_vec() });
            filter.insert("windlass.retries", doc! { "$gt": 0 });
            filter.insert("windlass.cancel", doc! { "$ne": true });
            let update = update(ending, run, me, Some(self.dialect()), now);
            if self.ask(self.tasks_collection().update_one(filter, update)).await?.matched_count
                == 1
            {
                return Ok(Finished::Again);
            }
        }
        let filter = run.filter(me, doc! { "$in": ACTIVE.to_vec() });
        let tasks = self.tasks_collection();
        let change = tasks
            .find_one_and_update(filter, update(ending, run, me, None, now))
            .projection(doc! { "queue": 1 })
            .return_document(ReturnDocument::After);
        match self.one(change).await? {
            Some(task) => {
                self.counter_ended(&task, ending.status).await;
                Ok(Finished::Ended)
            }
            None => self.finished_before(run, me, ending).await,
        }
    }

    /// Whether an earlier request, whose answer was lost, has already ended this run.
    async fn finished_before(
        &self,
        run: &Run,
        me: &NodeBoot,
        ending: &Ending,
    ) -> Result<Finished, DbError> {
        match self.ended_run(run, me).await? {
            None => Ok(Finished::NotMine),
            Some(task) if task.get("status").and_then(whole) == Some(ending.status.into()) => {
                // That request failed before it updated the counter.
                self.counter_ended(&task, ending.status).await;
                Ok(Finished::Ended)
            }
            Some(_) => Ok(Finished::Again),
        }
    }

    /// Closes a task whose program has written status and output itself. `None` if the program has
    /// not, or the task is no longer ours.
    pub(crate) async fn finish_handed_over(
        &self,
        run: &Run,
        me: &NodeBoot,
        now: DateTime,
    ) -> Result<Option<Document>, DbError> {
        let filter = run.filter(me, doc! { "$gte": SUCCEEDED });
        let update = doc! {
            "$set": {
                "mtime": now, "windlass.last": &me.boot, "windlass.last_run": &run.token,
                "windlass.ended": now,
            },
            "$unset": { "windlass.boot": "", "windlass.cancel": "" },
        };
        let tasks = self.tasks_collection();
        let change =
            tasks.find_one_and_update(filter, update).return_document(ReturnDocument::After);
        if let Some(task) = self.one(change).await? {
            self.counter_ended(&task, SUCCEEDED).await;
            return Ok(Some(task));
        }
        let ended = self.ended_run(run, me).await?;
        if let Some(task) = &ended {
            // That request failed before it updated the counter.
            self.counter_ended(task, SUCCEEDED).await;
        }
        Ok(ended)
    }

    /// The task, if this run was its last one and has ended.
    async fn ended_run(&self, run: &Run, me: &NodeBoot) -> Result<Option<Document>, DbError> {
        let filter = doc! {
            "_id": run.id, "windlass.last": &me.boot, "windlass.last_run": &run.token,
        };
        self.one(self.tasks_collection().find_one(filter)).await
    }

    pub(super) async fn counter_ended(&self, task: &Document, status: i32) {
        if let (Dialect::Seed, true, Some(Bson::ObjectId(queue))) =
            (self.dialect(), status >= SUCCEEDED, at(task, "queue"))
        {
            self.counter_add(*queue, 0, -1).await;
        }
    }
}

/// With `again`, the task is queued again in that dialect and keeps its output until its next end.
fn update(
    ending: &Ending,
    run: &Run,
    me: &NodeBoot,
    again: Option<Dialect>,
    now: DateTime,
) -> Document {
    let mut set = doc! {
        "status": ending.status,
        "stdout": &ending.stdout,
        "stderr": &ending.stderr,
        "complete": ending.complete,
        "mtime": now,
        "windlass.last": &me.boot,
        "windlass.last_run": &run.token,
        "windlass.ended": now,
    };
    let mut unset = doc! { "windlass.boot": "", "windlass.cancel": "" };
    match ending.cmd_exit {
        Some(exit) => drop(set.insert("cmdExit", exit)),
        None => drop(unset.insert("cmdExit", "")),
    }
    match &ending.cmd_err {
        Some(error) => drop(set.insert("cmdErr", error)),
        None => drop(unset.insert("cmdErr", "")),
    }
    let Some(dialect) = again else {
        return doc! { "$set": set, "$unset": unset };
    };
    set.insert("status", QUEUED);
    set.insert("node", dialect.unclaimed());
    doc! { "$set": set, "$unset": unset, "$inc": { "windlass.retries": -1 } }
}
