//! Cancelling and retrying a task on a user's request.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError, no_boot, owning_boot};
use crate::dialect::Dialect;
use crate::doc::{at, whole};
use crate::status::{ACTIVE, BLOCKED, CANCELLED, CLAIMED, ORPHANED, QUEUED, RUNNING, SUCCEEDED};

/// How often to retry when the task changes at the same time.
const TRIES_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It was waiting and is now cancelled.
    Done,
    /// One of our nodes runs it and was asked to end it.
    Asked,
    /// A foreign node has it and cannot be asked to end it.
    Foreign,
    /// It is neither waiting nor running.
    Not(Bson),
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Retried {
    /// It is queued again; this is its previous document.
    Queued(Document),
    /// It has not ended yet.
    Not(Bson),
    Missing,
}

impl Database {
    /// Cancels a waiting task, or asks the node of ours that runs it to end it.
    ///
    /// The filter matches only the observed state: a delayed request must not end a later run.
    pub(crate) async fn task_cancel(
        &self,
        id: ObjectId,
        now: DateTime,
    ) -> Result<Cancelled, DbError> {
        for _ in 0..TRIES_MAX {
            let Some(task) = self.task(id).await? else {
                return Ok(Cancelled::Missing);
            };
            let status = task.get("status").cloned().unwrap_or(Bson::Null);
            let number = whole(&status).filter(|_| status.as_str().is_none());
            let (filter, set, done) = match number.and_then(|status| i32::try_from(status).ok()) {
                Some(QUEUED | BLOCKED) => {
                    let cancel = doc! { "status": CANCELLED, "mtime": now };
                    (unchanged(&task, &["status", "mtime"]), cancel, Cancelled::Done)
                }
                Some(CLAIMED | RUNNING) if owning_boot(&task).is_some() => {
                    let mut run = unchanged(&task, &["node", "windlass.boot", "windlass.run"]);
                    run.insert("status", doc! { "$in": ACTIVE.to_vec() });
                    (run, doc! { "windlass.cancel": true }, Cancelled::Asked)
                }
                Some(CLAIMED | RUNNING) => return Ok(Cancelled::Foreign),
                _ => return Ok(Cancelled::Not(status)),
            };
            let tasks = self.tasks_collection();
            let changed = self.ask(tasks.update_one(filter, doc! { "$set": set })).await?;
            if changed.matched_count == 1 {
                return Ok(done);
            }
        }
        Err(DbError::Away("the task changes too fast".to_owned()))
    }

    /// Queues a task again that has ended, was cancelled or was orphaned. Its output is removed
    /// from the document; the caller removes output files.
    ///
    /// The filter matches only the observed state: a delayed request must not run it a second time.
    /// A task that its node has not closed yet is still running, whatever its plugin wrote, unless
    /// that node's boot has no entry any more and so will never close it.
    pub(crate) async fn task_retry(&self, id: ObjectId, now: DateTime) -> Result<Retried, DbError> {
        let Some(seen) = self.task(id).await? else {
            return Ok(Retried::Missing);
        };
        let dialect = self.dialect();
        let status = seen.get("status").cloned().unwrap_or(Bson::Null);
        let number = whole(&status).filter(|_| status.as_str().is_none());
        let has_ended = |number: i64| {
            number >= SUCCEEDED.into() || [CANCELLED, ORPHANED].map(i64::from).contains(&number)
        };
        if !number.is_some_and(has_ended) {
            return Ok(Retried::Not(status));
        }
        if let Some(boot) = owning_boot(&seen)
            && self.has_entry(boot).await?
        {
            return Ok(Retried::Not(status));
        }
        let fields = ["status", "mtime", "windlass.boot", "windlass.last_run"];
        let mut filter = unchanged(&seen, &fields);
        if at(&seen, "windlass.boot").is_none() {
            filter.insert("windlass.boot", no_boot());
        }
        let update = doc! {
            "$set": {
                "node": dialect.unclaimed(), "status": QUEUED, "mtime": now,
                "stdout": Bson::Null, "stderr": Bson::Null,
            },
            "$unset": {
                "complete": "", "cmdExit": "", "cmdErr": "",
                "windlass.boot": "", "windlass.node": "", "windlass.run": "", "windlass.last": "",
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

/// A filter that matches the task only while these fields are unchanged. Missing fields of ours are
/// not compared: inside a value that is not a document they would never be null.
fn unchanged(task: &Document, fields: &[&str]) -> Document {
    let same = |field: &str| match at(task, field) {
        None if field.contains('.') => None,
        value => Some(doc! { "$eq": value.cloned().unwrap_or(Bson::Null) }),
    };
    let fields = ["_id"].into_iter().chain(fields.iter().copied());
    fields.filter_map(|field| Some((field.to_owned(), Bson::from(same(field)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_compared_as_a_value() {
        let task = doc! { "_id": 1, "mtime": { "$oid": "x" }, "windlass": { "run": "r" } };
        let filter = unchanged(&task, &["status", "mtime", "windlass.run", "windlass.last_run"]);
        let wanted = doc! {
            "_id": { "$eq": 1 }, "status": { "$eq": Bson::Null },
            "mtime": { "$eq": { "$oid": "x" } }, "windlass.run": { "$eq": "r" },
        };
        assert_eq!(filter, wanted);
    }
}
