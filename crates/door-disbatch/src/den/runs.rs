//! The tasks of this node, each in its own async task: start, wait, write back, release the hold. A
//! claim is listed here from before its start until nothing is left to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};
use tokio::sync::Notify;

use windlass_core::sync::lock;

use crate::config::Plugin;
use crate::database::{Clock, Database, DbError, Ending, NodeBoot, Run};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::status::CANCELLED;
use crate::task::{self, EndHandle, RunContext, RunEnd, StopReason, TaskToRun};

#[derive(Clone, Default)]
pub(super) struct Runs {
    by_token: Arc<Mutex<HashMap<String, Entry>>>,
    /// Claims without a known outcome. Each occupies a slot, because it may still be made.
    pending_claims: Arc<Mutex<HashMap<String, (ObjectId, Instant)>>>,
    /// Notified when a task has ended and may have freed a slot.
    pub(super) ended: Arc<Notify>,
}

struct Entry {
    task: ObjectId,
    queue: ObjectId,
    handle: EndHandle,
}

/// A claimed task, ready to be run.
pub(super) struct Claimed {
    pub(super) me: NodeBoot,
    pub(super) run: Run,
    pub(super) task: Document,
    pub(super) queue: Queue,
    pub(super) plugin: Plugin,
}

impl Runs {
    /// The number of tasks on this node.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Tasks and pending claims: what counts against the node's limit.
    pub(super) fn slots_used(&self) -> u64 {
        (self.lock().len() + lock(&self.pending_claims).len()) as u64
    }

    /// The same for one queue.
    pub(super) fn slots_used_by(&self, queue: ObjectId) -> u64 {
        let here = self.lock().values().filter(|entry| entry.queue == queue).count();
        let open = lock(&self.pending_claims).values().filter(|(of, _)| *of == queue).count();
        (here + open) as u64
    }

    /// Whether this run of a task is here. Its token alone is not enough: a server that carried out
    /// a repeated claim twice shows another task under it.
    pub(super) fn knows(&self, run: &Run) -> bool {
        self.lock().get(&run.token).is_some_and(|entry| entry.task == run.id)
    }

    /// Whether the hold with this token is still needed.
    pub(super) fn needs_hold(&self, token: &str) -> bool {
        self.lock().contains_key(token) || lock(&self.pending_claims).contains_key(token)
    }

    /// To be called before a claim is sent.
    pub(super) fn claim_requested(&self, token: &str, queue: ObjectId) {
        lock(&self.pending_claims).insert(token.to_owned(), (queue, Instant::now()));
    }

    /// The outcome of the claim is known.
    pub(super) fn claim_answered(&self, token: &str) {
        lock(&self.pending_claims).remove(token);
    }

    /// Forgets claims this old, which can no longer be made.
    pub(super) fn forget_older(&self, age: Duration) {
        lock(&self.pending_claims).retain(|_, (_, since)| since.elapsed() < age);
    }

    /// Ends a task, if it is on this node.
    pub(super) fn end(&self, token: &str, why: StopReason) {
        if let Some(entry) = self.lock().get(token) {
            entry.handle.end(why);
        }
    }

    pub(super) fn end_all(&self, why: StopReason) {
        self.lock().values().for_each(|entry| entry.handle.end(why));
    }

    /// Stops waiting for a database that cannot be written.
    pub(super) fn give_up(&self) {
        self.lock().values().for_each(|entry| entry.handle.give_up());
    }

    /// Runs a task to its end. Must be called within a runtime.
    pub(super) fn start(&self, context: Arc<RunContext>, claimed: Claimed) {
        let Claimed { me, run, task, queue, plugin } = claimed;
        let (handle, end_signal) = task::end_signal();
        let (id, token) = (queue.id, run.token.clone());
        self.lock().insert(token.clone(), Entry { task: run.id, queue: id, handle });
        self.claim_answered(&token);
        let guard = EntryGuard { runs: self.clone(), token };
        tokio::spawn(async move {
            let work = TaskToRun { me: me.clone(), task, queue, plugin };
            let ran = task::run(&context, work, end_signal.clone()).await;
            let mut gone = ran != RunEnd::Unwritten;
            if ran == RunEnd::NotStarted {
                let (database, clock) = (&context.database, &context.clock);
                let back = || give_back(database, clock, &run, &me);
                let back = task::until_back(&end_signal, back).await;
                gone = matches!(back, Ok(Ok(())));
                if let Ok(back) = back {
                    report(back, &run, "given back");
                }
            }
            // A task counts against the limit while the database shows it as ours.
            if context.database.dialect() == Dialect::Released && gone {
                tokio::select! {
                    dropped = context.database.hold_drop(id, &run.token) => {
                        report(dropped, &run, "taken from its queue's limit");
                    }
                    () = end_signal.given_up() => {}
                }
            }
            drop(guard);
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.by_token)
    }
}

/// Removes a task's entry on drop, whatever happened to the task.
struct EntryGuard {
    runs: Runs,
    token: String,
}

impl Drop for EntryGuard {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.token);
        self.runs.ended.notify_one();
    }
}

/// Only logs the error: the next pass repeats it.
fn report(done: Result<(), DbError>, run: &Run, what: &str) {
    if let Err(error) = done {
        tracing::warn!(task = %run.id, "the task has not been {what} yet: {error}");
    }
}

/// Queues a claimed task again, or ends it when it was cancelled.
pub(super) async fn give_back(
    database: &Database,
    clock: &Clock,
    run: &Run,
    me: &NodeBoot,
) -> Result<(), DbError> {
    let task = database.task(run.id).await?;
    let cancelled = task
        .is_some_and(|task| crate::doc::at(&task, "windlass.cancel") == Some(&Bson::Boolean(true)));
    if cancelled {
        let ending = ending(CANCELLED, "the task was cancelled before it was started");
        database.finish(run, me, &ending, clock.now()).await?;
    } else {
        database.unclaim(run, me, clock.now()).await?;
    }
    Ok(())
}

/// An end with only a reason as its output.
pub(super) fn ending(status: i32, why: &str) -> Ending {
    Ending {
        status,
        stdout: Bson::Null,
        stderr: Bson::from(why),
        cmd_exit: None,
        cmd_err: None,
        complete: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_without_an_answer_keeps_its_place_until_it_is_known_or_old() {
        let (runs, queue) = (Runs::default(), ObjectId::new());
        runs.claim_requested("a", queue);
        runs.claim_requested("b", ObjectId::new());
        assert_eq!((runs.slots_used(), runs.slots_used_by(queue), runs.count()), (2, 1, 0));
        let run = Run { id: ObjectId::new(), token: "a".to_owned(), attempt: 0 };
        assert!(runs.needs_hold("a") && !runs.knows(&run));
        runs.forget_older(Duration::from_secs(3600));
        runs.claim_answered("a");
        assert_eq!((runs.slots_used(), runs.needs_hold("a")), (1, false));
        runs.forget_older(Duration::ZERO);
        assert_eq!(runs.slots_used(), 0);
    }
}
