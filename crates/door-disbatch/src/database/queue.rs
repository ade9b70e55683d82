//! Reading, changing and counting queues.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::results::UpdateResult;

use super::{Database, DbError, OPERATION_TIME_MAX, by_name_or_id};
use crate::dialect::Dialect;
use crate::doc::{at, whole};
use crate::status::{ACTIVE, Class};

/// Maximum number of queues that are read. We create no more; surplus queues of other programs are
/// logged.
const QUEUES_MAX: usize = 10_000;

/// How often to check whether others with the same name are gone, and the pause between two checks.
const SETTLE_LOOKS_MAX: usize = 50;
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// How many tasks a queue has, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub queued: u64,
    pub running: u64,
    pub completed: u64,
    pub orphaned: u64,
    /// Including those whose status is not a number.
    pub total: u64,
}

impl Counts {
    /// The seed's "to do": all tasks that have not ended.
    pub(crate) fn todo(&self) -> u64 {
        self.queued + self.running + self.orphaned
    }
}

/// A queue to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewQueue {
    pub name: String,
    pub plugin: String,
    pub limit: Option<i64>,
    pub sort: Option<String>,
}

/// Changes to a queue. In a double option, the inner `None` means null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct QueueChange {
    pub name: Option<String>,
    pub plugin: Option<String>,
    pub limit: Option<Option<i64>>,
    pub sort: Option<Option<String>>,
}

impl Database {
    /// All queues, ordered by id.
    pub(crate) async fn queues(&self) -> Result<Vec<Document>, DbError> {
        let queues = self.queues_collection();
        let find = queues.find(doc! {}).sort(doc! { "_id": 1 });
        let mut queues = self.all(find, QUEUES_MAX + 1).await?;
        if queues.len() > QUEUES_MAX {
            queues.truncate(QUEUES_MAX);
            self.too_many_queues.call_once(|| {
                tracing::warn!("there are more than {QUEUES_MAX} queues; the newest are ignored");
            });
        }
        Ok(queues)
    }

    /// One queue; the oldest if several share a name.
    pub(crate) async fn queue(&self, name_or_id: &str) -> Result<Option<Document>, DbError> {
        let filter = by_name_or_id("name", name_or_id);
        self.one(self.queues_collection().find_one(filter).sort(doc! { "_id": 1 })).await
    }

    pub(crate) async fn queue_insert(&self, queue: &NewQueue) -> Result<ObjectId, DbError> {
        let count = self.ask(self.queues_collection().estimated_document_count()).await?;
        if count >= QUEUES_MAX as u64 {
            let why = format!("it already has the maximum of {QUEUES_MAX} queues");
            return Err(DbError::Refused(why));
        }
        // The seed's dialect has no unique index on names.
        self.queue_name_free(&queue.name, None).await?;
        let (id, dialect) = (ObjectId::new(), self.dialect());
        let mut document = doc! {
            "_id": id,
            "name": &queue.name,
            dialect.plugin(): &queue.plugin,
            dialect.limit(): queue.limit.map_or(Bson::Null, Bson::from),
        };
        if let Some(sort) = &queue.sort {
            document.insert("sort", sort);
        }
        if dialect == Dialect::Seed {
            document.insert("count_todo", 0_i64);
            document.insert("count_total", 0_i64);
        }
        match dialect {
            Dialect::Released => self.insert("queues", &document).await?,
            Dialect::Seed => {
                let mut new = document.clone();
                new.insert("windlass", doc! { "making": true });
                self.insert("queues", &new).await?;
                if !self.queue_settle(&queue.name, id).await? {
                    self.ask(self.queues_collection().delete_one(doc! { "_id": id })).await?;
                    return Err(taken(&queue.name));
                }
            }
        }
        self.changelog("queues", document, false).await;
        Ok(id)
    }

    /// Whether a newly created queue keeps its name: not if there is a settled one, and among
    /// unsettled ones only the one with the lowest id. That one waits for the others, which may
    /// have looked before it existed. They do not wait for it, so exactly one remains.
    async fn queue_settle(&self, name: &str, id: ObjectId) -> Result<bool, DbError> {
        let queues = self.queues_collection();
        let others = doc! { "name": name, "_id": { "$ne": id } };
        let goes = |other: &Document| {
            at(other, "windlass.making") == Some(&Bson::Boolean(true))
                && other.get_object_id("_id").is_ok_and(|other| other > id)
        };
        for _ in 0..SETTLE_LOOKS_MAX {
            let others = self.all(queues.find(others.clone()), QUEUES_MAX).await?;
            if others.is_empty() {
                let (all, own) = (doc! { "windlass": "" }, doc! { "windlass.making": "" });
                // Tasks with priorities may already have been created for it.
                let alone = doc! { "_id": id, "windlass": { "making": true } };
                let unset = self.ask(queues.update_one(alone, doc! { "$unset": all })).await?;
                if unset.matched_count == 0 {
                    let unset = queues.update_one(doc! { "_id": id }, doc! { "$unset": own });
                    self.ask(unset).await?;
                }
                return Ok(true);
            }
            if !others.iter().all(goes) {
                return Ok(false);
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
        Ok(false)
    }

    /// An error if a queue other than `own` has the name.
    async fn queue_name_free(&self, name: &str, own: Option<&Bson>) -> Result<(), DbError> {
        let mut filter = doc! { "name": name };
        if let Some(own) = own {
            filter.insert("_id", doc! { "$ne": own });
        }
        match self.one(self.queues_collection().find_one(filter)).await? {
            Some(_) => Err(taken(name)),
            None => Ok(()),
        }
    }

    pub(crate) async fn queue_update(
        &self,
        name_or_id: &str,
        change: &QueueChange,
    ) -> Result<UpdateResult, DbError> {
        let (mut set, dialect) = (Document::new(), self.dialect());
        if let Some(name) = &change.name {
            set.insert("name", name);
        }
        if let Some(plugin) = &change.plugin {
            set.insert(dialect.plugin(), plugin);
        }
        if let Some(limit) = change.limit {
            set.insert(dialect.limit(), limit);
        }
        if let Some(sort) = &change.sort {
            set.insert("sort", sort.clone());
        }
        let Some(found) = self.queue(name_or_id).await? else {
            return Ok(UpdateResult::default());
        };
        let id = found.get("_id").cloned().unwrap_or(Bson::Null);
        if let Some(name) = &change.name {
            self.queue_name_free(name, Some(&id)).await?;
        }
        let filter = doc! { "_id": id };
        let update = doc! { "$set": set };
        let result = self.ask(self.queues_collection().update_one(filter.clone(), update)).await?;
        if result.modified_count > 0 {
            self.changelog_queue(filter).await;
        }
        Ok(result)
    }

    /// Deletes the queue and returns its last state; its tasks stay.
    pub(crate) async fn queue_delete(&self, name_or_id: &str) -> Result<Option<Document>, DbError> {
        let filter = by_name_or_id("name", name_or_id);
        let queues = self.queues_collection();
        let delete = queues.find_one_and_delete(filter).sort(doc! { "_id": 1 });
        let gone = self.one(delete).await?;
        if let Some(gone) = &gone {
            self.changelog("queues", gone.clone(), true).await;
        }
        Ok(gone)
    }

    /// The number of claimed or running tasks of each of these queues, on any node. Queues without
    /// any are omitted.
    pub(crate) async fn queue_active(
        &self,
        queues: &[ObjectId],
    ) -> Result<HashMap<ObjectId, u64>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "queue": { "$in": queues.to_vec() }, "status": { "$in": ACTIVE.to_vec() },
            } },
            doc! { "$group": { "_id": "$queue", "count": { "$sum": 1 } } },
        ]);
        let groups = self.aggregated(groups).await?;
        let count = |group: &Document| {
            let count = u64::try_from(group.get("count").and_then(whole)?).ok()?;
            Some((group.get_object_id("_id").ok()?, count))
        };
        Ok(groups.iter().filter_map(count).collect())
    }

    /// Restores a queue that was just deleted.
    pub(crate) async fn queue_restore(&self, queue: Document) -> Result<(), DbError> {
        self.insert("queues", &queue).await?;
        self.changelog("queues", queue, false).await;
        Ok(())
    }

    /// The number of tasks in each of these queues. Queues without any are omitted. Covered by the
    /// index on `queue` and `status`, which is read completely.
    pub(crate) async fn queue_counts(
        &self,
        queues: &[ObjectId],
    ) -> Result<HashMap<ObjectId, Counts>, DbError> {
        self.queue_counts_within(queues, OPERATION_TIME_MAX).await
    }

    /// The same with its own time limit, which the server enforces, too.
    pub(crate) async fn queue_counts_within(
        &self,
        queues: &[ObjectId],
        time_max: Duration,
    ) -> Result<HashMap<ObjectId, Counts>, DbError> {
        if queues.is_empty() {
            return Ok(HashMap::new());
        }
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": { "queue": { "$in": queues.to_vec() } } },
            doc! { "$group": {
                "_id": { "queue": "$queue", "status": "$status" }, "count": { "$sum": 1 },
            } },
        ]);
        let groups = self.aggregated_within(groups.max_time(time_max), time_max).await?;
        Ok(add_up(&groups))
    }
}

fn taken(name: &str) -> DbError {
    DbError::Duplicate(format!("a queue with the name {name}"))
}

fn add_up(groups: &[Document]) -> HashMap<ObjectId, Counts> {
    let mut counts: HashMap<ObjectId, Counts> = HashMap::new();
    for group in groups {
        let Ok(key) = group.get_document("_id") else { continue };
        let Ok(queue) = key.get_object_id("queue") else { continue };
        let count = group.get("count").and_then(whole).unwrap_or(0);
        let count = u64::try_from(count).unwrap_or(0);
        let of = counts.entry(queue).or_default();
        of.total += count;
        match key.get("status").filter(|status| status.as_str().is_none()).and_then(whole) {
            None => {}
            Some(status) => match Class::of(status) {
                Class::Queued => of.queued += count,
                Class::Running => of.running += count,
                Class::Completed => of.completed += count,
                Class::Orphaned => of.orphaned += count,
            },
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_add_up_to_classes() {
        let queue = ObjectId::new();
        let group = |status: Bson, count: Bson| {
            doc! { "_id": { "queue": queue, "status": status }, "count": count }
        };
        let counts = add_up(&[
            group(Bson::Int32(-2), Bson::Int32(3)),
            group(Bson::Double(-4.0), Bson::Int64(2)),
            group(Bson::Int32(-6), Bson::Int32(1)),
            group(Bson::Int32(-1), Bson::Int32(1)),
            group(Bson::Int64(0), Bson::Int32(1)),
            group(Bson::Int32(1), Bson::Double(4.0)),
            group(Bson::Int32(77), Bson::Int32(1)),
            group(Bson::from("1"), Bson::Int32(9)),
            doc! { "_id": { "queue": "x", "status": 1 }, "count": 1 },
            doc! { "_id": 5 },
        ]);
        let wanted = Counts { queued: 5, running: 2, completed: 5, orphaned: 1, total: 22 };
        assert_eq!(counts, HashMap::from([(queue, wanted)]));
        assert_eq!(wanted.todo(), 8);
    }
}
