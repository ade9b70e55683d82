//! New tasks, and the removal of those of a queue.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError};
use crate::dialect::Dialect;
use crate::doc::at;
use crate::status::{ACTIVE, BLOCKED, QUEUED};

/// How many tasks are removed or cancelled per request.
const BATCH: usize = 200;

/// A batch of removed tasks.
#[derive(Debug, Default)]
pub(crate) struct RemovedTasks {
    /// 0 if none are left.
    pub count: usize,
    /// Ids of tasks that may have files, which the caller removes.
    pub ids: Vec<ObjectId>,
}

/// How often an insert is sent until its outcome is known.
const SEND_TRIES_MAX: usize = 3;

/// An insert of which only a part succeeded.
#[derive(Debug)]
pub(crate) struct PartialInsert {
    /// The tasks that were created.
    pub made: Vec<ObjectId>,
    pub error: DbError,
}

/// A task to create.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NewTask {
    pub params: Document,
    /// Higher priorities run first.
    pub priority: Option<i32>,
    pub not_before: Option<DateTime>,
    /// Tasks that must succeed first.
    pub after: Vec<ObjectId>,
    pub timeout_seconds: Option<i64>,
    /// How often it is retried after a failure.
    pub retries: Option<i64>,
}

impl Database {
    /// Creates tasks in this order and returns their ids.
    pub(crate) async fn tasks_create(
        &self,
        queue: ObjectId,
        tasks: &[NewTask],
        now: DateTime,
    ) -> Result<Vec<ObjectId>, PartialInsert> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let dialect = self.dialect();
        // Before the tasks, so that no node claims one of them without regard to priorities.
        if tasks.iter().any(|task| task.priority.is_some()) {
            let mark = doc! { "$set": { "windlass.priorities": true } };
            let queues = self.queues_collection();
            let marked = self.ask(queues.update_one(doc! { "_id": queue }, mark)).await;
            marked.map_err(|error| PartialInsert { made: Vec::new(), error })?;
        }
        let documents: Vec<Document> =
            tasks.iter().map(|task| document(queue, task, dialect, now)).collect();
        let sent = self.tasks_send(&documents).await;
        let made = sent.as_ref().map_or_else(|unmade| unmade.made.len(), Vec::len);
        if dialect == Dialect::Seed && made > 0 {
            let count = i64::try_from(made).unwrap_or(i64::MAX);
            self.counter_add(queue, count, count).await;
        }
        sent
    }

    /// Inserts tasks exactly once. After a lost answer they are sent again with the same ids, and
    /// the server rejects those it already has.
    async fn tasks_send(&self, documents: &[Document]) -> Result<Vec<ObjectId>, PartialInsert> {
        let ids: Vec<ObjectId> =
            documents.iter().filter_map(|task| task.get_object_id("_id").ok()).collect();
        let all = self.raw().collection::<Document>("tasks");
        let mut tries = 0;
        let error = loop {
            tries += 1;
            match self.ask(all.insert_many(documents).ordered(false)).await {
                Ok(_) => return Ok(ids),
                Err(DbError::Away(_)) if tries < SEND_TRIES_MAX => {}
                Err(error) => break error,
            }
        };
        match self.task_statuses(&ids).await {
            Ok(known) if known.len() == ids.len() => Ok(ids),
            Ok(known) => {
                let made = ids.into_iter().filter(|id| known.contains_key(id)).collect();
                Err(PartialInsert { made, error })
            }
            Err(_) => {
                let unknown = ids.len();
                let why = format!("{error}; {unknown} tasks may exist nevertheless");
                Err(PartialInsert { made: Vec::new(), error: DbError::Away(why) })
            }
        }
    }

    /// Removes newly created tasks, except those that a node has claimed.
    pub(crate) async fn tasks_take_back(&self, ids: &[ObjectId]) -> Result<(), DbError> {
        let unclaimed = doc! { "_id": { "$in": ids }, "status": { "$nin": ACTIVE.to_vec() } };
        self.ask(self.tasks_collection().delete_many(unclaimed)).await?;
        Ok(())
    }

    /// Removes up to `BATCH` unclaimed tasks of a queue.
    pub(crate) async fn tasks_delete(&self, queue: ObjectId) -> Result<RemovedTasks, DbError> {
        let tasks = self.tasks_collection();
        let unclaimed = doc! { "queue": queue, "status": { "$nin": ACTIVE.to_vec() } };
        let found = self.all(tasks.find(unclaimed).projection(doc! { "_id": 1 }), BATCH).await?;
        let ids: Vec<Bson> = found.into_iter().filter_map(|mut task| task.remove("_id")).collect();
        let unclaimed = doc! { "_id": { "$in": &ids }, "status": { "$nin": ACTIVE.to_vec() } };
        self.ask(tasks.delete_many(unclaimed)).await?;
        // Files refer to their task only by such an id.
        let named = ids.iter().filter_map(Bson::as_object_id).collect();
        Ok(RemovedTasks { count: ids.len(), ids: named })
    }

    /// The number of tasks in a queue, counted up to `max`.
    pub(crate) async fn tasks_of(&self, queue: ObjectId, max: usize) -> Result<usize, DbError> {
        let tasks = self.tasks_collection();
        // Covered by the index.
        let find = tasks.find(doc! { "queue": queue }).projection(doc! { "_id": 0, "status": 1 });
        Ok(self.all(find, max).await?.len())
    }

    /// Asks our nodes to end their tasks of a queue, up to `BATCH` at once, and returns the number
    /// of tasks they have. The filter matches only the observed state: a delayed request must not
    /// end a later run.
    pub(crate) async fn tasks_cancel_active(&self, queue: ObjectId) -> Result<u64, DbError> {
        let tasks = self.tasks_collection();
        let mut active = doc! {
            "queue": queue, "status": { "$in": ACTIVE.to_vec() },
            "windlass.boot": { "$type": "string" }, "windlass.cancel": { "$ne": true },
        };
        let find = tasks.find(active.clone()).projection(doc! { "windlass.run": 1 });
        let seen = self.all(find, BATCH).await?;
        let runs: Vec<Bson> =
            seen.iter().filter_map(|task| at(task, "windlass.run").cloned()).collect();
        active.insert("windlass.run", doc! { "$in": runs });
        let mark = doc! { "$set": { "windlass.cancel": true } };
        self.ask(tasks.update_many(active.clone(), mark)).await?;
        active.remove("windlass.cancel");
        active.remove("windlass.run");
        self.ask(tasks.count_documents(active)).await
    }
}

fn document(queue: ObjectId, task: &NewTask, dialect: Dialect, now: DateTime) -> Document {
    let waits = task.not_before.is_some() || !task.after.is_empty();
    let mut document = doc! {
        "_id": ObjectId::new(),
        "queue": queue,
        "status": if waits { BLOCKED } else { QUEUED },
        "stdout": Bson::Null,
        "stderr": Bson::Null,
        "node": dialect.unclaimed(),
        dialect.params(): &task.params,
        "ctime": now,
        "mtime": now,
    };
    let ours = ours(task);
    if !ours.is_empty() {
        document.insert("windlass", ours);
    }
    document
}

fn ours(task: &NewTask) -> Document {
    let mut ours = Document::new();
    if let Some(priority) = task.priority {
        ours.insert("priority", priority);
    }
    if let Some(not_before) = task.not_before {
        ours.insert("not_before", not_before);
    }
    if !task.after.is_empty() {
        ours.insert("after", task.after.clone());
    }
    if let Some(timeout) = task.timeout_seconds {
        ours.insert("timeout", timeout);
    }
    if let Some(retries) = task.retries {
        ours.insert("retries", retries);
    }
    ours
}
