//! The ini dialect of jobd's configuration. Parsing never fails: lines that make no sense are
//! skipped.

use crate::wire::{Json, Object};

/// A name that the original refuses to set.
const FORBIDDEN: &str = "__proto__";

/// Reads the keys before the first section as values, and sections as objects.
pub(crate) fn parse(text: &str) -> Object {
    let mut file = File { root: Object::new(), section: Section::Root };
    for line in text.split(['\r', '\n']) {
        let start = trim(line).chars().next();
        if line.is_empty() || matches!(start, Some(';' | '#')) {
            continue;
        }
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) if !name.contains(']') => file.open(&decode(name).js_string()),
            _ => file.set(line),
        }
    }
    nest(file.root)
}

struct File {
    root: Object,
    section: Section,
}

/// Where the following keys go.
enum Section {
    Root,
    Named(String),
    Ignored,
}

impl File {
    fn open(&mut self, name: &str) {
        if name == FORBIDDEN {
            self.section = Section::Ignored;
            return;
        }
        match self.root.get(name) {
            // A key already has this name, so there is no section to fill.
            Some(value) if value.is_truthy() && value.as_object().is_none() => {
                self.section = Section::Ignored;
                return;
            }
            Some(Json::Object(_)) => {}
            _ => self.root.insert(name, Object::new()),
        }
        self.section = Section::Named(name.to_owned());
    }

    fn set(&mut self, line: &str) {
        let (key, value) = match line.split_once('=') {
            Some(("", _)) => return,
            Some((key, value)) => (key, typed(decode(value))),
            None => (line, Json::Bool(true)),
        };
        let key = decode(key).js_string();
        let (key, in_array) = match key.strip_suffix("[]") {
            Some(name) if !name.is_empty() => (name, true),
            _ => (key.as_str(), false),
        };
        if key == FORBIDDEN {
            return;
        }
        let Some(section) = self.section() else { return };
        match section.get_mut(key) {
            Some(Json::Array(items)) => items.push(value),
            Some(before) if in_array => *before = Json::Array(vec![std::mem::take(before), value]),
            _ if in_array => section.insert(key, Json::Array(vec![value])),
            _ => section.insert(key, value),
        }
    }

    fn section(&mut self) -> Option<&mut Object> {
        match &self.section {
            Section::Root => Some(&mut self.root),
            Section::Named(name) => match self.root.get_mut(name) {
                Some(Json::Object(object)) => Some(object),
                _ => None,
            },
            Section::Ignored => None,
        }
    }
}

/// Decodes a key, a value or the name of a section: quotes, escapes and comments.
fn decode(text: &str) -> Json {
    let text = trim(text);
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''));
    if let Some(quote) = quote.filter(|quote| text.ends_with(*quote)) {
        let inner = if quote == '"' {
            text
        } else {
            text.strip_prefix(quote).map_or("", |rest| rest.strip_suffix(quote).unwrap_or(""))
        };
        return serde_json::from_str(inner).unwrap_or_else(|_| inner.into());
    }
    let (mut out, mut escaped) = (String::new(), false);
    for char in text.chars() {
        match char {
            _ if escaped => {
                if !matches!(char, '\\' | ';' | '#') {
                    out.push('\\');
                }
                out.push(char);
                escaped = false;
            }
            ';' | '#' => break,
            '\\' => escaped = true,
            _ => out.push(char),
        }
    }
    if escaped {
        out.push('\\');
    }
    trim(&out).into()
}

fn typed(value: Json) -> Json {
    match value.as_str() {
        Some("true") => Json::Bool(true),
        Some("false") => Json::Bool(false),
        Some("null") => Json::Null,
        _ => value,
    }
}

/// Trims white space as JavaScript does, including the byte order mark.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches(|char: char| (char.is_whitespace() && char != '\u{85}') || char == '\u{feff}')
}

/// Moves a section `[a.b]` into the section `[a]`. Keys with dots stay as they are.
fn nest(mut root: Object) -> Object {
    let dotted = |(name, value): (&str, &Json)| {
        (value.as_object().is_some() && name.contains('.')).then(|| name.to_owned())
    };
    let names: Vec<String> = root.iter().filter_map(dotted).collect();
    for name in names {
        let mut parts = split_at_dots(&name);
        let last = parts.pop().unwrap_or_default();
        let Some(section) = root.remove(&name) else { continue };
        if let Some(parent) = descend(&mut root, &parts) {
            parent.insert(last.replace("\\.", "."), section);
        }
    }
    root
}

/// The section at the end of a path; missing ones are created.
fn descend<'a>(parent: &'a mut Object, path: &[String]) -> Option<&'a mut Object> {
    let Some((name, rest)) = path.split_first() else { return Some(parent) };
    if !matches!(parent.get(name), Some(Json::Object(_))) {
        parent.insert(name.as_str(), Object::new());
    }
    match parent.get_mut(name) {
        Some(Json::Object(section)) => descend(section, rest),
        _ => None,
    }
}

/// Splits at every dot without a backslash before it.
fn split_at_dots(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = None;
    for char in name.chars() {
        match parts.last_mut() {
            Some(part) if char != '.' || before == Some('\\') => part.push(char),
            _ => parts.push(String::new()),
        }
        before = Some(char);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Json::from(parse(text)).to_string(), expected, "{text:?}");
    }

    #[test]
    fn lines_end_with_either_character() {
        check("a=1\nb=2\r\nc=3\rd=4\n\n\r\ne=5", r#"{"a":"1","b":"2","c":"3","d":"4","e":"5"}"#);
        check("", "{}");
    }

    #[test]
    fn comments_begin_a_line_or_follow_a_value() {
        check(";a=1\n#b=2\n  ; c=3\n\t# d=4", "{}");
        check("a=1;x\nb=2 # x\nc=\\;\\#\\\\ ; x", r##"{"a":"1","b":"2","c":";#\\"}"##);
        check(r"a=C:\dir\n", r#"{"a":"C:\\dir\\n"}"#);
        check("a=x\\", r#"{"a":"x\\"}"#);
        check("a#b=1", r#"{"a":"1"}"#);
    }

    #[test]
    fn space_around_keys_and_values_is_dropped() {
        check("  a  =  b c  ", r#"{"a":"b c"}"#);
        check("\u{feff}a=1", r#"{"a":"1"}"#);
        check("a\u{a0}=\u{a0}1", r#"{"a":"1"}"#);
    }

    #[test]
    fn quotes_around_all_of_it_go() {
        check(r#"a="x;y#z""#, r#"{"a":"x;y#z"}"#);
        check(r#"a="\u0041\n""#, r#"{"a":"A\n"}"#);
        check("a='x;y'", r#"{"a":"x;y"}"#);
        check(r#"a=" x ""#, r#"{"a":" x "}"#);
        check(r#""a b"=1"#, r#"{"a b":"1"}"#);
        check("a='5'", r#"{"a":5}"#);
        // Not valid JSON: double quotes stay, single quotes go.
        check(r#"a="x"y""#, r#"{"a":"\"x\"y\""}"#);
        check("a='x'y'", r#"{"a":"x'y"}"#);
        check("a=\"\nb='", r#"{"a":"\"","b":""}"#);
    }

    #[test]
    fn quotes_with_a_comment_behind_them_stay() {
        check(r#"a="x" ; y"#, r#"{"a":"\"x\""}"#);
        check(r#"a="x;y" ; z"#, r#"{"a":"\"x"}"#);
    }

    #[test]
    fn some_words_have_a_type() {
        check("a=true\nb=false\nc=null", r#"{"a":true,"b":false,"c":null}"#);
        check("a=\"true\"\nb='false'", r#"{"a":true,"b":false}"#);
        check("a=True\nb=1\nc=", r#"{"a":"True","b":"1","c":""}"#);
    }

    #[test]
    fn a_key_alone_is_true() {
        check("a\n b ", r#"{"a":true,"b":true}"#);
        check("=x", "{}");
    }

    #[test]
    fn brackets_make_arrays() {
        check("a[]=1\na[]=2\na=3", r#"{"a":["1","2","3"]}"#);
        check("a=1\na[]=2", r#"{"a":["1","2"]}"#);
        check("[]=1", r#"{"[]":"1"}"#);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        check("a=1\nb=2\na=3", r#"{"a":"3","b":"2"}"#);
        check("[s]\na=1\n[t]\n[s]\na=2\nb=3", r#"{"s":{"a":"2","b":"3"},"t":{}}"#);
    }

    #[test]
    fn a_section_stands_alone_on_its_line() {
        check("[s]\na=1", r#"{"s":{"a":"1"}}"#);
        check("[s] \na=1", r#"{"[s]":true,"a":"1"}"#);
        check("[s];x\na=1", r#"{"[s]":true,"a":"1"}"#);
        check(" [s]\na=1", r#"{"[s]":true,"a":"1"}"#);
        check("['s;t']\na=1", r#"{"s;t":{"a":"1"}}"#);
        check("s=1\n[s]\na=1", r#"{"s":"1"}"#);
        check("s=\n[s]\na=1", r#"{"s":{"a":"1"}}"#);
    }

    #[test]
    fn keys_with_dots_stay_and_sections_with_dots_nest() {
        check("a.b=1\na.b.c=2", r#"{"a.b":"1","a.b.c":"2"}"#);
        check("[a]\nx=1\n[a.b]\ny=2", r#"{"a":{"x":"1","b":{"y":"2"}}}"#);
        check("[a\\.b]\ny=2", r#"{"a.b":{"y":"2"}}"#);
    }

    #[test]
    fn names_that_look_like_numbers_come_first() {
        check("[t]\nlow=5\n2=1\n1=1", r#"{"t":{"1":"1","2":"1","low":"5"}}"#);
    }

    #[test]
    fn one_name_is_never_set() {
        check("__proto__=1\n[__proto__]\na=1\n[s]\n__proto__[]=1\nb=2", r#"{"s":{"b":"2"}}"#);
    }
}
