//! The parameters of a request: a form body, else a JSON body, else the query. Keys that begin with
//! a dot are options, which say how to answer.

use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use super::Dci;
use super::answer::JsonAnswer;
use super::body::{self, RequestMemory};
use super::error::Failure;

pub(crate) struct Params {
    /// An object, unless a JSON body is something else. Form and query values are strings; repeated
    /// keys become an array.
    pub(crate) sent: Value,
    /// Keys that begin with a dot, including the dot.
    pub(crate) options: Map<String, Value>,
    /// Memory for large values, until the request is done.
    room: RequestMemory,
}

/// Why a text could not be parsed.
#[derive(Debug)]
pub(crate) enum UnfoldError {
    TooMuch(Failure),
    /// It is not JSON, for this reason.
    NotJson(String),
}

impl Params {
    fn new(sent: Value, room: RequestMemory) -> Params {
        let (sent, options) = match sent {
            Value::Object(all) => {
                let (options, fields) = all.into_iter().partition(|(key, _)| key.starts_with('.'));
                (Value::Object(fields), options)
            }
            other => (other, Map::new()),
        };
        Params { sent, options, room }
    }

    /// Parses JSON that a field or option contains as text, as in forms, and replaces the text.
    /// Parsed values may need many times the memory of their text, which is reserved first.
    pub(crate) fn unfold(&mut self, name: &str) -> Result<(), UnfoldError> {
        let found = match &mut self.sent {
            Value::Object(fields) if !name.starts_with('.') => fields.get_mut(name),
            _ => self.options.get_mut(name),
        };
        let Some(value) = found else { return Ok(()) };
        let Value::String(text) = value else { return Ok(()) };
        self.room.permit(json_weight(text.as_bytes())).map_err(UnfoldError::TooMuch)?;
        *value =
            serde_json::from_str(text).map_err(|error| UnfoldError::NotJson(error.to_string()))?;
        Ok(())
    }

    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn of(sent: Value) -> Params {
        Params::new(sent, RequestMemory::new(&windlass_net::Memory::new(0)))
    }

    /// Removes empty fields, which forms send.
    pub(crate) fn drop_empty(&mut self) {
        if let Value::Object(fields) = &mut self.sent {
            fields.retain(|_, value| value.as_str() != Some(""));
        }
    }

    /// The parameters by name.
    pub(crate) fn fields(&self) -> Result<&Map<String, Value>, Failure> {
        let refused = || Failure::bad("the parameters must be a JSON object");
        self.sent.as_object().ok_or_else(refused)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.sent.get(name)
    }

    /// Whether an option is set: `.pretty`, `.pretty=1`, `{".pretty": true}`.
    pub(crate) fn flag(&self, option: &str) -> bool {
        self.options.get(option).is_some_and(is_true)
    }

    /// An answer in the requested format.
    pub(crate) fn answer(&self, value: Value) -> JsonAnswer {
        JsonAnswer::new(value).pretty(self.flag(".pretty"))
    }
}

/// The value of a flag; false for everything that is false in Perl, and for `false`.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(set) => *set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !matches!(text.as_str(), "" | "0" | "false"),
        Value::Array(_) | Value::Object(_) => true,
    }
}

/// A limit: a non-negative integer, or `None`.
pub(crate) fn limit_of(name: &str, value: &Value) -> Result<Option<i64>, Failure> {
    if value.is_null() {
        return Ok(None);
    }
    let refused = || Failure::bad(format!("{name} must be a non-negative integer or null"));
    count_of(value).map(Some).ok_or_else(refused)
}

/// A non-negative integer, as a number or, from forms, as digits.
pub(crate) fn count_of(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().filter(|count| *count >= 0),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

impl FromRequest<Dci> for Params {
    type Rejection = Failure;

    async fn from_request(request: Request, dci: &Dci) -> Result<Params, Failure> {
        let kind = kind(request.headers())?;
        let query = request.uri().query().unwrap_or_default().to_owned();
        let looking = matches!(*request.method(), Method::GET | Method::HEAD);
        if looking && matches!(kind, Kind::Absent | Kind::Other) {
            return Ok(Params::new(read(kind, &[], &query)?, RequestMemory::new(dci.memory())));
        }
        let (bytes, mut room) = body::read(request.into_body(), dci.memory()).await?;
        let copies = COPIES * bytes.len() as u64;
        room.permit(weight(kind, &bytes) + copies)?;
        Ok(Params::new(read(kind, &bytes, &query)?, room))
    }
}

/// Text in a body is copied twice: as JSON and into a document.
const COPIES: u64 = 2;
/// An object with its first field, as JSON and as a document.
pub(crate) const OBJECT_BYTES: u64 = 2048;
/// Any other value, in both forms.
pub(crate) const VALUE_BYTES: u64 = 160;

/// Estimates the memory of a parsed form or JSON text: many times its length if it consists of many
/// small values.
fn weight(kind: Kind, body: &[u8]) -> u64 {
    if kind == Kind::Form { form_weight(body) } else { json_weight(body) }
}

/// Text inside is not weighed as JSON until it is parsed.
pub(crate) fn json_weight(json: &[u8]) -> u64 {
    let (mut weight, mut in_text, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => weight += OBJECT_BYTES,
            b'[' | b',' => weight += VALUE_BYTES,
            _ => {}
        }
    }
    weight
}

/// All values are text.
fn form_weight(body: &[u8]) -> u64 {
    let more = body.iter().filter(|byte| **byte == b'&').count();
    VALUE_BYTES * more as u64
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Absent,
    Form,
    Json,
    Other,
}

fn kind(headers: &HeaderMap) -> Result<Kind, Failure> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message = "bodies with a content encoding are not accepted";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(Kind::Absent) };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    let is = |name: &str| essence.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
    Ok(match () {
        () if is("application/x-www-form-urlencoded") => Kind::Form,
        () if is("application/json") => Kind::Json,
        () => Kind::Other,
    })
}

pub(crate) fn read(kind: Kind, body: &[u8], query: &str) -> Result<Value, Failure> {
    if body.is_empty() {
        return pairs(query.as_bytes());
    }
    match kind {
        Kind::Form => pairs(body),
        Kind::Json => serde_json::from_slice(body)
            .map_err(|error| Failure::bad(format!("the body is not JSON: {error}"))),
        // Nothing else is guessed at: a page of another site may send plain text without a
        // preflight request, but not JSON.
        Kind::Absent | Kind::Other => {
            let message = "send parameters as application/json or \
                           application/x-www-form-urlencoded";
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

/// Decodes `a=1&b=2&b=3`. An option without a value is set.
fn pairs(text: &[u8]) -> Result<Value, Failure> {
    let mut fields = Map::new();
    for pair in text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let key = decode(parts.next().unwrap_or_default())?;
        let value = match parts.next() {
            Some(value) => Value::String(decode(value)?),
            None if key.starts_with('.') => Value::Bool(true),
            None => Value::String(String::new()),
        };
        match fields.get_mut(&key) {
            None => drop(fields.insert(key, value)),
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
        }
    }
    Ok(Value::Object(fields))
}

fn decode(text: &[u8]) -> Result<String, Failure> {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let decoded = percent_decode(&spaced).decode_utf8();
    let refused = |_| Failure::bad("a parameter is not UTF-8");
    decoded.map(|text| text.into_owned()).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use serde_json::json;
    use windlass_net::Memory;

    fn params(kind: Kind, body: &str, query: &str) -> Params {
        let room = RequestMemory::new(&Memory::new(0));
        Params::new(read(kind, body.as_bytes(), query).unwrap(), room)
    }

    #[test]
    fn a_form_goes_before_the_query() {
        let read = params(Kind::Form, "name=a+b&x=%C3%A9&x=2&x=3&e=", "name=other");
        assert_eq!(read.sent, json!({ "name": "a b", "x": ["é", "2", "3"], "e": "" }));
        assert!(read.options.is_empty());
    }

    #[test]
    fn a_json_body_goes_before_the_query_and_need_not_be_an_object() {
        let read = params(Kind::Json, r#"{"a": [1], ".pretty": true}"#, "a=2");
        assert_eq!(read.sent, json!({ "a": [1] }));
        assert!(read.flag(".pretty"));
        let array = params(Kind::Json, "[{}]", "");
        assert_eq!(array.sent, json!([{}]));
        assert_eq!(array.fields().err().unwrap().status.as_u16(), 400);
    }

    #[test]
    fn without_a_body_the_query_counts_whatever_the_content_type() {
        for kind in [Kind::Absent, Kind::Form, Kind::Json, Kind::Other] {
            let read = params(kind, "", "queue=q&.limit=5&.count&.epoch=0");
            assert_eq!(read.sent, json!({ "queue": "q" }));
            assert_eq!(read.options.get(".limit"), Some(&json!("5")));
            assert!(read.flag(".count") && !read.flag(".epoch") && !read.flag(".full"));
        }
        assert_eq!(params(Kind::Absent, "", "").sent, json!({}));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        let refused = |kind, body: &str| {
            let failure = read(kind, body.as_bytes(), "").unwrap_err();
            (failure.status.as_u16(), failure.body["error"].as_str().unwrap().to_owned())
        };
        let (status, error) = refused(Kind::Json, "{\"a\": ");
        assert_eq!(status, 400);
        assert!(error.starts_with("the body is not JSON: EOF"), "{error}");
        assert_eq!(refused(Kind::Form, "a=%ff").0, 400);
        assert_eq!(refused(Kind::Other, "x").0, 415);
        assert_eq!(refused(Kind::Absent, "x").0, 415);
        let deep = "[".repeat(100_000);
        assert_eq!(refused(Kind::Json, &deep).0, 400);
    }

    #[test]
    fn content_types_have_parameters_and_any_case() {
        let of = |text| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(text));
            kind(&headers).unwrap()
        };
        assert_eq!(of("Application/JSON; charset=utf-8"), Kind::Json);
        assert_eq!(of("application/x-www-form-urlencoded"), Kind::Form);
        assert_eq!(of("text/plain"), Kind::Other);
        assert_eq!(kind(&HeaderMap::new()).unwrap(), Kind::Absent);
    }

    #[test]
    fn many_small_things_weigh_more_than_their_bytes() {
        let json = |body: &[u8]| weight(Kind::Json, body);
        assert_eq!(json(b""), 0);
        assert_eq!(json(br#"{"a":1}"#), 2048);
        assert_eq!(json(br#"[{"a":[1,2]},{}]"#), 2 * 2048 + 4 * 160);
        assert_eq!(json(br#""text, {[ \" , {""#), 0);
        let form = |body: &[u8]| weight(Kind::Form, body);
        assert_eq!(form(b"a=1&b=2"), 160);
        assert_eq!(form(b"a=[{},{}]&b=%5B%7B%7D%5D&b="), 2 * 160, "texts until they are read");
        assert_eq!(form(b"%"), 0);
    }

    #[test]
    fn json_in_a_text_is_weighed_before_it_is_read() {
        let list = format!("[{}]", vec!["{}"; 100].join(","));
        let body = json!({ "small": "[1,{}]", "large": list, ".fields": list, "none": "[1" });
        let mut read = params(Kind::Json, &body.to_string(), "");
        read.room = RequestMemory::new(&Memory::new(4096));
        read.unfold("small").unwrap();
        assert_eq!(read.get("small"), Some(&json!([1, {}])));
        read.unfold("small").unwrap();
        read.unfold("missing").unwrap();
        for large in ["large", ".fields"] {
            let Err(UnfoldError::TooMuch(refused)) = read.unfold(large) else { panic!("{large}") };
            assert_eq!(refused.status.as_u16(), 503);
        }
        assert!(matches!(read.unfold("none"), Err(UnfoldError::NotJson(_))));
        assert_eq!((read.get("large"), read.get("none")), (Some(&json!(list)), Some(&json!("[1"))));
    }

    #[test]
    fn counts_are_numbers_or_digits() {
        for (value, count) in [(json!(5), Some(5)), (json!("0"), Some(0)), (json!("12"), Some(12))]
        {
            assert_eq!(count_of(&value), count);
        }
        for value in [json!(-1), json!(1.5), json!("-1"), json!(""), json!(null), json!([1])] {
            assert_eq!(count_of(&value), None, "{value}");
        }
        assert_eq!(count_of(&json!("99999999999999999999")), None);
    }
}
