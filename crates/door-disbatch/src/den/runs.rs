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
use crate::database::{Clock, Database, DbError, Ending, Me, Run};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::status::CANCELLED;
use crate::task::{self, EndHandle, Parts, Ran, Why, Work};

#[derive(Clone, Default)]
pub(super) struct Runs {
    by_token: Arc<Mutex<HashMap<String, Entry>>>,
    /// Claims that were asked for and are not known to be made or not: each has its place, even
    /// without an answer for a while, because it may still be made.
    asked: Arc<Mutex<HashMap<String, (ObjectId, Instant)>>>,
    /// A task has ended, so that there may be room for another one.
    pub(super) ended: Arc<Notify>,
}

struct Entry {
    queue: ObjectId,
    handle: EndHandle,
}

/// A claimed task, ready to be run.
pub(super) struct Claimed {
    pub(super) me: Me,
    pub(super) run: Run,
    pub(super) task: Document,
    pub(super) queue: Queue,
    pub(super) plugin: Plugin,
}

impl Runs {
    /// The tasks that are here.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Those and all claims that may still be made count against the node's limit.
    pub(super) fn places(&self) -> u64 {
        (self.lock().len() + lock(&self.asked).len()) as u64
    }

    /// The same of one queue.
    pub(super) fn places_of(&self, queue: ObjectId) -> u64 {
        let here = self.lock().values().filter(|entry| entry.queue == queue).count();
        let open = lock(&self.asked).values().filter(|(of, _)| *of == queue).count();
        (here + open) as u64
    }

    pub(super) fn knows(&self, token: &str) -> bool {
        self.lock().contains_key(token)
    }

    /// Whether the hold with this token is still needed.
    pub(super) fn needs_hold(&self, token: &str) -> bool {
        self.knows(token) || lock(&self.asked).contains_key(token)
    }

    /// Before a claim is asked for.
    pub(super) fn ask(&self, token: &str, queue: ObjectId) {
        lock(&self.asked).insert(token.to_owned(), (queue, Instant::now()));
    }

    /// What became of the claim is known.
    pub(super) fn answered(&self, token: &str) {
        lock(&self.asked).remove(token);
    }

    /// Claims that were asked for so long ago do not come any more.
    pub(super) fn forget_older(&self, age: Duration) {
        lock(&self.asked).retain(|_, (_, since)| since.elapsed() < age);
    }

    /// Ends one of them, if it is here.
    pub(super) fn end(&self, token: &str, why: Why) {
        if let Some(entry) = self.lock().get(token) {
            entry.handle.end(why);
        }
    }

    pub(super) fn end_all(&self, why: Why) {
        self.lock().values().for_each(|entry| entry.handle.end(why));
    }

    /// What cannot be written is no longer waited for.
    pub(super) fn give_up(&self) {
        self.lock().values().for_each(|entry| entry.handle.give_up());
    }

    /// Runs a task to its end. Must be called within a runtime.
    pub(super) fn start(&self, parts: Arc<Parts>, claimed: Claimed) {
        let Claimed { me, run, task, queue, plugin } = claimed;
        let (handle, ender) = task::ender();
        let (id, token) = (queue.id, run.token.clone());
        self.lock().insert(token.clone(), Entry { queue: id, handle });
        self.answered(&token);
        let place = Place { runs: self.clone(), token };
        tokio::spawn(async move {
            let work = Work { me: me.clone(), task, queue, plugin };
            let ran = task::run(&parts, work, ender.clone()).await;
            let mut gone = ran != Ran::Unwritten;
            if ran == Ran::NotStarted {
                let (database, clock) = (&parts.database, &parts.clock);
                let back = || give_back(database, clock, &run, &me);
                let back = task::until_back(&ender, back).await;
                gone = matches!(back, Ok(Ok(())));
                if let Ok(back) = back {
                    report(back, &run, "given back");
                }
            }
            // The limit counts a task as long as the database shows it as ours.
            if parts.database.dialect() == Dialect::Released && gone {
                tokio::select! {
                    dropped = parts.database.hold_drop(id, &run.token) => {
                        report(dropped, &run, "taken from its queue's limit");
                    }
                    () = ender.given_up() => {}
                }
            }
            drop(place);
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        lock(&self.by_token)
    }
}

/// Gives up the place of a task when it is dropped, whatever has happened to it.
struct Place {
    runs: Runs,
    token: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.token);
        self.runs.ended.notify_one();
    }
}

/// The next pass finds what is left and does it.
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
    me: &Me,
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

/// An end without any output but the reason.
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
        runs.ask("a", queue);
        runs.ask("b", ObjectId::new());
        assert_eq!((runs.places(), runs.places_of(queue), runs.count()), (2, 1, 0));
        assert!(runs.needs_hold("a") && !runs.knows("a"));
        runs.forget_older(Duration::from_secs(3600));
        runs.answered("a");
        assert_eq!((runs.places(), runs.needs_hold("a")), (1, false));
        runs.forget_older(Duration::ZERO);
        assert_eq!(runs.places(), 0);
    }
}
