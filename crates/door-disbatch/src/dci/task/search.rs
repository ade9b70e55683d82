//! `GET /tasks`: searches tasks by indexed fields, and `GET /tasks/:id`: shows one of them.

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, RawDocumentBuf, doc};
use serde_json::{Value, json};

use super::filter;
use super::index::{self, Index};
use super::list::{FoundTasks, Output, TaskFormat};
use super::options::Options;
use crate::database::DbError;
use crate::dci::Dci;
use crate::dci::answer::JsonAnswer;
use crate::dci::error::Failure;
use crate::dci::param::Params;
use crate::dci::path::Name;
use crate::doc::DateFormat;

const TITLE: &str = "Disbatch Tasks Query";
/// The limit that forms generated from the schema should use.
const LIMIT_SUGGESTED: u64 = 100;
const NOT_INDEXED: &str = "non-indexed params given";
const EVERYTHING: &str =
    "refusing to return everything - include one or more indexed search restrictions";

pub(crate) async fn search(
    State(dci): State<Dci>,
    uri: Uri,
    mut params: Params,
) -> Result<Response, Failure> {
    if params.fields()?.is_empty() && params.options.is_empty() {
        return Ok(JsonAnswer::new(schema(&indexes(&dci).await?)).into_response());
    }
    let options = Options::of(&mut params)?;
    params.drop_empty();
    let fields = params.fields()?;
    let refused = |error: &str, indexes: &[Index]| {
        Failure::bad(error)
            .with("title", TITLE)
            .with("path", uri.path())
            .with("indexes", json!(indexes))
    };
    let mut known = index::merge(&[]);
    if !index::invalid(fields, &known).is_empty() {
        known = indexes(&dci).await?;
        let invalid = index::invalid(fields, &known);
        if !invalid.is_empty() {
            return Err(refused(NOT_INDEXED, &known).with("invalid_params", json!(invalid)));
        }
    }
    let filter = filter::filter(fields).map_err(Failure::bad)?;
    if options.count {
        let count = dci.database().ask(tasks(&dci).count_documents(filter)).await?;
        return Ok(params.answer(json!({ "count": count })).into_response());
    }
    if filter.is_empty() && options.limit == 0 {
        return Err(refused(EVERYTHING, &known));
    }
    let tasks = tasks(&dci);
    let mut find = tasks.find(filter).limit(options.limit).skip(options.skip);
    if let Some(fields) = &options.fields {
        find = find.projection(fields.clone());
    }
    let found = FoundTasks::search(&dci, find).await?;
    let format = format(&options, false);
    if found.is_empty() {
        return Ok(params.answer(json!({})).into_response());
    }
    if options.limit != 1 {
        return Ok(found.into_array(&dci, format));
    }
    found.into_object(&dci, format).await
}

pub(crate) async fn one(
    State(dci): State<Dci>,
    Name(id): Name,
    mut params: Params,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found(format!("no task with id {id}"));
    let oid = ObjectId::parse_str(&id).map_err(|_| missing())?;
    let options = Options::of(&mut params)?;
    let found = FoundTasks::one(&dci, tasks(&dci).find_one(doc! { "_id": oid })).await?;
    if found.is_empty() {
        return Err(missing());
    }
    found.into_object(&dci, format(&options, true)).await
}

fn format(options: &Options, pretty: bool) -> TaskFormat {
    let output = match (options.terse, options.full) {
        (true, _) => Output::Terse,
        (false, true) => Output::Full,
        (false, false) => Output::Stored,
    };
    let times = if options.epoch { DateFormat::Seconds } else { DateFormat::Iso };
    TaskFormat { output, times, stamped: false, pretty: options.pretty.unwrap_or(pretty) }
}

pub(crate) fn tasks(dci: &Dci) -> Collection<RawDocumentBuf> {
    dci.database().collection("tasks")
}

/// The existing indexes and those that a node will create.
async fn indexes(dci: &Dci) -> Result<Vec<Index>, DbError> {
    let listed = async { tasks(dci).list_indexes().await?.try_collect::<Vec<_>>().await };
    match dci.database().ask(listed).await {
        Ok(found) => {
            let keys: Vec<Document> = found.into_iter().map(|index| index.keys).collect();
            Ok(index::merge(&keys))
        }
        // A collection that does not exist has none.
        Err(DbError::Refused(_)) => Ok(index::merge(&[])),
        Err(error) => Err(error),
    }
}

/// The search parameters, for pages that generate a form from them.
fn schema(indexes: &[Index]) -> Value {
    let params = indexes.iter().flatten();
    let params =
        params.map(|name| (name.clone(), json!({ "repeatable": "yes", "type": ["string"] })));
    json!({
        "schema": {
            "verb": "GET",
            "limit": LIMIT_SUGGESTED,
            "title": TITLE,
            "subtitle": "This can return very much at once",
            "params": params.collect::<serde_json::Map<_, _>>(),
        },
        "indexes": indexes,
    })
}
