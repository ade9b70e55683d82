//! The text of a query: its statements, whether they have a WHERE, and messages that point into
//! them. It is split into tokens as SQLite does it, except for some parameters, which queries may
//! not have.

/// One statement of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement<'t> {
    /// Up to its semicolon.
    pub(super) text: &'t str,
    /// It has a WHERE that is not in parentheses, a name, a string or a comment.
    pub(super) has_where: bool,
}

/// The statements of a text, without empty ones.
pub(super) fn statements(text: &str) -> Vec<Statement<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut from, mut at) = (0, 0);
    let (mut says, mut has_where, mut depth) = (false, false, 0_usize);
    while at < bytes.len() {
        let begin = at;
        at = behind_token(bytes, at);
        match bytes[begin] {
            b';' => {
                if says {
                    let text = text[from..at].trim_ascii();
                    found.push(Statement { text, has_where });
                }
                (from, says, has_where, depth) = (at, false, false, 0);
                continue;
            }
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        has_where |= depth == 0 && bytes[begin..at].eq_ignore_ascii_case(b"WHERE");
        says |= !is_silent(bytes, begin);
    }
    if says {
        found.push(Statement { text: text[from..].trim_ascii(), has_where });
    }
    found
}

/// The end of the string, quoted name, comment, word or single character that begins at `at`. It is
/// never inside a character, because everything that ends a token is ASCII.
fn behind_token(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest {
        [quote @ (b'\'' | b'"' | b'`'), inner @ ..] => closed_by(inner, &[*quote]) + 1,
        [b'[', inner @ ..] => closed_by(inner, b"]") + 1,
        [b'-', b'-', inner @ ..] => closed_by(inner, b"\n") + 2,
        [b'/', b'*', inner @ ..] => closed_by(inner, b"*/") + 2,
        _ if rest.starts_with(BYTE_ORDER_MARK) => BYTE_ORDER_MARK.len(),
        _ => rest.iter().take_while(|byte| is_of_word(**byte)).count().max(1),
    };
    at + length
}

/// The number of bytes up to and including the end mark, or all.
fn closed_by(bytes: &[u8], end: &[u8]) -> usize {
    let found = bytes.windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |at| at + end.len())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// Whether white space or a comment begins here.
fn is_silent(bytes: &[u8], at: usize) -> bool {
    let rest = &bytes[at..];
    matches!(rest, [b' ' | b'\t'..=b'\r', ..] | [b'-', b'-', ..] | [b'/', b'*', ..])
        || rest.starts_with(BYTE_ORDER_MARK)
}

/// White space to SQLite, unless it is inside a word.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Characters of a statement that are shown before the position of an error, and in total.
const SHOWN_BEFORE_MAX: usize = 50;
const SHOWN_MAX: usize = 78;
/// From this position on, the words come before the mark.
const WORDS_BEFORE_AT: usize = 25;

/// A message of three lines, as in SQLite's shell: the error, the statement, and a mark under its
/// byte `offset`.
pub(super) fn pointed(message: &str, statement: &str, offset: usize) -> String {
    let before = statement.char_indices().take_while(|(at, _)| *at < offset).count();
    let skipped = before.saturating_sub(SHOWN_BEFORE_MAX);
    let space = |c: char| if c.is_control() { ' ' } else { c };
    let shown: String = statement.chars().skip(skipped).take(SHOWN_MAX).map(space).collect();
    let place = before - skipped;
    let words = "error here ---^";
    let mark = if place < WORDS_BEFORE_AT {
        format!("{:place$}^--- error here", "")
    } else {
        format!("{words:>width$}", width = place + 1)
    };
    format!("{message}\n  {shown}\n  {mark}")
}

/// Where a statement contains a name, in any case; 0 if it does not.
pub(super) fn place_of(name: &str, statement: &str) -> usize {
    place_of_any(&[name], statement).unwrap_or(0)
}

/// Where a statement contains one of these names, in any case.
pub(super) fn place_of_any(names: &[impl AsRef<str>], statement: &str) -> Option<usize> {
    let is_one = |token: &[u8]| names.iter().any(|name| is_name(token, name.as_ref()));
    tokens(statement.as_bytes()).find(|(_, token)| is_one(token)).map(|(at, _)| at)
}

/// Where a statement names the schema, followed by a dot.
pub(super) fn place_of_schema(schema: &str, statement: &str) -> Option<usize> {
    let mut last = None;
    for (at, token) in tokens(statement.as_bytes()) {
        if token == b"." && last.is_some() {
            return last;
        }
        last = is_name(token, schema).then_some(at);
    }
    None
}

/// The tokens except white space and comments, and where they begin.
fn tokens(bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut behind = 0;
    let all = std::iter::from_fn(move || {
        let at = behind;
        (at < bytes.len()).then(|| {
            behind = behind_token(bytes, at);
            (at, &bytes[at..behind])
        })
    });
    all.filter(|(at, _)| !is_silent(bytes, *at))
}

/// Names may be in any case, and in any of SQLite's quotes.
fn is_name(token: &[u8], name: &str) -> bool {
    let bare = match token {
        [b'\'' | b'"' | b'`' | b'[', bare @ .., _] => bare,
        bare => bare,
    };
    !name.is_empty() && bare.eq_ignore_ascii_case(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, bool)]) {
        let found: Vec<_> = statements(text).iter().map(|s| (s.text, s.has_where)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn statements_end_at_semicolons_that_mean_it() {
        check("", &[]);
        check(" ; -- no\n; /* no; */ ;", &[]);
        check("a", &[("a", false)]);
        check("a; b;\nc", &[("a;", false), ("b;", false), ("c", false)]);
        check("'a;''b' ; c", &[("'a;''b' ;", false), ("c", false)]);
        check(r#"";" `;` [;] /* ; */ x; y"#, &[(r#"";" `;` [;] /* ; */ x;"#, false), ("y", false)]);
        check("a -- ;\n b; c", &[("a -- ;\n b;", false), ("c", false)]);
        check("'ä;", &[("'ä;", false)]);
        check("/*;", &[]);
        check("ä; ö", &[("ä;", false), ("ö", false)]);
    }

    #[test]
    fn a_where_is_a_word_of_the_statement_itself() {
        for text in ["DELETE FROM jobs WHERE 1", "a\twhere\nb", "a where(b)", "(a) Where b"] {
            assert!(statements(text)[0].has_where, "{text}");
        }
        let others =
            ["a 'where' b", "a \"where\" b", "a /* where */ b", "a (b where c)", "a nowhere b"];
        for text in others {
            assert!(!statements(text)[0].has_where, "{text}");
        }
        check("a where b; c", &[("a where b;", true), ("c", false)]);
    }

    #[test]
    fn messages_point_at_the_place() {
        let told = pointed("Parse error: x", "SELECT *\nFORM jobs;", 9);
        assert_eq!(told, "Parse error: x\n  SELECT * FORM jobs;\n           ^--- error here");
        let long = format!("SELECT {} FORM jobs;", "ä".repeat(100));
        let told = pointed("m", &long, long.find("FORM").unwrap());
        let lines: Vec<_> = told.lines().collect();
        let mark = lines[2].chars().position(|c| c == '^').unwrap();
        let under: String = lines[1].chars().skip(mark).take(4).collect();
        assert_eq!((lines.len(), under.as_str()), (3, "FORM"));
        assert!(lines[2].ends_with("error here ---^"));
    }

    #[test]
    fn names_are_found_as_words() {
        assert_eq!(place_of("job", "SELECT * FROM jobs, Job"), 20);
        assert_eq!(place_of("job", "SELECT * FROM \"job\""), 14);
        assert_eq!(place_of("none", "SELECT 1"), 0);
        assert_eq!(place_of("", "SELECT ''"), 0);
    }

    #[test]
    fn a_schema_is_named_before_a_dot() {
        let named = [
            "main.a",
            "MAIN . a",
            "\"main\".a",
            "'Main'.a",
            "[main].a",
            "`main`--\n/**/\u{feff}.a",
        ];
        for name in named {
            let text = format!("SELECT * FROM {name}");
            assert_eq!(place_of_schema("main", &text), Some(14), "{text}");
        }
        for text in ["SELECT main FROM jobs", "SELECT 'main.'", "SELECT a.main", "x.a main", "."] {
            assert_eq!(place_of_schema("main", text), None, "{text}");
        }
    }
}
