//! The request of a command.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::{Command, Failure, Leftover};

/// Letters, digits and these characters are not encoded in URLs and forms.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

#[derive(Debug, PartialEq)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    /// Including the query.
    pub(super) path: String,
    /// Content type and text.
    pub(super) body: Option<(&'static str, String)>,
}

/// A search for tasks, and how to show the result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TaskQuery {
    /// A JSON object; `None` for all tasks.
    pub filter: Option<String>,
    pub count: bool,
    /// A JSON list or object.
    pub fields: Option<String>,
    pub limit: u64,
    pub skip: u64,
    pub terse: bool,
    pub full: bool,
    pub epoch: bool,
    pub pretty: bool,
}

pub(super) fn build(command: &Command) -> Result<ApiRequest, Failure> {
    let ask = match command {
        Command::Plugins => get("/plugins".into()),
        Command::Queues => get("/queues".into()),
        Command::Nodes => get("/nodes".into()),
        Command::CreateQueue { name, plugin } => {
            let fields = [("name", name.as_str()), ("plugin", plugin.as_str())];
            post("/queues".into(), FORM, form(&fields))
        }
        Command::UpdateQueue { queue, fields } => change(path("queues", queue)?, fields),
        Command::UpdateNode { node, fields } => change(path("nodes", node)?, fields),
        Command::DeleteQueue { queue, tasks } => {
            let query = match tasks {
                None => "",
                Some(Leftover::Keep) => "?tasks=keep",
                Some(Leftover::Delete) => "?tasks=delete",
            };
            let path = path("queues", queue)? + query;
            ApiRequest { method: Method::DELETE, path, body: None }
        }
        Command::CreateTask { queue, params } => {
            let params: Map<String, Value> =
                params.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
            let body = json!({"queue": queue, "params": [params]});
            post("/tasks".into(), JSON, body.to_string())
        }
        Command::CreateTasks { queue, collection, json } => {
            post("/tasks".into(), JSON, tasks(queue, collection.as_deref(), json)?)
        }
        Command::Tasks(which) => {
            let body = Some((JSON, Value::Object(search(which)?).to_string()));
            ApiRequest { method: Method::GET, path: "/tasks".into(), body }
        }
        Command::Task { id, full } => get(path("tasks", id)? + if *full { "?.full=1" } else { "" }),
        Command::Cancel { id } => act(id, "cancel")?,
        Command::Retry { id } => act(id, "retry")?,
    };
    Ok(ask)
}

fn get(path: String) -> ApiRequest {
    ApiRequest { method: Method::GET, path, body: None }
}

fn post(path: String, kind: &'static str, body: String) -> ApiRequest {
    ApiRequest { method: Method::POST, path, body: Some((kind, body)) }
}

fn act(id: &str, what: &str) -> Result<ApiRequest, Failure> {
    let path = format!("{}/{what}", path("tasks", id)?);
    Ok(ApiRequest { method: Method::POST, path, body: None })
}

/// Changes are sent as a form, as the original does. A form cannot express null, which removes a
/// limit, so that is sent as JSON.
fn change(path: String, fields: &[(String, String)]) -> ApiRequest {
    if fields.iter().any(|(_, value)| value == "null") {
        let value = |value: &str| if value == "null" { Value::Null } else { value.into() };
        let fields = fields.iter().map(|(field, text)| (field.clone(), value(text)));
        return post(path, JSON, Value::Object(fields.collect()).to_string());
    }
    let fields: Vec<_> = fields.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    post(path, FORM, form(&fields))
}

fn form(fields: &[(&str, &str)]) -> String {
    let encoded = |text| utf8_percent_encode(text, ENCODED);
    let pairs = fields.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// URL parsers would take a name of dots alone for a parent directory.
fn path(collection: &str, name: &str) -> Result<String, Failure> {
    if matches!(name, "" | "." | "..") {
        return Err(Failure::Usage(format!("'{name}' cannot be part of a URL")));
    }
    Ok(format!("/{collection}/{}", utf8_percent_encode(name, ENCODED)))
}

/// The input is sent exactly as typed, down to the last digit.
fn tasks(queue: &str, collection: Option<&str>, json: &str) -> Result<String, Failure> {
    let mut body: BTreeMap<String, Box<RawValue>> = BTreeMap::new();
    match collection {
        None => {
            let params = read(json, "the tasks are not a JSON array of params")?;
            body.insert("params".into(), params);
        }
        Some(collection) => {
            const WHAT: &str = "what to create is not a JSON object with `filter` and `params`";
            body = read(json, WHAT)?;
            body.insert("collection".into(), raw(collection)?);
        }
    }
    body.insert("queue".into(), raw(queue)?);
    serde_json::to_string(&body).map_err(|error| Failure::Failed(error.to_string()))
}

fn search(which: &TaskQuery) -> Result<Map<String, Value>, Failure> {
    let mut all = match &which.filter {
        None => Map::new(),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(filter)) => filter,
            _ => return Err(Failure::Usage(format!("the filter is not a JSON object: {text}"))),
        },
    };
    if let Some(text) = &which.fields {
        const WHAT: &str = "--fields takes a JSON list of names or an object";
        let fields: Value = read(text, WHAT)?;
        if !fields.is_array() && !fields.is_object() {
            return Err(Failure::Usage(WHAT.into()));
        }
        all.insert(".fields".into(), fields);
    }
    all.insert(".limit".into(), which.limit.into());
    if which.skip > 0 {
        all.insert(".skip".into(), which.skip.into());
    }
    let flags = [
        (".count", which.count),
        (".terse", which.terse),
        (".full", which.full),
        (".epoch", which.epoch),
        (".pretty", which.pretty),
    ];
    for (option, _) in flags.into_iter().filter(|(_, set)| *set) {
        all.insert(option.into(), 1.into());
    }
    Ok(all)
}

fn read<'a, T: serde::Deserialize<'a>>(text: &'a str, otherwise: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Usage(format!("{otherwise} ({error})")))
}

fn raw(text: &str) -> Result<Box<RawValue>, Failure> {
    to_raw_value(text).map_err(|error| Failure::Failed(error.to_string()))
}
