//! Holds: units of a queue's limit over all nodes, each acquired before a task is claimed.
//!
//! One update checks the length of the array of holds and adds the new one, so no two nodes can get
//! the same unit. Tasks of foreign nodes have no hold; they are counted and reduce the allowed
//! length.

use std::collections::BTreeSet;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::orphan::{count, owner, owner_groups};
use super::{Database, DbError, NodeBoot};
use crate::dialect::Dialect;
use crate::doc::{Limit, LimitStored, Queue};
use crate::status::ACTIVE;

impl Database {
    /// The number of a queue's tasks that are claimed or running on foreign nodes.
    pub(crate) async fn foreign_running(&self, queue: ObjectId) -> Result<u64, DbError> {
        let groups = self.active_groups(queue).await?;
        Ok(groups.iter().filter(|group| owner(group).1.is_none()).map(count).sum())
    }

    /// The names of those nodes, sorted, at most `max`.
    pub(crate) async fn foreign_nodes(
        &self,
        queue: ObjectId,
        max: u32,
    ) -> Result<Vec<String>, DbError> {
        let groups = self.active_groups(queue).await?;
        let foreign = |group: &Document| match owner(group) {
            (Some(node), None) => Some(node.to_owned()),
            _ => None,
        };
        let nodes: BTreeSet<String> = groups.iter().filter_map(foreign).collect();
        Ok(nodes.into_iter().take(usize::try_from(max).unwrap_or(usize::MAX)).collect())
    }

    /// The owners of a queue's claimed or running tasks.
    async fn active_groups(&self, queue: ObjectId) -> Result<Vec<Document>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": { "queue": queue, "status": { "$in": ACTIVE.to_vec() } } },
            owner_groups(doc! {}),
        ]);
        self.aggregated(groups).await
    }

    /// Takes one slot of the queue's limit, under the claim's token. False: no slot is left, or the
    /// limit has changed since `queue` was read. After a lost answer, the hold is stored under our
    /// boot and has to be dropped.
    pub(crate) async fn hold_take(
        &self,
        queue: &Queue,
        foreign: u64,
        token: &str,
        me: &NodeBoot,
    ) -> Result<bool, DbError> {
        let LimitStored { field, value } = &queue.limit_stored;
        let mut filter = doc! { "_id": queue.id, *field: value };
        if *field != Dialect::Released.limit() {
            filter.insert(Dialect::Released.limit(), doc! { "$exists": false });
        }
        if let Limit::At(limit) = queue.limit {
            let Some(last) = last_position(limit, foreign) else { return Ok(false) };
            filter.insert(format!("windlass.holds.{last}"), doc! { "$exists": false });
        }
        let push = doc! { "$push": { "windlass.holds": { "id": token, "boot": &me.boot } } };
        let result = self.ask(self.queues_collection().update_one(filter, push)).await?;
        Ok(result.matched_count == 1)
    }

    /// Whether a hold still fits, now that its task is claimed and every earlier foreign claim is
    /// visible. All holds count: a later one may already have a running task, and a foreign node
    /// may have taken a slot while this one had only a hold.
    pub(crate) async fn hold_fits(&self, queue: ObjectId, token: &str) -> Result<bool, DbError> {
        let document = self.one(self.queues_collection().find_one(doc! { "_id": queue })).await?;
        let Some(Ok(read)) = document.map(|found| Queue::read(&found, Dialect::Released)) else {
            return Ok(false);
        };
        if !read.holds.iter().any(|hold| hold.id == token) {
            return Ok(false);
        }
        let others = u64::try_from(read.holds.len()).unwrap_or(u64::MAX) - 1;
        let foreign = self.foreign_running(queue).await?;
        Ok(read.limit.allows_one_more(others.saturating_add(foreign)))
    }

    pub(crate) async fn hold_drop(&self, queue: ObjectId, token: &str) -> Result<(), DbError> {
        let pull = doc! { "$pull": { "windlass.holds": { "id": token } } };
        self.holds_pull(doc! { "_id": queue, "windlass.holds.id": token }, pull).await?;
        Ok(())
    }

    /// Drops all holds of a boot.
    pub(super) async fn holds_drop_all(&self, boot: &str) -> Result<u64, DbError> {
        let pull = doc! { "$pull": { "windlass.holds": { "boot": boot } } };
        self.holds_pull(doc! { "windlass.holds.boot": boot }, pull).await
    }

    async fn holds_pull(&self, filter: Document, pull: Document) -> Result<u64, DbError> {
        Ok(self.ask(self.queues_collection().update_many(filter, pull)).await?.matched_count)
    }
}

/// The highest usable position among the holds of a queue, counted from 0, while foreign nodes have
/// `foreign` of its tasks.
pub(crate) fn last_position(limit: u64, foreign: u64) -> Option<u64> {
    limit.checked_sub(foreign)?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_tasks_take_places() {
        assert_eq!(last_position(5, 0), Some(4));
        assert_eq!(last_position(5, 4), Some(0));
        assert_eq!(last_position(5, 5), None);
        assert_eq!(last_position(5, 9), None);
        assert_eq!(last_position(0, 0), None);
    }
}
