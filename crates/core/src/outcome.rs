//! How an attempt ended: a status number as in HTTP, and its code, which is one of four.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// 100 to 599, as reported by a handler; any other number becomes 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    pub const OK: Status = Status(200);
    pub const RETRY: Status = Status(100);
    pub const FAILED: Status = Status(400);
    pub const ERROR: Status = Status(500);

    pub fn new(number: i64) -> Option<Status> {
        (100..=599).contains(&number).then_some(Status(number as u16))
    }

    pub fn get(self) -> u16 {
        self.0
    }

    pub fn code(self) -> Code {
        match self.0 {
            100..=199 => Code::Retry,
            200..=299 => Code::Ok,
            400..=499 => Code::Failed,
            _ => Code::Error,
        }
    }
}

/// `ok` and `failed` end a job; `retry` and `error` run it again until its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    Ok,
    Failed,
    Retry,
    Error,
}

impl Code {
    pub const ALL: [Code; 4] = [Code::Ok, Code::Failed, Code::Retry, Code::Error];

    pub fn as_str(self) -> &'static str {
        match self {
            Code::Ok => "ok",
            Code::Failed => "failed",
            Code::Retry => "retry",
            Code::Error => "error",
        }
    }

    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// Whether an attempt with this code is the job's last.
    pub fn ends_job(self) -> bool {
        matches!(self, Code::Ok | Code::Failed)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A JSON value as text, which the domain never looks into. It may be large, and is cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    /// The text must be one whole JSON value.
    pub fn parse(text: String) -> Result<Json, serde_json::Error> {
        serde_json::from_str::<&serde_json::value::RawValue>(&text)?;
        Ok(Json(text.into()))
    }

    pub fn string(text: &str) -> Json {
        Json(serde_json::Value::from(text).to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The content of a string, and the JSON text of any other value. A string with half a
    /// surrogate pair, which is not valid text, stays JSON too.
    pub fn to_bytes(&self) -> Bytes {
        match serde_json::from_str::<String>(&self.0) {
            Ok(text) => text.into(),
            Err(_) => Bytes::copy_from_slice(self.0.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores and clients have these names.
    #[test]
    fn codes_have_names_and_two_of_them_end_a_job() {
        let names = ["ok", "failed", "retry", "error"];
        assert_eq!(Code::ALL.map(|code| code.to_string()), names);
        assert_eq!(names.map(Code::from_name), Code::ALL.map(Some));
        assert_eq!(Code::from_name("OK"), None);
        assert_eq!(Code::ALL.map(Code::ends_job), [true, true, false, false]);
    }

    #[test]
    fn a_result_is_kept_as_it_was_written() {
        let text = r#"{"b": 1.50, "a": [ ]}"#;
        assert_eq!(Json::parse(text.to_owned()).unwrap().as_str(), text);
        for text in ["", "{", "1 2"] {
            assert!(Json::parse(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn s0_32_a_status_falls_into_one_of_four_codes() {
        let cases = [(100, Code::Retry), (199, Code::Retry), (200, Code::Ok), (299, Code::Ok)];
        let more = [(300, Code::Error), (399, Code::Error), (400, Code::Failed)];
        for (number, code) in cases.into_iter().chain(more).chain([(500, Code::Error)]) {
            let status = Status::new(number).unwrap();
            assert_eq!((i64::from(status.get()), status.code()), (number, code));
        }
        for number in [-1, 0, 99, 600, 70_000] {
            assert_eq!(Status::new(number), None, "{number}");
        }
    }
}
