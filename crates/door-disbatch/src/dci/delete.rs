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
use super::answer::{JsonAnswer, deleted};
use super::error::Failure;
use super::param::Params;
use super::path::Name;
use super::route::Routes;
use crate::database::{Database, DbError};
use crate::gridfs;

/// How long to wait for running tasks to end.
const END_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two checks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Time limit for one request; the next one continues. Clients wait longer than that.
const WORK_TIME_MAX: Duration = Duration::from_secs(40);
/// When a queue is refused because of its tasks, they are counted up to this number.
const COUNTED_MAX: usize = 1_000;
/// Nodes named in a refusal.
const NODES_NAMED_MAX: u32 = 10;

/// The result's name in an answer.
const RESULT: &str = "MongoDB::DeleteResult";

pub(super) fn add(routes: Routes) -> Routes {
    routes.delete("/queues/{*queue}", delete)
}

/// What to do with the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskFate {
    /// Refuse if there are any.
    None,
    Keep,
    Delete,
}

impl TaskFate {
    fn read(value: Option<&Value>) -> Result<TaskFate, Failure> {
        match value.map(Value::as_str) {
            None => Ok(TaskFate::None),
            Some(Some("keep")) => Ok(TaskFate::Keep),
            Some(Some("delete")) => Ok(TaskFate::Delete),
            Some(_) => Err(Failure::bad("tasks must be \"keep\" or \"delete\"")),
        }
    }
}

async fn delete(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    match remove(&dci, &name, params.get("tasks")).await.map_err(with_deleted_count)? {
        true => Ok(params.answer(deleted(1))),
        false => Err(with_deleted_count(Failure::bad(format!("there is no queue {name}")))),
    }
}

/// Adds the number of deleted tasks, 0 unless it is already present.
pub(super) fn with_deleted_count(mut refused: Failure) -> Failure {
    refused.body.entry(RESULT).or_insert_with(|| deleted(0)[RESULT].take());
    refused
}

/// Deletes a queue; `tasks` is the parameter. False: it does not exist.
pub(super) async fn remove(dci: &Dci, name: &str, tasks: Option<&Value>) -> Result<bool, Failure> {
    let (database, fate) = (dci.database(), TaskFate::read(tasks)?);
    let until = Instant::now() + WORK_TIME_MAX;
    let told =
        |error: DbError| Failure::database(&format!("Could not delete queue '{name}'"), &error);
    let Some(queue) = database.queue(name).await.map_err(told)? else { return Ok(false) };
    // Tasks refer to a queue by such an id, so without one it has none.
    let Ok(id) = queue.get_object_id("_id") else {
        return Ok(database.queue_delete(name).await.map_err(told)?.is_some());
    };
    match fate {
        TaskFate::None => refuse_tasks(database, id, name).await?,
        TaskFate::Keep => {}
        TaskFate::Delete => empty(database, id, name, until).await?,
    }
    let Some(gone) = database.queue_delete(&id.to_hex()).await.map_err(told)? else {
        return Ok(false);
    };
    // Tasks added or claimed before the entry was gone.
    let left = match fate {
        TaskFate::None => refuse_tasks(database, id, name).await,
        TaskFate::Keep => Ok(()),
        TaskFate::Delete => empty(database, id, name, until).await,
    };
    match left {
        Ok(()) => Ok(true),
        Err(refused) => Err(restore(database, gone, name, refused).await),
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

/// Restores the queue with its latest changes, so that it can be deleted again. Returns the
/// refusal.
async fn restore(database: &Database, gone: Document, name: &str, refused: Failure) -> Failure {
    let Err(error) = database.queue_restore(gone).await else { return refused };
    let why = refused.body.get("error").and_then(Value::as_str).unwrap_or_default();
    let message = format!("queue {name} is deleted, but some of its tasks may be left: {why}");
    tracing::warn!("{message}; the queue could not be restored: {error}");
    Failure::new(refused.status, message).with(RESULT, deleted(1)[RESULT].take())
}

/// Deletes all tasks of a queue with their files. Running tasks of our nodes are cancelled first;
/// those of foreign nodes cannot be.
async fn empty(
    database: &Database,
    id: ObjectId,
    name: &str,
    until: Instant,
) -> Result<(), Failure> {
    // When only running tasks were left.
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
        assert_eq!(TaskFate::read(None).unwrap(), TaskFate::None);
        assert_eq!(TaskFate::read(Some(&json!("keep"))).unwrap(), TaskFate::Keep);
        assert_eq!(TaskFate::read(Some(&json!("delete"))).unwrap(), TaskFate::Delete);
        for other in [json!(""), json!("Keep"), json!(null), json!(["keep", "delete"]), json!(1)] {
            assert!(TaskFate::read(Some(&other)).is_err(), "{other}");
        }
    }
}
