//! One pass over the queues: tasks are claimed in fair turns, up to every limit, and started.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mongodb::bson::Document;
use mongodb::bson::oid::ObjectId;
use tokio_util::sync::CancellationToken;

use super::entry::Term;
use super::limit::Increase;
use super::log_once::LogOnce;
use super::orphan::Snapshot;
use super::plugins::Programs;
use super::runs::{Claimed, Runs};
use super::turn::Turns;
use crate::config::{Config, Plugin};
use crate::database::{Clock, Database, DbError, NodeBoot, Owner, Run, token};
use crate::dialect::Dialect;
use crate::doc::{Limit, Queue, Sort};
use crate::task::RunContext;

/// Default maximum number of tasks of one node.
pub(super) const RUNS_MAX: u64 = 10_000;
/// Maximum number of claims before the next regular pass.
const CLAIMS_MAX: usize = 200;
/// The same as a time limit, for a busy database.
const GO_TIME_MAX: Duration = Duration::from_secs(1);

/// The inputs of one round of claims.
pub(super) struct Pass<'a> {
    pub(super) database: &'a Database,
    pub(super) clock: &'a Clock,
    pub(super) term: &'a Term,
    pub(super) context: &'a Arc<RunContext>,
    pub(super) runs: &'a Runs,
    /// The limit of the node.
    pub(super) limit: Limit,
    pub(super) stopping: &'a CancellationToken,
    /// Maximum number of tasks on this machine.
    pub(super) runs_max: u64,
    pub(super) earlier_tasks: &'a EarlierTasks,
}

/// Tasks still running under this node's name that belong to foreign nodes or earlier starts. They
/// count against the limits like all tasks under the name.
#[derive(Debug, Default)]
pub(super) struct EarlierTasks {
    count: u64,
    by_queue: HashMap<ObjectId, u64>,
}

impl EarlierTasks {
    pub(super) async fn load(
        database: &Database,
        snapshot: &Snapshot,
        me: &NodeBoot,
    ) -> Result<EarlierTasks, DbError> {
        let other = |owner: &&Owner| {
            owner.node == me.node && owner.boot.as_deref() != Some(me.boot.as_str())
        };
        let others = snapshot.owners.iter().filter(other);
        let count = others.map(|owner| owner.claimed + owner.running).sum();
        match count {
            0 => Ok(EarlierTasks::default()),
            _ => Ok(EarlierTasks { count, by_queue: database.earlier_tasks(me).await? }),
        }
    }
}

/// Whether there may be more to claim at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backlog {
    Perhaps,
    No,
}

impl Pass<'_> {
    pub(super) async fn claim(
        &self,
        queues: &[(Queue, Plugin)],
        turns: &mut Turns,
        increase: &mut Increase,
        logged: &mut LogOnce,
    ) -> Result<Backlog, DbError> {
        let ids: Vec<ObjectId> = queues.iter().map(|(queue, _)| queue.id).collect();
        let mut open = turns.order(&ids);
        let (begin, mut claims) = (Instant::now(), 0);
        while !open.is_empty() {
            let mut still = Vec::new();
            for index in open {
                let (queue, plugin) = &queues[index];
                if !self.node_has_room(increase) {
                    return Ok(Backlog::No);
                }
                if !self.queue_has_room(queue, increase) {
                    continue;
                }
                let taken = self.take(queue, plugin).await;
                if taken_or_logged(queue, taken, logged)? {
                    turns.served(queue.id);
                    increase.record_claim(queue.id);
                    still.push(index);
                    claims += 1;
                }
                if claims >= CLAIMS_MAX || begin.elapsed() >= GO_TIME_MAX {
                    turns.served(queue.id);
                    return Ok(Backlog::Perhaps);
                }
            }
            open = still;
        }
        Ok(Backlog::No)
    }

    fn node_has_room(&self, increase: &Increase) -> bool {
        let slots_used = self.runs.slots_used() + self.earlier_tasks.count;
        let room =
            slots_used < self.runs_max.min(RUNS_MAX) && self.limit.allows_one_more(slots_used);
        let may = self.term.may_start() && !self.stopping.is_cancelled();
        room && increase.node_has_room() && may
    }

    /// In the released dialect, a queue's limit holds across all nodes and is shared by holds.
    fn queue_has_room(&self, queue: &Queue, increase: &Increase) -> bool {
        let earlier = match self.database.dialect() {
            Dialect::Seed => self.earlier_tasks.by_queue.get(&queue.id).copied().unwrap_or(0),
            Dialect::Released => 0,
        };
        let here = self.runs.slots_used_by(queue.id) + earlier;
        increase.has_room(queue.id) && queue.limit.allows_one_more(here)
    }

    /// Claims a task of the queue and starts it. False: there is no task or no free slot.
    async fn take(&self, queue: &Queue, plugin: &Plugin) -> Result<bool, DbError> {
        if !self.database.claimable(queue).await? {
            return Ok(false);
        }
        let (token, me) = (token(), &self.term.me);
        let shared = self.database.dialect() == Dialect::Released;
        if shared {
            let foreign = self.database.foreign_running(queue.id).await?;
            if !self.database.hold_take(queue, foreign, &token, me).await? {
                return Ok(false);
            }
        }
        // It occupies a slot until its outcome is known: an unanswered claim may still be made,
        // however late. The next pass corrects whatever goes wrong after it.
        self.runs.claim_requested(&token, queue.id);
        let claimed = match self.database.claim(queue, me, &token, self.clock.now()).await {
            Ok(claimed) => claimed,
            Err(away @ DbError::Away(_)) => return Err(away),
            Err(refused) => {
                self.not_taken(shared, queue, &token).await?;
                return Err(refused);
            }
        };
        let run = claimed.as_ref().and_then(Run::of);
        let (Some(task), Some(run)) = (claimed, run) else {
            self.not_taken(shared, queue, &token).await?;
            return Ok(false);
        };
        if shared && !self.database.hold_fits(queue.id, &token).await? {
            self.database.unclaim(&run, me, self.clock.now()).await?;
            self.not_taken(shared, queue, &token).await?;
            return Ok(false);
        }
        let (me, queue, plugin) = (me.clone(), queue.clone(), plugin.clone());
        let claimed = Claimed { me, run, task, queue, plugin };
        self.runs.start(Arc::clone(self.context), claimed);
        Ok(true)
    }

    async fn not_taken(&self, shared: bool, queue: &Queue, token: &str) -> Result<(), DbError> {
        self.runs.claim_answered(token);
        if shared { self.database.hold_drop(queue.id, token).await } else { Ok(()) }
    }
}

/// Whether a task was claimed. A refusal concerns one queue and must not affect the others.
fn taken_or_logged(
    queue: &Queue,
    taken: Result<bool, DbError>,
    logged: &mut LogOnce,
) -> Result<bool, DbError> {
    let subject = format!("claims {}", queue.id);
    match taken {
        Ok(taken) => {
            logged.is_over(&subject);
            Ok(taken)
        }
        Err(error @ DbError::Away(_)) => Err(error),
        Err(error) => {
            if logged.is_news(&subject, &error.to_string()) {
                tracing::warn!(queue = queue.name, "cannot claim tasks of the queue: {error}");
            }
            Ok(false)
        }
    }
}

/// All valid queues. Invalid ones are logged once.
pub(super) fn readable(
    documents: &[Document],
    dialect: Dialect,
    logged: &mut LogOnce,
) -> Vec<Queue> {
    let mut queues = Vec::new();
    for document in documents {
        let id = document.get("_id").map_or_else(|| "?".to_owned(), ToString::to_string);
        let subject = format!("document {id}");
        match Queue::read(document, dialect) {
            Ok(queue) => {
                if logged.is_over(&subject) {
                    tracing::info!(queue = queue.name, "the queue's document is valid again");
                }
                queues.push(queue);
            }
            Err(invalid) => {
                let text = invalid.to_string();
                if logged.is_news(&subject, &text) {
                    tracing::warn!(queue = id, "skipping a queue: {text}");
                }
            }
        }
    }
    queues
}

/// The queues that this node serves, each with its program.
pub(super) fn served(
    queues: &[Queue],
    programs: &mut Programs,
    config: &Config,
    logged: &mut LogOnce,
) -> Vec<(Queue, Plugin)> {
    let mut served = Vec::new();
    for queue in queues {
        warn_of_sort(queue, logged);
        let subject = format!("queue {}", queue.id);
        match programs.of(queue, config) {
            Ok(plugin) => {
                if logged.is_over(&subject) {
                    tracing::info!(queue = queue.name, "now serving the queue");
                }
                served.push((queue.clone(), plugin));
            }
            Err(why) => {
                if logged.is_news(&subject, &why) {
                    tracing::warn!(queue = queue.name, "the queue is not served here: {why}");
                }
            }
        }
    }
    served
}

fn warn_of_sort(queue: &Queue, logged: &mut LogOnce) {
    let subject = format!("sort {}", queue.id);
    match &queue.sort {
        Sort::Unknown(word) => {
            if logged.is_news(&subject, word) {
                tracing::warn!(
                    queue = queue.name,
                    "`sort` must be \"fifo\", \"lifo\" or \"default\", not {word:?}; its tasks \
                     are taken in no order"
                );
            }
        }
        _ => drop(logged.is_over(&subject)),
    }
}
