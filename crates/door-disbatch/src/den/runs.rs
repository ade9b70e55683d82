//! The tasks that this node has, each in a task of its own: started, waited for, written back, its
//! hold dropped. A claim is here from before it is started until nothing of it is left to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document};
use tokio::sync::Notify;

use crate::config::Plugin;
use crate::database::{Clock, Database, DbError, Ending, Me, Run};
use crate::dialect::Dialect;
use crate::doc::Queue;
use crate::status::CANCELLED;
use crate::task::{self, EndHandle, Parts, Ran, Why, Work};

#[derive(Clone, Default)]
pub(super) struct Runs {
    by_token: Arc<Mutex<HashMap<String, Entry>>>,
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
    pub(super) dialect: Dialect,
}

impl Runs {
    pub(super) fn count(&self) -> u64 {
        self.lock().len() as u64
    }

    pub(super) fn count_of(&self, queue: ObjectId) -> u64 {
        self.lock().values().filter(|entry| entry.queue == queue).count() as u64
    }

    pub(super) fn knows(&self, token: &str) -> bool {
        self.lock().contains_key(token)
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
        let Claimed { me, run, task, queue, plugin, dialect } = claimed;
        let (handle, ender) = task::ender();
        let (id, token) = (queue.id, run.token.clone());
        self.lock().insert(token.clone(), Entry { queue: id, handle });
        let place = Place { runs: self.clone(), token };
        tokio::spawn(async move {
            let work = Work { me: me.clone(), task, queue, plugin, dialect };
            let ran = task::run(&parts, work, ender).await;
            if ran == Ran::NotStarted {
                let back = give_back(&parts.database, &parts.clock, &run, &me, dialect).await;
                report(back, &run, "given back");
            }
            // The limit counts a task as long as the database shows it as ours.
            if dialect == Dialect::Released && ran != Ran::Unwritten {
                let dropped = parts.database.hold_drop(id, &run.token).await;
                report(dropped, &run, "taken from its queue's limit");
            }
            drop(place);
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
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
        tracing::warn!(task = %run.id, "the task could not be {what} yet: {error}");
    }
}

/// Queues a claimed task again, or ends it when somebody has asked for that.
pub(super) async fn give_back(
    database: &Database,
    clock: &Clock,
    run: &Run,
    me: &Me,
    dialect: Dialect,
) -> Result<(), DbError> {
    let task = database.task(run.id).await?;
    let cancelled = task
        .is_some_and(|task| crate::doc::at(&task, "windlass.cancel") == Some(&Bson::Boolean(true)));
    if cancelled {
        let ending = ending(CANCELLED, "the task was cancelled before it was started");
        database.finish(run, me, &ending, dialect, clock.now()).await?;
    } else {
        database.unclaim(run, me, dialect, clock.now()).await?;
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
