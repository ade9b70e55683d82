//! A plugin's response file as text and as JSON. Neither invalid UTF-8 nor unpaired surrogates lose
//! a result: both become U+FFFD.

use serde_json::{Map, Value};

use super::outcome::{PluginAnswer, Reply};

/// The replacement character, escaped.
const UNKNOWN: &str = "\\ufffd";

pub(crate) fn read(bytes: Vec<u8>) -> PluginAnswer {
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let map = parse(&text).or_else(|| with_whole_characters(&text).and_then(|text| parse(&text)));
    map.map_or_else(|| PluginAnswer::NotJson(text), |map| PluginAnswer::Reply(Reply::new(map)))
}

/// The same JSON without unpaired `\ud800` to `\udfff`; `None` if there are none.
fn with_whole_characters(text: &str) -> Option<String> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    let mut changed = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        whole.push_str(before);
        let half = |text: &str, kinds: &[u8]| is_half(text.as_bytes(), kinds);
        let (kept, length) = if half(escape, HIGH) && half(&escape[6..], LOW) {
            (&escape[..12], 12)
        } else if half(escape, HIGH) || half(escape, LOW) {
            changed = true;
            (UNKNOWN, 6)
        } else {
            // An escape has at least two characters; the digits after `\u` need no special care.
            let length = escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at);
            (&escape[..length], length)
        };
        whole.push_str(kept);
        rest = &escape[length..];
    }
    whole.push_str(rest);
    changed.then_some(whole)
}

/// The second hexadecimal digit of the first and of the second half of a pair.
const HIGH: &[u8] = b"89abAB";
const LOW: &[u8] = b"cdefCDEF";

fn is_half(text: &[u8], kinds: &[u8]) -> bool {
    matches!(text, [b'\\', b'u', b'd' | b'D', kind, one, other, ..]
        if kinds.contains(kind) && one.is_ascii_hexdigit() && other.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(value: &Value) -> PluginAnswer {
        PluginAnswer::Reply(Reply::new(value.as_object().unwrap().clone()))
    }

    #[test]
    fn a_response_is_an_object() {
        let read = |text: &str| read(text.as_bytes().to_vec());
        assert_eq!(read(r#" {"status": 1, "x": 2} "#), reply(&json!({"status": 1})));
        for text in ["", "text", "[]", "null", "1", "\"a\"", "{", "{} {}", r#"{"status":1e999}"#] {
            assert_eq!(read(text), PluginAnswer::NotJson(text.into()), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let bytes = b"{\"status\":1,\"stdout\":\"a\xffb\"}".to_vec();
        assert_eq!(read(bytes), reply(&json!({"status": 1, "stdout": "a\u{fffd}b"})));
        assert_eq!(read(b"\xfe".to_vec()), PluginAnswer::NotJson("\u{fffd}".into()));
    }

    #[test]
    fn halves_of_characters_are_replaced() {
        for (written, expected) in [
            (r"\udc80", "\u{fffd}"),
            (r"a\uD800b", "a\u{fffd}b"),
            (r"\ud83d\ude00\ud83d", "\u{1f600}\u{fffd}"),
            (r"\ud800\ud83d\ude00", "\u{fffd}\u{1f600}"),
            // An escaped backslash, followed by letters.
            (r"\\ud800 \ud800", "\\ud800 \u{fffd}"),
            (r"\n\u00e4\udfff", "\n\u{e4}\u{fffd}"),
        ] {
            let text = format!(r#"{{"status":1,"stdout":"{written}"}}"#);
            assert_eq!(
                read(text.into_bytes()),
                reply(&json!({"status": 1, "stdout": expected})),
                "{written}"
            );
        }
        for cut in ["{\"a\":\"\\", "{\"a\":\"\\ud8", "\\ud800"] {
            assert_eq!(read(cut.as_bytes().to_vec()), PluginAnswer::NotJson(cut.into()));
        }
    }
}
