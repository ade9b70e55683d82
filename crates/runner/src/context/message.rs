//! The messages on the channel of a context; docs/contexts.md describes them.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::nonce::Nonce;

pub(super) const PROTOCOL: u32 = 1;

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Request<'a> {
    Hello { protocol: u32, mark: &'a str, result_bytes_max: usize },
    Load(Load<'a>),
    Run { handler: u32, mark: bool, jobs: Vec<RunJob<'a>> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Load<'a> {
    pub(super) handler: u32,
    pub(super) tenant: &'a str,
    pub(super) r#type: &'a str,
    pub(super) body: &'a str,
    pub(super) before: Option<&'a str>,
    pub(super) before_each: Option<&'a str>,
    pub(super) after_each: Option<&'a str>,
    /// Only compile.
    pub(super) check: bool,
}

#[derive(Serialize)]
pub(super) struct RunJob<'a> {
    pub(super) id: String,
    /// Repeated by the bootstrap wherever it speaks for this job.
    pub(super) nonce: Nonce,
    pub(super) attempt: u32,
    pub(super) priority: u16,
    pub(super) created_at: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) children: bool,
    #[serde(flatten)]
    pub(super) payload: RunPayload<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum RunPayload<'a> {
    Text { payload: &'a str },
    Bytes { payload_base64: String },
    File { payload_file: &'a str, payload_text: bool },
}

/// An answer of a context. One struct for all kinds: required fields are checked where they are
/// used, and unknown ones are ignored.
#[derive(Deserialize)]
pub(super) struct ContextAnswer<'a> {
    pub(super) kind: Kind,
    pub(super) protocol: Option<u32>,
    pub(super) us: Option<u64>,
    pub(super) stage: Option<Stage>,
    #[serde(borrow)]
    pub(super) field: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) message: Option<Cow<'a, str>>,
    pub(super) stream: Option<StreamName>,
    #[serde(borrow)]
    pub(super) text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) payload: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) payload_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) options: Option<&'a RawValue>,
    pub(super) percent: Option<f64>,
    #[serde(borrow)]
    pub(super) nonce: Option<Cow<'a, str>>,
    pub(super) status: Option<i64>,
    /// `null` is also a result.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<Cow<'a, str>>,
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Ready,
    Loaded,
    Failed,
    Begun,
    Output,
    Emit,
    Progress,
    End,
    Halted,
    Done,
}

/// Which of a handler's sources failed.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    #[serde(rename = "load")]
    Load,
    #[serde(rename = "before")]
    Before,
    #[serde(rename = "beforeEach")]
    BeforeEach,
    #[serde(rename = "afterEach")]
    AfterEach,
}

impl Stage {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Stage::Load => "load",
            Stage::Before => "before",
            Stage::BeforeEach => "beforeEach",
            Stage::AfterEach => "afterEach",
        }
    }
}

#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum StreamName {
    Stdout,
    Stderr,
}

impl<'a> ContextAnswer<'a> {
    pub(super) fn parse(frame: &'a [u8]) -> Option<ContextAnswer<'a>> {
        serde_json::from_slice(frame).ok()
    }

    pub(super) fn us(&self) -> std::time::Duration {
        std::time::Duration::from_micros(self.us.unwrap_or_default())
    }
}

fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_null_is_told_from_none() {
        let data = |text: &'static str| ContextAnswer::parse(text.as_bytes()).unwrap().data;
        assert!(data(r#"{"kind":"end","status":200}"#).is_none());
        assert_eq!(data(r#"{"kind":"end","data":null}"#).unwrap().get(), "null");
        assert_eq!(data(r#"{"kind":"end","data":1.50}"#).unwrap().get(), "1.50");
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for text in ["", "[]", "{}", r#"{"kind":"other"}"#, r#"{"kind":"end","us":-1}"#, "{\"k"] {
            assert!(ContextAnswer::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn requests_have_the_names_of_their_description() {
        let load = Load {
            handler: 1,
            tenant: "a",
            r#type: "t",
            body: "b",
            before: None,
            before_each: Some("e"),
            after_each: None,
            check: false,
        };
        let text = serde_json::to_string(&Request::Load(load)).unwrap();
        let start = r#"{"kind":"load","handler":1,"tenant":"a","type":"t","body":"b","#;
        let end = r#""before":null,"beforeEach":"e","afterEach":null,"check":false}"#;
        assert_eq!(text, format!("{start}{end}"));
        let payload = RunPayload::Text { payload: "x" };
        let job = RunJob {
            id: "7".into(),
            nonce: Nonce::of(&[7; 8]),
            attempt: 1,
            priority: 500,
            created_at: "now".into(),
            children: false,
            payload,
        };
        let text = serde_json::to_string(&Request::Run { handler: 1, mark: true, jobs: vec![job] });
        let start = r#"{"kind":"run","handler":1,"mark":true,"jobs":[{"id":"7","#;
        let nonce = r#""nonce":"0707070707070707","attempt":1,"#;
        let end = r#""priority":500,"created_at":"now","payload":"x"}]}"#;
        assert_eq!(text.unwrap(), format!("{start}{nonce}{end}"));
    }
}
