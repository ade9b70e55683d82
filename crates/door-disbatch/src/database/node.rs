//! Entries of nodes. A name belongs to one start of one node at a time.

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::results::UpdateResult;

use super::{Database, DbError, Me, by_name_or_id, no_boot};

/// The most entries that are looked at.
const NODES_MAX: usize = 10_000;

/// How often an entry may come and go under our hands before we give up.
const ENTER_TRIES_MAX: usize = 3;

/// From here on a number with a fraction would not grow any more.
const BEAT_MAX: i64 = 1 << 53;

/// Where a node runs, so that another start on the same host can tell whether it still does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// The boot of the kernel.
    pub host: String,
    pub pid: u32,
    /// The process that ends the node's tasks when the node is gone.
    pub fence: Option<u32>,
    /// How long the node may be silent before it counts as dead.
    pub orphan_after: Duration,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entered {
    Mine,
    /// Another start has the name; this is its entry.
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

    /// Enters the node, unless another start of one of our nodes stands there. A foreign entry of
    /// the same name is taken over with its `maxthreads`.
    pub(crate) async fn node_enter(
        &self,
        me: &Me,
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
        me: &Me,
        process: &Process,
        now: DateTime,
    ) -> Result<bool, DbError> {
        let fields = process_fields(me, process, now);
        let update = doc! { "$set": { "timestamp": now, "windlass": fields } };
        let nodes = self.nodes_collection();
        Ok(self.one(nodes.find_one_and_update(filter, update)).await?.is_some())
    }

    /// The sign of life that every program understands, and the seed's report on its queues.
    /// Answers with the entry as it stands now; with nothing when it is not ours any more.
    pub(crate) async fn node_update(
        &self,
        me: &Me,
        now: DateTime,
        report: Option<Vec<Document>>,
    ) -> Result<Option<Document>, DbError> {
        let mut set = doc! { "timestamp": now };
        if let Some(report) = report {
            set.insert("queues", report);
        }
        let nodes = self.nodes_collection();
        let update = nodes
            .find_one_and_update(mine(me), doc! { "$set": set })
            .return_document(ReturnDocument::After);
        self.one(update).await
    }

    /// Our own sign of life. False: the name is not ours any more.
    pub(crate) async fn node_beat(&self, me: &Me) -> Result<bool, DbError> {
        let mut grows = mine(me);
        grows.insert("windlass.beat", a_beat());
        let beat = doc! { "$inc": { "windlass.beat": 1_i64 } };
        match self.ask(self.nodes_collection().update_one(grows, beat)).await {
            Ok(result) if result.matched_count == 1 => return Ok(true),
            Err(error @ DbError::Away(_)) => return Err(error),
            // The name is not ours, or another program wrote something there that does not grow.
            Ok(_) | Err(_) => {}
        }
        let anew = doc! { "$set": { "windlass.beat": 1_i64 } };
        let result = self.ask(self.nodes_collection().update_one(mine(me), anew)).await?;
        Ok(result.matched_count == 1)
    }

    /// Takes the name from a start that is held dead, unless it has shown life since `beat` was
    /// seen. True: that start can never renew its lease again, so its tasks may be orphaned at any
    /// later time.
    pub(crate) async fn node_bury(
        &self,
        node: &str,
        boot: &str,
        beat: &Option<Bson>,
    ) -> Result<bool, DbError> {
        let nodes = self.nodes_collection();
        if let Some(beat) = beat {
            let filter =
                doc! { "node": node, "windlass.boot": boot, "windlass.beat": the_same(beat) };
            let unset = doc! { "$unset": { "windlass.boot": "" } };
            if self.ask(nodes.update_one(filter, unset)).await?.matched_count == 1 {
                return Ok(true);
            }
        }
        let stands = self.one(nodes.find_one(doc! { "node": node, "windlass.boot": boot })).await?;
        Ok(stands.is_none())
    }

    /// Whether this start of a node of ours has its name still.
    pub(super) async fn has_entry(&self, boot: &str) -> Result<bool, DbError> {
        let nodes = self.nodes_collection();
        Ok(self.one(nodes.find_one(doc! { "windlass.boot": boot })).await?.is_some())
    }

    /// Gives the name free. The entry stays, as a stopped node's entry does.
    pub(crate) async fn node_leave(&self, me: &Me) -> Result<(), DbError> {
        let unset = doc! { "$unset": { "windlass.boot": "" } };
        self.ask(self.nodes_collection().update_one(mine(me), unset)).await?;
        Ok(())
    }

    /// Limits how many tasks a node has at once; nothing means without a limit.
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

/// What grows by one each time, and shows that it did.
fn a_beat() -> Document {
    doc! { "$gte": 0, "$lt": BEAT_MAX }
}

/// The beat that was seen, whatever it is. Two values are not compared by the server, or not with
/// themselves; who lives replaces them.
fn the_same(beat: &Bson) -> Document {
    match beat {
        Bson::Undefined => doc! { "$not": a_beat() },
        Bson::Double(number) if number.is_nan() => doc! { "$not": a_beat() },
        other => doc! { "$eq": other },
    }
}

fn mine(me: &Me) -> Document {
    doc! { "node": &me.node, "windlass.boot": &me.boot }
}

fn process_fields(me: &Me, process: &Process, now: DateTime) -> Document {
    doc! {
        "boot": &me.boot,
        // Another one each time: to enter again is a sign of life, too.
        "beat": now.timestamp_millis(),
        "version": &process.version,
        "host": &process.host,
        "pid": i64::from(process.pid),
        "fence": process.fence.map_or(Bson::Null, |pid| Bson::from(i64::from(pid))),
        "orphan_after": process.orphan_after.as_secs_f64(),
    }
}
