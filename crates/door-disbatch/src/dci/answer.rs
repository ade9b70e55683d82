//! JSON answers, and MongoDB results under the names of its Perl driver, which clients of the
//! original expect.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mongodb::bson::oid::ObjectId;
use serde_json::{Value, json};

use crate::doc::shown_id;

const INTERNAL: &str = r#"{"error":"the answer cannot be written as JSON"}"#;

#[derive(Debug)]
pub(crate) struct JsonAnswer {
    status: StatusCode,
    value: Value,
    pretty: bool,
}

impl JsonAnswer {
    pub(crate) fn new(value: Value) -> JsonAnswer {
        JsonAnswer { status: StatusCode::OK, value, pretty: false }
    }

    pub(crate) fn status(self, status: StatusCode) -> JsonAnswer {
        JsonAnswer { status, ..self }
    }

    /// For people: one field per line.
    pub(crate) fn pretty(self, pretty: bool) -> JsonAnswer {
        JsonAnswer { pretty, ..self }
    }
}

impl IntoResponse for JsonAnswer {
    fn into_response(self) -> Response {
        let text = if self.pretty {
            serde_json::to_string_pretty(&self.value)
        } else {
            serde_json::to_string(&self.value)
        };
        let (status, text) = match text {
            Ok(text) => (self.status, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, INTERNAL.to_owned()),
        };
        let json = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, json)], text).into_response()
    }
}

/// `{"MongoDB::UpdateResult": {..}}`.
pub(crate) fn updated(matched: u64, modified: u64) -> Value {
    json!({ "MongoDB::UpdateResult": {
        "matched_count": matched,
        "modified_count": modified,
        "upserted_id": null,
        "write_errors": [],
        "write_concern_errors": [],
    } })
}

/// `{"MongoDB::InsertOneResult": {..}, "id": ..}`.
pub(crate) fn inserted_one(id: ObjectId) -> Value {
    json!({
        "MongoDB::InsertOneResult": {
            "acknowledged": 1,
            "inserted_id": shown_id(id),
            "write_errors": [],
            "write_concern_errors": [],
        },
        "id": shown_id(id),
    })
}

/// `{"MongoDB::InsertManyResult": {..}}`.
pub(crate) fn inserted_many(ids: &[ObjectId]) -> Value {
    let inserted = ids.iter().enumerate();
    let inserted = inserted.map(|(index, id)| json!({ "index": index, "_id": shown_id(*id) }));
    let inserted: Vec<Value> = inserted.collect();
    json!({ "MongoDB::InsertManyResult": {
        "acknowledged": 1,
        "inserted_count": inserted.len(),
        "inserted": inserted,
        "write_errors": [],
        "write_concern_errors": [],
    } })
}

/// `{"MongoDB::DeleteResult": {..}}`.
pub(crate) fn deleted(count: u64) -> Value {
    json!({ "MongoDB::DeleteResult": {
        "deleted_count": count,
        "write_errors": [],
        "write_concern_errors": [],
    } })
}
