//! Results: JSON in which values are replaced, without a look at most of its tokens.
//!
//! A token contains a value only if the value is written in it as it is, or if the token is a text
//! with escapes, which can spell the same value in many ways. All else is passed over.

use std::borrow::Cow;

use memchr::{memchr, memmem};

use super::{Mask, Pattern, Search};

impl Mask {
    /// JSON with the values in its texts, names and numbers replaced; everything else stays as it
    /// is written.
    pub(crate) fn json<'a>(&self, json: &'a str) -> Cow<'a, str> {
        let lengths = self.patterns.iter().map(|pattern| pattern.bytes.len());
        let Some(shortest) = lengths.min() else { return json.into() };
        let mut plain = Plain::new(&self.patterns, json.as_bytes());
        if plain.is_nowhere() && !has_escape(json) {
            return json.into();
        }
        let mut search = Search::new(self);
        let mut masked = String::new();
        let (mut at, mut copied) = (0, 0);
        while at < json.len() {
            let end = at + token_bytes(&json[at..]);
            let token = &json[at..end];
            // What is decoded is never longer than it was, without the quotes.
            let is_spelled =
                || token.starts_with('"') && token.len() >= shortest + 2 && has_escape(token);
            if (plain.is_within(at, end) || is_spelled())
                && let Some(replaced) = self.token(token, &mut search)
            {
                masked.push_str(&json[copied..at]);
                masked.push_str(&replaced);
                copied = end;
            }
            at = end;
        }
        if copied == 0 {
            return json.into();
        }
        masked.push_str(&json[copied..]);
        masked.into()
    }

    /// What replaces a token; `None` if it contains no value.
    fn token(&self, token: &str, search: &mut Search) -> Option<String> {
        let text: Cow<'_, str> = match token.as_bytes()[0] {
            b'"' => match serde_json::from_str::<String>(token) {
                Ok(text) => text.into(),
                // Half of a surrogate pair: not a text that contains a value.
                Err(_) => token.into(),
            },
            b'-' | b'0'..=b'9' => token.into(),
            _ => return None,
        };
        let masked = self.replaced(&text, search)?;
        Some(serde_json::Value::from(masked).to_string())
    }
}

fn has_escape(json: &str) -> bool {
    memchr(b'\\', json.as_bytes()).is_some()
}

/// Where values are written as they are. Each is searched for once, from the beginning to the end.
struct Plain<'a> {
    json: &'a [u8],
    values: Vec<Value<'a>>,
    /// Where the next one of all begins.
    nearest: usize,
}

struct Value<'a> {
    finder: memmem::Finder<'a>,
    /// Where it begins next; nowhere if that is `usize::MAX`.
    next: usize,
}

impl<'a> Plain<'a> {
    fn new(patterns: &'a [Pattern], json: &'a [u8]) -> Plain<'a> {
        let value = |pattern: &'a Pattern| {
            let finder = memmem::Finder::new(pattern.bytes.as_slice());
            Value { next: finder.find(json).unwrap_or(usize::MAX), finder }
        };
        let values: Vec<Value<'a>> = patterns.iter().map(value).collect();
        let nearest = values.iter().map(|value| value.next).min().unwrap_or(usize::MAX);
        Plain { json, values, nearest }
    }

    fn is_nowhere(&self) -> bool {
        self.nearest == usize::MAX
    }

    /// Whether a value begins and ends between these places; both only grow from call to call.
    fn is_within(&mut self, start: usize, end: usize) -> bool {
        if end <= self.nearest {
            return false;
        }
        for value in &mut self.values {
            if value.next < start {
                let found = value.finder.find(&self.json[start..]);
                value.next = found.map_or(usize::MAX, |at| start + at);
            }
        }
        self.nearest = self.values.iter().map(|value| value.next).min().unwrap_or(usize::MAX);
        let ends = |value: &Value<'_>| value.next.saturating_add(value.finder.needle().len());
        self.values.iter().any(|value| ends(value) <= end)
    }
}

/// The length of the first token of some JSON: a text with its quotes, a number, or anything up to
/// the next of these.
fn token_bytes(json: &str) -> usize {
    let bytes = json.as_bytes();
    let is_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let starts_number = |byte: &u8| matches!(byte, b'-' | b'0'..=b'9');
    let count = |part: &mut dyn FnMut(&u8) -> bool| {
        bytes.iter().position(|byte| !part(byte)).unwrap_or(bytes.len())
    };
    match bytes[0] {
        b'"' => {
            let mut escaped = false;
            let closes = |byte: &u8| {
                let closes = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                closes
            };
            bytes[1..].iter().position(closes).map_or(bytes.len(), |at| at + 2)
        }
        first if starts_number(&first) => count(&mut |byte| is_number(byte)),
        _ => count(&mut |byte| *byte != b'"' && !starts_number(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::mask;
    use super::*;

    #[test]
    fn results_are_masked_in_texts_names_and_numbers_and_stay_json() {
        let mask = mask(&["12345678", "a\"b\\c", "line\nline", "true"]);
        let masked = |json: &str| mask.json(json).into_owned();
        assert_eq!(masked(r#""12345678""#), r#""***""#);
        assert_eq!(masked("[1, 12345678 ,-912345678.5e3]"), r#"[1, "***" ,"-9***.5e3"]"#);
        assert_eq!(masked(r#"{"a\"b\\c":"x \u0061\"b\\c"}"#), r#"{"***":"x ***"}"#);
        assert_eq!(masked(r#"{"k":"line\nline"}"#), r#"{"k":"***"}"#);
        assert_eq!(masked("true"), "true", "a word of JSON is not a text");
        for json in ["", "null", r#"{"b":1.0e5, "a":"\\\"", "\ud800": [ ]}"#] {
            assert_eq!(masked(json), json);
        }
    }

    /// The same, slowly: every token is decoded and searched.
    fn masked_token_by_token(mask: &Mask, json: &str) -> String {
        let (mut masked, mut rest) = (String::new(), json);
        while !rest.is_empty() {
            let (token, behind) = rest.split_at(token_bytes(rest));
            let replaced = mask.token(token, &mut Search::new(mask));
            masked.push_str(&replaced.unwrap_or_else(|| token.to_owned()));
            rest = behind;
        }
        masked
    }

    #[test]
    fn no_value_is_missed_in_the_tokens_that_are_passed_over() {
        let mask = mask(&["1212", "a12a", "\"12\"", "1,21", "a\na\n", "ä1ä1"]);
        let parts = [
            "1", "2", "12", "a", "ä", ",", "\"", "[", "]", " ", "-", ".", "e", "true", "\\n",
            "\\u0061", "\\u00e4", "\\\"", "\\\\", "\\ud800", "\\u0031",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        let mut changed = 0;
        for _ in 0..50_000 {
            let json: String =
                (0..random.usize(..24)).map(|_| parts[random.usize(..parts.len())]).collect();
            let masked = mask.json(&json);
            assert_eq!(masked, masked_token_by_token(&mask, &json), "{json}");
            changed += usize::from(masked != json);
        }
        assert!(changed > 1_000, "{changed}");
    }

    #[test]
    fn a_result_without_values_is_not_copied() {
        let mask = mask(&["12345678", "hunter2!"]);
        let unchanged = |json: &str| matches!(mask.json(json), Cow::Borrowed(_));
        assert!(unchanged(&format!("[{}]", "1234567,".repeat(1_000))));
        assert!(unchanged(r#"{"hunter2":"\n hunter2","1234567":12345679}"#));
        assert!(unchanged("[12345,678]") && !unchanged("[12345,12345678]"));
    }
}
