//! The routes of version 3, which answer with lists whose first item tells success from failure.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value, json};

use crate::database::{Counts, DbError, NewQueue, QueueChange};
use crate::dci::Dci;
use crate::dci::answer::{JsonAnswer, deleted, inserted_one, updated};
use crate::dci::delete;
use crate::dci::error::Failure;
use crate::dci::param::{Params, UnfoldError, is_true, limit_of};
use crate::dci::route::Routes;
use crate::dci::task::create;
use crate::dci::task::list::{FoundTasks, Output, TaskFormat};
use crate::dci::task::search::tasks;
use crate::dci::task::{filter, operator, options};
use crate::dialect::Dialect;
use crate::doc::{self, DateFormat, LimitStored};

use super::v3_create;

pub(super) fn add(routes: Routes) -> Routes {
    let routes = routes
        .get("/scheduler-json", report)
        .get("/queue-prototypes-json", prototypes)
        .post("/queue-prototypes-json", prototypes)
        .get("/reload-queues-json", reload)
        .get("/search-tasks-json", search)
        .post("/search-tasks-json", search)
        .post("/set-queue-attr-json", set)
        .post("/start-queue-json", start)
        .post("/delete-queue-json", remove);
    v3_create::add(routes)
}

/// `[0, why]`, followed by what was created despite the error.
pub(super) struct Refused {
    status: StatusCode,
    why: Value,
    made: Option<Value>,
}

impl Refused {
    pub(super) fn new(status: StatusCode, why: impl Into<Value>) -> Refused {
        Refused { status, why: why.into(), made: None }
    }

    pub(super) fn with_made(failure: Failure) -> Refused {
        let made = failure.body.get(create::RESULT).map(|made| json!({ create::RESULT: made }));
        Refused { made, ..Refused::from(failure) }
    }

    pub(super) fn bad(why: impl Into<Value>) -> Refused {
        Refused::new(StatusCode::BAD_REQUEST, why)
    }

    /// With status 200, as some refusals always had.
    pub(super) fn with_ok_status(why: impl Into<Value>) -> Refused {
        Refused::new(StatusCode::OK, why)
    }
}

impl From<Failure> for Refused {
    fn from(mut failure: Failure) -> Refused {
        Refused::new(failure.status, failure.body.remove("error").unwrap_or_default())
    }
}

impl From<UnfoldError> for Refused {
    fn from(unread: UnfoldError) -> Refused {
        match unread {
            UnfoldError::TooMuch(failure) => failure.into(),
            UnfoldError::NotJson(why) => Refused::with_ok_status(why),
        }
    }
}

impl From<DbError> for Refused {
    fn from(error: DbError) -> Refused {
        Failure::from(error).into()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let told: Vec<Value> = [json!(0), self.why].into_iter().chain(self.made).collect();
        JsonAnswer::new(told.into()).status(self.status).into_response()
    }
}

/// The value, unless it is missing or null.
pub(super) fn given<'a>(params: &'a Params, name: &str) -> Option<&'a Value> {
    params.get(name).filter(|value| !value.is_null())
}

async fn report(State(dci): State<Dci>) -> Result<JsonAnswer, Failure> {
    let told = |error| Failure::database("Could not get current queues", &error);
    let dialect = dci.dialect().await.map_err(told)?;
    let counted = dci.queues_counted().await.map_err(told)?;
    let line = |queue: &Document| reported(queue, dialect, counted.of(queue));
    Ok(JsonAnswer::new(counted.queues.iter().map(line).collect()))
}

/// A queue with all field names of versions before 4 and of early versions 4. The seed's counters
/// are counted here, because stored ones drift.
fn reported(queue: &Document, dialect: Dialect, counts: Counts) -> Value {
    let shown = |fields: &[&str]| {
        let mut found = fields.iter().filter_map(|field| queue.get(field));
        let found = found.find(|value| **value != Bson::Null);
        found.map_or(Value::Null, |value| doc::json(value, DateFormat::Iso))
    };
    let plugin = shown(&["constructor", "plugin"]);
    let limit = doc::json(&LimitStored::of(queue, dialect).value, DateFormat::Iso);
    json!({
        "id": shown(&["_id"]),
        "name": shown(&["name"]),
        "constructor": plugin,
        "plugin": plugin,
        "maxthreads": limit,
        "threads": limit,
        "tasks_todo": counts.todo() - counts.running,
        "tasks_doing": counts.running,
        "tasks_done": counts.total - counts.todo(),
        "queued": counts.queued,
        "running": counts.running,
        "completed": counts.completed,
        "preemptive": 1,
        "tasks_backfill": 0,
    })
}

async fn reload() -> JsonAnswer {
    // Nothing is cached that could be reloaded.
    JsonAnswer::new(json!([1]))
}

async fn prototypes(State(dci): State<Dci>) -> Result<JsonAnswer, Failure> {
    let names = plugins(&dci).await?;
    let pairs = names.into_iter().map(|name| (name.clone(), Value::String(name)));
    Ok(JsonAnswer::new(Value::Object(pairs.collect())))
}

/// The configured plugins and those that existing queues use.
async fn plugins(dci: &Dci) -> Result<Vec<String>, DbError> {
    let mut names = dci.config().plugins.names();
    for queue in dci.database().queues().await? {
        for field in [Dialect::Seed.plugin(), Dialect::Released.plugin()] {
            names.extend(queue.get_str(field).map(str::to_owned));
        }
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

async fn set(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    match set_attribute(&dci, &params).await {
        Ok(mut result) => {
            result["success"] = json!(1);
            Ok(JsonAnswer::new(result))
        }
        Err(failure) => Err(failure.with("success", 0)),
    }
}

async fn set_attribute(dci: &Dci, params: &Params) -> Result<Value, Failure> {
    let dialect = dci.dialect().await?;
    let attribute = given(params, "attr").and_then(Value::as_str).unwrap_or_default();
    let known = match dialect {
        Dialect::Seed => ["maxthreads", "threads", "preemptive"].contains(&attribute),
        Dialect::Released => attribute == "threads",
    };
    if !known {
        return Err(Failure::bad("Invalid attr"));
    }
    let value = given(params, "value").ok_or_else(|| Failure::bad("You must supply a value"))?;
    let queue =
        given(params, "queueid").ok_or_else(|| Failure::bad("You must supply a queueid"))?;
    let queue = name(queue);
    // Every queue is preemptive since version 3.
    let change = match attribute {
        "preemptive" => QueueChange::default(),
        _ => QueueChange { limit: Some(limit_of(attribute, value)?), ..QueueChange::default() },
    };
    let (matched, modified) = if change == QueueChange::default() {
        (u64::from(dci.database().queue(&queue).await?.is_some()), 0)
    } else {
        let set = dci.database().queue_update(&queue, &change).await?;
        (set.matched_count, set.modified_count)
    };
    let mut result = updated(matched, modified);
    if matched == 1 {
        return Ok(result);
    }
    let class = "MongoDB::UpdateResult";
    Err(Failure::bad(format!("there is no queue {queue}")).with(class, result[class].take()))
}

/// An id or a name, in any form.
pub(super) fn name(value: &Value) -> String {
    match value {
        Value::String(name) => name.clone(),
        value => filter::id(value).map_or_else(|_| value.to_string(), |id| id.to_hex()),
    }
}

async fn start(State(dci): State<Dci>, params: Params) -> Result<Response, Refused> {
    let text = |name| given(&params, name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let (Some(plugin), Some(name)) = (text("type"), text("name")) else {
        return Err(Refused::bad("type and name required"));
    };
    if !plugins(&dci).await?.iter().any(|known| known == plugin) {
        return Err(Refused::bad("unknown type"));
    }
    let queue =
        NewQueue { name: name.to_owned(), plugin: plugin.to_owned(), limit: None, sort: None };
    match dci.writable().await?.queue_insert(&queue).await {
        Ok(id) => {
            let mut result = inserted_one(id);
            let id = result["id"].take();
            let class = "MongoDB::InsertOneResult";
            let told = json!({ "success": 1, class: result[class].take() });
            Ok(JsonAnswer::new(json!([1, id, told])).into_response())
        }
        Err(error) => {
            let failure = Failure::database(&format!("Could not create queue {name}"), &error);
            let told = json!({ "success": 0, "error": failure.body["error"] });
            Ok(JsonAnswer::new(json!([0, null, told])).status(failure.status).into_response())
        }
    }
}

async fn remove(State(dci): State<Dci>, params: Params) -> Result<Response, Refused> {
    let Some(id) = given(&params, "id") else {
        return Err(Refused::bad("id required"));
    };
    let name = name(id);
    let removed = delete::remove(&dci, &name, given(&params, "tasks")).await;
    let missing = || Failure::bad(format!("there is no queue {name}"));
    let removed = removed.and_then(|removed| removed.then_some(()).ok_or_else(missing));
    let class = "MongoDB::DeleteResult";
    Ok(match removed {
        Ok(()) => {
            let told = json!({ "success": 1, class: deleted(1)[class] });
            JsonAnswer::new(json!([1, told])).into_response()
        }
        Err(failure) => {
            let failure = delete::with_deleted_count(failure).with("success", 0);
            let answer = JsonAnswer::new(json!([0, failure.body]));
            answer.status(failure.status).into_response()
        }
    })
}

async fn search(State(dci): State<Dci>, mut params: Params) -> Result<Response, Refused> {
    let filter = search_filter(&mut params)?;
    let flag = |name| given(&params, name).is_some_and(is_true);
    let whole = |name| {
        let why = format!("{name} must be a non-negative integer");
        let number = options::whole(params.get(name).unwrap_or(&Value::Null));
        number.ok_or_else(|| Refused::bad(why))
    };
    let (limit, skip) = (whole("limit")?, whole("skip")?.unsigned_abs());
    let tasks = tasks(&dci);
    if flag("count") {
        let count = dci.database().ask(tasks.count_documents(filter)).await?;
        return Ok(JsonAnswer::new(json!([1, count])).into_response());
    }
    let format = TaskFormat {
        output: if flag("terse") { Output::TerseAlways } else { Output::Full },
        times: DateFormat::Iso,
        stamped: true,
        pretty: false,
    };
    let found = FoundTasks::search(&dci, tasks.find(filter).limit(limit).skip(skip)).await;
    Ok(found?.into_array(&dci, format))
}

/// The filter of a search.
fn search_filter(params: &mut Params) -> Result<Document, Refused> {
    const NO_OBJECT: &str = "JSON object required for filter";
    let none = given(params, "filter").is_none();
    match params.unfold("filter") {
        Err(UnfoldError::NotJson(_)) if !given(params, "json").is_some_and(is_true) => {
            return Err(Refused::with_ok_status(NO_OBJECT));
        }
        unfolded => unfolded?,
    }
    let mut object = match params.sent.get_mut("filter").map(Value::take) {
        Some(Value::Object(object)) => object,
        _ if none => Map::new(),
        _ => return Err(Refused::with_ok_status(NO_OBJECT)),
    };
    let id = object.remove("id").filter(is_true);
    let queue = given(params, "queue").filter(|queue| is_true(queue));
    whole_status(&mut object);
    let mut filter = operator::filter(&object).map_err(Refused::bad)?;
    for (field, value) in [("queue", queue), ("_id", id.as_ref())] {
        if let Some(value) = value {
            filter.insert(field, filter::id(value).map_err(Refused::with_ok_status)?);
        }
    }
    Ok(filter)
}

/// Forms send numbers as text.
fn whole_status(object: &mut Map<String, Value>) {
    if let Some(status) = object.get_mut("status")
        && let Some(number) = status.as_str().and_then(|text| text.parse::<i64>().ok())
    {
        *status = json!(number);
    }
}
