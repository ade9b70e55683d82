//! `/nodes`: the nodes and their limits.

use axum::extract::State;
use mongodb::bson::{Bson, DateTime, Document};
use serde_json::{Value, json};

use super::Dci;
use super::answer::{JsonAnswer, updated};
use super::error::Failure;
use super::param::{Params, limit_of};
use super::path::Name;
use super::route::Routes;
use crate::doc;

pub(super) fn add(routes: Routes) -> Routes {
    routes.get("/nodes", list).get("/nodes/{*node}", one).post("/nodes/{*node}", limit)
}

async fn list(State(dci): State<Dci>, params: Params) -> Result<JsonAnswer, Failure> {
    let nodes = async { Ok((dci.database().nodes().await?, dci.now().await?)) }.await;
    let (nodes, now) =
        nodes.map_err(|error| Failure::database("Could not get current nodes", &error))?;
    let shown = nodes.iter().map(|node| shown(node, now, dci.config().dashboard.live_window_ms));
    Ok(params.answer(shown.collect()))
}

async fn one(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let node = async { Ok((dci.database().node(&name).await?, dci.now().await?)) }.await;
    let (node, now) =
        node.map_err(|error| Failure::database(&format!("Could not get node {name}"), &error))?;
    let shown = node.map(|node| shown(&node, now, dci.config().dashboard.live_window_ms));
    Ok(params.answer(shown.unwrap_or(Value::Null)))
}

async fn limit(
    State(dci): State<Dci>,
    Name(name): Name,
    params: Params,
) -> Result<JsonAnswer, Failure> {
    let fields = params.fields()?;
    if fields.is_empty() {
        return Err(Failure::bad("No params"));
    }
    if let Some(param) = fields.keys().find(|key| *key != "maxthreads") {
        return Err(Failure::bad("Invalid param").with("param", param.as_str()));
    }
    let limit = limit_of("maxthreads", &fields["maxthreads"])?;
    let set = dci.database().node_set_limit(&name, limit).await;
    let set =
        set.map_err(|error| Failure::database(&format!("Could not update node {name}"), &error))?;
    let result = updated(set.matched_count, set.modified_count);
    if set.matched_count == 1 {
        return Ok(params.answer(result));
    }
    let (class, counts) = ("MongoDB::UpdateResult", result["MongoDB::UpdateResult"].clone());
    Err(Failure::bad(counts.clone()).with(class, counts))
}

/// The entry with its id as text, its last life sign in milliseconds, and whether that is recent by
/// the database's clock, because the clocks of browsers and of this host may be wrong.
fn shown(node: &Document, now: DateTime, window_ms: u64) -> Value {
    let mut shown = doc::json_shown(&Bson::Document(node.clone()), doc::DateFormat::Iso);
    let timestamp_ms = node.get("timestamp").and_then(millis);
    let oldest = now.timestamp_millis().saturating_sub_unsigned(window_ms);
    if let Value::Object(fields) = &mut shown {
        if let (Some(Bson::DateTime(_)), Some(ms)) = (node.get("timestamp"), timestamp_ms) {
            fields.insert("timestamp".to_owned(), json!(ms));
        }
        let id = node.get_object_id("_id").map(|id| json!(id.to_hex()));
        fields.insert("id".to_owned(), id.unwrap_or(Value::Null));
        fields.insert("live".to_owned(), json!(timestamp_ms.is_some_and(|ms| ms >= oldest)));
    }
    shown
}

/// A date, or seconds as written by the seed's own nodes.
pub(super) fn millis(timestamp: &Bson) -> Option<i64> {
    match timestamp {
        Bson::DateTime(date) => Some(date.timestamp_millis()),
        Bson::Int32(_) | Bson::Int64(_) => doc::whole(timestamp)?.checked_mul(1000),
        Bson::Double(seconds) => Some((seconds * 1000.0) as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;
    use mongodb::bson::oid::ObjectId;

    fn live(timestamp: Bson) -> Value {
        let now = DateTime::from_millis(1_700_000_100_000);
        shown(&doc! { "node": "a", "timestamp": timestamp }, now, 15_000)["live"].clone()
    }

    #[test]
    fn a_node_lives_while_its_sign_of_life_is_fresh() {
        let date = |ms| Bson::DateTime(DateTime::from_millis(ms));
        for fresh in [
            date(1_700_000_085_000),
            date(1_700_000_500_000),
            date(i64::MAX),
            Bson::Int32(1_700_000_090),
            Bson::Double(1_700_000_085.5),
        ] {
            assert_eq!(live(fresh.clone()), json!(true), "{fresh}");
        }
        for stale in [
            date(1_700_000_084_999),
            date(i64::MIN),
            Bson::Int32(1_700_000_084),
            Bson::Int64(i64::MIN),
            Bson::Double(f64::NAN),
            Bson::Null,
            Bson::from("1700000100"),
            Bson::from(doc! {}),
        ] {
            assert_eq!(live(stale.clone()), json!(false), "{stale}");
        }
    }

    #[test]
    fn an_entry_is_shown_with_its_id_and_milliseconds() {
        let id = ObjectId::new();
        let at = DateTime::from_millis(1_700_000_000_123);
        let node = doc! { "_id": id, "node": "a", "timestamp": at, "maxthreads": 5 };
        let shown = shown(&node, at, 15_000);
        assert_eq!(shown["id"], json!(id.to_hex()));
        assert_eq!(shown["timestamp"], json!(1_700_000_000_123_i64));
        assert_eq!((&shown["maxthreads"], &shown["live"]), (&json!(5), &json!(true)));
    }
}
