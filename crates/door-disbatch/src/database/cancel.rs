//! Cancelling and retrying a task on a user's request.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError, boot_of_ours, no_boot};
use crate::dialect::Dialect;
use crate::doc::{at, whole};
use crate::status::{ACTIVE, BLOCKED, CANCELLED, CLAIMED, ORPHANED, QUEUED, RUNNING, SUCCEEDED};

/// How often a task may change under our hands before we give up.
const TRIES_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It waited, and is cancelled now.
    Done,
    /// One of our nodes has it, and is asked to end it.
    Asked,
    /// A foreign node has it, which cannot be asked to end it.
    Foreign,
    /// It is not waiting and not running.
    Not(Bson),
    Missing,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Retried {
    /// It waits again; this is how it was before.
    Queued(Document),
    /// It has not ended.
    Not(Bson),
    Missing,
}

impl Database {
    /// Cancels a task that waits, and has one of our nodes end one that runs.
    ///
    /// What is asked holds for the task as it was seen: a request that is delayed on its way must
    /// not end a later run.
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
                    (as_seen(&task, &["status", "mtime"]), cancel, Cancelled::Done)
                }
                Some(CLAIMED | RUNNING) if boot_of_ours(&task).is_some() => {
                    let mut run = as_seen(&task, &["node", "windlass.boot", "windlass.run"]);
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

    /// Puts a task back that has ended, was cancelled or was orphaned. Its output is gone from the
    /// document then; files of it are the caller's to remove.
    ///
    /// It is put back as it was seen: a request that is delayed on its way must not run it once
    /// more. One whose node has not closed it yet still runs, whatever its plugin wrote; but a
    /// start that has no entry any more closes nothing.
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
        if let Some(boot) = boot_of_ours(&seen)
            && self.has_entry(boot).await?
        {
            return Ok(Retried::Not(status));
        }
        let fields = ["status", "mtime", "windlass.boot", "windlass.last_run"];
        let mut filter = as_seen(&seen, &fields);
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

/// A filter for the task that still has these fields as they are here. A field of ours that is not
/// there is not compared: within something that is no document it would never be null.
fn as_seen(task: &Document, fields: &[&str]) -> Document {
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
        let filter = as_seen(&task, &["status", "mtime", "windlass.run", "windlass.last_run"]);
        let wanted = doc! {
            "_id": { "$eq": 1 }, "status": { "$eq": Bson::Null },
            "mtime": { "$eq": { "$oid": "x" } }, "windlass.run": { "$eq": "r" },
        };
        assert_eq!(filter, wanted);
    }
}
