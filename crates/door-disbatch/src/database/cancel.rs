//! What a user asks of a task: to end it, or to have it run again.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError};
use crate::dialect::Dialect;
use crate::doc::{at, whole};
use crate::status::{ACTIVE, BLOCKED, CANCELLED, CLAIMED, ORPHANED, QUEUED, RUNNING, SUCCEEDED};

/// How often a task may change under our hands before we give up.
const TRIES_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// It waited, and is cancelled now.
    Done,
    /// One of our nodes has it, and is asked to end it.
    Asked,
    /// A foreign node has it, and nobody can ask that to end it.
    Foreign,
    /// It is not waiting and not running.
    Not(Bson),
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Retried {
    /// It waits again; this is how it was before.
    Queued(Document),
    /// It has not ended.
    Not(Bson),
    Missing,
}

impl Database {
    pub async fn task_cancel(&self, id: ObjectId, now: DateTime) -> Result<Cancelled, DbError> {
        let tasks = self.tasks_collection();
        let waiting = doc! { "_id": id, "status": { "$in": [QUEUED, BLOCKED] } };
        let ours = doc! {
            "_id": id, "status": { "$in": ACTIVE.to_vec() }, "windlass.boot": { "$type": "string" },
        };
        for _ in 0..TRIES_MAX {
            let cancel = doc! { "$set": { "status": CANCELLED, "mtime": now } };
            if self.ask(tasks.update_one(waiting.clone(), cancel)).await?.matched_count == 1 {
                return Ok(Cancelled::Done);
            }
            let mark = doc! { "$set": { "windlass.cancel": true } };
            if self.ask(tasks.update_one(ours.clone(), mark)).await?.matched_count == 1 {
                return Ok(Cancelled::Asked);
            }
            let Some(task) = self.task(id).await? else {
                return Ok(Cancelled::Missing);
            };
            let status = task.get("status").cloned().unwrap_or(Bson::Null);
            let of_ours = at(&task, "windlass.boot").is_some_and(|boot| boot.as_str().is_some());
            match whole(&status).and_then(|status| i32::try_from(status).ok()) {
                Some(CLAIMED | RUNNING) if !of_ours => return Ok(Cancelled::Foreign),
                // It changed between the questions.
                Some(CLAIMED | RUNNING | QUEUED | BLOCKED) if status.as_str().is_none() => {}
                _ => return Ok(Cancelled::Not(status)),
            }
        }
        Err(DbError::Away("the task changes too fast".to_owned()))
    }

    /// Puts a task back that has ended, was cancelled or was orphaned. Its output is gone from the
    /// document then; files of it are the caller's to remove.
    pub async fn task_retry(
        &self,
        id: ObjectId,
        dialect: Dialect,
        now: DateTime,
    ) -> Result<Retried, DbError> {
        let filter = doc! {
            "_id": id,
            "$or": [
                { "status": { "$gte": SUCCEEDED } },
                { "status": { "$in": [CANCELLED, ORPHANED] } },
            ],
        };
        let update = doc! {
            "$set": {
                "node": dialect.unclaimed(), "status": QUEUED, "mtime": now,
                "stdout": Bson::Null, "stderr": Bson::Null,
            },
            "$unset": {
                "complete": "", "cmdExit": "", "cmdErr": "",
                "windlass.boot": "", "windlass.run": "", "windlass.last": "",
                "windlass.last_run": "", "windlass.cancel": "", "windlass.started": "",
                "windlass.ended": "",
            },
        };
        let before = self.one(self.tasks_collection().find_one_and_update(filter, update)).await?;
        if let Some(before) = before {
            let ended = before.get("status").and_then(whole).is_some_and(|status| status >= 1);
            if let (Dialect::Seed, true, Some(Bson::ObjectId(queue))) =
                (dialect, ended, before.get("queue"))
            {
                self.counter_add(*queue, 0, 1).await;
            }
            return Ok(Retried::Queued(before));
        }
        Ok(match self.task(id).await? {
            Some(task) => Retried::Not(task.get("status").cloned().unwrap_or(Bson::Null)),
            None => Retried::Missing,
        })
    }
}
