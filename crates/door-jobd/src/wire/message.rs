//! Reads and writes one message, with jobd's answers to bad ones.

use serde::Serialize;

use super::check::{self, Field, Kind};
use super::{END, Json, Object};
use crate::password::Password;

/// The peer may use any integer for its requests; ours are from `RequestNumbers`.
pub(crate) type RequestNo = i128;

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

pub(crate) const PING: &[u8] = b"[2]\x04";
pub(crate) const PONG: &[u8] = b"[3]\x04";

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
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
pub(crate) struct Request {
    pub no: RequestNo,
    pub kind: String,
    pub password: Option<Password>,
    /// An empty object if there was none, or something that counts as none.
    pub data: Json,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Response {
    pub no: RequestNo,
    pub result: Result<Json, String>,
}

/// Reads a message without its end. Bytes that are not UTF-8 become replacement characters.
pub(crate) fn parse(bytes: &[u8]) -> Message {
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
        password: object.take_str("password").map(Password::new),
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
pub(crate) fn response(no: RequestNo, result: &Result<Json, String>) -> Vec<u8> {
    let mut out = format!("[1,{{\"no\":{no}").into_bytes();
    match result {
        Ok(Json::Null) => {}
        Ok(data) => put(&mut out, "data", data),
        Err(error) => put(&mut out, "error", error),
    }
    finish(out)
}

/// Writes a request with its end.
pub(crate) fn request(
    no: u32,
    kind: &str,
    data: Option<&Json>,
    password: Option<&Password>,
) -> Vec<u8> {
    let mut out = format!("[0,{{\"no\":{no}").into_bytes();
    put(&mut out, "type", kind);
    if let Some(data) = data.filter(|data| data.is_truthy()) {
        put(&mut out, "data", data);
    }
    if let Some(password) = password.and_then(Password::reveal) {
        put(&mut out, "password", password);
    }
    finish(out)
}

/// Adds a field to an object that has one already.
fn put(out: &mut Vec<u8>, name: &str, value: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(format!(",\"{name}\":").as_bytes());
    let written = serde_json::to_writer(out, value);
    debug_assert!(written.is_ok(), "values of JSON can be written to memory");
}

fn finish(mut out: Vec<u8>) -> Vec<u8> {
    out.extend_from_slice(b"}]");
    out.push(END);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Message {
        parse(text.as_bytes())
    }

    fn malformed(text: &str, error: &str) {
        assert_eq!(read(text), Message::Malformed(error.to_owned()), "{text}");
    }

    fn requested(text: &str) -> Request {
        match read(text) {
            Message::Request(request) => request,
            other => panic!("{text} is {other:?}"),
        }
    }

    fn responded(text: &str) -> Response {
        match read(text) {
            Message::Response(response) => response,
            other => panic!("{text} is {other:?}"),
        }
    }

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_no_array_is_told_as_javascript_writes_it() {
        for (text, form) in [
            ("null", "null"),
            ("5", "5"),
            ("5.0", "5"),
            ("true", "true"),
            (r#""abc""#, "abc"),
            (r#"{"a":1}"#, "[object Object]"),
        ] {
            malformed(text, &format!("JSON array expected, got: {form}"));
        }
    }

    #[test]
    fn only_four_types_exist() {
        for (text, form) in [
            ("[]", "undefined"),
            ("[4]", "4"),
            ("[-1]", "-1"),
            ("[0.5]", "0.5"),
            (r#"["0"]"#, "0"),
            ("[[1,2]]", "1,2"),
            ("[[0]]", "0"),
            ("[null]", "null"),
            ("[true]", "true"),
            ("[{}]", "[object Object]"),
        ] {
            malformed(text, &format!("unexpected type {form}"));
        }
    }

    #[test]
    fn pings_and_pongs_need_nothing_more() {
        for text in ["[2]", r#"[2,{"x":1}]"#, " [ 2 ] ", "[2.0]", "[2,3,4]"] {
            assert_eq!(read(text), Message::Ping, "{text}");
        }
        assert_eq!(read("[3]"), Message::Pong);
    }

    #[test]
    fn bad_requests_are_told_in_the_order_of_their_fields() {
        for (item, error) in [
            ("", "data is not an object"),
            (",null", "data is not an object"),
            (",5", "data is not an object"),
            (r#","x""#, "data is not an object"),
            (",true", "data is not an object"),
            (",[]", "missing required field type"),
            (r#",["type"]"#, "missing required field type"),
            (",{}", "missing required field type"),
            (r#",{"no":"x"}"#, "missing required field type"),
            (r#",{"type":5}"#, "'type' must be string"),
            (r#",{"type":null,"no":"x"}"#, "'type' must be string"),
            (r#",{"type":"x"}"#, "missing required field no"),
            (r#",{"type":"x","no":"1"}"#, "'no' must be integer"),
            (r#",{"type":"x","no":1.5}"#, "'no' must be integer"),
            (r#",{"type":"x","no":null}"#, "'no' must be integer"),
            (r#",{"type":"x","no":true,"password":1}"#, "'no' must be integer"),
            (r#",{"type":"x","no":1,"password":null}"#, "'password' must be string"),
            (r#",{"type":"x","no":1,"password":1,"data":true}"#, "'password' must be string"),
            (
                r#",{"type":"x","no":1,"data":true}"#,
                "'data' must be any of: string, number, object, array",
            ),
            (
                r#",{"type":"x","no":1,"data":false}"#,
                "'data' must be any of: string, number, object, array",
            ),
        ] {
            malformed(&format!("[0{item}]"), &format!("malformed REQUEST message: {error}"));
        }
    }

    #[test]
    fn bad_responses_are_told_in_the_order_of_their_fields() {
        for (item, error) in [
            ("", "data is not an object"),
            (",5", "data is not an object"),
            (",[]", "missing required field no"),
            (r#",{"data":true}"#, "missing required field no"),
            (r#",{"no":"1"}"#, "'no' must be integer"),
            (r#",{"no":1,"error":5}"#, "'error' must be string"),
            (r#",{"no":1,"error":null}"#, "'error' must be string"),
            (r#",{"no":1,"data":true}"#, "'data' must be any of: string, number, object, array"),
        ] {
            malformed(&format!("[1{item}]"), &format!("malformed RESPONSE message: {error}"));
        }
    }

    #[test]
    fn what_is_no_json_is_broken() {
        for text in ["", " ", "[", "{", "[0,{no:1}]", "[2]x", "[2][2]", "'a'", "\u{feff}[2]"] {
            assert_eq!(read(text), Message::Broken, "{text}");
        }
        assert_eq!(read(&"[".repeat(1_000_000)), Message::Broken);
    }

    #[test]
    fn requests_are_read() {
        let text = r#" [ 0, {"type":"poll","no":7,"data":{"targets":["1\/h","é"]}}, 5 ] "#;
        let request = requested(text);
        assert_eq!((request.no, request.kind.as_str()), (7, "poll"));
        assert_eq!(request.password, None);
        assert_eq!(request.data, json(r#"{"targets":["1/h","é"]}"#));
        let request = requested(r#"[0,{"type":"","no":1,"password":"pw"}]"#);
        assert_eq!(request.password, Some(Password::new("pw")));
        assert!(!format!("{request:?}").contains("pw"));
    }

    #[test]
    fn any_integer_is_a_number_of_a_request() {
        for (no, expected) in [
            ("0", 0),
            ("-5", -5),
            ("1.0", 1),
            ("-0", 0),
            ("1e3", 1000),
            ("9223372036854775808", 9_223_372_036_854_775_808),
            ("1e20", 100_000_000_000_000_000_000),
        ] {
            let request = requested(&format!(r#"[0,{{"type":"x","no":{no}}}]"#));
            assert_eq!(request.no, expected, "{no}");
        }
    }

    #[test]
    fn data_that_counts_as_none_is_an_empty_object() {
        for data in ["null", "0", "\"\"", "-0.0"] {
            let request = requested(&format!(r#"[0,{{"type":"x","no":1,"data":{data}}}]"#));
            assert_eq!(request.data, json("{}"), "{data}");
        }
        assert_eq!(requested(r#"[0,{"type":"x","no":1}]"#).data, json("{}"));
        for data in ["\"text\"", "5", "[]", "[1]", "{}"] {
            let request = requested(&format!(r#"[0,{{"type":"x","no":1,"data":{data}}}]"#));
            assert_eq!(request.data, json(data), "{data}");
        }
    }

    #[test]
    fn responses_are_read() {
        for (item, result) in [
            (r#"{"no":1,"data":"ok"}"#, Ok("\"ok\"")),
            (r#"{"no":1,"data":{"b":1,"a":2}}"#, Ok(r#"{"b":1,"a":2}"#)),
            (r#"{"no":1,"data":null}"#, Ok("null")),
            (r#"{"no":1}"#, Ok("null")),
            (r#"{"no":1,"error":""}"#, Ok("null")),
            (r#"{"no":1,"error":"bad","data":5}"#, Err("bad")),
        ] {
            let expected = result.map(json).map_err(str::to_owned);
            let response = responded(&format!("[1,{item}]"));
            assert_eq!(response, Response { no: 1, result: expected }, "{item}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let Message::Request(request) = parse(b"[0,{\"type\":\"a\xffb\",\"no\":1}]") else {
            panic!("not a request");
        };
        assert_eq!(request.kind, "a\u{fffd}b");
    }

    #[test]
    fn answers_are_written_as_clients_expect_them() {
        let write = |no, result: Result<&str, &str>| {
            let result = result.map(json).map_err(str::to_owned);
            String::from_utf8(response(no, &result)).unwrap()
        };
        assert_eq!(write(7, Ok("\"ok\"")), "[1,{\"no\":7,\"data\":\"ok\"}]\x04");
        assert_eq!(write(-7, Ok("{}")), "[1,{\"no\":-7,\"data\":{}}]\x04");
        assert_eq!(write(1, Ok("null")), "[1,{\"no\":1}]\x04");
        assert_eq!(
            write(0, Err("it's \"x\"\n\u{4}é")),
            "[1,{\"no\":0,\"error\":\"it's \\\"x\\\"\\n\\u0004é\"}]\x04"
        );
        assert_eq!(write(1 << 70, Ok("1")), "[1,{\"no\":1180591620717411303424,\"data\":1}]\x04");
        let targets = r#"{"low":{"paused":false},"1/high":{},"7":{}}"#;
        let sorted = r#"{"7":{},"low":{"paused":false},"1/high":{}}"#;
        assert_eq!(write(1, Ok(targets)), format!("[1,{{\"no\":1,\"data\":{sorted}}}]\x04"));
    }

    #[test]
    fn requests_are_written_as_the_original_does() {
        let write = |kind: &str, data: Option<&str>, password: Option<&str>| {
            let (data, password) = (data.map(json), password.map(Password::new));
            let bytes = request(943_230, kind, data.as_ref(), password.as_ref());
            String::from_utf8(bytes).unwrap()
        };
        let status = "[0,{\"no\":943230,\"type\":\"status\"}]\x04";
        assert_eq!(write("status", None, None), status);
        assert_eq!(write("status", Some("null"), None), status);
        assert_eq!(
            write("register-worker", Some(r#"{"name":"w1","targets":["low"]}"#), Some("p\"w")),
            "[0,{\"no\":943230,\"type\":\"register-worker\",\
             \"data\":{\"name\":\"w1\",\"targets\":[\"low\"]},\"password\":\"p\\\"w\"}]\x04"
        );
        assert_eq!(
            write("pause", Some("{}"), None),
            "[0,{\"no\":943230,\"type\":\"pause\",\"data\":{}}]\x04"
        );
        let unmatchable = request(1, "x", None, Some(&Password::NoText));
        assert_eq!(unmatchable, b"[0,{\"no\":1,\"type\":\"x\"}]\x04");
    }
}
