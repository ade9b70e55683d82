//! The text of a question: its statements, whether they have a WHERE, and messages that point into
//! them.

/// One statement of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Statement<'t> {
    /// Up to its semicolon.
    pub(super) text: &'t str,
    /// It has a WHERE that is not in parentheses, a name, a string or a comment.
    pub(super) has_where: bool,
}

/// The statements of a text, without those that say nothing.
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

/// Where the string, quoted name, comment, word or single character ends that begins at `at`. It
/// ends between characters, because all that it looks for is ASCII.
fn behind_token(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest {
        [quote @ (b'\'' | b'"' | b'`'), inner @ ..] => closed_by(inner, &[*quote]) + 1,
        [b'[', inner @ ..] => closed_by(inner, b"]") + 1,
        [b'-', b'-', inner @ ..] => closed_by(inner, b"\n") + 2,
        [b'/', b'*', inner @ ..] => closed_by(inner, b"*/") + 2,
        _ => rest.iter().take_while(|byte| is_of_word(**byte)).count().max(1),
    };
    at + length
}

/// How many bytes it is to behind the end mark, or to the end of all.
fn closed_by(bytes: &[u8], end: &[u8]) -> usize {
    let found = bytes.windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |at| at + end.len())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// A space or a comment.
fn is_silent(bytes: &[u8], at: usize) -> bool {
    matches!(&bytes[at..], [b' ' | b'\t'..=b'\r', ..] | [b'-', b'-', ..] | [b'/', b'*', ..])
}

/// Characters of a statement that are shown before the place of an error, and in all.
const SHOWN_BEFORE_MAX: usize = 50;
const SHOWN_MAX: usize = 78;
/// From this place on, the words stand before the mark.
const WORDS_BEFORE_AT: usize = 25;

/// A message of three lines, as SQLite's shell writes it: what is wrong, the statement, and a mark
/// under the byte `offset` of it.
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

/// Where a name stands in a statement, in whatever case; at its beginning if it does not.
pub(super) fn place_of(name: &str, statement: &str) -> usize {
    let (name, bytes) = (name.as_bytes(), statement.as_bytes());
    if name.is_empty() {
        return 0;
    }
    let mut at = 0;
    while at < bytes.len() {
        let behind = behind_token(bytes, at);
        let token = &bytes[at..behind];
        let inner = token.get(1..token.len() - 1).unwrap_or_default();
        if token.eq_ignore_ascii_case(name) || inner.eq_ignore_ascii_case(name) {
            return at;
        }
        at = behind;
    }
    0
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
}
