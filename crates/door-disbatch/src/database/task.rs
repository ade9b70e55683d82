//! Claiming, releasing and starting tasks in one of our nodes.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::{Database, DbError, NodeBoot};
use crate::doc::{Queue, Sort, at, whole};
use crate::status::{ACTIVE, CLAIMED, QUEUED, RUNNING};

/// Maximum number of a node's tasks that are read, and therefore the most it may have.
const HELD_MAX: usize = 100_000;

/// One claim of one task. Each claim has a new token, so that a late answer is never mistaken for
/// one about a later claim of the same task by the same node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub id: ObjectId,
    pub token: String,
    /// How often the task was started before.
    pub attempt: i64,
}

/// A task of one of our nodes, as stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldTask {
    pub run: Run,
    pub status: i32,
    /// It was asked to end.
    pub cancel: bool,
}

/// A fresh token for a claim and its hold.
pub(crate) fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

impl Run {
    /// Reads the claim from a task's document; `None` if it has none.
    pub(crate) fn of(task: &Document) -> Option<Self> {
        let id = task.get_object_id("_id").ok()?;
        let ours = task.get_document("windlass").ok()?;
        let token = ours.get_str("run").ok()?.to_owned();
        let attempt = ours.get("attempt").and_then(whole).unwrap_or(0);
        Some(Self { id, token, attempt })
    }

    pub(super) fn filter(&self, me: &NodeBoot, status: impl Into<Bson>) -> Document {
        doc! {
            "_id": self.id,
            "status": status,
            "node": &me.node,
            "windlass.boot": &me.boot,
            "windlass.run": &self.token,
        }
    }
}

impl Database {
    /// Whether there is anything to claim; checked before a limit is touched.
    pub(crate) async fn claimable(&self, queue: &Queue) -> Result<bool, DbError> {
        let tasks = self.tasks_collection();
        let find = tasks.find_one(claimable(queue)).projection(doc! { "_id": 1 });
        Ok(self.one(find).await?.is_some())
    }

    /// Claims the next task of a queue. After a lost answer, the task is stored under our boot with
    /// the token, and [`Self::claimed_by`] finds it.
    pub(crate) async fn claim(
        &self,
        queue: &Queue,
        me: &NodeBoot,
        token: &str,
        now: DateTime,
    ) -> Result<Option<Document>, DbError> {
        let set = doc! {
            "node": &me.node, "status": CLAIMED, "mtime": now,
            "windlass.boot": &me.boot, "windlass.node": &me.node, "windlass.run": token,
        };
        let tasks = self.tasks_collection();
        let mut claim = tasks
            .find_one_and_update(claimable(queue), doc! { "$set": set })
            .return_document(ReturnDocument::After);
        if let Some(order) = order(queue) {
            claim = claim.sort(order);
        }
        self.one(claim).await
    }

    /// Releases a task whose program was never started: it may be stored as claimed, or as running
    /// if the answer to its start was lost. False: it is no longer ours.
    pub(crate) async fn unclaim(
        &self,
        run: &Run,
        me: &NodeBoot,
        now: DateTime,
    ) -> Result<bool, DbError> {
        let update = doc! {
            "$set": { "node": self.dialect().unclaimed(), "status": QUEUED, "mtime": now },
            "$unset": { "windlass.boot": "" },
        };
        let filter = run.filter(me, doc! { "$in": ACTIVE.to_vec() });
        let result = self.ask(self.tasks_collection().update_one(filter, update)).await?;
        Ok(result.matched_count == 1)
    }

    /// Marks it as running. False: it is no longer ours and must not run. May be repeated after a
    /// lost answer.
    pub(crate) async fn start(
        &self,
        run: &Run,
        me: &NodeBoot,
        now: DateTime,
    ) -> Result<bool, DbError> {
        let set = doc! {
            "status": RUNNING, "mtime": now,
            "windlass.started": now, "windlass.attempt": run.attempt.saturating_add(1),
        };
        let tasks = self.tasks_collection();
        let update = tasks.update_one(run.filter(me, CLAIMED), doc! { "$set": set });
        if self.ask(update).await?.matched_count == 1 {
            return Ok(true);
        }
        // The answer to an earlier try may have been lost on its way.
        let started = self.one(tasks.find_one(run.filter(me, RUNNING))).await?;
        Ok(started.is_some())
    }

    /// All tasks that are claimed or running under our boot.
    pub(crate) async fn claimed_by(&self, me: &NodeBoot) -> Result<Vec<HeldTask>, DbError> {
        let filter = doc! {
            "node": &me.node, "status": { "$in": ACTIVE.to_vec() }, "windlass.boot": &me.boot,
        };
        let tasks = self.tasks_collection();
        let find = tasks.find(filter).projection(doc! { "status": 1, "windlass": 1 });
        let documents = self.all(find, HELD_MAX).await?;
        Ok(documents.iter().filter_map(held).collect())
    }

    pub(crate) async fn task(&self, id: ObjectId) -> Result<Option<Document>, DbError> {
        self.one(self.tasks_collection().find_one(doc! { "_id": id })).await
    }
}

/// Reads only what is needed to release or end the task: its other fields may have any type.
fn held(document: &Document) -> Option<HeldTask> {
    let run = Run::of(document)?;
    let status = i32::try_from(whole(document.get("status")?)?).ok()?;
    let cancel = at(document, "windlass.cancel") == Some(&Bson::Boolean(true));
    Some(HeldTask { run, status, cancel })
}

/// Tasks that every node may claim, except those into which our own fields cannot be written.
fn claimable(queue: &Queue) -> Document {
    // To `$type`, an array that contains a document is an object, too.
    let document = doc! { "$type": "object", "$not": { "$type": "array" } };
    doc! {
        "queue": queue.id,
        "status": QUEUED,
        "$and": [
            { "$or": [{ "node": Bson::Null }, { "node": -1 }] },
            { "$or": [{ "windlass": { "$exists": false } }, { "windlass": document }] },
        ],
        "_id": { "$type": "objectId" },
    }
}

/// Tasks without a priority come last.
fn order(queue: &Queue) -> Option<Document> {
    let mut order = Document::new();
    if queue.priorities {
        order.insert("windlass.priority", -1);
    }
    match &queue.sort {
        Sort::Fifo => {
            order.insert("_id", 1);
        }
        Sort::Lifo => {
            order.insert("_id", -1);
        }
        Sort::Default | Sort::Unknown(_) => {}
    }
    (!order.is_empty()).then_some(order)
}
