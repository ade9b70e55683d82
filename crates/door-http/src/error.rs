//! The wire form of every refusal, and the only place where the engine's errors are translated.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use windlass_core::Invalid;
use windlass_core::audit::Reason;
use windlass_core::maxima::Above;
use windlass_engine::Error;

use crate::answer;
use crate::record;
use crate::tries::WINDOW;

/// Seconds after which a client may retry an unavailable request.
pub(crate) const RETRY_AFTER_S: u16 = 1;
/// How a client identifies itself.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer realm=\"windlass\"");
const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// A request that is answered with a status of 4xx or 5xx.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) field: Option<String>,
    /// Why, if the audit is to have it.
    pub(crate) reason: Option<Reason>,
}

/// The body of every answer with a status of 4xx or 5xx.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody<'a> {
    error: ErrorDetail<'a>,
}

#[derive(Serialize, ToSchema)]
struct ErrorDetail<'a> {
    /// A stable word, such as `invalid_value` or `not_found`.
    code: &'a str,
    /// What was wrong and what is accepted, in one sentence.
    message: &'a str,
    /// The field, parameter or header at fault, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Failure {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, code, message: message.into(), field: None, reason: None }
    }

    fn at(self, field: impl Into<String>) -> Failure {
        Failure { field: Some(field.into()), ..self }
    }

    /// The audit has this answer as a refusal.
    pub(crate) fn because(self, reason: Reason) -> Failure {
        Failure { reason: Some(reason), ..self }
    }

    /// An invalid value. `field` is its name in the request.
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Failure {
        let field = field.into();
        let code = match field.as_str() {
            "tenant" => "invalid_tenant",
            "type" => "invalid_type",
            _ => "invalid_value",
        };
        Failure::new(StatusCode::BAD_REQUEST, code, message).at(field)
    }

    pub(crate) fn unsupported_media(field: &str, message: String) -> Failure {
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_value", message).at(field)
    }

    pub(crate) fn too_large(field: &str, message: String) -> Failure {
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).at(field)
    }

    /// The body did not arrive in time.
    pub(crate) fn too_slow(message: String) -> Failure {
        Failure::new(StatusCode::REQUEST_TIMEOUT, "unavailable", message).at("body")
    }

    pub(crate) fn unavailable(message: String) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
    }

    pub(crate) fn forbidden(message: &str) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// There is no key, or none that is in force.
    pub(crate) fn unauthorized(message: &str) -> Failure {
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message).at("Authorization")
    }

    pub(crate) fn limited(message: &str) -> Failure {
        Failure::new(StatusCode::TOO_MANY_REQUESTS, "limited", message).at("Authorization")
    }

    /// The tenant belongs to others.
    pub(crate) fn no_such_tenant() -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", "this key has no such tenant")
            .because(Reason::Tenant)
    }

    pub(crate) fn not_built(what: &str) -> Failure {
        let message = format!("{what} is not supported in this version yet");
        Failure::new(StatusCode::NOT_IMPLEMENTED, "unavailable", message)
    }

    pub(crate) fn no_such_route(path: &str) -> Failure {
        let message = format!("there is no route {path}; /openapi.json lists all routes");
        Failure::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn wrong_method(method: &str, path: &str) -> Failure {
        let message = format!(
            "{path} does not support {method}; the Allow header lists the supported methods"
        );
        Failure::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_value", message).at("method")
    }

    /// Plain HTTP where TLS is spoken.
    pub(crate) fn wants_tls() -> Failure {
        let message = "this port speaks TLS; use a URL that begins with https://";
        Failure::new(StatusCode::BAD_REQUEST, "invalid_value", message)
    }

    /// The details go to the daemon's log, not to the client.
    pub(crate) fn internal() -> Failure {
        let message = "internal error; see the daemon's log";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// The body of the answer.
    pub(crate) fn json(&self) -> String {
        let Failure { code, message, field, .. } = self;
        let error = ErrorDetail { code, message, field: field.as_deref() };
        serde_json::to_string(&ErrorBody { error }).expect("text is JSON")
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Failure {
        Failure::invalid(invalid.field, invalid.reason)
    }
}

/// Names the header, as clients of this door know it.
const KEY_REUSED: &str = "this Idempotency-Key was used within 24 hours for another type or body";

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = match &error {
            Error::KeyReused => KEY_REUSED.to_owned(),
            error => error.to_string(),
        };
        let without_field = |status, code| Failure::new(status, code, message);
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::Above(Above(invalid)) => Failure::from(invalid).because(Reason::Maximum),
            Error::NotFound(_) => without_field(StatusCode::NOT_FOUND, "not_found"),
            Error::Conflict(_) | Error::KeyReused | Error::Refused(_) => {
                without_field(StatusCode::CONFLICT, "conflict")
            }
            Error::Unavailable(_) => without_field(StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Error::Internal(detail) => {
                tracing::error!(detail, "internal error in a request");
                Failure::internal()
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = answer::json_text(self.status, self.json());
        if let Some(reason) = self.reason {
            record::because(&mut response, reason);
        }
        let headers = response.headers_mut();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, BEARER);
            }
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(WINDOW.as_secs()));
                headers.insert(header::CONNECTION, CLOSE);
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: Error, status: u16, code: &str, field: Option<&str>) {
        let failure = Failure::from(error);
        let seen = (failure.status.as_u16(), failure.code, failure.field.as_deref());
        assert_eq!(seen, (status, code, field));
    }

    #[test]
    fn every_error_of_the_engine_has_its_status_and_code() {
        let invalid = |field| Error::Invalid(Invalid::new(field, "r"));
        check(invalid("tenant"), 400, "invalid_tenant", Some("tenant"));
        check(invalid("type"), 400, "invalid_type", Some("type"));
        check(invalid("options.env"), 400, "invalid_value", Some("options.env"));
        check(Error::Above(Above(Invalid::new("lease", "r"))), 400, "invalid_value", Some("lease"));
        check(Error::NotFound("job"), 404, "not_found", None);
        check(Error::Conflict("c".into()), 409, "conflict", None);
        check(Error::KeyReused, 409, "conflict", None);
        assert_eq!(Failure::from(Error::KeyReused).message, KEY_REUSED);
        check(Error::Unavailable("u".into()), 503, "unavailable", None);
        check(Error::Internal("secret".into()), 500, "internal", None);
    }

    #[test]
    fn an_internal_error_tells_the_client_nothing_of_its_cause() {
        assert!(!Failure::from(Error::Internal("secret".into())).message.contains("secret"));
    }

    #[test]
    fn only_what_is_not_available_says_when_to_come_back() {
        let later = Failure::unavailable("u".into()).into_response();
        assert_eq!(later.headers()[header::RETRY_AFTER], "1");
        let never = Failure::internal().into_response();
        assert!(!never.headers().contains_key(header::RETRY_AFTER));
    }
}
