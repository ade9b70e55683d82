//! The owner of a running task, and with it the filter of every change: a task of one of our nodes
//! is identified by boot and run, that of a foreign node which called our task runner only by the
//! node's name. Also the changes that a plugin makes to the database itself.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::finish::{Ending, Finished};
use super::{Database, DbError, NodeBoot, Run, owned_by_us};
use crate::status::{CLAIMED, RUNNING, SUCCEEDED};

/// A claimed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Claimed by one of our nodes.
    Node { me: NodeBoot, run: Run },
    /// Claimed by a possibly foreign node, which called our task runner for it.
    Runner { node: String, id: ObjectId },
}

impl Claim {
    pub(crate) fn id(&self) -> ObjectId {
        match self {
            Self::Node { run, .. } => run.id,
            Self::Runner { id, .. } => *id,
        }
    }

    /// Without the status.
    fn filter(&self) -> Document {
        match self {
            Self::Node { me, run } => doc! {
                "_id": run.id, "node": &me.node,
                "windlass.boot": &me.boot, "windlass.run": &run.token,
            },
            // A task of one of our nodes never belongs to a runner.
            Self::Runner { node, id } => {
                doc! { "_id": id, "node": node, "$nor": [owned_by_us(node)] }
            }
        }
    }

    fn filter_at(&self, status: i32) -> Document {
        let mut filter = self.filter();
        filter.insert("status", status);
        filter
    }
}

impl Database {
    /// Marks it as running. False: it is no longer ours and must not run. May be repeated after a
    /// lost answer. A runner must then pass the same time, by which it recognises its own write,
    /// because it leaves no mark of ours in a foreign task.
    pub(crate) async fn claim_start(&self, claim: &Claim, now: DateTime) -> Result<bool, DbError> {
        match claim {
            Claim::Node { me, run } => self.start(run, me, now).await,
            Claim::Runner { .. } => {
                let set = doc! { "$set": { "status": RUNNING, "mtime": now } };
                let tasks = self.tasks_collection();
                let update = tasks.update_one(claim.filter_at(CLAIMED), set);
                if self.ask(update).await?.matched_count == 1 {
                    return Ok(true);
                }
                // The answer to an earlier try may have been lost on its way.
                let mut started = claim.filter_at(RUNNING);
                started.insert("mtime", now);
                Ok(self.one(tasks.find_one(started)).await?.is_some())
            }
        }
    }

    /// Ends it, with status and output in one update.
    pub(crate) async fn claim_finish(
        &self,
        claim: &Claim,
        ending: &Ending,
        now: DateTime,
    ) -> Result<Finished, DbError> {
        let Claim::Node { me, run } = claim else {
            return self.runner_finish(claim, ending, now).await;
        };
        self.finish(run, me, ending, now).await
    }

    async fn runner_finish(
        &self,
        claim: &Claim,
        ending: &Ending,
        now: DateTime,
    ) -> Result<Finished, DbError> {
        let mut set = doc! {
            "status": ending.status, "stdout": &ending.stdout, "stderr": &ending.stderr,
            "complete": ending.complete, "mtime": now,
        };
        set.extend(exit_fields(ending));
        let tasks = self.tasks_collection();
        let change = tasks
            .find_one_and_update(claim.filter_at(RUNNING), doc! { "$set": set })
            .projection(doc! { "queue": 1 });
        let Some(task) = self.one(change).await? else {
            // The answer to an earlier try may have been lost on its way.
            let done = self.one(tasks.find_one(claim.filter_at(ending.status))).await?;
            let Some(done) = done else { return Ok(Finished::NotMine) };
            self.counter_ended(&done, ending.status).await;
            return Ok(Finished::Ended);
        };
        self.counter_ended(&task, ending.status).await;
        Ok(Finished::Ended)
    }

    /// The document of a task whose plugin ends it itself. `None` if it is no longer ours.
    pub(crate) async fn handed_over(&self, claim: &Claim) -> Result<Option<Document>, DbError> {
        let fields = doc! { "_id": 0, "status": 1, "stdout": 1, "stderr": 1 };
        self.one(self.tasks_collection().find_one(claim.filter()).projection(fields)).await
    }

    /// Closes a task whose plugin has written status and output itself. False: it is no longer
    /// ours.
    pub(crate) async fn claim_finish_handed_over(
        &self,
        claim: &Claim,
        exit: (i32, &str),
        now: DateTime,
    ) -> Result<bool, DbError> {
        let (number, text) = exit;
        let mut set = doc! { "cmdExit": number, "cmdErr": text };
        match claim {
            Claim::Node { me, run } => {
                let tasks = self.tasks_collection();
                self.ask(tasks.update_one(claim.filter(), doc! { "$set": set })).await?;
                Ok(self.finish_handed_over(run, me, now).await?.is_some())
            }
            Claim::Runner { .. } => {
                set.insert("mtime", now);
                let mut filter = claim.filter();
                filter.insert("status", doc! { "$gte": SUCCEEDED });
                let tasks = self.tasks_collection();
                let change = tasks.find_one_and_update(filter, doc! { "$set": set });
                let Some(task) = self.one(change.projection(doc! { "queue": 1 })).await? else {
                    return Ok(false);
                };
                self.counter_ended(&task, SUCCEEDED).await;
                Ok(true)
            }
        }
    }

    /// Marks a task as running again after its plugin ended it badly, so that it can be ended
    /// properly. `from` is the observed status, so that a delayed change does no harm.
    pub(crate) async fn claim_take_back(
        &self,
        claim: &Claim,
        from: Option<&Bson>,
    ) -> Result<bool, DbError> {
        let mut filter = claim.filter();
        match from {
            Some(status) => filter.insert("status", doc! { "$eq": status }),
            None => filter.insert("status", doc! { "$exists": false }),
        };
        let update = doc! { "$set": { "status": RUNNING } };
        let tasks = self.tasks_collection();
        Ok(self.ask(tasks.update_one(filter, update)).await?.matched_count == 1)
    }

    /// The result that a plugin wrote for a task to `results`.
    pub(crate) async fn result(&self, task: ObjectId) -> Result<Option<Document>, DbError> {
        self.one(self.collection("results").find_one(doc! { "_id": task })).await
    }

    /// Removes the result of an earlier run. Sends nothing if there is none: a delayed delete might
    /// remove the new result.
    pub(crate) async fn result_remove_old(&self, task: ObjectId) -> Result<(), DbError> {
        match self.result(task).await? {
            Some(_) => self.result_remove(task).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn result_remove(&self, task: ObjectId) -> Result<(), DbError> {
        self.ask(self.collection("results").delete_one(doc! { "_id": task })).await?;
        Ok(())
    }
}

fn exit_fields(ending: &Ending) -> Document {
    let mut fields = Document::new();
    if let Some(exit) = ending.cmd_exit {
        fields.insert("cmdExit", exit);
    }
    if let Some(error) = &ending.cmd_err {
        fields.insert("cmdErr", error);
    }
    fields
}
