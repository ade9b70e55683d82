//! Entries of nodes. A name belongs to one start of one node at a time.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::results::UpdateResult;

use super::{Database, DbError, NodeBoot, by_name_or_id, no_boot};

/// Maximum number of entries that are read.
const NODES_MAX: usize = 10_000;

/// How often to retry when the entry changes at the same time.
const ENTER_TRIES_MAX: usize = 3;

/// Beyond this, incrementing a double has no effect.
const BEAT_MAX: i64 = 1 << 53;

/// Identifies the node's process, so that another start on the same host can tell whether it is
/// alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// The boot id of the kernel.
    pub host: String,
    pub pid: u32,
    /// The process that kills the node's tasks if the node dies.
    pub fence: Option<u32>,
    /// After this much silence the node counts as dead.
    pub orphan_after: Duration,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entered {
    Mine,
    /// Another start holds the name; this is its entry.
    Taken(Document),
}

impl Database {
    /// All entries, sorted by name.
    pub(crate) async fn nodes(&self) -> Result<Vec<Document>, DbError> {
        let find = self.nodes_collection();
        self.all(find.find(doc! {}).sort(doc! { "node": 1 }), NODES_MAX).await
    }

    pub(crate) async fn node(&self, name_or_id: &str) -> Result<Option<Document>, DbError> {
        let filter = by_name_or_id("node", name_or_id);
        self.one(self.nodes_collection().find_one(filter)).await
    }

    /// Creates or takes over the node's entry, unless another start of one of our nodes holds it. A
    /// foreign entry of the same name is taken over with its `maxthreads`.
    pub(crate) async fn node_enter(
        &self,
        me: &NodeBoot,
        process: &Process,
        now: DateTime,
    ) -> Result<Entered, DbError> {
        let free = doc! {
            "node": &me.node,
            "$or": [{ "windlass.boot": no_boot() }, { "windlass.boot": &me.boot }],
        };
        for _ in 0..ENTER_TRIES_MAX {
            if self.node_seize(free.clone(), me, process, now).await? {
                return Ok(Entered::Mine);
            }
            if let Some(taken) =
                self.one(self.nodes_collection().find_one(doc! { "node": &me.node })).await?
            {
                return Ok(Entered::Taken(taken));
            }
            let entry = doc! {
                "node": &me.node, "timestamp": now,
                "windlass": process_fields(me, process, now),
            };
            match self.insert("nodes", &entry).await {
                Ok(_) => self.changelog_node(doc! { "node": &me.node }).await,
                Err(DbError::Duplicate(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(DbError::Away(format!("the entry of the node {} changes too fast", me.node)))
    }

    async fn node_seize(
        &self,
        filter: Document,
        me: &NodeBoot,
        process: &Process,
        now: DateTime,
    ) -> Result<bool, DbError> {
        let fields = process_fields(me, process, now);
        let update = doc! { "$set": { "timestamp": now, "windlass": fields } };
        let nodes = self.nodes_collection();
        Ok(self.one(nodes.find_one_and_update(filter, update)).await?.is_some())
    }

    /// Writes the life sign that every program understands, and the seed's queue statistics.
    /// Returns the current entry, or `None` if it is no longer ours.
    pub(crate) async fn node_update(
        &self,
        me: &NodeBoot,
        now: DateTime,
        report: Option<Vec<Document>>,
    ) -> Result<Option<Document>, DbError> {
        let mut set = doc! { "timestamp": now };
        if let Some(report) = report {
            set.insert("queues", report);
        }
        let nodes = self.nodes_collection();
        let update = nodes
            .find_one_and_update(own_entry(me), doc! { "$set": set })
            .return_document(ReturnDocument::After);
        self.one(update).await
    }

    /// Writes our own life sign. False: the name is no longer ours.
    pub(crate) async fn node_beat(&self, me: &NodeBoot) -> Result<bool, DbError> {
        let mut grows = own_entry(me);
        grows.insert("windlass.beat", growing_beat());
        let beat = doc! { "$inc": { "windlass.beat": 1_i64 } };
        match self.ask(self.nodes_collection().update_one(grows, beat)).await {
            Ok(result) if result.matched_count == 1 => return Ok(true),
            Err(error @ DbError::Away(_)) => return Err(error),
            // Either the name is not ours, or another program wrote a value that cannot be
            // incremented.
            Ok(_) | Err(_) => {}
        }
        let anew = doc! { "$set": { "windlass.beat": 1_i64 } };
        let result = self.ask(self.nodes_collection().update_one(own_entry(me), anew)).await?;
        Ok(result.matched_count == 1)
    }

    /// Takes the name from a dead start, unless it has shown life since `beat` was observed. True:
    /// that start can never renew its lease again, so its tasks may be orphaned at any later time.
    pub(crate) async fn node_evict(
        &self,
        node: &str,
        boot: &str,
        beat: &Option<Bson>,
    ) -> Result<bool, DbError> {
        let nodes = self.nodes_collection();
        if let Some(beat) = beat {
            let filter =
                doc! { "node": node, "windlass.boot": boot, "windlass.beat": unchanged_beat(beat) };
            let unset = doc! { "$unset": { "windlass.boot": "" } };
            if self.ask(nodes.update_one(filter, unset)).await?.matched_count == 1 {
                return Ok(true);
            }
        }
        let stands = self.one(nodes.find_one(doc! { "node": node, "windlass.boot": boot })).await?;
        Ok(stands.is_none())
    }

    /// Whether this boot still holds its name.
    pub(super) async fn has_entry(&self, boot: &str) -> Result<bool, DbError> {
        let nodes = self.nodes_collection();
        Ok(self.one(nodes.find_one(doc! { "windlass.boot": boot })).await?.is_some())
    }

    /// Releases the name. The entry stays, as it does for any stopped node.
    pub(crate) async fn node_leave(&self, me: &NodeBoot) -> Result<(), DbError> {
        let unset = doc! { "$unset": { "windlass.boot": "" } };
        self.ask(self.nodes_collection().update_one(own_entry(me), unset)).await?;
        Ok(())
    }

    /// Sets the maximum number of tasks of a node; `None` removes the limit.
    pub(crate) async fn node_set_limit(
        &self,
        name_or_id: &str,
        limit: Option<i64>,
    ) -> Result<UpdateResult, DbError> {
        let filter = by_name_or_id("node", name_or_id);
        let update = doc! { "$set": { "maxthreads": limit.map_or(Bson::Null, Bson::from) } };
        let result = self.ask(self.nodes_collection().update_one(filter.clone(), update)).await?;
        if result.modified_count > 0 {
            self.changelog_node(filter).await;
        }
        Ok(result)
    }
}

/// Matches a beat that can be incremented and is seen to change by it.
fn growing_beat() -> Document {
    doc! { "$gte": 0, "$lt": BEAT_MAX }
}

/// Matches the observed beat, of any type. Undefined and NaN cannot be compared; a living node
/// replaces them.
fn unchanged_beat(beat: &Bson) -> Document {
    match beat {
        Bson::Undefined => doc! { "$not": growing_beat() },
        Bson::Double(number) if number.is_nan() => doc! { "$not": growing_beat() },
        other => doc! { "$eq": other },
    }
}

fn own_entry(me: &NodeBoot) -> Document {
    doc! { "node": &me.node, "windlass.boot": &me.boot }
}

fn process_fields(me: &NodeBoot, process: &Process, now: DateTime) -> Document {
    doc! {
        "boot": &me.boot,
        // New each time: entering again is a life sign, too.
        "beat": now.timestamp_millis(),
        "version": &process.version,
        "host": &process.host,
        "pid": i64::from(process.pid),
        "fence": process.fence.map_or(Bson::Null, |pid| Bson::from(i64::from(pid))),
        "orphan_after": process.orphan_after.as_secs_f64(),
    }
}
