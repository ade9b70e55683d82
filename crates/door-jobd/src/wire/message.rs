//! One message: read with the words in which bad ones are answered, and written.

use std::io::Write;

use super::check::{self, Field, Kind};
use super::{END, Json, Object};
use crate::secret::Secret;

/// The other side may number its requests with any integer; ours to ask are within `Numbers`.
pub type RequestNo = i128;

/// Kinds of data that a request or an answer may carry.
const DATA: &[Kind] = &[Kind::String, Kind::Number, Kind::Object, Kind::Array];
const REQUEST: [Field; 4] = [
    Field::required("type", &[Kind::String]),
    Field::required("no", &[Kind::Integer]),
    Field::optional("password", &[Kind::String]),
    Field::optional("data", DATA),
];
const RESPONSE: [Field; 3] = [
    Field::required("no", &[Kind::Integer]),
    Field::optional("data", DATA),
    Field::optional("error", &[Kind::String]),
];

pub const PING: &[u8] = b"[2]\x04";
pub const PONG: &[u8] = b"[3]\x04";

#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request(Request),
    Response(Response),
    Ping,
    Pong,
    /// JSON, but not a message; this text is the answer, with the number 0.
    Malformed(String),
    /// Not JSON; nothing is answered.
    Broken,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub no: RequestNo,
    pub kind: String,
    pub password: Option<Secret>,
    /// An empty object when there was none, or something that counts as none.
    pub data: Json,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub no: RequestNo,
    pub result: Result<Json, String>,
}

/// Reads a message without its end. Bytes that are not UTF-8 become replacement characters.
pub fn parse(bytes: &[u8]) -> Message {
    let text = String::from_utf8_lossy(bytes);
    let items = match serde_json::from_str(&text) {
        Err(_) => return Message::Broken,
        Ok(Json::Array(items)) => items,
        Ok(other) => {
            return Message::Malformed(format!("JSON array expected, got: {}", other.js_string()));
        }
    };
    let mut items = items.into_iter();
    let kind = items.next();
    match kind.as_ref().and_then(Json::as_i64) {
        Some(0) => read_request(items.next()).map_or_else(
            |error| Message::Malformed(format!("malformed REQUEST message: {error}")),
            Message::Request,
        ),
        Some(1) => read_response(items.next()).map_or_else(
            |error| Message::Malformed(format!("malformed RESPONSE message: {error}")),
            Message::Response,
        ),
        Some(2) => Message::Ping,
        Some(3) => Message::Pong,
        _ => {
            let kind = kind.map_or_else(|| "undefined".to_owned(), |kind| kind.js_string());
            Message::Malformed(format!("unexpected type {kind}"))
        }
    }
}

fn read_request(item: Option<Json>) -> Result<Request, String> {
    let mut object = read_object(item, &REQUEST)?;
    Ok(Request {
        no: read_no(&object)?,
        kind: object.take_str("type").unwrap_or_default(),
        password: object.take_str("password").map(Secret::new),
        data: object.take("data").filter(Json::is_truthy).unwrap_or_else(|| Object::new().into()),
    })
}

fn read_response(item: Option<Json>) -> Result<Response, String> {
    let mut object = read_object(item, &RESPONSE)?;
    let no = read_no(&object)?;
    let error = object.take_str("error").filter(|error| !error.is_empty());
    let data = object.take("data").filter(Json::is_truthy).unwrap_or_default();
    Ok(Response { no, result: error.map_or(Ok(data), Err) })
}

fn read_object(item: Option<Json>, fields: &[Field]) -> Result<Object, String> {
    let item = item.unwrap_or_default();
    check::fields(&item, fields)?;
    if let Json::Object(object) = item { Ok(object) } else { Ok(Object::new()) }
}

fn read_no(object: &Object) -> Result<RequestNo, String> {
    let no = object.get("no");
    let whole = no.and_then(Json::as_i64).map(RequestNo::from);
    let whole = whole.or_else(|| no.and_then(Json::as_u64).map(RequestNo::from));
    let float = || no.and_then(Json::as_f64).map(|float| float as RequestNo);
    whole.or_else(float).ok_or_else(|| "'no' must be integer".to_owned())
}

/// Writes an answer with its end.
pub fn response(no: RequestNo, result: &Result<Json, String>) -> Vec<u8> {
    let mut out = Vec::new();
    let written = match result {
        Ok(Json::Null) => write!(out, "[1,{{\"no\":{no}}}]"),
        Ok(data) => write!(out, "[1,{{\"no\":{no},\"data\":{data}}}]"),
        Err(error) => write!(out, "[1,{{\"no\":{no},\"error\":{}}}]", Json::from(error)),
    };
    finish(out, written)
}

/// Writes a request with its end.
pub fn request(no: u32, kind: &str, data: Option<&Json>, password: Option<&Secret>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut write = || {
        write!(out, "[0,{{\"no\":{no},\"type\":{}", Json::from(kind))?;
        if let Some(data) = data.filter(|data| data.is_truthy()) {
            write!(out, ",\"data\":{data}")?;
        }
        if let Some(password) = password.and_then(Secret::reveal) {
            write!(out, ",\"password\":{}", Json::from(password))?;
        }
        write!(out, "}}]")
    };
    let written = write();
    finish(out, written)
}

fn finish(mut out: Vec<u8>, written: std::io::Result<()>) -> Vec<u8> {
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    out.push(END);
    out
}
