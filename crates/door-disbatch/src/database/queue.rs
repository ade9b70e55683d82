//! Queues: reading, changing, and counting what is in them.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::results::UpdateResult;

use super::{Database, DbError, by_name_or_id};
use crate::dialect::Dialect;
use crate::doc::whole;
use crate::status::{ACTIVE, Class};

/// The most queues that are looked at.
const QUEUES_MAX: usize = 10_000;

/// How many tasks a queue has, by class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub queued: u64,
    pub running: u64,
    pub completed: u64,
    pub orphaned: u64,
    /// Also those whose status is no number.
    pub total: u64,
}

impl Counts {
    /// What the seed calls to do: everything that has not ended.
    pub fn todo(&self) -> u64 {
        self.queued + self.running + self.orphaned
    }
}

/// A queue that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQueue {
    pub name: String,
    pub plugin: String,
    pub limit: Option<i64>,
    pub sort: Option<String>,
}

/// What is to change in a queue. Where an option is doubled, the inner nothing means null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueChange {
    pub name: Option<String>,
    pub plugin: Option<String>,
    pub limit: Option<Option<i64>>,
    pub sort: Option<Option<String>>,
}

impl Database {
    /// All queues, in the order of their ids.
    pub async fn queues(&self) -> Result<Vec<Document>, DbError> {
        let queues = self.queues_collection();
        self.all(queues.find(doc! {}).sort(doc! { "_id": 1 }), QUEUES_MAX).await
    }

    /// One queue; the oldest where several share a name.
    pub async fn queue(&self, name_or_id: &str) -> Result<Option<Document>, DbError> {
        let filter = by_name_or_id("name", name_or_id);
        self.one(self.queues_collection().find_one(filter).sort(doc! { "_id": 1 })).await
    }

    pub async fn queue_insert(
        &self,
        queue: &NewQueue,
        dialect: Dialect,
    ) -> Result<ObjectId, DbError> {
        // The seed has no index that holds the names apart.
        if self.queue_named(&queue.name).await? {
            return Err(DbError::Duplicate(format!("a queue with the name {}", queue.name)));
        }
        let id = ObjectId::new();
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
        self.insert("queues", &document).await?;
        self.changelog("queues", document, false).await;
        Ok(id)
    }

    async fn queue_named(&self, name: &str) -> Result<bool, DbError> {
        let find = self.queues_collection();
        let found = self.one(find.find_one(doc! { "name": name })).await?;
        Ok(found.is_some())
    }

    pub async fn queue_update(
        &self,
        name_or_id: &str,
        change: &QueueChange,
        dialect: Dialect,
    ) -> Result<UpdateResult, DbError> {
        let mut set = Document::new();
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
        let filter = doc! { "_id": found.get("_id").cloned() };
        let update = doc! { "$set": set };
        let result = self.ask(self.queues_collection().update_one(filter.clone(), update)).await?;
        if result.modified_count > 0 {
            self.changelog_queue(filter).await;
        }
        Ok(result)
    }

    /// Removes the queue, and answers with it as it then was; its tasks stay.
    pub async fn queue_delete(&self, name_or_id: &str) -> Result<Option<Document>, DbError> {
        let filter = by_name_or_id("name", name_or_id);
        let queues = self.queues_collection();
        let delete = queues.find_one_and_delete(filter).sort(doc! { "_id": 1 });
        let gone = self.one(delete).await?;
        if let Some(gone) = &gone {
            self.changelog("queues", gone.clone(), true).await;
        }
        Ok(gone)
    }

    /// How many tasks of each of these queues are claimed or running on any node. A queue without
    /// such tasks is not in the answer.
    pub async fn queue_active(
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

    /// Puts a queue back that has just been removed.
    pub async fn queue_restore(&self, queue: Document) -> Result<(), DbError> {
        self.insert("queues", &queue).await?;
        self.changelog("queues", queue, false).await;
        Ok(())
    }

    /// How many tasks each of these queues has. A queue without tasks is not in the answer.
    pub async fn queue_counts(
        &self,
        queues: &[ObjectId],
    ) -> Result<HashMap<ObjectId, Counts>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": { "queue": { "$in": queues.to_vec() } } },
            doc! { "$group": {
                "_id": { "queue": "$queue", "status": "$status" }, "count": { "$sum": 1 },
            } },
        ]);
        let groups = self.aggregated(groups).await?;
        Ok(add_up(&groups))
    }
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
