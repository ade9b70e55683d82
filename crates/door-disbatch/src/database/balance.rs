//! The balance document, and the lease of the command interface that applies it.

use std::collections::HashMap;

use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};

use super::{Database, DbError};
use crate::doc::{at, whole};
use crate::status::{ACTIVE, QUEUED};

/// The fixed id of the document that we create, so that two concurrent inserts create only one.
const DOCUMENT_ID: ObjectId = ObjectId::from_bytes([0; 12]);
/// Enough to notice surplus documents.
const DOCUMENTS_MAX: usize = 2;

/// The open tasks of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueWork {
    /// Tasks that a node may claim.
    pub queued: u64,
    /// Including claimed ones.
    pub running: u64,
}

impl Database {
    fn balance_collection(&self) -> Collection<RawDocumentBuf> {
        self.collection("balance")
    }

    /// The balance document, followed by any surplus ones.
    pub(crate) async fn balance(&self) -> Result<Vec<Document>, DbError> {
        let balance = self.balance_collection();
        self.all(balance.find(doc! {}).sort(doc! { "_id": 1 }), DOCUMENTS_MAX).await
    }

    /// Sets fields of the document; creates it if missing.
    pub(crate) async fn balance_set(&self, set: Document) -> Result<(), DbError> {
        let update = doc! {
            "$set": set,
            "$unset": { "windlass.begun": "" },
            "$setOnInsert": { "_id": DOCUMENT_ID },
        };
        let balance = self.balance_collection();
        let write = || balance.update_one(doc! {}, update.clone()).upsert(true);
        let result = match self.ask(write()).await {
            // Another program created it after our lookup.
            Err(DbError::Duplicate(_)) => self.ask(write()).await?,
            other => other?,
        };
        let changed = result.modified_count > 0 || result.upserted_id.is_some();
        if changed && let Some(document) = self.balance().await?.into_iter().next() {
            self.changelog("balance", document, false).await;
        }
        Ok(())
    }

    /// Creates an empty document for the balancer's lease if there is none. It is marked, so that
    /// it does not count as a configured balance.
    pub(crate) async fn balance_begin(&self) -> Result<(), DbError> {
        let marked = doc! { "begun": true };
        let empty = doc! { "_id": DOCUMENT_ID, "max_tasks": {}, "queues": [], "windlass": marked };
        match self.insert("balance", &empty).await {
            Ok(()) | Err(DbError::Duplicate(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Acquires or renews the balancer's lease; false if another one holds it.
    pub(crate) async fn balance_lease(
        &self,
        document: &Document,
        me: &str,
        now: DateTime,
        until: DateTime,
    ) -> Result<bool, DbError> {
        let id = document.get("_id").unwrap_or(&Bson::Null);
        let free = doc! { "_id": id, "$or": [
            { "windlass.balancer": me },
            { "windlass.balancer": { "$exists": false } },
            { "windlass.until": { "$not": { "$type": "date" } } },
            { "windlass.until": { "$lte": now } },
        ] };
        // Any other value is replaced, even one that is not a document.
        let mut ours = doc! { "balancer": me, "until": until };
        if let Some(begun) = at(document, "windlass.begun") {
            ours.insert("begun", begun);
        }
        let take = doc! { "$set": { "windlass": ours } };
        let result = self.ask(self.balance_collection().update_one(free, take)).await?;
        Ok(result.matched_count == 1)
    }

    /// Releases the lease, so that another balancer can take over at once.
    pub(crate) async fn balance_leave(&self, me: &str) -> Result<(), DbError> {
        let mine = doc! { "windlass.balancer": me };
        let leave = doc! { "$unset": { "windlass.balancer": "", "windlass.until": "" } };
        self.ask(self.balance_collection().update_one(mine, leave)).await.map(drop)
    }

    /// Enables balancing again, unless it was changed in the meantime. `was` is the value as read.
    pub(crate) async fn balance_enable(&self, id: &Bson, was: &Bson) -> Result<bool, DbError> {
        let the_same = doc! { "_id": id, "disabled": was };
        let enable = doc! { "$set": { "disabled": Bson::Null } };
        let result = self.ask(self.balance_collection().update_one(the_same, enable)).await?;
        Ok(result.matched_count == 1)
    }

    /// Writes the status that `/monitoring` shows.
    pub(crate) async fn balance_report(&self, id: &Bson, fields: Document) -> Result<(), DbError> {
        let tell = doc! { "$set": fields };
        self.ask(self.balance_collection().update_one(doc! { "_id": id }, tell)).await.map(drop)
    }

    /// Sets the limit of a queue without a changelog entry: the changelog is for changes by users,
    /// and the balancer's database user may not write to it.
    pub(crate) async fn balance_limit(&self, queue: ObjectId, limit: i64) -> Result<(), DbError> {
        let set = doc! { "$set": { self.dialect().limit(): limit } };
        let queues = self.queues_collection();
        self.ask(queues.update_one(doc! { "_id": queue }, set)).await.map(drop)
    }

    /// The open tasks of each of these queues. Queues without any are omitted.
    pub(crate) async fn queue_work(
        &self,
        queues: &[ObjectId],
    ) -> Result<HashMap<ObjectId, QueueWork>, DbError> {
        let mut statuses = ACTIVE.to_vec();
        statuses.push(QUEUED);
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "queue": { "$in": queues.to_vec() }, "status": { "$in": statuses },
            } },
            doc! { "$group": {
                "_id": { "queue": "$queue", "status": "$status" }, "count": { "$sum": 1 },
            } },
        ]);
        let mut work: HashMap<ObjectId, QueueWork> = HashMap::new();
        for group in self.aggregated(groups).await? {
            let Ok(key) = group.get_document("_id") else { continue };
            let Ok(queue) = key.get_object_id("queue") else { continue };
            let count = group.get("count").and_then(whole).and_then(|count| count.try_into().ok());
            let (of, count) = (work.entry(queue).or_default(), count.unwrap_or(0));
            match key.get("status").and_then(whole) {
                Some(status) if status == i64::from(QUEUED) => of.queued += count,
                _ => of.running += count,
            }
        }
        Ok(work)
    }
}
