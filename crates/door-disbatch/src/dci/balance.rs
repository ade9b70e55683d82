//! `/balance`: which queues share how many tasks, and the balancer itself.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use jiff::tz::TimeZone;
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::Dci;
use super::answer::JsonAnswer;
use super::error::Failure;
use super::param::{Params, count_of};
use super::route::Routes;
use crate::balance::{Balancer, Schedule};
use crate::database::{Database, DbError, User};
use crate::doc;

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/balance", get).post("/balance", post)
}

/// Runs the balancer until `stop` is cancelled, if it is configured.
pub(super) async fn balance(dci: &Dci, stop: CancellationToken) {
    let config = dci.config();
    if !config.balance.enabled {
        return;
    }
    let database = match config.connection.password(User::Balance) {
        None => Ok(dci.database().clone()),
        Some(_) => Database::connect(config, User::Balance).await,
    };
    match database {
        Ok(database) => {
            let zone = TimeZone::system();
            Balancer::new(database, config.balance, zone).run(stop).await;
        }
        Err(error) => tracing::error!("queues are not balanced: {error}"),
    }
}

async fn get(State(dci): State<Dci>) -> Result<JsonAnswer, Failure> {
    let told = |error| Failure::database("Could not get balance", &error);
    let found = dci.database().balance().await.map_err(told)?.into_iter().next();
    let mut shown = shown(found);
    shown["known_queues"] = json!(known_queues(&dci).await.map_err(told)?);
    shown["settings"] = dci.config().balance_as_written();
    Ok(JsonAnswer::new(shown).pretty(true))
}

/// The document for clients.
fn shown(document: Option<Document>) -> Value {
    match document.filter(|document| !is_only_begun(document)) {
        Some(mut document) => {
            document.remove("_id");
            // The lease is internal.
            document.remove("windlass");
            doc::json(&Bson::Document(document), doc::DateFormat::Iso)
        }
        None => json!({ "notice": "balance document not found" }),
    }
}

/// Whether the document holds only the balancer's own fields. The mark alone does not say so: a
/// foreign interface sets the balance and keeps the mark.
fn is_only_begun(document: &Document) -> bool {
    let is_marked = doc::at(document, "windlass.begun") == Some(&Bson::Boolean(true));
    let has_times = document.get_document("max_tasks").is_ok_and(|times| !times.is_empty());
    let has_queues = document.get_array("queues").is_ok_and(|queues| !queues.is_empty());
    is_marked && !has_times && !has_queues
}

async fn post(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    let known = known_queues(&dci).await?;
    let now = dci.now().await?.timestamp_millis() / 1000;
    let checked = params.sent.as_object().ok_or_else(|| "it is not an object".to_owned());
    match checked.and_then(|sent| check(sent, &params.options, &known, now)) {
        Ok(set) => {
            dci.database().balance_set(set).await?;
            Ok(JsonAnswer::new(json!({ "status": "success: queuebalance modified" })))
        }
        Err(why) => {
            let status = format!("failed: invalid json passed: {why}");
            Ok(JsonAnswer::new(json!({ "status": status })).status(StatusCode::BAD_REQUEST))
        }
    }
}

async fn known_queues(dci: &Dci) -> Result<BTreeSet<String>, DbError> {
    let queues = dci.database().queues().await?;
    let names = queues.iter().filter_map(|queue| queue.get_str("name").ok().map(str::to_owned));
    Ok(names.collect())
}

/// The fields to store, or an error.
fn check(
    sent: &Map<String, Value>,
    options: &Map<String, Value>,
    known: &BTreeSet<String>,
    now: i64,
) -> Result<Document, String> {
    let strange = |key: &&String| !["max_tasks", "queues", "disabled"].contains(&key.as_str());
    if let Some(key) = sent.keys().chain(options.keys()).find(strange) {
        return Err(format!("there is no key {key}"));
    }
    let present = |key: &str| sent.get(key).ok_or_else(|| format!("{key} is missing"));
    let mut set = Document::new();
    set.insert("max_tasks", max_tasks(present("max_tasks")?)?);
    set.insert("queues", queues(present("queues")?, known)?);
    match sent.get("disabled") {
        None => {}
        Some(Value::Null) => drop(set.insert("disabled", Bson::Null)),
        Some(value) => {
            let until = count_of(value).ok_or("disabled is not a time in seconds")?;
            // Zero means never.
            if until != 0 && until < now {
                return Err("disabled is not in the future".to_owned());
            }
            set.insert("disabled", until);
        }
    }
    Ok(set)
}

fn max_tasks(value: &Value) -> Result<Document, String> {
    let entries = value.as_object().ok_or("max_tasks is not an object")?;
    let mut all = Document::new();
    for (key, value) in entries {
        if !Schedule::is_key(key) {
            return Err(format!("{key:?} is not a day and a time such as \"* 07:00\""));
        }
        let most = count_of(value).ok_or_else(|| format!("the tasks of {key} are no number"))?;
        all.insert(key, most);
    }
    Ok(all)
}

fn queues(value: &Value, known: &BTreeSet<String>) -> Result<Vec<Bson>, String> {
    let groups = value.as_array().ok_or("queues is not a list")?;
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for group in groups {
        let names = group.as_array().ok_or("queues is not a list of lists")?;
        let mut checked = Vec::new();
        for name in names {
            let name = name.as_str().ok_or("the name of a queue is not a text")?;
            let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || !name.chars().all(plain) {
                return Err(format!("{name:?} has signs other than letters, digits, _ and -"));
            }
            if !known.contains(name) {
                return Err(format!("there is no queue {name}"));
            }
            if !seen.insert(name) {
                return Err(format!("the queue {name} is there more than once"));
            }
            checked.push(Bson::from(name));
        }
        all.push(Bson::Array(checked));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    fn checked(sent: Value) -> Result<Document, String> {
        let known = ["bulk", "api", "one-off"].map(str::to_owned).into();
        check(sent.as_object().unwrap(), &Map::new(), &known, 1000)
    }

    #[test]
    fn a_balance_that_only_the_balancer_began_is_not_found() {
        let notice = json!({ "notice": "balance document not found" });
        assert_eq!(shown(None), notice);
        let windlass = doc! { "begun": true, "balancer": "x" };
        let begun = doc! { "_id": 1, "max_tasks": {}, "queues": [], "windlass": windlass.clone() };
        assert_eq!(shown(Some(begun)), notice);
        // A foreign interface has set it.
        let set = doc! { "_id": 1, "max_tasks": {}, "queues": [["a"]], "windlass": windlass };
        assert_eq!(shown(Some(set)), json!({ "max_tasks": {}, "queues": [["a"]] }));
        let empty = doc! { "_id": 1, "max_tasks": {}, "queues": [] };
        assert_eq!(shown(Some(empty)), json!({ "max_tasks": {}, "queues": [] }));
    }

    #[test]
    fn what_is_right_is_stored_with_numbers() {
        let sent = json!({
            "max_tasks": {"* 07:00": 1, "6 23:59": "5"},
            "queues": [["bulk"], ["one-off", "api"], []],
        });
        let stored = doc! {
            "max_tasks": { "* 07:00": 1_i64, "6 23:59": 5_i64 },
            "queues": [["bulk"], ["one-off", "api"], []],
        };
        assert_eq!(checked(sent.clone()), Ok(stored.clone()));
        for (disabled, until) in [
            (json!(null), Bson::Null),
            (json!(0), Bson::from(0_i64)),
            (json!("2000"), Bson::from(2000_i64)),
        ] {
            let (mut sent, mut stored) = (sent.clone(), stored.clone());
            sent["disabled"] = disabled;
            stored.insert("disabled", until);
            assert_eq!(checked(sent), Ok(stored));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let with = |key: &str, value: Value| {
            let mut sent = json!({ "max_tasks": {}, "queues": [] });
            sent[key] = value;
            checked(sent).unwrap_err()
        };
        for (key, value, why) in [
            ("foo", json!(1), "there is no key foo"),
            ("disabled", json!(999), "disabled is not in the future"),
            ("disabled", json!(1.5), "disabled is not a time in seconds"),
            ("max_tasks", json!([]), "max_tasks is not an object"),
            (
                "max_tasks",
                json!({"* 7:00": 1}),
                "\"* 7:00\" is not a day and a time such as \"* 07:00\"",
            ),
            ("max_tasks", json!({"* 07:00": 1.5}), "the tasks of * 07:00 are no number"),
            ("queues", json!({}), "queues is not a list"),
            ("queues", json!(["bulk"]), "queues is not a list of lists"),
            ("queues", json!([[5]]), "the name of a queue is not a text"),
            ("queues", json!([["a b"]]), "\"a b\" has signs other than letters, digits, _ and -"),
            ("queues", json!([["web"]]), "there is no queue web"),
            ("queues", json!([["bulk"], ["bulk"]]), "the queue bulk is there more than once"),
        ] {
            assert_eq!(with(key, value), why);
        }
        assert_eq!(checked(json!({"queues": []})), Err("max_tasks is missing".to_owned()));
    }
}
