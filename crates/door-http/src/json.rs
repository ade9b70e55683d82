//! Strict reading of JSON bodies; errors name the field.

use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use windlass_net::Share;

use crate::body::{self, COMMAND_BYTES_MAX, Kind, Reader};
use crate::door::Door;
use crate::error::Failure;

/// A JSON body of at most `COMMAND_BYTES_MAX`, with its share of the memory bound: what was read
/// from it takes at most about as much until the request ends.
pub(crate) struct Command<T> {
    pub(crate) body: T,
    pub(crate) memory: Share,
}

/// For routes without a body: nothing, or an empty object, since some clients always send one.
pub(crate) struct NoBody;

impl<T: DeserializeOwned> FromRequest<Door> for Command<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, door: &Door) -> Result<Self, Failure> {
        let whole = read(request, door, COMMAND_BYTES_MAX).await?;
        Ok(Command { body: parse(&whole.bytes)?, memory: whole.memory })
    }
}

impl FromRequest<Door> for NoBody {
    type Rejection = Failure;
    async fn from_request(request: Request, door: &Door) -> Result<Self, Failure> {
        use hyper::body::Body;
        if request.body().is_end_stream() {
            return Ok(NoBody);
        }
        let whole = read(request, door, COMMAND_BYTES_MAX).await?;
        if !whole.bytes.is_empty() {
            parse::<EmptyObject>(&whole.bytes)?;
        }
        Ok(NoBody)
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct EmptyObject {}

/// Reads a body that is declared as JSON or not declared at all.
pub(crate) async fn read(
    request: Request,
    door: &Door,
    bytes_max: u64,
) -> Result<body::Buffered, Failure> {
    let (parts, body) = request.into_parts();
    if !matches!(body::kind(&parts.headers), Kind::Json | Kind::Absent) {
        return Err(body::wrong_kind(&parts.headers, "application/json"));
    }
    Reader::new(&parts.headers, body, bytes_max, "", door.body_timeout)?.whole(&door.memory).await
}

/// Reads one JSON value. The path to an error is determined only if there is one.
pub(crate) fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).or_else(|_| parse_with_path(bytes))
}

fn parse_with_path<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        refusal(&path, &error.into_inner())
    })?;
    match deserializer.end() {
        Ok(()) => Ok(value),
        Err(error) => Err(refusal(".", &error)),
    }
}

/// `path` leads to the value being read; serde names an unknown or missing field only in its
/// message.
fn refusal(path: &str, error: &serde_json::Error) -> Failure {
    let message = error.to_string();
    let quoted = ["unknown field `", "missing field `", "duplicate field `"].iter();
    let named = quoted.filter_map(|lead| message.strip_prefix(lead)?.split('`').next()).next();
    let field = match (path, named) {
        // Invalid JSON has no fields.
        _ if !error.is_data() => "body".to_owned(),
        (".", None) => "body".to_owned(),
        (".", Some(name)) => name.to_owned(),
        (path, Some(name)) if path == name || path.ends_with(&format!(".{name}")) => path.into(),
        (path, Some(name)) => format!("{path}.{name}"),
        (path, None) => path.to_owned(),
    };
    let wording = if error.is_data() { in_plain_words(&message) } else { message.clone() };
    let mut failure = Failure::invalid(field, wording);
    if message.starts_with("unknown field") {
        // The name comes from the client, so it must not affect the code.
        failure.code = "invalid_value";
    }
    failure
}

/// Rewrites serde's message for the client: JSON types instead of Rust's, and no position, since
/// the field is named.
fn in_plain_words(message: &str) -> String {
    let message = match message.rfind(" at line ") {
        Some(place) => &message[..place],
        None => message,
    };
    let Some((given, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match expected {
        "f64" => "a number",
        "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i64" => "a whole number",
        "a sequence" => "a list",
        "a map" => "an object",
        structure if structure.starts_with("struct ") => "an object",
        other => other,
    };
    let given = given.strip_prefix("invalid type: ").or(given.strip_prefix("invalid value: "));
    match given {
        Some(given) => {
            let kind = given.replacen("integer", "the number", 1).replacen("sequence", "a list", 1);
            let kind = kind.replacen("floating point", "the number", 1);
            let kind = kind.replacen("string", "the text", 1).replacen("map", "an object", 1);
            format!("{kind} is not accepted here; {expected} is")
        }
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::WireDuration;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)]
        limit: u32,
        #[allow(dead_code)]
        inner: Option<Inner>,
        #[allow(dead_code)]
        #[serde(default)]
        list: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)]
        wait: WireDuration,
    }

    fn check(text: &str, field: &str, message: &str) {
        let failure = parse::<Outer>(text.as_bytes()).unwrap_err();
        assert_eq!(
            (failure.code, failure.field.as_deref()),
            ("invalid_value", Some(field)),
            "{text}"
        );
        assert!(failure.message.contains(message), "{text}: {}", failure.message);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        check(r#"{"limit":1,"more":2}"#, "more", "expected one of");
        check(r#"{}"#, "limit", "missing");
        check(r#"{"limit":"x"}"#, "limit", "a whole number that is not negative is");
        check(r#"{"limit":-1}"#, "limit", "a whole number that is not negative is");
        check(r#"{"limit":1,"list":5}"#, "list", "the number `5` is not accepted here; a list is");
        check(r#"{"limit":1,"inner":5}"#, "inner", "an object is");
        check(r#"{"limit":1,"limit":2}"#, "limit", "duplicate");
        check(r#"{"limit":1,"inner":{"wait":"5"}}"#, "inner.wait", "is not a duration");
        check(r#"{"limit":1,"inner":{"wait":5}}"#, "inner.wait", "a string is");
        check(r#"{"limit":1,"inner":{"more":5}}"#, "inner.more", "unknown");
        check(r#"{"limit":1,"inner":{}}"#, "inner.wait", "missing");
        check(r#"{"limit":1,"list":[{"wait":"1s"},{"wait":"1"}]}"#, "list[1].wait", "duration");
        check(r#"{"limit":1,"tenant":2}"#, "tenant", "unknown");
    }

    #[test]
    fn malformed_json_is_told_with_line_and_column() {
        check("", "body", "line 1 column 0");
        check("{\"limit\":1,\n}", "body", "line 2 column 1");
        check("{\"limit\":1} x", "body", "line 1 column 13");
        check("[]", "body", "expected");
        check("\u{feff}{}", "body", "column");
    }
}
