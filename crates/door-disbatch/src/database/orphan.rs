//! Tasks of dead nodes.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};

use super::{Database, DbError, NodeBoot, owned_by_us, owning_boot};
use crate::doc::{at, whole};
use crate::status::{ACTIVE, CLAIMED, ORPHANED, RUNNING};

/// An owner of claimed or running tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub node: String,
    /// `None` for a foreign node.
    pub boot: Option<String>,
    pub claimed: u64,
    pub running: u64,
}

impl Database {
    /// All owners of tasks, including those without an entry in `nodes`.
    pub(crate) async fn owners(&self) -> Result<Vec<Owner>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "node": { "$type": "string" }, "status": { "$in": ACTIVE.to_vec() },
            } },
            owner_groups(doc! { "status": "$status" }),
        ]);
        let groups = self.aggregated(groups).await?;
        Ok(owners(&groups))
    }

    /// How many tasks, by queue, other owners of our node's name have: foreign nodes and earlier
    /// starts.
    pub(crate) async fn earlier_tasks(
        &self,
        me: &NodeBoot,
    ) -> Result<HashMap<ObjectId, u64>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "node": &me.node, "status": { "$in": ACTIVE.to_vec() },
                "windlass.boot": { "$ne": &me.boot },
            } },
            doc! { "$group": { "_id": "$queue", "count": { "$sum": 1 } } },
        ]);
        let of_queue = |group: &Document| Some((group.get_object_id("_id").ok()?, count(group)));
        Ok(self.aggregated(groups).await?.iter().filter_map(of_queue).collect())
    }

    /// Orphans the tasks of a dead boot of one of our nodes and drops its holds. It must have lost
    /// its name before. Any node that later finds a task or hold of it repeats this.
    pub(crate) async fn orphan_ours(
        &self,
        node: &str,
        boot: &str,
        now: DateTime,
    ) -> Result<u64, DbError> {
        let of_it = doc! { "node": node, "windlass.boot": boot };
        let mut active = of_it.clone();
        active.insert("status", doc! { "$in": ACTIVE.to_vec() });
        let orphan = doc! {
            "$set": { "status": ORPHANED, "mtime": now, "windlass.last": boot },
            "$unset": { "windlass.boot": "", "windlass.cancel": "" },
        };
        let tasks = self.tasks_collection();
        let result = self.ask(tasks.update_many(active, orphan)).await?;
        // A program that ends its own task may have done so after its node died.
        let forget = doc! { "$unset": { "windlass.boot": "", "windlass.cancel": "" } };
        self.ask(tasks.update_many(of_it, forget)).await?;
        self.holds_drop_all(boot).await?;
        Ok(result.modified_count)
    }

    /// Orphans tasks that a foreign node claimed before that time and never started. The time may
    /// be stored as a date or as seconds since 1970.
    pub(crate) async fn orphan_foreign_claimed(
        &self,
        node: &str,
        before: DateTime,
        now: DateTime,
    ) -> Result<u64, DbError> {
        let filter = doc! {
            "node": node, "status": CLAIMED, "$nor": [owned_by_us(node)],
            "$or": [{ "mtime": { "$lt": before } }, { "mtime": { "$lt": seconds(before) } }],
        };
        self.orphan(filter, now).await
    }

    /// Orphans the running tasks of a foreign node, only if the user has configured it. Tasks
    /// claimed after that time stay: a delayed request must not take them.
    pub(crate) async fn orphan_foreign_running(
        &self,
        node: &str,
        now: DateTime,
    ) -> Result<u64, DbError> {
        let later = [doc! { "mtime": { "$gte": now } }, doc! { "mtime": { "$gte": seconds(now) } }];
        let neither: Vec<Document> = [owned_by_us(node)].into_iter().chain(later).collect();
        let filter = doc! { "node": node, "status": RUNNING, "$nor": neither };
        self.orphan(filter, now).await
    }

    async fn orphan(&self, filter: Document, now: DateTime) -> Result<u64, DbError> {
        let update = doc! { "$set": { "status": ORPHANED, "mtime": now } };
        Ok(self.ask(self.tasks_collection().update_many(filter, update)).await?.modified_count)
    }
}

/// Seconds since 1970, as some programs store times.
fn seconds(time: DateTime) -> i64 {
    time.timestamp_millis().div_euclid(1000)
}

/// Counts tasks by owner and other fields; see [`owner`] and [`count`].
pub(super) fn owner_groups(more: Document) -> Document {
    let ours = doc! { "boot": "$windlass.boot", "node": "$windlass.node" };
    let mut by = doc! { "node": "$node", "windlass": ours };
    by.extend(more);
    doc! { "$group": { "_id": by, "count": { "$sum": 1 } } }
}

/// The node of such a group, and the boot of ours that owns its tasks.
pub(super) fn owner(group: &Document) -> (Option<&str>, Option<&str>) {
    let by = group.get_document("_id").ok();
    (by.and_then(|by| by.get_str("node").ok()), by.and_then(owning_boot))
}

pub(super) fn count(group: &Document) -> u64 {
    group.get("count").and_then(whole).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}

fn owners(groups: &[Document]) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    for group in groups {
        let (Some(node), boot) = owner(group) else { continue };
        let count = count(group);
        let same = |owner: &&mut Owner| owner.node == node && owner.boot.as_deref() == boot;
        let owner = match owners.iter_mut().find(same) {
            Some(owner) => owner,
            None => {
                let boot = boot.map(str::to_owned);
                owners.push(Owner { node: node.to_owned(), boot, claimed: 0, running: 0 });
                match owners.last_mut() {
                    Some(owner) => owner,
                    None => continue,
                }
            }
        };
        match at(group, "_id.status").and_then(whole) {
            Some(-1) => owner.claimed += count,
            _ => owner.running += count,
        }
    }
    owners
}
