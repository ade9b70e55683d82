//! New tasks, and the removal of those of a queue.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError};
use crate::dialect::Dialect;
use crate::doc::at;
use crate::status::{ACTIVE, BLOCKED, QUEUED};

/// How many tasks are removed, or asked to end, at once.
const BATCH: usize = 200;

/// Tasks that were removed.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// 0: there are no more.
    pub count: usize,
    /// The ids of those that may have files, which are the caller's to remove.
    pub ids: Vec<ObjectId>,
}

/// How often tasks are sent until it is known whether they are there.
const SEND_TRIES_MAX: usize = 3;

/// Tasks of which not all could be made.
#[derive(Debug)]
pub(crate) struct Unmade {
    /// Those that are there all the same.
    pub made: Vec<ObjectId>,
    pub error: DbError,
}

/// A task that is to be made.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NewTask {
    pub params: Document,
    /// Higher is earlier.
    pub priority: Option<i32>,
    pub not_before: Option<DateTime>,
    /// The tasks that have to succeed first.
    pub after: Vec<ObjectId>,
    pub timeout_seconds: Option<i64>,
    /// How often it may be put back when it fails.
    pub retries: Option<i64>,
}

impl Database {
    /// Makes tasks, in this order, and answers with their ids.
    pub(crate) async fn tasks_create(
        &self,
        queue: ObjectId,
        tasks: &[NewTask],
        now: DateTime,
    ) -> Result<Vec<ObjectId>, Unmade> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let dialect = self.dialect();
        // First, so that no node takes one of them before it knows that the order matters.
        if tasks.iter().any(|task| task.priority.is_some()) {
            let mark = doc! { "$set": { "windlass.priorities": true } };
            let queues = self.queues_collection();
            let marked = self.ask(queues.update_one(doc! { "_id": queue }, mark)).await;
            marked.map_err(|error| Unmade { made: Vec::new(), error })?;
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

    /// Inserts tasks once. When an answer is lost they are sent again, with the same ids: then the
    /// server knows those that it has.
    async fn tasks_send(&self, documents: &[Document]) -> Result<Vec<ObjectId>, Unmade> {
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
                Err(Unmade { made, error })
            }
            Err(_) => {
                let unknown = ids.len();
                let why = format!("{error}; {unknown} tasks may exist nevertheless");
                Err(Unmade { made: Vec::new(), error: DbError::Away(why) })
            }
        }
    }

    /// Removes tasks that were just created, unless a node has them.
    pub(crate) async fn tasks_take_back(&self, ids: &[ObjectId]) -> Result<(), DbError> {
        let nobody = doc! { "_id": { "$in": ids }, "status": { "$nin": ACTIVE.to_vec() } };
        self.ask(self.tasks_collection().delete_many(nobody)).await?;
        Ok(())
    }

    /// Removes up to `BATCH` tasks of a queue that no node has.
    pub(crate) async fn tasks_delete(&self, queue: ObjectId) -> Result<Removed, DbError> {
        let tasks = self.tasks_collection();
        let nobody = doc! { "queue": queue, "status": { "$nin": ACTIVE.to_vec() } };
        let found = self.all(tasks.find(nobody).projection(doc! { "_id": 1 }), BATCH).await?;
        let ids: Vec<Bson> = found.into_iter().filter_map(|mut task| task.remove("_id")).collect();
        let nobody = doc! { "_id": { "$in": &ids }, "status": { "$nin": ACTIVE.to_vec() } };
        self.ask(tasks.delete_many(nobody)).await?;
        // The files of a task name it by such an id, and by no other.
        let named = ids.iter().filter_map(Bson::as_object_id).collect();
        Ok(Removed { count: ids.len(), ids: named })
    }

    /// How many tasks a queue has, up to a bound: what is beyond it is not looked at.
    pub(crate) async fn tasks_of(&self, queue: ObjectId, max: usize) -> Result<usize, DbError> {
        let tasks = self.tasks_collection();
        // The index has all that is asked for.
        let find = tasks.find(doc! { "queue": queue }).projection(doc! { "_id": 0, "status": 1 });
        Ok(self.all(find, max).await?.len())
    }

    /// Asks our nodes to end the tasks of a queue that they have, up to `BATCH` of them at
    /// once, and returns how many they have. Each is ended as it was seen: a request that is
    /// delayed on its way must not end a later run.
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
