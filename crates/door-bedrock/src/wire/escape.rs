//! Backslash escapes in header values: values are unescaped when received, and line breaks are
//! escaped when sent.

use std::borrow::Cow;

/// Unescapes `\n \r \t \b \f \uXXXX`; any other escaped character stands for itself. Two halves of
/// a surrogate pair make one character, an unpaired half becomes U+FFFD. A backslash at the very
/// end and a `\u` without four hexadecimal digits lose only the backslash.
pub(super) fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('\\') {
        return Cow::Borrowed(value);
    }
    let mut plain = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(escaped) = rest.chars().next() else { break };
        rest = &rest[escaped.len_utf8()..];
        match escaped {
            'n' => plain.push('\n'),
            'r' => plain.push('\r'),
            't' => plain.push('\t'),
            'b' => plain.push('\u{8}'),
            'f' => plain.push('\u{c}'),
            'u' => rest = unescape_unicode(rest, &mut plain),
            other => plain.push(other),
        }
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

/// Reads what follows a `\u`; returns the rest.
fn unescape_unicode<'a>(digits: &'a str, plain: &mut String) -> &'a str {
    let Some(unit) = hex4(digits) else {
        plain.push('u');
        return digits;
    };
    let rest = &digits[4..];
    let second = rest.strip_prefix("\\u").and_then(hex4);
    if let Some(low @ 0xdc00..0xe000) = second
        && (0xd800..0xdc00).contains(&unit)
    {
        let code = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        plain.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        return &rest["\\u0000".len()..];
    }
    plain.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
    rest
}

fn hex4(text: &str) -> Option<u32> {
    let digits = text.get(..4)?;
    let only_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    only_digits.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
}

/// Makes a value fit into one line.
pub(super) fn escape(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\r' => out.push_str("\\r"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_escape_is_undone() {
        assert_eq!(unescape(r"a\nb\rc\td\be\ff"), "a\nb\rc\td\u{8}e\u{c}f");
        assert_eq!(unescape(r#"{\\"a\\":\"x\/y\"}"#), r#"{\"a\":"x/y"}"#);
        assert_eq!(unescape(r"\u0041\u00e9\u20AC"), "Aé€");
        assert_eq!(unescape("plain"), "plain");
    }

    #[test]
    fn surrogates_become_one_character_or_a_replacement() {
        assert_eq!(unescape(r"\ud83d\ude00!"), "😀!");
        assert_eq!(unescape(r"\ud83d!"), "\u{fffd}!");
        assert_eq!(unescape(r"\ud83d\u0041"), "\u{fffd}A");
        assert_eq!(unescape(r"\ude00"), "\u{fffd}");
    }

    #[test]
    fn a_broken_escape_loses_its_backslash_only() {
        assert_eq!(unescape(r"a\"), "a");
        assert_eq!(unescape(r"\u12"), "u12");
        assert_eq!(unescape(r"\u+123x"), "u+123x");
        assert_eq!(unescape(r"\u12é4"), "u12é4");
        assert_eq!(unescape(r"\é"), "é");
    }

    #[test]
    fn what_is_escaped_comes_back() {
        let value = "a\r\n\t\\b \u{8} é";
        let mut line = String::new();
        escape(value, &mut line);
        assert!(!line.contains(['\r', '\n', '\t']));
        assert_eq!(unescape(&line), value);
    }
}
