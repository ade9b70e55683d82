//! Creates tasks as version 3 did: `/queue-create-tasks-json` and
//! `/queue-create-tasks-from-query-json`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mongodb::bson::oid::ObjectId;
use serde_json::{Value, json};

use super::v3::{Refused, given, name};
use super::v4;
use crate::database::NewTask;
use crate::dci::Dci;
use crate::dci::answer::JsonAnswer;
use crate::dci::param::Params;
use crate::dci::route::Routes;
use crate::dci::task::create::{self, CreatedTasks, RESULT};
use crate::dci::task::create_request::{self, CreateRequest};

pub(super) fn add(routes: Routes) -> Routes {
    routes
        .post("/queue-create-tasks-json", create)
        .post("/queue-create-tasks-from-query-json", create_from)
}

async fn create(State(dci): State<Dci>, mut params: Params) -> Result<Response, Refused> {
    let (Some(queue), Some(_)) = (given(&params, "queueid"), given(&params, "object")) else {
        return Err(Refused::bad("queueid and object required"));
    };
    let queue = name(queue);
    params.unfold("object")?;
    let Some(Value::Array(items)) = params.get("object") else {
        return Err(Refused::with_ok_status("object param must be a JSON array"));
    };
    let queue = found(&dci, queue).await?;
    let list = v4::list(items).map_err(Refused::bad)?;
    let made = made(&dci, queue, CreateRequest::List(list)).await?;
    let (status, mut told) = result(&made);
    let inserted = told[RESULT]["inserted"].as_array().cloned().unwrap_or_default();
    let mut answer = vec![told["success"].clone(), json!(made.count)];
    answer.extend(inserted);
    answer.push(told.take());
    Ok(JsonAnswer::new(answer.into()).status(status).into_response())
}

async fn create_from(State(dci): State<Dci>, mut params: Params) -> Result<Response, Refused> {
    let template = ["params", "parameters"].into_iter().find(|name| given(&params, name).is_some());
    let (Some(queue), Some(_), Some(_), Some(template)) = (
        given(&params, "queueid"),
        given(&params, "collection"),
        given(&params, "jsonfilter"),
        template,
    ) else {
        let named = dci.dialect().await?.params();
        let why = format!("queueid, collection, jsonfilter, and {named} required");
        return Err(Refused::bad(why));
    };
    let queue = name(queue);
    params.unfold("jsonfilter")?;
    params.unfold(template)?;
    let Some(Value::Object(template)) = params.get(template) else {
        return Err(Refused::bad("params must be a JSON object"));
    };
    let queue = found(&dci, queue).await?;
    let source =
        create_request::source(params.get("collection"), params.get("jsonfilter"), template);
    let source = source.map_err(Refused::bad)?;
    let made = made(&dci, queue, CreateRequest::Collection(source)).await?;
    let (status, told) = result(&made);
    Ok(JsonAnswer::new(json!([told["success"], made.count])).status(status).into_response())
}

async fn found(dci: &Dci, queue: String) -> Result<ObjectId, Refused> {
    let queue = create::queue_id(dci, Some(&Value::String(queue))).await?;
    queue.ok_or_else(|| Refused::with_ok_status("Queue not found"))
}

async fn made(dci: &Dci, queue: ObjectId, request: CreateRequest) -> Result<CreatedTasks, Refused> {
    let made = create::create_tasks(dci, queue, request, NewTask::default()).await;
    made.map_err(|broken| Refused::with_made(broken.into_failure()))
}

/// `{success, "MongoDB::InsertManyResult": ..}`, with an error if nothing was created.
fn result(made: &CreatedTasks) -> (StatusCode, Value) {
    match create::answer(made) {
        Ok(mut result) => {
            result["success"] = json!(1);
            (StatusCode::OK, result)
        }
        Err(failure) => (failure.status, failure.with("success", 0).body.into()),
    }
}
