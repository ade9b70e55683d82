//! Successful answers.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The answer of a successful request without data.
#[derive(Serialize, ToSchema)]
pub(crate) struct Done {}

pub(crate) fn done() -> Response {
    json(StatusCode::OK, &Done {})
}

pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("wire forms have text keys and finite numbers");
    with_type(status, JSON, text.into())
}

/// JSON that is already text.
pub(crate) fn json_text(status: StatusCode, text: impl Into<Body>) -> Response {
    with_type(status, JSON, text.into())
}

pub(crate) fn text(text: impl Into<Body>) -> Response {
    with_type(StatusCode::OK, TEXT, text.into())
}

pub(crate) fn with_type(status: StatusCode, content_type: HeaderValue, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
