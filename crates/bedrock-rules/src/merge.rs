//! Small edits of JSON text that leave the rest as it was written: the order of keys, numbers and
//! escapes. Only white space is removed. Equivalent to SQLite's JSON functions.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// Maximum nesting depth; SQLite parses nothing deeper.
pub const DEPTH_MAX: usize = 1000;

/// Whether the text is one complete JSON object, with nothing but white space around it.
pub fn is_object(text: &str) -> bool {
    is_valid(text) && text.trim_start().starts_with('{')
}

/// Applies the merge patch (RFC 7396) to `old`. `None` if one of them is not JSON.
pub fn merge_patch(old: &str, patch: &str) -> Option<String> {
    (is_valid(old) && is_valid(patch)).then_some(())?;
    let (old, patch) = (Reader::tree(old), Reader::tree(patch));
    let mut text = String::new();
    merged(old, patch).write(&mut text);
    Some(text)
}

/// The value of an object's key, as written. Of duplicate keys, the first counts.
pub fn json_get_top<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let member = members(text)?.into_iter().find(|member| member.is(key))?;
    Some(member.value)
}

/// Replaces the value of a key, or appends it. A text that is not an object is returned unchanged.
pub fn json_set_top(text: &str, key: &str, value: &str) -> String {
    let Some(mut members) = members(text) else {
        return text.into();
    };
    let quoted = serde_json::Value::from(key).to_string();
    match members.iter_mut().find(|member| member.is(key)) {
        Some(member) => member.value = value,
        None => members.push(Member { key: &quoted, value }),
    }
    object_text(&members)
}

/// Removes a key. A text that is not an object is returned unchanged.
pub fn json_remove_top(text: &str, key: &str) -> String {
    let Some(mut members) = members(text) else {
        return text.into();
    };
    members.retain(|member| !member.is(key));
    object_text(&members)
}

fn is_valid(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok() && depth(text) <= DEPTH_MAX
}

fn depth(text: &str) -> usize {
    let mut reader = Reader { text, at: 0 };
    let (mut depth, mut deepest) = (0usize, 0);
    while let Some(byte) = reader.peek() {
        match byte {
            b'"' => reader.string(),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
                reader.at += 1;
            }
            b'}' | b']' => {
                depth -= 1;
                reader.at += 1;
            }
            _ => reader.at += 1,
        }
    }
    deepest
}

/// A key with its quotes and a value, both as written.
pub(crate) struct Member<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

impl Member<'_> {
    fn is(&self, key: &str) -> bool {
        unquoted(self.key) == key
    }
}

/// `None` if the text is not an object.
pub(crate) fn members(text: &str) -> Option<Vec<Member<'_>>> {
    if !is_object(text) {
        return None;
    }
    let mut members = Vec::new();
    Reader { text, at: 0 }.object(|reader, key| {
        let value = reader.value();
        members.push(Member { key, value });
    });
    Some(members)
}

fn object_text(members: &[Member<'_>]) -> String {
    let mut text = String::from("{");
    for (n, member) in members.iter().enumerate() {
        if n > 0 {
            text.push(',');
        }
        text.push_str(member.key);
        text.push(':');
        write_minified(member.value, &mut text);
    }
    text.push('}');
    text
}

/// A value with parsed objects; everything else stays text.
enum Tree<'a> {
    Object(Vec<(&'a str, Tree<'a>)>),
    Other(&'a str),
}

/// Applies `patch` to `old`. The depth of both is bounded, so the recursion is, too.
fn merged<'a>(old: Tree<'a>, patch: Tree<'a>) -> Tree<'a> {
    let Tree::Object(changes) = patch else {
        return patch;
    };
    let members = match old {
        Tree::Object(members) => members,
        Tree::Other(_) => Vec::new(),
    };
    // Index the keys, since both objects may have very many. In reverse, because the first of
    // duplicate keys counts.
    let numbered = members.iter().enumerate().rev();
    let mut places: HashMap<_, _> = numbered.map(|(n, (key, _))| (unquoted(key), n)).collect();
    let mut values: Vec<_> = members.into_iter().map(Some).collect();
    for (key, change) in changes {
        let place = places.get(&unquoted(key)).copied();
        match (change, place) {
            (Tree::Other("null"), None) => {}
            (Tree::Other("null"), Some(place)) => {
                values[place] = None;
                places.remove(&unquoted(key));
            }
            (change, Some(place)) => {
                if let Some((old_key, old)) = values[place].take() {
                    values[place] = Some((old_key, merged(old, change)));
                }
            }
            (change, None) => {
                // New values lose their nulls, too.
                places.insert(unquoted(key), values.len());
                values.push(Some((key, merged(Tree::Other("null"), change))));
            }
        }
    }
    Tree::Object(values.into_iter().flatten().collect())
}

impl Tree<'_> {
    fn write(&self, text: &mut String) {
        match self {
            Tree::Other(value) => write_minified(value, text),
            Tree::Object(members) => {
                text.push('{');
                for (n, (key, value)) in members.iter().enumerate() {
                    if n > 0 {
                        text.push(',');
                    }
                    text.push_str(key);
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }
}

/// Unescapes a JSON string. One with an unpaired surrogate stays quoted.
pub(crate) fn unquoted(string: &str) -> Cow<'_, str> {
    let inner = string.strip_prefix('"').and_then(|inner| inner.strip_suffix('"'));
    match inner {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        _ => match serde_json::from_str(string) {
            Ok(text) => Cow::Owned(text),
            Err(_) => Cow::Borrowed(string),
        },
    }
}

fn write_minified(value: &str, text: &mut String) {
    let mut reader = Reader { text: value, at: 0 };
    while let Some(byte) = reader.peek() {
        let start = reader.at;
        if byte == b'"' {
            reader.string();
        } else {
            reader.at += 1;
        }
        text.push_str(&value[start..reader.at]);
    }
}

/// Reads a text that is known to be valid.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn tree(text: &'a str) -> Tree<'a> {
        Reader { text, at: 0 }.value_tree()
    }

    fn value_tree(&mut self) -> Tree<'a> {
        if self.peek() != Some(b'{') {
            return Tree::Other(self.value());
        }
        let mut members = Vec::new();
        self.object(|reader, key| members.push((key, reader.value_tree())));
        Tree::Object(members)
    }

    /// Calls `member` with each key; `member` must read the value.
    fn object(&mut self, mut member: impl FnMut(&mut Reader<'a>, &'a str)) {
        self.peek();
        self.at += 1;
        while self.peek() == Some(b'"') {
            let start = self.at;
            self.string();
            let key = &self.text[start..self.at];
            self.peek();
            self.at += 1;
            member(self, key);
            if self.peek() == Some(b',') {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    fn value(&mut self) -> &'a str {
        self.peek();
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'"' => {
                    self.string();
                    if depth == 0 {
                        break;
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        break;
                    }
                }
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => break,
                _ => {}
            }
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// A string including its quotes.
    fn string(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += 1;
            match byte {
                b'\\' => self.at += 1,
                b'"' => break,
                _ => {}
            }
        }
    }

    /// The next byte that is not white space, without consuming it.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let space = rest.iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
        self.at += space;
        rest.get(space).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth)
    }

    #[test]
    fn patches_do_what_the_rfc_says() {
        // The examples of appendix A.
        for (old, patch, merged) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merge_patch(old, patch).as_deref(), Some(merged), "{old} {patch}");
        }
    }

    #[test]
    fn a_patch_keeps_the_order_and_the_words_of_what_it_does_not_touch() {
        let old = "{ \"z\" : 1.50, \"\\u0061\" : [ 1 , { } ], \"m\":\"x \\\" y\" , \"n\":-0e1}";
        let patch = r#" {"b": {"x": null, "y": [ null ]}, "a": null, "z": 12345678901234567890} "#;
        let merged = r#"{"z":12345678901234567890,"m":"x \" y","n":-0e1,"b":{"y":[null]}}"#;
        assert_eq!(merge_patch(old, patch).as_deref(), Some(merged));
    }

    #[test]
    fn what_is_not_json_is_not_merged() {
        for bad in ["", "{", "{\"a\":}", "{} x", "{'a':1}", "{\"a\":1,}", "nul", "\"\n\""] {
            assert_eq!(merge_patch("{}", bad), None, "{bad}");
            assert_eq!(merge_patch(bad, "{}"), None, "{bad}");
            assert!(!is_object(bad), "{bad}");
        }
        for other in ["[]", "1", "null", "\"{}\"", "[{}]"] {
            assert!(!is_object(other), "{other}");
        }
        for object in ["{}", " { } ", "{\"a\":1}", "{\"a\":\"]}\"}\n"] {
            assert!(is_object(object), "{object}");
        }
    }

    #[test]
    fn nesting_has_a_bound() {
        let deep = nested(DEPTH_MAX);
        assert!(is_object(&deep));
        assert_eq!(merge_patch(&deep, &deep).as_deref(), Some(deep.as_str()));
        for deeper in [nested(DEPTH_MAX + 1), nested(200_000)] {
            assert!(!is_object(&deeper));
            assert_eq!(merge_patch("{}", &deeper), None);
            assert_eq!(json_get_top(&deeper, "a"), None);
        }
    }

    #[test]
    fn a_key_is_found_by_its_meaning() {
        let text = r#"{"x":{"a":1}, "\u0061" : [1, 2] ,"a":3,"\ud800":4}"#;
        assert_eq!(json_get_top(text, "a"), Some("[1, 2]"));
        assert_eq!(json_get_top(text, "x"), Some(r#"{"a":1}"#));
        assert_eq!(json_get_top(text, "1"), None);
        assert_eq!(json_get_top("[1]", "a"), None);
        assert_eq!(json_get_top("{\"a\":1", "a"), None);
    }

    #[test]
    fn a_value_is_replaced_where_it_is_or_comes_last() {
        let text = r#"{"b": 1, "a": {"c": 2}, "d": "e"}"#;
        assert_eq!(json_set_top(text, "a", "3"), r#"{"b":1,"a":3,"d":"e"}"#);
        assert_eq!(json_set_top(text, "c", "[ 3 ]"), r#"{"b":1,"a":{"c":2},"d":"e","c":[3]}"#);
        assert_eq!(json_set_top("{}", "a \"b\"", "1"), r#"{"a \"b\"":1}"#);
        assert_eq!(json_set_top("{ }", "n", "null"), r#"{"n":null}"#);
        assert_eq!(json_set_top("[1, 2]", "n", "null"), "[1, 2]");
        assert_eq!(json_set_top("{", "n", "null"), "{");
    }

    #[test]
    fn a_key_is_removed_and_the_rest_stays() {
        let text = r#"{"b": 1, "a": {"b": 2}, "d": "e"}"#;
        assert_eq!(json_remove_top(text, "b"), r#"{"a":{"b":2},"d":"e"}"#);
        assert_eq!(json_remove_top(text, "x"), r#"{"b":1,"a":{"b":2},"d":"e"}"#);
        assert_eq!(json_remove_top("{\"b\":1}", "b"), "{}");
        assert_eq!(json_remove_top(" [ ] ", "b"), " [ ] ");
    }
}
