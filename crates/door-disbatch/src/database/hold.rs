//! Holds: pieces of a queue's limit over all nodes, taken one by one before anything is claimed.
//!
//! A hold is taken only while the array of holds is short enough, in the update that makes it
//! longer, so no two nodes can take the same piece. Tasks of foreign nodes have no hold; they are
//! counted, and make the array that is allowed shorter.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::{Database, DbError, Me, no_boot};
use crate::dialect::Dialect;
use crate::doc::{Limit, Queue};
use crate::status::ACTIVE;

impl Database {
    /// How many tasks of a queue are claimed or running on nodes that are not ours.
    pub async fn foreign_running(&self, queue: ObjectId) -> Result<u64, DbError> {
        let filter = doc! {
            "queue": queue, "status": { "$in": ACTIVE.to_vec() }, "windlass.boot": no_boot(),
        };
        self.ask(self.tasks_collection().count_documents(filter)).await
    }

    /// Takes one piece of the queue's limit, under the claim's token. False: there is none left, or
    /// the limit is not any more what `queue` says. The token has to be known to whoever calls
    /// [`Self::holds_drop_unknown`] before this is asked.
    pub async fn hold_take(
        &self,
        queue: &Queue,
        foreign: u64,
        token: &str,
        me: &Me,
    ) -> Result<bool, DbError> {
        let mut filter = doc! { "_id": queue.id, "threads": &queue.limit_stored };
        if let Limit::At(limit) = queue.limit {
            let Some(last) = limit.checked_sub(foreign).and_then(|room| room.checked_sub(1)) else {
                return Ok(false);
            };
            filter.insert(format!("windlass.holds.{last}"), doc! { "$exists": false });
        }
        let push = doc! { "$push": { "windlass.holds": { "id": token, "boot": &me.boot } } };
        let result = self.ask(self.queues_collection().update_one(filter, push)).await?;
        Ok(result.matched_count == 1)
    }

    /// Whether a hold still fits, now that its task is claimed and every foreign claim that came
    /// before is to be seen. Those in front of it go first, so of several that do not fit together
    /// only the last have to go.
    pub async fn hold_fits(&self, queue: ObjectId, token: &str) -> Result<bool, DbError> {
        let document = self.ask(self.queues_collection().find_one(doc! { "_id": queue })).await?;
        let Some(Ok(read)) = document.map(|found| Queue::read(&found, Dialect::Released)) else {
            return Ok(false);
        };
        let Some(before) = read.holds.iter().position(|hold| hold.id == token) else {
            return Ok(false);
        };
        let before = u64::try_from(before).unwrap_or(u64::MAX);
        let foreign = self.foreign_running(queue).await?;
        Ok(read.limit.allows_one_more(before.saturating_add(foreign)))
    }

    pub async fn hold_drop(&self, queue: ObjectId, token: &str) -> Result<(), DbError> {
        let pull = doc! { "$pull": { "windlass.holds": { "id": token } } };
        self.holds_pull(doc! { "_id": queue, "windlass.holds.id": token }, pull).await?;
        Ok(())
    }

    /// Drops the holds of our boot that the node does not know, as lost answers leave them.
    pub async fn holds_drop_unknown(&self, me: &Me, known: &[String]) -> Result<u64, DbError> {
        let hold = doc! { "boot": &me.boot, "id": { "$nin": known.to_vec() } };
        let filter = doc! { "windlass.holds": { "$elemMatch": hold.clone() } };
        self.holds_pull(filter, doc! { "$pull": { "windlass.holds": hold } }).await
    }

    /// Drops everything that a boot holds.
    pub(super) async fn holds_drop_all(&self, boot: &str) -> Result<u64, DbError> {
        let pull = doc! { "$pull": { "windlass.holds": { "boot": boot } } };
        self.holds_pull(doc! { "windlass.holds.boot": boot }, pull).await
    }

    async fn holds_pull(&self, filter: Document, pull: Document) -> Result<u64, DbError> {
        Ok(self.ask(self.queues_collection().update_many(filter, pull)).await?.matched_count)
    }
}
