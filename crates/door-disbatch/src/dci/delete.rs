//! `DELETE /queues/:queue?tasks=keep|delete`. Without the parameter a queue that has tasks is not
//! deleted: its tasks would never run, and their purpose would be lost.
//!
//! With `tasks=delete`, running tasks are cancelled first. A queue keeps its entry until nothing of
//! it runs any more, so that a failed delete can be repeated.

use std::time::Duration;

use axum::extract::State;
use mongodb::bson::Document;
use mongodb::bson::oid::ObjectId;
use serde_json::Value;
use tokio::time::Instant;

use super::Dci;
use super::answer::{Answer, deleted};
use super::error::Failure;
use super::param::Params;
use super::path::Name;
use super::route::Routes;
use crate::database::{Database, DbError};
use crate::gridfs;

/// How long is waited for running tasks to be ended.
const END_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is looked whether they are.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// How long tasks are deleted and waited for by one request; what is left is for the next one.
/// Clients wait for longer than that.
const WORK_TIME_MAX: Duration = Duration::from_secs(40);
/// Tasks of a queue that is not deleted because of them are counted up to this number.
const COUNTED_MAX: usize = 1_000;
/// Nodes that a refusal names.
const NODES_NAMED_MAX: u32 = 10;

/// The name of what was deleted, in an answer.
const RESULT: &str = "MongoDB::DeleteResult";

pub(super) fn add(routes: Routes) -> Routes {
    routes.delete("/queues/{*queue}", delete)
}

/// What becomes of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// There must be none.
    None,
    Keep,
    Delete,
}

impl Fate {
    fn read(value: Option<&Value>) -> Result<Fate, Failure> {
        match value.map(Value::as_str) {
            None => Ok(Fate::None),
            Some(Some("keep")) => Ok(Fate::Keep),
            Some(Some("delete")) => Ok(Fate::Delete),
            Some(_) => Err(Failure::bad("tasks must be \"keep\" or \"delete\"")),
        }
    }
}

async fn delete(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<Answer, Failure> {
    match remove(&dci, &name, params.get("tasks")).await.map_err(told)? {
        true => Ok(params.answer(deleted(1))),
        false => Err(told(Failure::bad(format!("there is no queue {name}")))),
    }
}

/// A refusal with the number of what was deleted: nothing, unless it says so itself.
pub(super) fn told(mut refused: Failure) -> Failure {
    refused.body.entry(RESULT).or_insert_with(|| deleted(0)[RESULT].take());
    refused
}

/// Deletes a queue; `tasks` is the parameter. False: there is none.
pub(super) async fn remove(dci: &Dci, name: &str, tasks: Option<&Value>) -> Result<bool, Failure> {
    let (database, fate) = (dci.database(), Fate::read(tasks)?);
    let until = Instant::now() + WORK_TIME_MAX;
    let told =
        |error: DbError| Failure::database(&format!("Could not delete queue '{name}'"), &error);
    let Some(queue) = database.queue(name).await.map_err(told)? else { return Ok(false) };
    // A queue without a proper id has no tasks: they name it by that.
    let Ok(id) = queue.get_object_id("_id") else {
        return Ok(database.queue_delete(name).await.map_err(told)?.is_some());
    };
    match fate {
        Fate::None => refuse_tasks(database, id, name).await?,
        Fate::Keep => {}
        Fate::Delete => empty(database, id, name, until).await?,
    }
    let Some(gone) = database.queue_delete(&id.to_hex()).await.map_err(told)? else {
        return Ok(false);
    };
    // What was added or taken while the entry was still there.
    let left = match fate {
        Fate::None => refuse_tasks(database, id, name).await,
        Fate::Keep => Ok(()),
        Fate::Delete => empty(database, id, name, until).await,
    };
    match left {
        Ok(()) => Ok(true),
        Err(refused) => Err(put_back(database, gone, name, refused).await),
    }
}

async fn refuse_tasks(database: &Database, id: ObjectId, name: &str) -> Result<(), Failure> {
    let count = match database.tasks_of(id, COUNTED_MAX + 1).await? {
        0 => return Ok(()),
        count if count > COUNTED_MAX => format!("more than {COUNTED_MAX}"),
        count => count.to_string(),
    };
    let message = format!(
        "queue {name} has {count} tasks: tasks=keep leaves them behind, tasks=delete deletes them"
    );
    Err(Failure::bad(message))
}

/// The queue comes back as it was removed, with whatever nodes and users had changed until then, so
/// that it can be deleted another time. Answers with the refusal.
async fn put_back(database: &Database, gone: Document, name: &str, refused: Failure) -> Failure {
    let Err(error) = database.queue_restore(gone).await else { return refused };
    let why = refused.body.get("error").and_then(Value::as_str).unwrap_or_default();
    let message = format!("queue {name} is deleted, but some of its tasks may be left: {why}");
    tracing::warn!("{message}; the queue could not be put back: {error}");
    Failure::new(refused.status, message).with(RESULT, deleted(1)[RESULT].take())
}

/// Deletes all tasks of a queue, with their files. Those that our nodes run are ended first; for
/// those of foreign nodes nobody can do that.
async fn empty(
    database: &Database,
    id: ObjectId,
    name: &str,
    until: Instant,
) -> Result<(), Failure> {
    // Since when there was nothing left but what runs.
    let mut waiting = None;
    while Instant::now() < until {
        let foreign = database.foreign_running(id).await?;
        if foreign > 0 {
            let nodes = database.foreign_nodes(id, NODES_NAMED_MAX).await?.join(", ");
            return Err(Failure::conflict(format!(
                "{foreign} tasks of queue {name} run on nodes that cannot be asked to end them \
                 ({nodes}); set its limit to 0 and wait until they have ended"
            )));
        }
        let gone = database.tasks_delete(id).await?;
        if gone.count > 0 {
            gridfs::remove(database, &gone.ids).await?;
            continue;
        }
        if database.tasks_cancel_active(id).await? == 0 {
            return Ok(());
        }
        if waiting.get_or_insert_with(Instant::now).elapsed() > END_WAIT_MAX {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Err(Failure::conflict(format!(
        "tasks of queue {name} are still being ended and deleted; ask again in a moment"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_fate_of_tasks_is_said_in_one_of_two_words() {
        assert_eq!(Fate::read(None).unwrap(), Fate::None);
        assert_eq!(Fate::read(Some(&json!("keep"))).unwrap(), Fate::Keep);
        assert_eq!(Fate::read(Some(&json!("delete"))).unwrap(), Fate::Delete);
        for other in [json!(""), json!("Keep"), json!(null), json!(["keep", "delete"]), json!(1)] {
            assert!(Fate::read(Some(&other)).is_err(), "{other}");
        }
    }
}
