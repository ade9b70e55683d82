//! Tasks that wait for a time or for other tasks.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError};
use crate::doc::whole;
use crate::status::{BLOCKED, QUEUED};

/// Maximum number of waiting tasks per request.
pub(crate) const DUE_BATCH_MAX: usize = 500;

impl Database {
    /// Waiting tasks whose start time, if any, has come: ordered by id, after `behind`, at most
    /// [`DUE_BATCH_MAX`].
    pub(crate) async fn tasks_due(
        &self,
        behind: Option<ObjectId>,
        now: DateTime,
    ) -> Result<Vec<Document>, DbError> {
        let mut filter = doc! {
            "node": { "$in": [Bson::Null, Bson::Int32(-1)] },
            "status": BLOCKED,
            "$or": [
                { "windlass.not_before": { "$lte": now } },
                {
                    "windlass.not_before": { "$exists": false },
                    "windlass.after": { "$exists": true },
                },
            ],
        };
        if let Some(behind) = behind {
            filter.insert("_id", doc! { "$gt": behind });
        }
        let tasks = self.tasks_collection();
        // Without the arguments, which may be large and are not needed.
        let fields = doc! { "queue": 1, "status": 1, "node": 1, "windlass": 1, "stderr": 1 };
        let find = tasks.find(filter).sort(doc! { "_id": 1 }).projection(fields);
        self.all(find, DUE_BATCH_MAX).await
    }

    /// The statuses of these tasks; `None` for a status that is not a number. Tasks that do not
    /// exist are omitted.
    pub(crate) async fn task_statuses(
        &self,
        ids: &[ObjectId],
    ) -> Result<HashMap<ObjectId, Option<i64>>, DbError> {
        let tasks = self.tasks_collection();
        let find =
            tasks.find(doc! { "_id": { "$in": ids.to_vec() } }).projection(doc! { "status": 1 });
        let found = self.all(find, ids.len().max(1)).await?;
        let status = |task: &Document| {
            Some((task.get_object_id("_id").ok()?, task.get("status").and_then(whole)))
        };
        Ok(found.iter().filter_map(status).collect())
    }

    /// Queues a waiting task. False: it is no longer waiting.
    pub(crate) async fn task_release(&self, id: ObjectId, now: DateTime) -> Result<bool, DbError> {
        let update = doc! { "$set": { "status": QUEUED, "mtime": now, "stderr": Bson::Null } };
        let filter = doc! { "_id": id, "status": BLOCKED };
        let result = self.ask(self.tasks_collection().update_one(filter, update)).await?;
        Ok(result.matched_count == 1)
    }

    /// Records why a task is still waiting. False: that reason is already stored, or the task is no
    /// longer waiting.
    pub(crate) async fn task_keep_waiting(
        &self,
        id: ObjectId,
        why: &str,
        now: DateTime,
    ) -> Result<bool, DbError> {
        let filter = doc! { "_id": id, "status": BLOCKED, "stderr": { "$ne": why } };
        let update = doc! { "$set": { "stderr": why, "mtime": now } };
        let result = self.ask(self.tasks_collection().update_one(filter, update)).await?;
        Ok(result.matched_count == 1)
    }
}
