//! Refusals: a status, mostly 400, and a JSON object with `error` and sometimes more.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::answer::JsonAnswer;
use crate::database::DbError;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    /// Has at least `error`.
    pub(crate) body: Map<String, Value>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, error: impl Into<Value>) -> Failure {
        let body = Map::from_iter([("error".to_owned(), error.into())]);
        Failure { status, body }
    }

    /// A bad request: 400.
    pub(crate) fn bad(error: impl Into<Value>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, error)
    }

    pub(crate) fn not_found(error: impl Into<Value>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, error)
    }

    pub(crate) fn conflict(error: impl Into<Value>) -> Failure {
        Failure::new(StatusCode::CONFLICT, error)
    }

    /// Adds a field beside `error`.
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Failure {
        self.body.insert(field.to_owned(), value.into());
        self
    }

    /// A database error after a description of the operation; 503 if the database cannot be
    /// reached.
    pub(crate) fn database(what: &str, error: &DbError) -> Failure {
        let said = if what.is_empty() { error.to_string() } else { format!("{what}: {error}") };
        tracing::warn!("{said}");
        match error {
            DbError::Away(_) => Failure::new(StatusCode::SERVICE_UNAVAILABLE, said),
            DbError::Refused(_) | DbError::Duplicate(_) => Failure::bad(said),
        }
    }
}

impl From<DbError> for Failure {
    fn from(error: DbError) -> Failure {
        Failure::database("", &error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = self.status;
        let mut response = JsonAnswer::new(Value::Object(self.body)).status(status).into_response();
        if status == StatusCode::UNAUTHORIZED {
            let basic = HeaderValue::from_static("Basic realm=\"disbatch\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        }
        response
    }
}
