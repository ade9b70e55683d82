//! Tasks of nodes that are gone.

use std::collections::HashMap;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::{Database, DbError, Me, no_boot};
use crate::doc::{at, whole};
use crate::status::{ACTIVE, CLAIMED, ORPHANED, RUNNING};

/// Who has tasks that are claimed or running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    pub node: String,
    /// Nothing for a foreign node.
    pub boot: Option<String>,
    pub claimed: u64,
    pub running: u64,
}

impl Database {
    /// Everybody who has tasks, also those that have no entry among the nodes any more.
    pub async fn owners(&self) -> Result<Vec<Owner>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "node": { "$type": "string" }, "status": { "$in": ACTIVE.to_vec() },
            } },
            doc! { "$group": {
                "_id": { "node": "$node", "boot": "$windlass.boot", "status": "$status" },
                "count": { "$sum": 1 },
            } },
        ]);
        let groups = self.aggregated(groups).await?;
        Ok(owners(&groups))
    }

    /// By their queues, how many tasks a foreign node of this name has.
    pub async fn foreign_of(&self, node: &str) -> Result<HashMap<ObjectId, u64>, DbError> {
        let tasks = self.tasks_collection();
        let groups = tasks.aggregate([
            doc! { "$match": {
                "node": node, "status": { "$in": ACTIVE.to_vec() }, "windlass.boot": no_boot(),
            } },
            doc! { "$group": { "_id": "$queue", "count": { "$sum": 1 } } },
        ]);
        let count = |group: &Document| {
            let count = group.get("count").and_then(whole)?;
            Some((group.get_object_id("_id").ok()?, u64::try_from(count).ok()?))
        };
        Ok(self.aggregated(groups).await?.iter().filter_map(count).collect())
    }

    /// Orphans what a dead start of one of our nodes had, and drops what it held. The node's entry
    /// comes last: who finds it still there does all of this again.
    pub async fn orphan_ours(&self, node: &str, boot: &str, now: DateTime) -> Result<u64, DbError> {
        let of_it = doc! { "node": node, "windlass.boot": boot };
        let mut active = of_it.clone();
        active.insert("status", doc! { "$in": ACTIVE.to_vec() });
        let orphan = doc! {
            "$set": { "status": ORPHANED, "mtime": now, "windlass.last": boot },
            "$unset": { "windlass.boot": "", "windlass.cancel": "" },
        };
        let tasks = self.tasks_collection();
        let result = self.ask(tasks.update_many(active, orphan)).await?;
        // A program that ends its task itself may have done so behind the back of its dead node.
        let forget = doc! { "$unset": { "windlass.boot": "", "windlass.cancel": "" } };
        self.ask(tasks.update_many(of_it, forget)).await?;
        self.holds_drop_all(boot).await?;
        self.node_leave(&Me { node: node.to_owned(), boot: boot.to_owned() }).await?;
        Ok(result.modified_count)
    }

    /// Orphans what a foreign node claimed before that time and never started. The time may be
    /// stored as a date or as seconds since 1970.
    pub async fn orphan_foreign_claimed(
        &self,
        node: &str,
        before: DateTime,
        now: DateTime,
    ) -> Result<u64, DbError> {
        let filter = doc! {
            "node": node, "status": CLAIMED, "windlass.boot": no_boot(),
            "$or": [{ "mtime": { "$lt": before } }, { "mtime": { "$lt": seconds(before) } }],
        };
        self.orphan(filter, now).await
    }

    /// Orphans what a foreign node has running: only when the user said when that is right. What
    /// was claimed since then stays: a request that is delayed on its way must not take it.
    pub async fn orphan_foreign_running(&self, node: &str, now: DateTime) -> Result<u64, DbError> {
        let filter = doc! {
            "node": node, "status": RUNNING, "windlass.boot": no_boot(),
            "$nor": [{ "mtime": { "$gte": now } }, { "mtime": { "$gte": seconds(now) } }],
        };
        self.orphan(filter, now).await
    }

    async fn orphan(&self, filter: Document, now: DateTime) -> Result<u64, DbError> {
        let update = doc! { "$set": { "status": ORPHANED, "mtime": now } };
        Ok(self.ask(self.tasks_collection().update_many(filter, update)).await?.modified_count)
    }
}

/// Since 1970, as some programs write a time.
fn seconds(time: DateTime) -> i64 {
    time.timestamp_millis().div_euclid(1000)
}

fn owners(groups: &[Document]) -> Vec<Owner> {
    let mut owners: Vec<Owner> = Vec::new();
    for group in groups {
        let Some(Bson::String(node)) = at(group, "_id.node") else { continue };
        let boot = at(group, "_id.boot").and_then(Bson::as_str);
        let count = group.get("count").and_then(whole).unwrap_or(0);
        let count = u64::try_from(count).unwrap_or(0);
        let same = |owner: &&mut Owner| owner.node == *node && owner.boot.as_deref() == boot;
        let owner = match owners.iter_mut().find(same) {
            Some(owner) => owner,
            None => {
                let boot = boot.map(str::to_owned);
                owners.push(Owner { node: node.clone(), boot, claimed: 0, running: 0 });
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
