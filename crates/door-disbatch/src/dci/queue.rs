//! `/queues`: queues with their plugin, limits and progress.

use axum::extract::State;
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value, json};

use super::Dci;
use super::answer::{JsonAnswer, inserted_one, updated};
use super::count::CountedQueues;
use super::error::Failure;
use super::param::{Params, limit_of};
use super::path::Name;
use super::route::Routes;
use crate::config::Plugins;
use crate::database::{Counts, NewQueue, QueueChange};
use crate::dialect::Dialect;
use crate::doc;

/// The allowed orders of a queue's tasks.
const SORTS: [&str; 3] = ["fifo", "lifo", "default"];

pub(super) fn add(routes: Routes) -> Routes {
    let routes = routes.get("/queues", list).post("/queues", create);
    routes.get("/queues/{*queue}", one).post("/queues/{*queue}", change)
}

async fn list(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    let told = |error| Failure::database("Could not get current queues", &error);
    let dialect = dci.dialect().await.map_err(told)?;
    if params.flag(".terse") {
        let queues = dci.database().queues().await.map_err(told)?;
        return Ok(params.answer(queues.iter().map(|queue| show(queue, dialect, None)).collect()));
    }
    let counted = dci.queues_counted().await.map_err(told)?;
    let shown = counted.queues.iter().map(|queue| show(queue, dialect, Some(counted.of(queue))));
    Ok(params.answer(shown.collect()))
}

async fn one(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let told = |error| Failure::database("Could not get current queues", &error);
    let dialect = dci.dialect().await.map_err(told)?;
    let Some(queue) = dci.database().queue(&name).await.map_err(told)? else {
        return Ok(params.answer(Value::Null));
    };
    if params.flag(".terse") {
        return Ok(params.answer(show(&queue, dialect, None)));
    }
    let counted = CountedQueues::load(dci.database(), vec![queue.clone()]).await.map_err(told)?;
    Ok(params.answer(show(&queue, dialect, Some(counted.of(&queue)))))
}

async fn create(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    let dialect = dci.dialect().await?;
    let asked = RequestedFields::new(params.fields()?, dialect);
    if !asked.has("name") || !asked.has("plugin") {
        return Err(Failure::bad("name and plugin required"));
    }
    let change = asked.change("Invalid param", "Unknown plugin", &dci.config().plugins)?;
    let (Some(name), Some(plugin)) = (change.name, change.plugin) else {
        return Err(Failure::bad("name and plugin required"));
    };
    let (limit, sort) = (change.limit.flatten(), change.sort.flatten());
    let queue = NewQueue { name, plugin, limit, sort };
    match dci.database().queue_insert(&queue).await {
        Ok(id) => Ok(params.answer(inserted_one(id))),
        Err(error) => {
            let what = format!("Could not create queue {}", queue.name);
            Err(Failure::database(&what, &error).with("id", Value::Null))
        }
    }
}

async fn change(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    if params.fields()?.is_empty() {
        return Err(Failure::bad("no params"));
    }
    let dialect = dci.dialect().await?;
    let asked = RequestedFields::new(params.fields()?, dialect);
    let change = asked.change("unknown param", "unknown plugin", &dci.config().plugins)?;
    let set = dci.database().queue_update(&name, &change).await;
    let set =
        set.map_err(|error| Failure::database(&format!("Could not update queue {name}"), &error))?;
    let result = updated(set.matched_count, set.modified_count);
    if set.matched_count == 1 {
        return Ok(params.answer(result));
    }
    let class = "MongoDB::UpdateResult";
    let failure = Failure::bad(format!("there is no queue {name}"));
    Err(failure.with(class, result[class].clone()))
}

/// The requested fields, under the names of the released dialect. In the seed's dialect, its own
/// names are accepted, too.
struct RequestedFields<'a> {
    /// Name in the released dialect, name as sent, value.
    fields: Vec<(&'a str, &'a str, &'a Value)>,
}

impl<'a> RequestedFields<'a> {
    fn new(sent: &'a Map<String, Value>, dialect: Dialect) -> RequestedFields<'a> {
        let known = |name: &'a str| match (dialect, name) {
            (Dialect::Seed, "constructor") => "plugin",
            (Dialect::Seed, "maxthreads") => "threads",
            _ => name,
        };
        let fields = sent.iter().map(|(name, value)| (known(name), name.as_str(), value));
        RequestedFields { fields: fields.collect() }
    }

    fn get(&self, name: &str) -> Option<(&'a str, &'a Value)> {
        let found = self.fields.iter().find(|(known, _, _)| *known == name);
        found.map(|(_, sent, value)| (*sent, *value))
    }

    fn has(&self, name: &str) -> bool {
        let is_empty = |value: &Value| value.is_null() || value.as_str() == Some("");
        self.get(name).is_some_and(|(_, value)| !is_empty(value))
    }

    /// The first name that is unknown or repeats an earlier one.
    fn unknown_or_repeated(&self) -> Option<&'a str> {
        let mut seen = Vec::new();
        let mut is_invalid = |known: &'a str| {
            let again = seen.contains(&known);
            seen.push(known);
            again || !["name", "plugin", "threads", "sort"].contains(&known)
        };
        let invalid = self.fields.iter().find(|(known, _, _)| is_invalid(known));
        invalid.map(|(_, sent, _)| *sent)
    }

    /// Checks in the order of the original, so that the first error gets the same answer.
    fn change(
        &self,
        invalid: &str,
        unknown: &str,
        plugins: &Plugins,
    ) -> Result<QueueChange, Failure> {
        if let Some(param) = self.unknown_or_repeated() {
            return Err(Failure::bad(invalid).with("param", param));
        }
        let mut change = QueueChange::default();
        if let Some((_, value)) = self.get("plugin") {
            let plugin = value.as_str().filter(|name| plugins.get(name).is_some());
            let refused = || Failure::bad(unknown).with("plugin", value.clone());
            change.plugin = Some(plugin.ok_or_else(refused)?.to_owned());
        }
        if let Some((sent, value)) = self.get("threads") {
            change.limit = Some(limit_of(sent, value)?);
        }
        if let Some((_, value)) = self.get("name") {
            let name = value.as_str().filter(|name| !name.is_empty());
            let refused = || Failure::bad("name must be a string");
            change.name = Some(name.ok_or_else(refused)?.to_owned());
        }
        if let Some((_, value)) = self.get("sort") {
            let is_sort = |text: &&str| SORTS.contains(text);
            let sort = value.as_str().filter(is_sort).map(str::to_owned);
            if sort.is_none() && !value.is_null() {
                return Err(Failure::bad(r#"sort must be "fifo", "lifo", or "default""#));
            }
            change.sort = Some(sort);
        }
        Ok(change)
    }
}

/// Shows fields as stored, whatever their types, with counts if known.
fn show(queue: &Document, dialect: Dialect, counts: Option<Counts>) -> Value {
    let plain = |value: Option<&Bson>| {
        value.map_or(Value::Null, |value| doc::json(value, doc::DateFormat::Iso))
    };
    let either = |fields: [&str; 2]| {
        let found = fields.iter().filter_map(|field| queue.get(field));
        plain(found.into_iter().find(|value| **value != Bson::Null))
    };
    let plugin = match dialect {
        Dialect::Seed => either(["constructor", "plugin"]),
        Dialect::Released => either(["plugin", "constructor"]),
    };
    let limit = plain(Some(&doc::LimitStored::of(queue, dialect).value));
    let mut shown = json!({
        "id": plain(queue.get("_id")),
        "name": plain(queue.get("name")),
        dialect.plugin(): plugin,
        dialect.limit(): limit,
    });
    if let Some(counts) = counts {
        shown["queued"] = json!(counts.queued);
        shown["running"] = json!(counts.running);
        shown["completed"] = json!(counts.completed);
        shown["orphaned"] = json!(counts.orphaned);
    }
    shown
}
