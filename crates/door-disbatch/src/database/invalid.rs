//! Tasks that no node can ever take because of the types of their fields.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use super::{Database, DbError};
use crate::doc::{Invalid, Task};
use crate::status::{BLOCKED, QUEUED};

/// Maximum number of reported tasks.
const INVALID_MAX: usize = 100;

/// Types that are not a valid status and that the index on `status` can find.
const NO_STATUS: [&str; 8] =
    ["null", "string", "object", "array", "bool", "date", "objectId", "binData"];

/// The same for `node`, where null and numbers mean that no node has the task.
const NO_NODE: [&str; 5] = ["object", "array", "bool", "date", "objectId"];

impl Database {
    /// Tasks of these queues that no node can ever claim, each with its id and the reason.
    pub(crate) async fn tasks_invalid(
        &self,
        queues: &[ObjectId],
    ) -> Result<Vec<(String, Invalid)>, DbError> {
        let tasks = self.tasks_collection();
        let fields = doc! { "queue": 1, "status": 1, "node": 1, "windlass": 1 };
        let found = self.all(tasks.find(invalid(queues)).projection(fields), INVALID_MAX).await?;
        let reason = |task: &Document| {
            let id = match task.get("_id") {
                Some(Bson::ObjectId(id)) => id.to_hex(),
                other => other.map(ToString::to_string).unwrap_or_default(),
            };
            Task::read(task).err().map(|invalid| (id, invalid))
        };
        Ok(found.iter().filter_map(reason).collect())
    }
}

fn invalid(queues: &[ObjectId]) -> Document {
    let not = |kind: &str| doc! { "$exists": true, "$not": { "$type": kind } };
    doc! {
        "queue": { "$in": queues.to_vec() },
        "$or": [
            { "status": { "$type": NO_STATUS.to_vec() } },
            { "status": { "$exists": false } },
            { "status": QUEUED, "_id": not("objectId") },
            { "status": QUEUED, "windlass": not("object") },
            { "status": QUEUED, "windlass": { "$type": "array" } },
            { "status": QUEUED, "node": { "$type": NO_NODE.to_vec() } },
            { "status": BLOCKED, "windlass.not_before": not("date") },
            { "status": BLOCKED, "windlass.after": not("array") },
        ],
    }
}
