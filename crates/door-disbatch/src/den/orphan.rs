//! Finds the tasks of dead nodes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mongodb::bson::{Bson, DateTime, Document};

use super::lease::Host;
use super::liveness::{Liveness, NodeIdentity, Observation};
use super::refusal::Refusals;
use crate::config::Config;
use crate::database::{Clock, Database, DbError, Owner};
use crate::doc::{Hold, Node, at};

/// Foreign nodes start claimed tasks almost at once, so older claims count as lost.
const CLAIMED_AGE_MAX: Duration = Duration::from_secs(5 * 60);
const PORT: u16 = 27017;

/// The database as one observation found it.
pub(super) struct Snapshot {
    pub(super) entries: Vec<Node>,
    pub(super) queues: Vec<Document>,
    /// The servers, as they name themselves.
    pub(super) hosts: Vec<Host>,
    /// Whether a restart of the server would be noticed.
    pub(super) vouched: bool,
    pub(super) owners: Vec<Owner>,
    /// Holds with their queues.
    pub(super) holds: Vec<(Bson, Hold)>,
}

pub(super) struct NodeWatch {
    liveness: Liveness,
    begin: Instant,
    orphan_after: Duration,
    orphan_foreign: Option<Duration>,
}

impl NodeWatch {
    pub(super) fn new(config: &Config) -> NodeWatch {
        NodeWatch {
            liveness: Liveness::new(config.heartbeat),
            begin: Instant::now(),
            orphan_after: config.orphan_after,
            orphan_foreign: config.orphan_foreign,
        }
    }

    /// Observes all nodes, and updates the clock with the server's time.
    pub(super) async fn observe(
        &mut self,
        database: &Database,
        clock: &Clock,
    ) -> Result<Snapshot, DbError> {
        let snapshot = self.try_observe(database, clock).await;
        if snapshot.is_err() {
            self.liveness.observation_failed();
        }
        snapshot
    }

    async fn try_observe(
        &mut self,
        database: &Database,
        clock: &Clock,
    ) -> Result<Snapshot, DbError> {
        let sent = self.begin.elapsed();
        let hello = database.hello().await?;
        if let Ok(time) = hello.get_datetime("localTime") {
            clock.learn(*time);
        }
        let entries = database.nodes().await?;
        let owners = database.owners().await?;
        let queues = database.queues().await?;
        let received = self.begin.elapsed();
        // Any of several routers may answer, so its process id says nothing about the database.
        let routed = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
        let server = at(&hello, "topologyVersion.processId").filter(|_| !routed).cloned();
        let entries: Vec<(Node, Option<Bson>)> = entries
            .iter()
            .filter_map(|entry| {
                Some((Node::read(entry).ok()?, at(entry, "windlass.beat").cloned()))
            })
            .collect();
        let holds = holds(&queues);
        let signs = signs(&entries, &owners, &holds);
        let entries = entries.into_iter().map(|(node, _)| node).collect();
        // If restarts are not visible, others may miss one that we think we observed.
        let (hosts, vouched) = (hosts(&hello), server.is_some());
        self.liveness.observe(Observation { sent, received, server, signs });
        Ok(Snapshot { entries, queues, hosts, vouched, holds, owners })
    }

    /// Orphans the tasks of dead nodes. `node` and `boot` are this node's own.
    pub(super) async fn clear(
        &self,
        database: &Database,
        snapshot: &Snapshot,
        node: &str,
        boot: Option<&str>,
        now: DateTime,
    ) -> Result<(), DbError> {
        let mut refusals = Refusals::default();
        for (who, beat) in self.liveness.silent_for(self.orphan_after) {
            let Some(dead) = who.boot.as_deref().filter(|dead| Some(*dead) != boot) else {
                continue;
            };
            let cleared = if who.node.is_empty() {
                drop_holds(database, snapshot, dead).await
            } else if self.is_dead(who, snapshot) {
                evict(database, &who.node, dead, beat, now).await
            } else {
                Ok(())
            };
            refusals.skip_refused(cleared)?;
        }
        for owner in snapshot.owners.iter().filter(|owner| owner.boot.is_none()) {
            refusals.skip_refused(self.clear_foreign(database, owner, node, now).await)?;
        }
        refusals.into_result()
    }

    /// A node may have configured a longer time than ours.
    fn is_dead(&self, who: &NodeIdentity, snapshot: &Snapshot) -> bool {
        let entry = snapshot.entries.iter().find(|entry| entry.name == who.node);
        let asked = entry.filter(|entry| entry.boot == who.boot).and_then(|it| it.orphan_after);
        let time = asked.unwrap_or_default().max(self.orphan_after);
        self.liveness.silent(who).is_some_and(|(silent, _)| silent >= time)
    }

    async fn clear_foreign(
        &self,
        database: &Database,
        owner: &Owner,
        me: &str,
        now: DateTime,
    ) -> Result<(), DbError> {
        let silent = self.liveness.silent(&NodeIdentity::foreign(&owner.node));
        let silent = silent.map_or(Duration::ZERO, |(time, _)| time);
        if owner.claimed > 0 && (owner.node == me || silent >= self.orphan_after) {
            let age = i64::try_from(CLAIMED_AGE_MAX.as_millis()).unwrap_or(i64::MAX);
            let before = DateTime::from_millis(now.timestamp_millis().saturating_sub(age));
            let tasks = database.orphan_foreign_claimed(&owner.node, before, now).await?;
            log_orphaned(&owner.node, tasks, "claimed and never started");
        }
        if owner.running > 0 && self.orphan_foreign.is_some_and(|time| silent >= time) {
            let tasks = database.orphan_foreign_running(&owner.node, now).await?;
            log_orphaned(
                &owner.node,
                tasks,
                "running on a node that is silent for `orphan_foreign`",
            );
        }
        Ok(())
    }
}

/// Takes the name from a dead boot, unless it has shown life since. It can then never renew its
/// lease again, and all its tasks are orphaned.
pub(super) async fn evict(
    database: &Database,
    node: &str,
    boot: &str,
    beat: &Option<Bson>,
    now: DateTime,
) -> Result<(), DbError> {
    if !database.node_evict(node, boot, beat).await? {
        return Ok(());
    }
    let tasks = database.orphan_ours(node, boot, now).await?;
    tracing::warn!(node, boot, tasks, "a node is dead; its tasks are orphaned");
    Ok(())
}

fn log_orphaned(node: &str, tasks: u64, what: &str) {
    if tasks > 0 {
        tracing::warn!(node, tasks, "orphaned tasks of a foreign node: {what}");
    }
}

/// Drops the holds of a boot that has neither an entry nor a task: they were written after its
/// death.
async fn drop_holds(database: &Database, snapshot: &Snapshot, boot: &str) -> Result<(), DbError> {
    for (queue, hold) in snapshot.holds.iter().filter(|(_, hold)| hold.boot == boot) {
        if let Bson::ObjectId(queue) = queue {
            database.hold_drop(*queue, &hold.id).await?;
        }
    }
    Ok(())
}

/// The holds of all queues, including invalid queues; invalid holds are skipped.
pub(super) fn holds(queues: &[Document]) -> Vec<(Bson, Hold)> {
    let mut all = Vec::new();
    for queue in queues {
        let Some(Bson::Array(holds)) = at(queue, "windlass.holds") else { continue };
        let id = queue.get("_id").cloned().unwrap_or(Bson::Null);
        for hold in holds.iter().filter_map(Bson::as_document) {
            if let (Ok(token), Ok(boot)) = (hold.get_str("id"), hold.get_str("boot")) {
                let hold = Hold { id: token.to_owned(), boot: boot.to_owned() };
                all.push((id.clone(), hold));
            }
        }
    }
    all
}

/// All owners of an entry, a task or a hold, with their life signs.
fn signs(
    entries: &[(Node, Option<Bson>)],
    owners: &[Owner],
    holds: &[(Bson, Hold)],
) -> Vec<(NodeIdentity, Option<Bson>)> {
    let mut signs = Vec::new();
    let mut known = HashSet::new();
    let mut boots = HashSet::new();
    for (node, beat) in entries {
        let (who, sign) = match &node.boot {
            Some(boot) => {
                (NodeIdentity::ours(&node.name, boot), beat.clone().unwrap_or(Bson::Null))
            }
            None => (NodeIdentity::foreign(&node.name), node.timestamp.clone()),
        };
        boots.extend(node.boot.clone());
        if known.insert(who.clone()) {
            signs.push((who, Some(comparable(sign))));
        }
    }
    for owner in owners {
        let who = NodeIdentity { node: owner.node.clone(), boot: owner.boot.clone() };
        boots.extend(owner.boot.clone());
        if known.insert(who.clone()) {
            signs.push((who, None));
        }
    }
    for (_, hold) in holds {
        if boots.insert(hold.boot.clone()) {
            signs.push((NodeIdentity::ours("", &hold.boot), None));
        }
    }
    signs
}

/// Replaces values that do not equal themselves (NaN), which would never be observed as unchanged.
fn comparable(sign: Bson) -> Bson {
    match sign {
        Bson::Double(number) if number.is_nan() => Bson::Undefined,
        other => other,
    }
}

/// The members of a replica set, by their own names.
fn hosts(hello: &Document) -> Vec<Host> {
    let names = ["hosts", "passives"].into_iter().filter_map(|list| hello.get_array(list).ok());
    let names = names.flatten().filter_map(Bson::as_str);
    let host = |name: &str| match name.rsplit_once(':') {
        Some((host, port)) => (host.trim_matches(['[', ']']).to_owned(), port.parse().ok()),
        None => (name.to_owned(), None),
    };
    names.map(host).map(|(host, port)| (host, port.unwrap_or(PORT))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{bson, doc, oid::ObjectId};

    fn entry(document: Document) -> (Node, Option<Bson>) {
        (Node::read(&document).unwrap(), at(&document, "windlass.beat").cloned())
    }

    fn owner(node: &str, boot: Option<&str>) -> Owner {
        Owner { node: node.to_owned(), boot: boot.map(str::to_owned), claimed: 1, running: 0 }
    }

    #[test]
    fn everybody_with_an_entry_a_task_or_a_hold_is_seen_once() {
        let time = DateTime::from_millis(5);
        let entries = [
            entry(doc! { "node": "ours", "windlass": { "boot": "1", "beat": 7_i64 } }),
            entry(doc! { "node": "foreign", "timestamp": time }),
        ];
        let owners = [
            owner("ours", Some("1")),
            owner("ours", Some("0")),
            owner("ours", None),
            owner("foreign", None),
            owner("gone", None),
        ];
        let hold = |boot: &str| (Bson::Null, Hold { id: "x".into(), boot: boot.to_owned() });
        let signs = signs(&entries, &owners, &[hold("1"), hold("0"), hold("9"), hold("9")]);
        let expected = vec![
            (NodeIdentity::ours("ours", "1"), Some(Bson::Int64(7))),
            (NodeIdentity::foreign("foreign"), Some(Bson::DateTime(time))),
            (NodeIdentity::ours("ours", "0"), None),
            (NodeIdentity::foreign("ours"), None),
            (NodeIdentity::foreign("gone"), None),
            (NodeIdentity::ours("", "9"), None),
        ];
        assert_eq!(signs, expected);
    }

    #[test]
    fn holds_are_found_among_anything() {
        let id = ObjectId::new();
        let mixed = bson!([{ "id": "a", "boot": "b" }, 5, { "id": 1 }]);
        let queues = [
            doc! { "_id": id, "windlass": { "holds": mixed } },
            doc! { "_id": 7, "windlass": { "holds": 5 } },
            doc! { "windlass": [1] },
        ];
        let hold = Hold { id: "a".into(), boot: "b".into() };
        assert_eq!(holds(&queues), vec![(Bson::ObjectId(id), hold)]);
    }

    #[test]
    fn members_of_a_set_name_themselves() {
        let hello = doc! { "hosts": ["a:1", "b", "[::1]:5", 7], "passives": ["c:2"] };
        let found = hosts(&hello);
        let hosts: Vec<_> = found.iter().map(|(host, port)| (host.as_str(), *port)).collect();
        assert_eq!(hosts, [("a", 1), ("b", 27017), ("::1", 5), ("c", 2)]);
        assert!(super::hosts(&doc! {}).is_empty());
    }
}
