//! `/monitoring`: whether nodes and the balancer are active, for monitoring programs.

use axum::extract::State;
use mongodb::bson::{Bson, Document};
use serde_json::{Map, Value, json};

use super::Dci;
use super::answer::JsonAnswer;
use super::node::millis;
use super::param::Params;
use super::route::Routes;
use crate::database::DbError;
use crate::doc;

/// After this many seconds of silence, a node counts as inactive.
const SILENT_MAX: i64 = 60;
/// The statuses that a balancer reports.
const WORDS: [&str; 3] = ["OK", "WARNING", "CRITICAL"];

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/monitoring", get)
}

async fn get(State(dci): State<Dci>, params: Params) -> JsonAnswer {
    if !dci.config().monitoring {
        let off = json!({ "status": "OK", "message": "monitoring disabled" });
        return params.answer(json!({ "disbatch": off, "queuebalance": off }));
    }
    let asked: Result<_, DbError> =
        async { Ok((dci.database().nodes().await?, seconds(&dci).await?)) }.await;
    let disbatch = match asked {
        Ok((nodes, now)) => check_nodes(&nodes, now),
        Err(error) => critical(&format!("Could not get current Disbatch nodes: {error}")),
    };
    params.answer(json!({ "disbatch": disbatch, "queuebalance": balancer(&dci).await }))
}

async fn balancer(dci: &Dci) -> Value {
    if !dci.config().balance.enabled {
        return json!({ "status": "OK", "message": "queuebalance disabled" });
    }
    let asked: Result<_, DbError> =
        async { Ok((dci.database().balance().await?, seconds(dci).await?)) }.await;
    match asked {
        Ok((documents, now)) => check_balancer(documents.first(), now),
        Err(error) => critical(&format!("Could not get the balance: {error}")),
    }
}

fn critical(message: &str) -> Value {
    json!({ "status": "CRITICAL", "message": message })
}

async fn seconds(dci: &Dci) -> Result<i64, DbError> {
    Ok(dci.now().await?.timestamp_millis() / 1000)
}

fn check_nodes(nodes: &[Document], now: i64) -> Value {
    if nodes.is_empty() {
        return json!({ "status": "WARNING", "message": "No Disbatch nodes found" });
    }
    let (mut fresh, mut stale) = (Map::new(), Map::new());
    for node in nodes {
        let name =
            node.get("node").map_or(Value::Null, |name| doc::json(name, doc::DateFormat::Iso));
        let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
        let seen = node.get("timestamp").and_then(millis).unwrap_or(0) / 1000;
        let age = now.saturating_sub(seen);
        let place = if age > SILENT_MAX { &mut stale } else { &mut fresh };
        place.insert(name, json!(age));
    }
    let (status, message) = if fresh.is_empty() {
        ("CRITICAL", "No active Disbatch nodes found")
    } else {
        ("OK", "Disbatch is running on one or more nodes")
    };
    let groups =
        [("fresh", fresh), ("stale", stale)].into_iter().filter(|(_, all)| !all.is_empty());
    let groups: Map<String, Value> =
        groups.map(|(name, all)| (name.to_owned(), Value::Object(all))).collect();
    json!({ "status": status, "message": message, "nodes": groups })
}

fn check_balancer(document: Option<&Document>, now: i64) -> Value {
    let field = |name: &str| document.and_then(|document| document.get(name));
    let seen = field("timestamp").filter(|seen| !matches!(seen, Bson::String(_)));
    let seen = seen.and_then(millis).unwrap_or(0) / 1000;
    let age = now.saturating_sub(seen);
    if age > SILENT_MAX {
        return critical(&format!("queuebalanced not running for {age}s"));
    }
    let shown =
        |name| field(name).map_or(Value::Null, |value| doc::json(value, doc::DateFormat::Iso));
    let result = json!({ "status": shown("status"), "message": shown("message") });
    if result["status"].as_str().is_some_and(|status| WORDS.contains(&status)) {
        return result;
    }
    let mut unknown = critical("queuebalanced unknown status");
    unknown["result"] = result;
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::{DateTime, doc};

    const NOW: i64 = 1_700_000_000;

    fn node(name: &str, age: i64) -> Document {
        doc! { "node": name, "timestamp": DateTime::from_millis((NOW - age) * 1000 + 300) }
    }

    #[test]
    fn nodes_are_fresh_for_a_minute() {
        let none = json!({ "status": "WARNING", "message": "No Disbatch nodes found" });
        assert_eq!(check_nodes(&[], NOW), none);
        assert_eq!(
            check_nodes(&[node("a", 60), node("b", 61), node("c", -5)], NOW),
            json!({
                "status": "OK", "message": "Disbatch is running on one or more nodes",
                "nodes": { "fresh": { "a": 60, "c": -5 }, "stale": { "b": 61 } },
            })
        );
        assert_eq!(
            check_nodes(&[node("b", 61), doc! { "node": 5, "timestamp": "x" }], NOW),
            json!({
                "status": "CRITICAL", "message": "No active Disbatch nodes found",
                "nodes": { "stale": { "b": 61, "5": NOW } },
            })
        );
    }

    #[test]
    fn a_balancer_is_what_it_says_while_it_says_something() {
        let silent = |age: i64| critical(&format!("queuebalanced not running for {age}s"));
        assert_eq!(check_balancer(None, NOW), silent(NOW));
        assert_eq!(check_balancer(Some(&doc! { "timestamp": NOW - 61 }), NOW), silent(61));
        assert_eq!(check_balancer(Some(&doc! { "timestamp": "x" }), NOW), silent(NOW));
        let said = |status: Bson| {
            let document = doc! { "timestamp": NOW - 60, "status": status, "message": "m", "x": 1 };
            check_balancer(Some(&document), NOW)
        };
        for status in WORDS {
            assert_eq!(said(status.into()), json!({ "status": status, "message": "m" }));
        }
        for status in [Bson::Null, Bson::from("fine"), Bson::from(5)] {
            let told = said(status);
            assert_eq!(told["status"], json!("CRITICAL"));
            assert_eq!(told["message"], json!("queuebalanced unknown status"));
            assert_eq!(told["result"]["message"], json!("m"));
        }
    }
}
