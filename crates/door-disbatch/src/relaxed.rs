//! Relaxed JSON as in Disbatch's files: comments from `#` to the end of the line, a trailing comma
//! after the last entry, and tabs inside strings. These are blanked out first, so that errors have
//! the lines and columns of the file.

use serde_json::Value;

/// Why a text is not relaxed JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {why}")]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    /// In bytes, from 1.
    pub(crate) column: usize,
    pub(crate) why: String,
}

pub(crate) fn parse(text: &str) -> Result<Value, SyntaxError> {
    let strict = Strict::of(text);
    serde_json::from_str(&strict.text).map_err(|error| {
        let said = error.to_string();
        // Our own fields give the position.
        let why = said.rsplit_once(" at line ").map_or(said.as_str(), |(why, _)| why);
        let (line, column) = (error.line(), error.column());
        let column = column - strict.tabs_before(line, column);
        SyntaxError { line, column, why: why.to_owned() }
    })
}

/// The same text as strict JSON, with everything at the same position, except behind tabs in
/// strings: they are a byte longer.
struct Strict {
    text: String,
    /// Where they are.
    tabs: Vec<usize>,
}

impl Strict {
    fn of(text: &str) -> Strict {
        let mut tabs = Vec::new();
        let text = strict(text, &mut tabs);
        Strict { text, tabs }
    }

    /// The tabs of a line that end before a column.
    fn tabs_before(&self, line: usize, column: usize) -> usize {
        let lines = self.text.split_inclusive('\n').take(line.saturating_sub(1));
        let start: usize = lines.map(str::len).sum();
        let is_before = |tab: &&usize| (start..start + column).contains(&(**tab + 1));
        self.tabs.iter().filter(is_before).count()
    }
}

fn strict(text: &str, tabs: &mut Vec<usize>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = Preceding::Opening;
    let mut comma = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '#' => skip_comment(&mut characters, &mut out),
            '"' => {
                copy_string(&mut characters, &mut out, tabs);
                (before, comma) = (Preceding::Value, None);
            }
            ',' => {
                comma = (before == Preceding::Value).then_some(out.len());
                before = Preceding::Opening;
                out.push(',');
            }
            ']' | '}' => {
                if let Some(place) = comma.take() {
                    out.replace_range(place..=place, " ");
                }
                before = Preceding::Value;
                out.push(character);
            }
            space if space.is_ascii_whitespace() => out.push(space),
            other => {
                comma = None;
                let opens = matches!(other, '[' | '{' | ':');
                before = if opens { Preceding::Opening } else { Preceding::Value };
                out.push(other);
            }
        }
    }
    out
}

/// What precedes a position, as far as it matters for a comma there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preceding {
    /// A bracket, a colon, another comma, or nothing: a comma here is an error.
    Opening,
    Value,
}

fn skip_comment(characters: &mut std::str::Chars<'_>, out: &mut String) {
    out.push(' ');
    for character in characters.by_ref() {
        if character == '\n' {
            out.push('\n');
            return;
        }
        // Keeps the byte count.
        out.extend(std::iter::repeat_n(' ', character.len_utf8()));
    }
}

/// Copies a string up to its closing quote; the opening quote has already been read.
fn copy_string(characters: &mut std::str::Chars<'_>, out: &mut String, tabs: &mut Vec<usize>) {
    out.push('"');
    while let Some(character) = characters.next() {
        match character {
            '\t' => {
                tabs.push(out.len());
                out.push_str("\\t");
            }
            '\\' => {
                out.push('\\');
                out.extend(characters.next());
            }
            other => out.push(other),
        }
        if character == '"' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strict_json_stays_what_it_is() {
        let text = r##"{"a": [1, 2.5, -3e2, null, true, "x # y, ]", "\"#\\"], "é": {}, "b": []}"##;
        assert_eq!(Strict::of(text).text, text);
        assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn comments_trailing_commas_and_tabs_are_read() {
        let text = "# first, [\n{ # ü \"\n \"a\": [1, 2, # two\n ], \n\
                    \"t\":\"x\ty\", \"o\": {\"b\":1,},\n}\n#";
        assert_eq!(parse(text).unwrap(), json!({"a": [1, 2], "t": "x\ty", "o": {"b": 1}}));
    }

    #[test]
    fn only_one_comma_behind_a_value_may_be_too_many() {
        for text in ["[,]", "[1,,]", "{,}", "{\"a\":,}", "[1],", ",", "{\"a\":1,,}", "[# c\n,]"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_tells_where_it_is() {
        for (text, line, column) in [
            ("{\n  # ä comment\n  \"a\": 1\n  \"b\": 2\n}", 4, 3),
            ("{\"a\": tru}", 1, 10),
            ("", 1, 0),
            ("{\"a\": 1,}}", 1, 10),
            ("{\"a\": \"never ended", 1, 18),
            ("{\"a\": \"never\tended", 1, 18),
            ("{\"\t\": \"\t\t\",\n\"a\": \"\t\" x \"\t\"", 2, 10),
        ] {
            let mistake = parse(text).unwrap_err();
            assert_eq!((mistake.line, mistake.column), (line, column), "{text}: {mistake}");
            assert!(!mistake.why.contains(" at line "), "{mistake}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let text = "[".repeat(100_000);
        assert!(parse(&text).unwrap_err().why.contains("recursion limit"));
    }
}
