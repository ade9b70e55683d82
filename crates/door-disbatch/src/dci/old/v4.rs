//! The task routes of version 4.0, which its command line client still uses: `POST /tasks/search`,
//! `POST /tasks/:queue` and `POST /tasks/:queue/:collection`.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document};
use serde_json::{Map, Value, json};

use crate::database::NewTask;
use crate::dci::Dci;
use crate::dci::answer::JsonAnswer;
use crate::dci::error::Failure;
use crate::dci::param::{Params, is_true};
use crate::dci::path::{Name, NamePair};
use crate::dci::route::Routes;
use crate::dci::task::create::{self, CreateFailure};
use crate::dci::task::create_request::{self, CreateRequest};
use crate::dci::task::list::{FoundTasks, Output, TaskFormat};
use crate::dci::task::search::tasks;
use crate::dci::task::{filter, operator, options, plain};
use crate::doc::DateFormat;

const LIMIT_MAX: i64 = 100;
/// Larger numbers are milliseconds; as seconds they would be beyond the year 2286.
const SECONDS_LAST: f64 = 9_999_999_999.0;
const OBJECTS: &str = "filter and options must be name/value objects";
const ARRAY: &str = "params must be a JSON array of task params";
const SOURCE: &str = "filter and params required and must be name/value objects";

pub(super) fn add(routes: Routes) -> Routes {
    let routes = routes.post("/tasks/search", search).post("/tasks/{id}", create);
    routes.post("/tasks/{id}/{collection}", create_from)
}

async fn search(State(dci): State<Dci>, params: Params) -> Result<Response, Failure> {
    let fields = params.fields()?;
    let (filter, find) =
        (object(fields, "filter")?, SearchOptions::read(&object(fields, "options")?)?);
    let filter = tasks_filter(filter).map_err(Failure::bad)?;
    let flag = |name: &str, default| fields.get(name).map_or(default, is_true);
    let tasks = tasks(&dci);
    if flag("count", false) {
        let count = dci.database().ask(tasks.count_documents(filter)).await?;
        return Ok(JsonAnswer::new(json!({ "count": count })).into_response());
    }
    let mut asked = tasks.find(filter).limit(find.limit).skip(find.skip);
    if let Some(sort) = find.sort {
        asked = asked.sort(sort);
    }
    if let Some(projection) = find.projection {
        asked = asked.projection(projection);
    }
    let format = TaskFormat {
        output: if flag("terse", true) { Output::Terse } else { Output::Full },
        times: DateFormat::Seconds,
        stamped: false,
        pretty: flag("pretty", false),
    };
    Ok(FoundTasks::search(&dci, asked).await?.into_array(&dci, format))
}

/// An object parameter; empty if missing.
fn object(fields: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, Failure> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(Failure::bad(OBJECTS)),
    }
}

/// The filter for the database: queues become ids, and large times are milliseconds.
fn tasks_filter(mut object: Map<String, Value>) -> Result<Document, String> {
    let queue = match object.get("queue") {
        None | Some(Value::Null | Value::Object(_)) => None,
        Some(queue) => Some(filter::id(queue).map_err(|_| "Bad queue passed")?),
    };
    if queue.is_some() {
        object.remove("queue");
    }
    let mut filter = operator::filter(&object)?;
    if let Some(queue) = queue {
        filter.insert("queue", queue);
    }
    for name in ["ctime", "mtime"] {
        let number = object.get(name).and_then(Value::as_f64);
        if let Some(millis) = number.filter(|number| *number > SECONDS_LAST) {
            #[expect(clippy::cast_possible_truncation, reason = "parts of a millisecond are lost")]
            filter.insert(name, Bson::DateTime(DateTime::from_millis(millis as i64)));
        }
    }
    Ok(filter)
}

/// The search options that the original passed to its driver.
#[derive(Debug, PartialEq)]
struct SearchOptions {
    limit: i64,
    skip: u64,
    sort: Option<Document>,
    projection: Option<Document>,
}

impl SearchOptions {
    fn read(options: &Map<String, Value>) -> Result<SearchOptions, Failure> {
        let mut find = SearchOptions { limit: LIMIT_MAX, skip: 0, sort: None, projection: None };
        let whole = |name: &str, value| {
            let refused = || Failure::bad(format!("{name} must be a non-negative integer"));
            options::whole(value).ok_or_else(refused)
        };
        for (name, value) in options.iter().filter(|(_, value)| !value.is_null()) {
            match name.as_str() {
                "limit" => find.limit = whole(name, value)?,
                "skip" => find.skip = whole(name, value)?.unsigned_abs(),
                "sort" => find.sort = Some(sort(value).map_err(Failure::bad)?),
                "projection" | "fields" => {
                    let fields = options::fields(value).map_err(Failure::bad)?;
                    find.projection = Some(fields);
                }
                _ => return Err(Failure::bad(format!("option {name} is not allowed"))),
            }
        }
        if find.limit > LIMIT_MAX {
            return Err(Failure::bad(format!("limit cannot exceed {LIMIT_MAX}")));
        }
        if find.limit == 0 {
            find.limit = LIMIT_MAX;
        }
        Ok(find)
    }
}

fn sort(value: &Value) -> Result<Document, String> {
    const FORM: &str = "sort must be an object of names with 1 or -1";
    let mut sort = Document::new();
    for (name, way) in value.as_object().ok_or(FORM)? {
        let way = way.as_i64().filter(|way| matches!(way, 1 | -1)).ok_or(FORM)?;
        if name.is_empty() || name.starts_with('$') || name.contains('\0') {
            return Err(FORM.to_owned());
        }
        sort.insert(name, way);
    }
    Ok(sort)
}

async fn create(
    State(dci): State<Dci>,
    Name(queue): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let Value::Array(items) = &params.sent else { return Err(Failure::bad(ARRAY)) };
    let queue = found(&dci, &queue).await?;
    made(&dci, queue, CreateRequest::List(list(items).map_err(Failure::bad)?)).await
}

/// The arguments of tasks, which may be empty here.
pub(super) fn list(items: &[Value]) -> Result<Vec<Document>, String> {
    let params = |item: &Value| plain::document(item.as_object().ok_or(ARRAY)?);
    items.iter().map(params).collect()
}

async fn create_from(
    State(dci): State<Dci>,
    NamePair(queue, collection): NamePair,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let object = |name| params.get(name).and_then(Value::as_object);
    let task = object("params").or_else(|| object("parameters"));
    let (Some(_), Some(task)) = (object("filter"), task) else {
        return Err(Failure::bad(SOURCE));
    };
    let queue = found(&dci, &queue).await?;
    let source = create_request::source(Some(&json!(collection)), params.get("filter"), task);
    made(&dci, queue, CreateRequest::Collection(source.map_err(Failure::bad)?)).await
}

async fn found(dci: &Dci, queue: &str) -> Result<ObjectId, Failure> {
    let queue = create::queue_id(dci, Some(&json!(queue))).await?;
    queue.ok_or_else(|| Failure::bad("queue not found"))
}

async fn made(dci: &Dci, queue: ObjectId, request: CreateRequest) -> Result<JsonAnswer, Failure> {
    let made = create::create_tasks(dci, queue, request, NewTask::default()).await;
    create::answer(&made.map_err(CreateFailure::into_failure)?).map(JsonAnswer::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    const HEX: &str = "571fac85ee63413233049fbd";

    fn filter_of(value: Value) -> Result<Document, String> {
        let Value::Object(object) = value else { panic!("an object") };
        tasks_filter(object)
    }

    #[test]
    fn queues_are_ids_and_large_times_milliseconds() {
        let id = ObjectId::parse_str(HEX).unwrap();
        let check = |value, expected| assert_eq!(filter_of(value), Ok(expected));
        check(json!({}), doc! {});
        check(json!({ "queue": HEX, "status": 1 }), doc! { "status": 1, "queue": id });
        check(json!({ "queue": { "$oid": HEX } }), doc! { "queue": id });
        check(json!({ "queue": { "$in": [{ "$oid": HEX }] } }), doc! { "queue": { "$in": [id] } });
        check(json!({ "ctime": 1_461_693_573 }), doc! { "ctime": 1_461_693_573 });
        let date = DateTime::from_millis(1_461_693_573_000);
        check(json!({ "mtime": 1_461_693_573_000_i64 }), doc! { "mtime": date });
        let refused = |value, why: &str| assert_eq!(filter_of(value), Err(why.to_owned()));
        refused(json!({ "queue": "demo" }), "Bad queue passed");
        refused(json!({ "_id": { "$oid": "x" } }), "Bad OID passed: {\"$oid\":\"x\"}");
        refused(json!({ "$where": "1" }), "operator $where is not allowed");
    }

    #[test]
    fn searches_have_few_options() {
        let read = |value: Value| {
            SearchOptions::read(value.as_object().unwrap())
                .map_err(|failure| failure.body["error"].clone())
        };
        let plain = |limit| SearchOptions { limit, skip: 0, sort: None, projection: None };
        assert_eq!(read(json!({})), Ok(plain(100)));
        assert_eq!(read(json!({ "limit": null })), Ok(plain(100)));
        assert_eq!(read(json!({ "limit": 0 })), Ok(plain(100)));
        assert_eq!(read(json!({ "limit": "7" })), Ok(plain(7)));
        let all = json!({ "skip": 3, "sort": { "_id": -1 }, "projection": { "status": 1 } });
        let expected = SearchOptions {
            limit: 100,
            skip: 3,
            sort: Some(doc! { "_id": -1_i64 }),
            projection: Some(doc! { "status": 1 }),
        };
        assert_eq!(read(all), Ok(expected));
        for (bad, why) in [
            (json!({ "limit": 101 }), "limit cannot exceed 100"),
            (json!({ "limit": -1 }), "limit must be a non-negative integer"),
            (json!({ "skip": "x" }), "skip must be a non-negative integer"),
            (json!({ "sort": { "a": 2 } }), "sort must be an object of names with 1 or -1"),
            (json!({ "sort": { "$a": 1 } }), "sort must be an object of names with 1 or -1"),
            (json!({ "hint": "x" }), "option hint is not allowed"),
        ] {
            assert_eq!(read(bad), Err(json!(why)));
        }
    }
}
