//! The JSON of replies. Bedrock decides by the content of a string: one that looks like a number, a
//! literal, an object or an array is written without quotes.

use serde::de::IgnoredAny;

/// The longest text that can be a float: the largest has 309 digits before the point.
const FLOAT_BYTES_MAX: usize = 1 + 309 + 1 + 6;

/// An object whose keys are written in alphabetical order, ignoring case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object {
    /// Keys, and values that are already JSON.
    entries: Vec<(String, String)>,
}

impl Object {
    pub(crate) fn new() -> Object {
        Object::default()
    }

    /// A text, quoted or not depending on its content.
    pub(crate) fn text(self, key: &str, value: &str) -> Object {
        self.raw(key, text(value))
    }

    pub(crate) fn number(self, key: &str, value: i64) -> Object {
        self.raw(key, value.to_string())
    }

    pub(crate) fn boolean(self, key: &str, value: bool) -> Object {
        self.raw(key, value.to_string())
    }

    /// A value that is already JSON, copied byte for byte.
    pub(crate) fn raw(mut self, key: &str, json: String) -> Object {
        self.entries.push((key.to_owned(), json));
        self
    }

    pub(crate) fn compose(mut self) -> String {
        self.entries.sort_by_cached_key(|(key, _)| key.to_ascii_lowercase());
        let bytes = self.entries.iter().map(|(key, json)| key.len() + json.len() + 4).sum();
        let mut out = String::with_capacity(bytes);
        for (index, (key, json)) in self.entries.iter().enumerate() {
            out.push(if index == 0 { '{' } else { ',' });
            quote(key, &mut out);
            out.push(':');
            out.push_str(json);
        }
        if out.is_empty() {
            out.push('{');
        }
        out.push('}');
        out
    }
}

/// An array of values that are already JSON.
pub(crate) fn array(items: impl IntoIterator<Item = String>) -> String {
    let mut out = String::from("[");
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&item);
    }
    out.push(']');
    out
}

/// A text as a JSON value, quoted or not depending on its content.
pub(crate) fn text(value: &str) -> String {
    if is_integer(value) || is_float(value) || is_json(value) {
        return value.to_owned();
    }
    if let Some(literal) = literal(value) {
        return literal.to_owned();
    }
    let mut out = String::with_capacity(value.len() + 2);
    quote(value, &mut out);
    out
}

/// A text as a JSON string, always.
pub(crate) fn quoted(value: &str) -> String {
    let mut out = String::with_capacity(value.len() + 2);
    quote(value, &mut out);
    out
}

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix('-').unwrap_or(value);
    let canonical = value == "0" || (!digits.starts_with('0') && !digits.starts_with('+'));
    canonical && value.parse::<i64>().is_ok()
}

/// Exactly as C++'s `to_string` writes it: six digits after the point.
fn is_float(value: &str) -> bool {
    if value.len() > FLOAT_BYTES_MAX {
        return false;
    }
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    plain && value.parse::<f64>().is_ok_and(|number| format!("{number:.6}") == value)
}

fn literal(value: &str) -> Option<&'static str> {
    ["true", "false", "null"].into_iter().find(|literal| literal.eq_ignore_ascii_case(value))
}

fn is_json(value: &str) -> bool {
    let object = value.starts_with('{') && value.ends_with('}');
    let array = value.starts_with('[') && value.ends_with(']');
    (object || array) && serde_json::from_str::<IgnoredAny>(value).is_ok()
}

fn quote(value: &str, out: &mut String) {
    out.push('"');
    for character in value.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '/' => out.push_str("\\/"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control.is_ascii_control() => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_out_in_alphabetical_order_whatever_their_case() {
        let object = Object::new()
            .text("name", "a")
            .number("jobID", 7)
            .raw("data", r#"{ "z":1,"A":[ ] }"#.to_owned())
            .boolean("isLeader", true)
            .text("CommitCount", "3")
            .raw("Empty", Object::new().compose());
        let expected = r#"{"CommitCount":3,"data":{ "z":1,"A":[ ] },"Empty":{},"isLeader":true,"#
            .to_owned()
            + r#""jobID":7,"name":"a"}"#;
        assert_eq!(object.compose(), expected);
        assert_eq!(Object::new().compose(), "{}");
    }

    #[test]
    fn a_text_that_looks_like_a_value_is_one() {
        let plain = [
            "123",
            "-5",
            "0",
            "9223372036854775807",
            "-9223372036854775808",
            "1.500000",
            "-0.250000",
            "100000000000000000000.000000",
            "true",
            "false",
            "null",
            "{}",
            "[]",
            r#"{"a":[1, 2]}"#,
            r#"[{"b":"x/y"}]"#,
        ];
        for value in plain {
            assert_eq!(text(value), value);
        }
        assert_eq!(text("NULL"), "null");
        assert_eq!(text("True"), "true");
        assert_eq!(text("fAlSe"), "false");
    }

    #[test]
    fn every_other_text_is_quoted() {
        let quoted = [
            "",
            "1.5",
            "1e5",
            "0.10",
            "007",
            "-0",
            "+1",
            "-",
            "1a",
            " 1",
            "9223372036854775808",
            "nan",
            "inf",
            "1.5000000",
            "nulls",
            "{",
            "{]",
            "[1,]",
            "{'a':1}",
            "{} {}",
            "SCHEDULED, +1 HOUR",
        ];
        for value in quoted {
            assert_eq!(text(value), format!("\"{value}\""));
        }
    }

    #[test]
    fn a_quoted_text_has_bedrocks_escapes() {
        assert_eq!(text("a/b\"c\\d"), r#""a\/b\"c\\d""#);
        assert_eq!(text("\u{8}\u{c}\n\r\t"), r#""\b\f\n\r\t""#);
        assert_eq!(text("\u{0}\u{1f}\u{7f}é"), r#""\u0000\u001f\u007fé""#);
        assert_eq!(quoted("12/3"), r#""12\/3""#);
    }

    #[test]
    fn an_array_takes_its_items_as_they_are() {
        assert_eq!(array(["1".to_owned(), "{}".to_owned()]), "[1,{}]");
        assert_eq!(array([]), "[]");
    }
}
