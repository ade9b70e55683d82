//! `POST /tasks/:id/cancel` and `POST /tasks/:id/retry`.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use mongodb::bson::Bson;
use mongodb::bson::oid::ObjectId;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Dci;
use super::answer::JsonAnswer;
use super::error::Failure;
use super::param::Params;
use super::path::Name;
use super::route::Routes;
use crate::database::{Cancelled, Retried};
use crate::doc::whole;
use crate::gridfs;
use crate::status::{CANCELLED, ORPHANED, QUEUED, RUNNING};

/// How long to wait for a node to end a task.
const END_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause between two checks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// Verbs for refusals.
const RUN_AGAIN: &str = "run again";

pub(super) fn add(routes: Routes) -> Routes {
    routes.post("/tasks/{id}/cancel", cancel).post("/tasks/{id}/retry", retry)
}

async fn cancel(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let id = id(&name)?;
    let started = Instant::now();
    let mut asked = false;
    loop {
        let now = dci.now().await?;
        match dci.database().task_cancel(id, now).await? {
            Cancelled::Done => return Ok(params.answer(ended(id, CANCELLED))),
            Cancelled::Asked if started.elapsed() > END_WAIT_MAX => {
                let answer = params.answer(json!({
                    "id": id.to_hex(),
                    "status": RUNNING,
                    "message": "the node is asked to end the task, and has not done so yet",
                }));
                return Ok(answer.status(StatusCode::ACCEPTED));
            }
            Cancelled::Asked => asked = true,
            Cancelled::Foreign => {
                let message = "the task runs on a node that cannot be asked to end it";
                return Err(Failure::conflict(message));
            }
            Cancelled::Not(status) if asked && whole(&status) == Some(CANCELLED.into()) => {
                return Ok(params.answer(ended(id, CANCELLED)));
            }
            Cancelled::Not(status) => return Err(cannot("cancelled", &status)),
            Cancelled::Missing => return Err(missing(&name)),
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

async fn retry(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let id = id(&name)?;
    let (database, now) = (dci.writable().await?, dci.now().await?);
    let task = database.task(id).await?.ok_or_else(|| missing(&name))?;
    // No node would ever run it.
    let queue = task.get_object_id("queue").map(|queue| queue.to_hex()).unwrap_or_default();
    if database.queue(&queue).await?.is_none() {
        return Err(Failure::conflict("the queue of the task is not there any more"));
    }
    match database.task_retry(id, now).await? {
        Retried::Queued(before) => {
            let old = ["stdout", "stderr"].into_iter();
            let old: Vec<ObjectId> =
                old.filter_map(|name| before.get_object_id(name).ok()).collect();
            // The task no longer refers to them, so nodes will remove them later anyway.
            if let Err(error) = gridfs::remove_old(database, id, &old).await {
                tracing::warn!("the output of task {id} stays for now: {error}");
            }
            Ok(params.answer(ended(id, QUEUED)))
        }
        Retried::Not(status) => Err(cannot(RUN_AGAIN, &status)),
        Retried::Missing => Err(missing(&name)),
    }
}

fn id(name: &str) -> Result<ObjectId, Failure> {
    ObjectId::parse_str(name).map_err(|_| missing(name))
}

fn missing(name: &str) -> Failure {
    Failure::not_found(format!("no task with id {name}"))
}

fn ended(id: ObjectId, status: i32) -> Value {
    json!({ "id": id.to_hex(), "status": status })
}

fn cannot(what: &str, status: &Bson) -> Failure {
    let number = if status.as_str().is_some() { None } else { whole(status) };
    let why = match number {
        None => "has a status that is no whole number",
        Some(status) if status == i64::from(ORPHANED) => "is orphaned",
        Some(status) if status == i64::from(CANCELLED) => "is cancelled already",
        Some(..=-2) => "waits",
        Some(-1..=0) => "runs",
        Some(1..) if what == RUN_AGAIN => "is still being closed by its node",
        Some(1..) => "has ended",
    };
    let refused = Failure::conflict(format!("the task cannot be {what}: it {why}"));
    refused.with("status", number.map_or(Value::Null, Value::from))
}
